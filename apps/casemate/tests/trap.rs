//! `start_action = trap` with the default values of `local_addrs` and `local_ts`: nothing leaves in
//! clear, and the first packet initiates the tunnel.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use serde_json::Value;
use std::net::IpAddr;
use testnet::{Host, Side, TestNet};

const SECRETS: &str = "secrets { ike { secret = \"a secret of the two\" } }\n";

/// A configuration with one connection `t` and its child `c`, with additional lines for each.
fn conf(side: Side, connection: &str, child: &str) -> String {
    format!(
        "connections {{ t {{\n remote_addrs = {}\n local {{ auth = psk }}\n remote {{ auth = psk }}\n\
         {connection}\n children {{ c {{\n {child}\n }} }} }} }}\n{SECRETS}",
        side.other().outer(true)
    )
}

fn children(status: &Value) -> usize {
    let sas = status["ike_sas"].as_array().unwrap();
    sas.iter().map(|sa| sa["children"].as_array().unwrap().len()).sum()
}

fn reload(host: &Host, conf: &str) {
    std::fs::write(host.file("conf"), conf).unwrap();
    let output = host.casemate(&["reload"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn trap_between_two_hosts() {
    let Some(net) = TestNet::build("trap_between_two_hosts") else { return };
    let peer = Side::Right.outer(true);
    let trap = |action: &str| conf(Side::Left, "", &format!("mode = transport\n start_action = {action}"));
    let left = net.left.run_config(&trap("none"), None);
    assert!(net.left.pings(peer, 8), "no policy protects it");
    for action in ["trap", "trap|start"] {
        reload(&net.left, &trap(action));
        assert!(!net.left.pings_at_once(peer, 8), "{}", left.log());
    }
    assert!(left.stop().success());
    let left = net.left.run_config(&trap("trap"), None);
    assert!(!net.left.pings_at_once(peer, 8), "{}", left.log());
    assert!(left.stop().success());
    let right = net.right.run_config(&conf(Side::Right, "", "mode = transport"), None);
    let left = net.left.run_config(&trap("trap"), None);
    assert_eq!(children(&net.left.status()), 0, "nothing without a packet");
    assert!(net.left.pings_first_time(peer, 8), "the first packet is kept: {}", left.log());
    let status = net.left.status();
    assert_eq!((children(&status), &status["drops"]["no-outbound-sa"]), (1, &Value::from(0)), "{status}");
    assert!(net.left.pings(peer, 8), "{}", left.log());
    assert!(left.stop().success() && right.stop().success());
}

/// The destination of a packet is the peer, and each peer has SAs of its own.
#[test]
fn trap_for_any_peer() {
    let Some(net) = TestNet::build("trap_for_any_peer") else { return };
    let any = |action: &str| {
        // The host has several addresses.
        let own = if action == "trap" { "local_addrs = 192.0.2.1" } else { "" };
        let conf = conf(Side::Left, own, &format!("mode = transport\n start_action = {action}"));
        conf.replace(&Side::Right.outer(true).to_string(), "%any")
    };
    net.right.stdout_of("ip", &["addr", "add", "192.0.2.3/24", "dev", testnet::WIRE]);
    let (peers, silent) = ([[192, 0, 2, 2].into(), [192, 0, 2, 3].into()], [192, 0, 2, 9].into());
    let right = net.right.run_config(&any("none"), None);
    let left = net.left.run_config(&any("trap"), None);
    for _ in 0..2 {
        assert_eq!(children(&net.left.status()), 0, "nothing without a packet");
        assert!(!net.left.pings_at_once(silent, 8), "there is no such host");
        for peer in peers {
            assert!(net.left.pings_first_time(peer, 8), "the first packet to {peer} is kept: {}", left.log());
            assert!(net.left.pings(peer, 8), "{}", left.log());
        }
        let status = net.left.status();
        let remote =
            |sa: &Value| (children(&serde_json::json!({"ike_sas": [sa]})) == 1).then(|| sa["remote"].clone());
        let mut remotes: Vec<Value> =
            status["ike_sas"].as_array().unwrap().iter().filter_map(remote).collect();
        remotes.sort_by_key(ToString::to_string);
        assert_eq!(remotes, ["192.0.2.2:4500", "192.0.2.3:4500"], "{status:#}");
        assert!(net.left.casemate(&["terminate", "t"]).status.success());
        net.left.wait_until(|status| children(status) == 0);
    }
    assert!(left.stop().success() && right.stop().success());
}

#[test]
fn trap_follows_an_address_change() {
    let Some(net) = TestNet::build("trap_follows_an_address_change") else { return };
    let peer = Side::Right.outer(true);
    let left = net.left.run_config(&conf(Side::Left, "", "mode = transport\n start_action = trap"), None);
    assert!(!net.left.pings_at_once(peer, 8), "{}", left.log());
    net.left
        .stdout_of("ip", &["addr", "del", &format!("{}/24", Side::Left.outer(true)), "dev", testnet::WIRE]);
    net.left.stdout_of("ip", &["addr", "add", "192.0.2.77/24", "dev", testnet::WIRE]);
    let policies = || net.left.status()["policies"].to_string();
    net.left.wait_until(|status| status["policies"].to_string().contains("192.0.2.77"));
    assert!(!net.left.pings_at_once(peer, 8), "{}: {}", policies(), left.log());
    assert!(left.stop().success());
}

#[test]
fn trap_of_a_road_warrior() {
    let Some(net) = TestNet::build("trap_of_a_road_warrior") else { return };
    let (peer, inner) = (Side::Right.outer(true), Side::Right.inner(true));
    net.left.stdout_of("ip", &["route", "add", &inner.to_string(), "via", &peer.to_string()]);
    assert!(net.left.pings(inner, 8), "in clear, before");
    let trap = format!("remote_ts = {inner}/32\n start_action = trap");
    let left = net.left.run_config(&conf(Side::Left, "vips = 0.0.0.0", &trap), None);
    assert!(!net.left.pings_at_once(inner, 8), "{}", left.log());
    assert!(net.left.pings(peer, 8), "no policy protects it");
    assert!(left.stop().success());
    let pools = conf(Side::Right, "pools = p", &format!("local_ts = {inner}/32"))
        + "pools { p { addrs = 10.66.0.0/24 } }\n";
    let right = net.right.run_config(&pools, None);
    let left = net.left.run_config(&conf(Side::Left, "vips = 0.0.0.0", &trap), None);
    for _ in 0..2 {
        assert!(!net.left.pings_at_once(inner, 8), "the first packet is not sent");
        net.left.wait_until(|status| children(status) == 1);
        assert!(net.left.pings(inner, 8), "{}", left.log());
        // The virtual address is removed with the IKE SA; nothing may leave from another address.
        assert!(net.right.casemate(&["terminate", "t"]).status.success());
        net.left.wait_until(|status| children(status) == 0);
    }
    assert!(left.stop().success() && right.stop().success());
}

/// Without its last IPv4 address, the interface would have no IPv4 routes any more.
#[test]
fn another_tunnel_and_the_trap_work_after_the_virtual_addresses_have_gone() {
    let test = "another_tunnel_and_the_trap_work_after_the_virtual_addresses_have_gone";
    let Some(net) = TestNet::build(test) else { return };
    let (home, other): (IpAddr, IpAddr) = (Side::Right.inner(true), [10, 2, 0, 2].into());
    net.right.stdout_of("ip", &["address", "add", &format!("{other}/32"), "dev", "lo"]);
    let connection = |side: Side, name: &str, keys: &str, child: &str| {
        format!(
            "{name} {{\n local_addrs = {}\n remote_addrs = {}\n {keys}\n\
             local {{ auth = psk\n id = {side:?}-{name} }}\n\
             remote {{ auth = psk\n id = {:?}-{name} }}\n children {{ c {{\n {child}\n }} }} }}\n",
            side.outer(true),
            side.other().outer(true),
            side.other()
        )
    };
    let conf = |home: String, other: String| format!("connections {{ {home}{other} }}\n{SECRETS}");
    let pools = conf(
        connection(Side::Right, "home", "pools = p", &format!("local_ts = {home}/32")),
        connection(Side::Right, "other", "", &format!("local_ts = {other}/32")),
    ) + "pools { p { addrs = 10.66.0.0/24 } }\n";
    let right = net.right.run_config(&pools, None);
    let clients = conf(
        connection(
            Side::Left,
            "home",
            "vips = 0.0.0.0",
            &format!("remote_ts = {home}/32\n start_action = trap"),
        ),
        connection(Side::Left, "other", "", &format!("remote_ts = {other}/32\n start_action = start")),
    );
    let left = net.left.run_config(&clients, None);
    net.left.wait_until(|status| children(status) == 1);
    assert!(net.left.pings(other, 8), "{}", left.log());
    for _ in 0..2 {
        assert!(!net.left.pings_at_once(home, 8), "the first packet is not sent");
        net.left.wait_until(|status| children(status) == 2);
        assert!(net.left.pings(home, 8) && net.left.pings(other, 8), "{}", left.log());
        assert!(net.left.casemate(&["terminate", "home"]).status.success());
        net.left.wait_until(|status| children(status) == 1);
        assert!(net.left.pings_first_time(other, 8), "the route of the other tunnel: {}", left.log());
    }
    assert!(left.stop().success() && right.stop().success());
}
