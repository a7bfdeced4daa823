//! OCSP responses in IKE (RFC 4806): the left host sends its own, the right one requests and requires it.

use crate::ca::Ca;
use crate::charon::Charon;
use crate::server::{Answer, Server};
use crate::testnet::{Host, Running, Side, TestNet, eventually};
use crate::{LOOPBACK, OCSP, STRICT, authority, conf, connects, for_charon, run};
use std::path::{Path, PathBuf};

/// The configuration of a host with `ocsp`.
fn with_ocsp(conf: &str, ocsp: &str) -> String {
    conf.replace("ocsp = never", &format!("ocsp = {ocsp}"))
}

/// Runs the left host, whose CA has the server as its responder.
fn start_left(host: &Host, ca: &Ca, server: &Server, ocsp: &str) -> Running {
    let uris = authority(&OCSP.replace("SERVER", &server.addr.to_string()));
    run(host, ca, "left", &with_ocsp(&conf(Side::Left, "", &uris), ocsp))
}

/// The right host has no responder of its own, so that only the peer's response helps.
#[test]
fn responses_are_fetched_in_advance_and_sent_if_requested() {
    let Some(net) = TestNet::build("revocation_stapled") else { return };
    let Some(ca) = Ca::new(net.right.file("ca"), "") else { return };
    let server = Server::start(&net.left, LOOPBACK, &ca, Answer::ocsp("good"));
    let left = start_left(&net.left, &ca, &server, "reply");
    eventually("the request in advance", || server.take_requests() == ["POST / HTTP/1.1"]);
    assert!(net.left.casemate(&["reload"]).status.success());
    let request = with_ocsp(&conf(Side::Right, STRICT, ""), "request");
    let right = run(&net.right, &ca, "right", &request);
    // In both roles.
    for (from, to) in [(&net.left, &net.right), (&net.right, &net.left)] {
        eventually("a connection", || connects(from, to));
    }
    // The status of the right host, once; its own response is fresh.
    assert_eq!(server.take_requests().len(), 1, "{}", left.log());
    right.stop();
    // Without a request there is no response.
    let right = run(&net.right, &ca, "right", &with_ocsp(&conf(Side::Right, STRICT, ""), "reply"));
    assert!(!connects(&net.left, &net.right) && !connects(&net.right, &net.left), "{}", right.log());
    right.stop();
    // Nor from a host that sends none.
    left.stop();
    let left = start_left(&net.left, &ca, &server, "request");
    let right = run(&net.right, &ca, "right", &request);
    assert!(!connects(&net.left, &net.right), "{}{}", left.log(), right.log());
}

/// A response that says that this host is revoked is not sent, and a failure is logged once.
#[test]
fn a_host_learns_that_it_has_no_response_to_send() {
    for (answer, reason) in [
        (Answer::ocsp("revoked"), "the certificate of this host is revoked: CN=left"),
        (Answer::Status("404 Not Found"), "no OCSP response for CN=left can be sent: OCSP http://127"),
    ] {
        let Some(net) = TestNet::build("revocation_stapled_fault") else { return };
        let Some(ca) = Ca::new(net.right.file("ca"), "") else { return };
        let server = Server::start(&net.left, LOOPBACK, &ca, answer);
        let left = start_left(&net.left, &ca, &server, "both");
        eventually(reason, || left.log().contains(reason));
        let right = run(&net.right, &ca, "right", &with_ocsp(&conf(Side::Right, STRICT, ""), "request"));
        assert!(!connects(&net.left, &net.right), "{}", right.log());
        assert_eq!(left.log().matches(reason).count(), 1);
    }
}

/// charon 5.9.8 neither requests nor sends responses, and ignores a request.
#[test]
fn charon_ignores_a_request_for_responses() {
    let Some(net) = TestNet::build("revocation_stapled_charon") else { return };
    let Some(ca) = Ca::new(net.right.file("ca"), "") else { return };
    let right = run(&net.right, &ca, "right", &with_ocsp(&conf(Side::Right, "", ""), "both"));
    let Some(charon) = Charon::start(&net.left, "") else { return };
    ca.install("left", &charon.swanctl.directory, &for_charon(&conf(Side::Left, "", "")));
    charon.swanctl.output(&["--load-all", "--noprompt"]);
    let initiate = || charon.swanctl.run(&["--initiate", "--child", "c", "--timeout", "20"]).status.success();
    assert!(initiate(), "{}\n---\n{}", charon.log(), right.log());
    assert!(net.left.pings(Side::Right.inner(true), 8), "{}", right.log());
}

/// The root directory with strongSwan 6, which `cargo xtask scenarios --debian trixie` makes.
fn strongswan_6() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_BIN_EXE_casemate")).ancestors().nth(2)?;
    let root = target.join("interop/debian/trixie/root");
    if !root.join("usr/sbin/charon-systemd").is_file() {
        casemate_test_support::skip("strongSwan 6 (`cargo xtask scenarios --debian trixie` unpacks it)");
        return None;
    }
    Some(root)
}

/// Plugins of strongSwan 6, whose plugin `openssl` has the algorithms.
const PLUGINS_6: &str = "random nonce pem pkcs1 pkcs8 x509 revocation pubkey constraints openssl curl \
                         kernel-libipsec kernel-netlink socket-default vici";

/// Both directions: charon requires a response, and sends one.
#[test]
fn strongswan_6_takes_and_sends_responses() {
    let Some(root) = strongswan_6() else { return };
    let Some(net) = TestNet::build("revocation_stapled_6") else { return };
    let Some(ca) = Ca::new(net.right.file("ca"), "") else { return };
    for is_sender in [false, true] {
        let (ours, theirs) = if is_sender { (&net.right, &net.left) } else { (&net.left, &net.right) };
        let sender = if is_sender { theirs } else { ours };
        let server = Server::start(sender, LOOPBACK, &ca, Answer::ocsp("good"));
        let uris = authority(&OCSP.replace("SERVER", &server.addr.to_string()));
        let reply = with_ocsp(&conf(Side::Left, "", &uris), "reply");
        let request = with_ocsp(&conf(Side::Right, STRICT, ""), "request");
        let (own, peer, own_conf, peer_conf) = match is_sender {
            false => ("left", "right", &reply, &request),
            true => ("right", "left", &request, &reply),
        };
        let instance = run(ours, &ca, own, own_conf);
        if !is_sender {
            eventually("the request in advance", || !server.take_requests().is_empty());
        }
        let Some(charon) = Charon::start_in(theirs, &root, PLUGINS_6) else { return };
        ca.install(peer, &charon.swanctl.directory, peer_conf);
        charon.swanctl.output(&["--load-all", "--noprompt"]);
        let logs = || format!("{}\n---\n{}", charon.log(), instance.log());
        eventually("a connection", || ours.casemate(&["initiate", "c"]).status.success());
        assert!(ours.pings(theirs.side.inner(true), 8), "{}", logs());
        if !is_sender {
            assert!(charon.log().contains("received OCSP response"), "{}", logs());
        }
        instance.stop();
    }
}
