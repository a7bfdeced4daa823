//! `start_action = trap` with the default values of `local_addrs` and `local_ts`: nothing leaves in clear, and the first packet has the
//! tunnel set up.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod lab;

use lab::{Host, Lab, Side};
use serde_json::Value;

const SECRETS: &str = "secrets { ike { secret = \"a secret of the two\" } }\n";

/// One connection `t` with these lines, and the child `c` with these.
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
fn between_two_hosts() {
    let Some(lab) = Lab::build("between_two_hosts") else { return };
    let peer = Side::Right.outer(true);
    let trap = |action: &str| conf(Side::Left, "", &format!("mode = transport\n start_action = {action}"));
    let left = lab.left.negotiate(&trap("none"), None);
    assert!(lab.left.hears(peer, 8), "nobody wants it protected");
    for action in ["trap", "trap|start"] {
        reload(&lab.left, &trap(action));
        assert!(!lab.left.hears_at_once(peer, 8), "{}", left.said());
    }
    assert!(left.stop().success());
    let left = lab.left.negotiate(&trap("trap"), None);
    assert!(!lab.left.hears_at_once(peer, 8), "{}", left.said());
    assert!(left.stop().success());
    let right = lab.right.negotiate(&conf(Side::Right, "", "mode = transport"), None);
    let left = lab.left.negotiate(&trap("trap"), None);
    assert_eq!(children(&lab.left.status()), 0, "nothing without a packet");
    assert!(!lab.left.hears_at_once(peer, 8), "the first packet is not sent");
    lab.left.waits_until(|status| children(status) == 1);
    assert!(lab.left.hears(peer, 8), "{}", left.said());
    assert!(left.stop().success() && right.stop().success());
}

#[test]
fn a_trap_follows_another_address() {
    let Some(lab) = Lab::build("a_trap_follows_another_address") else { return };
    let peer = Side::Right.outer(true);
    let left = lab.left.negotiate(&conf(Side::Left, "", "mode = transport\n start_action = trap"), None);
    assert!(!lab.left.hears_at_once(peer, 8), "{}", left.said());
    lab.left.says("ip", &["addr", "del", &format!("{}/24", Side::Left.outer(true)), "dev", lab::WIRE]);
    lab.left.says("ip", &["addr", "add", "192.0.2.77/24", "dev", lab::WIRE]);
    let policies = || lab.left.status()["policies"].to_string();
    lab.left.waits_until(|status| status["policies"].to_string().contains("192.0.2.77"));
    assert!(!lab.left.hears_at_once(peer, 8), "{}: {}", policies(), left.said());
    assert!(left.stop().success());
}

#[test]
fn a_road_warrior() {
    let Some(lab) = Lab::build("a_road_warrior") else { return };
    let (peer, inner) = (Side::Right.outer(true), Side::Right.inner(true));
    lab.left.says("ip", &["route", "add", &inner.to_string(), "via", &peer.to_string()]);
    assert!(lab.left.hears(inner, 8), "in clear, before");
    let trap = format!("remote_ts = {inner}/32\n start_action = trap");
    let left = lab.left.negotiate(&conf(Side::Left, "vips = 0.0.0.0", &trap), None);
    assert!(!lab.left.hears_at_once(inner, 8), "{}", left.said());
    assert!(lab.left.hears(peer, 8), "nobody wants it protected");
    assert!(left.stop().success());
    let pools = conf(Side::Right, "pools = p", &format!("local_ts = {inner}/32"))
        + "pools { p { addrs = 10.66.0.0/24 } }\n";
    let right = lab.right.negotiate(&pools, None);
    let left = lab.left.negotiate(&conf(Side::Left, "vips = 0.0.0.0", &trap), None);
    for _ in 0..2 {
        assert!(!lab.left.hears_at_once(inner, 8), "the first packet is not sent");
        lab.left.waits_until(|status| children(status) == 1);
        assert!(lab.left.hears(inner, 8), "{}", left.said());
        // The virtual address goes with the IKE SA; nothing may leave from another one.
        assert!(lab.right.casemate(&["terminate", "t"]).status.success());
        lab.left.waits_until(|status| children(status) == 0);
    }
    assert!(left.stop().success() && right.stop().success());
}
