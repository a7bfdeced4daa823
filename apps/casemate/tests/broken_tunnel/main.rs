//! Ways to break a tunnel (docs/manual/troubleshooting.md): the output that a user reads names the cause.
//!
//! Each test breaks one thing between two hosts in network namespaces, and then reads only the log and
//! `casemate why`. The left host initiates.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod certificates;
mod eap;
mod negotiation;
mod network;
mod pki;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../testnet/mod.rs"]
mod testnet;
mod tunnel;

use std::time::Duration;
use testnet::{Side, TestNet};
use tunnel::{BrokenTunnel, set};

/// The second repetition of a request, with its hint, follows after three seconds.
const SECOND_REPETITION: Duration = Duration::from_secs(4);

#[test]
fn advice_about_a_refused_identity_is_not_a_ping() {
    let tunnel = BrokenTunnel::start("advice_about_a_refused_identity_is_not_a_ping", |left, right| {
        set(&mut left.child, "start_action", "trap");
        set(&mut right.secret, "secret", "\"another secret\"");
    });
    let Some(tunnel) = tunnel else { return };
    assert!(!tunnel.net.left.pings_at_once(Side::Right.inner(true), 8));
    tunnel.why_names_eventually(Side::Left, "refused by the peer: AUTHENTICATION_FAILED");
    tunnel.net.left.wait_until(|status| status["connections"][0]["state"] == "trapped");
    let why = tunnel.why(Side::Left);
    let advice: Vec<&str> =
        why.split("\nTry:\n").nth(1).unwrap().split("\n\n").next().unwrap().lines().collect();
    assert!(advice[0].contains("compare local.id here with remote.id on the peer"), "{why}");
    assert!(advice[1].contains("compare the secrets"), "{why}");
    assert!(!advice.iter().any(|line| line.contains("ping")), "{why}");
    // The host that refused: its advice begins with the secret.
    let why = tunnel.why(Side::Right);
    let advice = why.split("\nTry:\n  - ").nth(1).unwrap();
    assert!(advice.starts_with("use the same `secret`"), "{why}");
}

#[test]
fn an_error_is_past_when_the_connection_is_up() {
    let Some(net) = TestNet::build("an_error_is_past_when_the_connection_is_up") else { return };
    let mut tunnel = BrokenTunnel::start_left_on(net, |_| {});
    tunnel.log_names(Side::Left, &["sent again, 2 of 6"], SECOND_REPETITION);
    let error = |tunnel: &BrokenTunnel| tunnel.net.left.status()["connections"][0]["last_error"].clone();
    assert_eq!(error(&tunnel)["is_past"], false, "{}", error(&tunnel));
    tunnel.start_right(|_| {});
    tunnel.net.left.wait_until(|status| status["connections"][0]["state"] == "up");
    assert_eq!(error(&tunnel)["is_past"], true, "{}", error(&tunnel));
    let shown = tunnel.net.left.stdout_of(env!("CARGO_BIN_EXE_casemate"), &["status"]);
    assert!(shown.contains(" ago, over: IKE_SA_INIT request"), "{shown}");
    tunnel.why_names(Side::Left, &["gw: up", "an earlier error is over: "]);
    assert!(!tunnel.why(Side::Left).contains("is the peer reachable"), "{}", tunnel.why(Side::Left));
}

#[test]
fn a_tunnel_that_the_peer_has_closed_names_close_action() {
    let tunnel = BrokenTunnel::start("a_tunnel_that_the_peer_has_closed", |_, _| {});
    let Some(tunnel) = tunnel else { return };
    tunnel.net.left.wait_until(|status| status["connections"][0]["state"] == "up");
    assert!(tunnel.net.right.casemate(&["terminate", "gw"]).status.success());
    tunnel.net.left.wait_until(|status| status["connections"][0]["state"] == "down");
    let cause = "the last IKE SA has ended, 0 s ago: closed by the peer";
    tunnel
        .why_names(Side::Left, &["no further attempt is planned", cause, "close_action = start in a child"]);
    // The host that closed it does not start it by itself either.
    let why = tunnel.why(Side::Right);
    assert!(why.contains("the last IKE SA has ended") && !why.contains("close_action"), "{why}");
}

#[test]
fn a_user_is_disconnected_by_the_eap_identity() {
    let tunnel = BrokenTunnel::start("a_user_is_disconnected_by_the_eap_identity", eap::use_eap);
    let Some(tunnel) = tunnel else { return };
    tunnel.net.left.wait_until(|status| status["connections"][0]["state"] == "up");
    let terminate = |name| tunnel.net.right.casemate(&["terminate", name]).status.code();
    assert_eq!(terminate("dave"), Some(1));
    assert_eq!(tunnel.net.right.status()["ike_sas"][0]["eap_identity"], "carol");
    assert_eq!(terminate("carol"), Some(0));
    tunnel.net.right.wait_until(|status| status["ike_sas"] == serde_json::json!([]));
}
