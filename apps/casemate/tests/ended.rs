//! `casemate run` on two hosts when SAs end: the effects of `close_action`, and virtual addresses that
//! persist during reauthentication.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use serde_json::Value;
use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};
use testnet::{Host, Side, TUN, TestNet};

const SECRETS: &str = "secrets { ike { secret = \"a secret of the two\" } }\n";

/// A configuration with one connection `t` and its child `c`, with additional lines for each.
fn conf(side: Side, connection: &str, child: &str) -> String {
    format!(
        "connections {{ t {{\n remote_addrs = {}\n local_addrs = {}\n local {{ auth = psk }}\n remote {{ auth = psk }}\n\
         {connection}\n children {{ c {{\n {child}\n }} }} }} }}\n{SECRETS}",
        side.other().outer(true),
        side.outer(true)
    )
}

fn children(status: &Value) -> usize {
    let sas = status["ike_sas"].as_array().unwrap();
    sas.iter().map(|sa| sa["children"].as_array().unwrap().len()).sum()
}

fn run_ok(host: &Host, args: &[&str]) {
    let output = host.casemate(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn close_action_trap_blocks_traffic_until_the_next_packet_initiates() {
    let Some(net) = TestNet::build("close_action_trap_blocks_traffic_until_the_next_packet_initiates") else {
        return;
    };
    let right = net.right.run_config(&conf(Side::Right, "", "mode = transport"), None);
    let trap = "mode = transport\n start_action = start\n close_action = trap";
    let left = net.left.run_config(&conf(Side::Left, "", trap), None);
    net.left.wait_until(|status| children(status) == 1);
    for _ in 0..2 {
        run_ok(&net.right, &["terminate", "c"]);
        net.left.wait_until(|status| children(status) == 0);
        // No cleartext leaves: the packet initiates the Child SA and waits for it.
        let before = net.left.status()["sas"].as_array().map(Vec::len);
        assert_eq!(before, Some(0));
        assert!(net.left.pings_first_time(Side::Right.outer(true), 8), "{}", left.log());
        assert_eq!(net.left.status()["sas"][0]["packets"], 1, "{}", net.left.status());
        assert!(net.left.pings(Side::Right.outer(true), 8), "{}", left.log());
    }
    assert!(left.stop().success() && right.stop().success());
}

#[test]
fn one_ike_sa_of_a_connection_is_terminated_by_its_number() {
    let Some(net) = TestNet::build("one_ike_sa_of_a_connection_is_terminated_by_its_number") else { return };
    let right = net.right.run_config(&conf(Side::Right, "", "mode = transport"), None);
    let left = net.left.run_config(&conf(Side::Left, "", "mode = transport\n start_action = start"), None);
    net.left.wait_until(|status| children(status) == 1);
    let name = |status: &Value| format!("t[{}]", status["ike_sas"][0]["id"].as_str().unwrap());
    let first = name(&net.left.status());
    for wrong in ["t[99]", "t[]", "t[x]", "[1]"] {
        assert!(!net.left.casemate(&["terminate", wrong]).status.success(), "{wrong}");
        assert_eq!(children(&net.left.status()), 1, "{wrong}");
    }
    run_ok(&net.left, &["terminate", &first]);
    assert_eq!(net.left.status()["ike_sas"], Value::Array(vec![]), "{}", left.log());
    run_ok(&net.left, &["initiate", "c"]);
    assert_ne!(name(&net.left.status()), first);
    assert!(!net.left.casemate(&["terminate", &first]).status.success(), "this IKE SA is gone");
    assert_eq!(children(&net.left.status()), 1);
    assert!(left.stop().success() && right.stop().success());
}

#[test]
fn pending_retries_are_shown_and_can_be_cancelled() {
    let Some(net) = TestNet::build("pending_retries_are_shown_and_can_be_cancelled") else { return };
    let right = net.right.run_config(&conf(Side::Right, "", "mode = transport"), None);
    let start = "mode = transport\n start_action = start\n close_action = start";
    let left = net.left.run_config(&conf(Side::Left, "", start), None);
    for name in ["c", "t/c", "t"] {
        // On a busy machine the pause of two seconds may end before the check. The next pause is longer.
        let is_caught = (0..4).any(|_| {
            net.left.wait_until(|status| children(status) == 1);
            run_ok(&net.right, &["terminate", "t"]);
            let is_waiting = net.left.status()["ike_waiting"][0]["child"] == "c";
            let shown = String::from_utf8(net.left.casemate(&["status"]).stdout).unwrap();
            is_waiting && shown.contains("Pending retries") && shown.contains("t/c")
        });
        assert!(is_caught, "{}", left.log());
        run_ok(&net.left, &["terminate", name]);
        let status = net.left.status();
        assert_eq!((&status["ike_waiting"], children(&status)), (&Value::Array(vec![]), 0), "{name}");
        assert!(!net.left.casemate(&["terminate", name]).status.success(), "nothing is left to terminate");
        // Longer than the pause.
        thread::sleep(Duration::from_secs(5));
        assert_eq!(children(&net.left.status()), 0, "{name}: {}", left.log());
        run_ok(&net.left, &["initiate", "c"]);
    }
    assert!(left.stop().success() && right.stop().success());
}

/// Two connections between the same hosts, each with a child of the same name.
fn two_connections(side: Side) -> String {
    let name = |connection: &str, side: Side| format!("{connection}-{side:?}.test").to_lowercase();
    let one = |connection: &str, v4: bool| {
        let length = if v4 { 32 } else { 128 };
        format!(
            "{connection} {{\n local_addrs = {}\n remote_addrs = {}\n local {{ auth = psk\n id = {} }}\n \
             remote {{ auth = psk\n id = {} }}\n children {{ nets {{\n local_ts = {}/{length}\n \
             remote_ts = {}/{length}\n }} }} }}\n",
            side.outer(true),
            side.other().outer(true),
            name(connection, side),
            name(connection, side.other()),
            side.inner(v4),
            side.other().inner(v4),
        )
    };
    format!("connections {{\n{}{}}}\n{SECRETS}", one("a", true), one("b", false))
}

/// The inbound SPIs of the Child SAs of a connection.
fn spis(host: &Host, connection: &str) -> Vec<String> {
    let status = host.status();
    let sas = status["ike_sas"].as_array().unwrap().iter().filter(|sa| sa["name"] == connection);
    let children = sas.flat_map(|sa| sa["children"].as_array().unwrap());
    children.map(|child| child["spi_in"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn child_is_selected_by_connection_and_name() {
    let Some(net) = TestNet::build("child_is_selected_by_connection_and_name") else { return };
    let [left, right] =
        [&net.left, &net.right].map(|host| host.run_config(&two_connections(host.side), None));
    for name in ["a/nets", "b/nets"] {
        run_ok(&net.left, &["initiate", name]);
    }
    let shown = String::from_utf8(net.left.casemate(&["status"]).stdout).unwrap();
    assert!(shown.contains("a/nets") && shown.contains("b/nets"), "{shown}");
    assert!(left.log().contains("a/nets{"), "{}", left.log());
    let (a, b) = (spis(&net.left, "a"), spis(&net.left, "b"));
    assert_eq!((a.len(), b.len()), (1, 1));
    run_ok(&net.left, &["rekey", "b/nets"]);
    net.left.wait_until(|_| {
        let now = spis(&net.left, "b");
        now.len() == 1 && now != b
    });
    assert_eq!(spis(&net.left, "a"), a);
    let b = spis(&net.left, "b");
    run_ok(&net.left, &["terminate", "a/nets"]);
    assert_eq!((spis(&net.left, "a"), spis(&net.left, "b")), (vec![], b));
    for command in ["terminate", "rekey"] {
        assert!(
            !net.left.casemate(&[command, "a/nets"]).status.success(),
            "{command}: the Child SA was closed"
        );
    }
    assert!(left.stop().success() && right.stop().success());
}

/// The address stays on the interface, and there is always a Child SA.
#[test]
fn virtual_address_stays_during_reauthentication() {
    let Some(net) = TestNet::build("virtual_address_stays_during_reauthentication") else { return };
    let inner = Side::Right.inner(true);
    let pools = conf(Side::Right, "pools = p", &format!("local_ts = {inner}/32"))
        + "pools { p { addrs = 10.66.0.0/24 } }\n";
    let right = net.right.run_config(&pools, None);
    let client = conf(
        Side::Left,
        "vips = 0.0.0.0\n reauth_time = 4s\n rand_time = 0s",
        &format!("remote_ts = {inner}/32\n start_action = start"),
    );
    let left = net.left.run_config(&client, None);
    net.left.wait_until(|status| children(status) == 1);
    let addrs = || net.left.stdout_of("ip", &["-o", "-4", "addr", "show", "dev", TUN]);
    let vip = net.left.status()["ike_sas"][0]["vips"][0].as_str().unwrap().to_owned();
    assert!(vip.parse::<IpAddr>().is_ok() && addrs().contains(&vip));
    let ups = || left.log().matches("established with").count();
    let start = Instant::now();
    while ups() < 4 {
        assert!(start.elapsed() < Duration::from_secs(40), "{}", left.log());
        assert!(addrs().contains(&vip), "{}", left.log());
        assert!(children(&net.left.status()) >= 1, "{}", left.log());
        assert!(net.left.pings_first_time(inner, 8), "{}", left.log());
        thread::sleep(Duration::from_millis(50));
    }
    assert!(!left.log().contains("were removed"), "{}", left.log());
    assert!(left.stop().success() && right.stop().success());
}
