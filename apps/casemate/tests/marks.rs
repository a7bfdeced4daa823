//! Two networks with the same addresses: marks lead packets into the tunnel before NAT gives them the
//! addresses of its policies, and an updown script knows one interface for both directions.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod charon;
#[allow(dead_code, reason = "other tests use the rest")]
mod swanctl;
#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use casemate_test_support::{TempDir, write_program};
use std::fs::{self, Permissions};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;
use testnet::{Host, Side, TestNet, eventually};

/// A connection with these traffic selectors and keys of its child.
fn conf(side: Side, local: &str, remote: &str, child: &str) -> String {
    format!(
        "connections {{ t {{\n local_addrs = {}\n remote_addrs = {}\n\
         local {{ auth = psk\n id = {side:?} }}\n\
         remote {{ auth = psk\n id = {:?} }}\n\
         children {{ t {{ local_ts = {local}\n remote_ts = {remote}\n {child} }} }} }} }}\n\
         secrets {{ ike {{ secret = \"a secret of the two\" }} }}\n",
        side.outer(true),
        side.other().outer(true),
        side.other(),
    )
}

/// The script of the right host, whose address is 10.2.0.1. The left host has the same network, so that each
/// side sees the other side under an address of 10.4 or 10.8.
const SCRIPT: &str = r#"#!/bin/sh
case "$PLUTO_VERB" in
up-client)
    nft -f - <<RULES
table ip same {
    chain marks { type route hook output priority mangle; ip daddr 10.8.0.1 meta mark set $PLUTO_MARK_OUT_VALUE; }
    chain far { type nat hook output priority -100; ip daddr 10.8.0.1 dnat to 10.1.0.1; }
    chain own {
        type nat hook postrouting priority 100;
        oifname "$PLUTO_INTERFACE" meta mark $PLUTO_MARK_OUT_VALUE snat to 10.4.0.1;
    }
    chain arriving {
        type nat hook prerouting priority -100;
        iifname "$PLUTO_INTERFACE" meta mark $PLUTO_MARK_IN_VALUE ip daddr 10.4.0.1 dnat to 10.2.0.1;
    }
    chain arrived { type nat hook input priority 100; iifname "$PLUTO_INTERFACE" snat to 10.8.0.1; }
}
RULES
    ;;
down-client) nft delete table ip same ;;
esac
"#;

/// The script, in a directory where its user can read it.
fn script(directory: &TempDir) -> String {
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    let path = directory.file("script");
    let text = SCRIPT.replace("_OUT_VALUE", "_OUT%/*").replace("_IN_VALUE", "_IN%/*");
    let text = text.replace("$PLUTO_MARK_OUT%/*", "${PLUTO_MARK_OUT%/*}");
    write_program(&path, text.replace("$PLUTO_MARK_IN%/*", "${PLUTO_MARK_IN%/*}").as_bytes());
    path.display().to_string()
}

fn rules(host: &Host) -> String {
    host.stdout_of("ip", &["rule"])
}

/// Each side reaches the other side, whose real addresses no policy contains.
#[test]
fn the_same_networks_on_both_sides() {
    let Some(net) = TestNet::build("marks_same_nets") else { return };
    let directory = TempDir::new("marks-script").unwrap();
    let marks = "mark_in = 8\n set_mark_in = %same\n mark_out = 4";
    let child = format!("{marks}\n updown = {}", script(&directory));
    let right = net.right.run_config(&conf(Side::Right, "10.4.0.0/16", "10.1.0.0/16", &child), None);
    let left = net.left.run_config(&conf(Side::Left, "10.1.0.0/16", "10.4.0.0/16", ""), None);
    let both = || format!("{}{}", left.log(), right.log());
    // Routes before the marks are set, and with the inner addresses as sources.
    net.right.stdout_of("ip", &["route", "add", "10.8.0.0/16", "via", "192.0.2.1", "src", "10.2.0.1"]);
    net.left.stdout_of("ip", &["route", "replace", "10.4.0.0/16", "via", "192.0.2.2", "src", "10.1.0.1"]);
    let output = net.left.casemate(&["initiate", "t"]);
    assert!(output.status.success(), "{}", both());
    eventually("the script has run", || net.right.filter().contains("table ip same"));
    let interfaces = net.right.stdout_of("ip", &["-o", "link"]);
    assert!(interfaces.contains(" vti4: ") && !interfaces.contains("vti8"), "{interfaces}");
    let (from_left, from_right): (IpAddr, IpAddr) = ([10, 4, 0, 1].into(), [10, 8, 0, 1].into());
    assert!(net.left.pings(from_left, 8), "{}", both());
    assert!(net.right.pings(from_right, 8), "{}", both());
    let status = net.right.status();
    let child = &status["ike_sas"][0]["children"][0];
    assert!(child["packets_out"].as_u64().unwrap() >= 2, "{child}");
    // A packet with the mark and a source of no policy is dropped, and never leaves in clear.
    net.right.stdout_of("nft", &["flush chain ip same own"]);
    net.right.stdout_of("conntrack", &["-F"]);
    assert!(!net.right.pings_at_once(from_right, 8));
    assert!(
        net.right.status()["drops"]["no-policy"].as_u64().unwrap() > 0,
        "{}",
        net.right.status()["drops"]
    );
    assert!(left.stop().success() && right.stop().success());
    assert_eq!(rules(&net.right).lines().count(), 3, "{}", rules(&net.right));
}
