//! `casemate run --store`: a gateway is restarted, killed and stopped, and its peer's IKE SA goes on.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod charon;
#[allow(dead_code, reason = "other tests use the rest")]
mod swanctl;
#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use casemate_test_support::{Program, TempDir};
use charon::Charon;
use serde_json::Value;
use std::fs::{self, Permissions};
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};
use testnet::{Host, Running, Side, TestNet, casemate, eventually};

/// Longest time from the start of a gateway until a peer's packets arrive.
const LIMIT: Duration = Duration::from_secs(3);

/// A configuration with one connection `t` and its child `c`.
fn conf(side: Side, start_action: &str) -> String {
    format!(
        "connections {{ t {{\n remote_addrs = {}\n local_addrs = {}\n local {{ auth = psk }}\n \
         remote {{ auth = psk }}\n children {{ c {{\n local_ts = {}/32\n remote_ts = {}/32\n \
         start_action = {start_action}\n }} }} }} }}\n\
         secrets {{ ike {{ secret = \"a secret of the two\" }} }}\n",
        side.other().outer(true),
        side.outer(true),
        side.inner(true),
        side.other().inner(true),
    )
}

/// `casemate run` with this configuration and a store.
fn with_store(host: &Host, conf: &str, store: &Path) -> Program {
    let path = host.file("gateway.conf");
    fs::write(&path, conf).unwrap();
    casemate().arg("run").arg("--config").arg(path).arg("--store").arg(store)
}

fn run_with_store(host: &Host, conf: &str, store: &Path) -> Running {
    host.start(with_store(host, conf, store))
}

/// SPIs of the IKE SAs, and those of their inbound Child SAs.
fn spis(status: &Value) -> Vec<(String, Vec<String>)> {
    let text = |value: &Value| value.to_string();
    let children =
        |sa: &Value| sa["children"].as_array().unwrap().iter().map(|c| text(&c["spi_in"])).collect();
    let sas = status["ike_sas"].as_array().unwrap().iter();
    sas.map(|sa| (format!("{} {}", text(&sa["spi_i"]), text(&sa["spi_r"])), children(sa))).collect()
}

/// Sends datagrams until one arrives. Returns the time.
fn time_to_deliver(from: &Host, to: &Host) -> Duration {
    let receiver = to.run(|| UdpSocket::bind((to.side.inner(true), 0))).unwrap();
    receiver.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    let sender = from.run(|| UdpSocket::bind((from.side.inner(true), 0))).unwrap();
    let begin = Instant::now();
    while begin.elapsed() < LIMIT {
        let _ = sender.send_to(b"datagram", receiver.local_addr().unwrap());
        if receiver.recv(&mut [0; 16]).is_ok() {
            break;
        }
    }
    begin.elapsed()
}

fn check_traffic(net: &TestNet, logs: &dyn Fn() -> String) {
    for (from, to) in [(&net.left, &net.right), (&net.right, &net.left)] {
        let time = time_to_deliver(from, to);
        assert!(time < LIMIT, "nothing arrives from {:?}:\n{}", from.side, logs());
    }
}

#[test]
fn restarts_and_crashes_cost_no_ike_sa() {
    let Some(net) = TestNet::build("restarts_and_crashes_cost_no_ike_sa") else { return };
    let scratch = TempDir::new("store").unwrap();
    let store = scratch.file("sas");
    let mut gateway = run_with_store(&net.right, &conf(Side::Right, "trap"), &store);
    let peer = net.left.run_config(&conf(Side::Left, "start"), None);
    check_traffic(&net, &|| format!("{}\n---\n{}", peer.log(), gateway.log()));
    let ike = spis(&net.left.status());
    assert_eq!(ike.len(), 1);
    for is_crash in [false, true, true, false, false, true] {
        let before = spis(&net.left.status());
        if is_crash {
            gateway.crash();
        } else {
            assert!(gateway.end_for_restart().success());
        }
        gateway = run_with_store(&net.right, &conf(Side::Right, "trap"), &store);
        let logs = || format!("{}\n---\n{}", peer.log(), gateway.log());
        assert!(gateway.log().contains("continued with"), "{}", logs());
        check_traffic(&net, &logs);
        // The data key of the former run is deleted.
        net.right.wait_until(|status| status["store"]["data_keys"] == 1);
        let after = spis(&net.left.status());
        assert_eq!(after[0].0, ike[0].0, "the IKE SA: {}", logs());
        // After a crash it is not known which packets of the peer arrived: it leaves out numbers, or the
        // Child SA is replaced if the peer may not have used it yet.
        assert!(is_crash || after == before, "{}", logs());
    }
    let text = peer.log();
    assert_eq!(text.matches("established with").count(), 1, "{text}");
    assert!(!text.contains("no response"), "{text}");

    // An orderly end closes the IKE SA, and nothing is left to continue.
    assert!(gateway.stop().success());
    net.left.wait_until(|status| spis(status).is_empty());
    let gateway = run_with_store(&net.right, &conf(Side::Right, "none"), &store);
    assert!(!gateway.log().contains("continued"), "{}", gateway.log());
    assert!(gateway.stop().success() && peer.stop().success());
}

/// A configuration with this number of children, each for one port.
fn conf_of_children(side: Side, start_action: &str, count: u16) -> String {
    let one = conf(side, start_action);
    let (before, rest) = one.split_once(" c {").unwrap();
    let (child, after) = rest.split_once(" }").unwrap();
    let of_port = |n: u16| format!(" c{n} {{{} }}", child.replace("/32", &format!("/32[udp/{}]", 5_000 + n)));
    let children: String = (0..count).map(of_port).collect();
    format!("{before}{children}{after}")
}

#[test]
fn a_store_grows_in_the_sandbox() {
    const CHILDREN: u16 = 40;
    let Some(net) = TestNet::build("a_store_grows_in_the_sandbox") else { return };
    let scratch = TempDir::new("store").unwrap();
    let store = scratch.file("sas");
    let right = conf_of_children(Side::Right, "none", CHILDREN);
    let count = |status: &Value| spis(status).iter().map(|(_, children)| children.len()).sum::<usize>();
    let gateway = run_with_store(&net.right, &right, &store);
    let len = || fs::metadata(&store).unwrap().len();
    let empty = len();
    let peer = net.left.run_config(&conf_of_children(Side::Left, "start", CHILDREN), None);
    net.left.wait_until(|status| count(status) == usize::from(CHILDREN));
    net.right.wait_until(|status| status["store"]["problem"].is_null());
    assert!(len() > empty, "{} of {empty} bytes: the store has not grown", len());
    let before = spis(&net.right.status());
    gateway.crash();
    let gateway = run_with_store(&net.right, &right, &store);
    assert!(gateway.log().contains("continued with"), "{}", gateway.log());
    // Each Child SA is replaced, because it is not known which packets of the peer arrived.
    let is_replaced = |status: &Value| count(status) == usize::from(CHILDREN);
    net.right.wait_until(|status| is_replaced(status) && spis(status)[0].1 != before[0].1);
    assert_eq!(spis(&net.left.status())[0].0, before[0].0);
    assert!(gateway.stop().success() && peer.stop().success());
}

#[test]
fn charon_keeps_its_ike_sa() {
    let Some(net) = TestNet::build("charon_keeps_its_ike_sa") else { return };
    let scratch = TempDir::new("store").unwrap();
    let store = scratch.file("sas");
    let mut gateway = run_with_store(&net.right, &conf(Side::Right, "none"), &store);
    let Some(peer) = Charon::start(&net.left, &conf(Side::Left, "start")) else { return };
    let listed = || peer.swanctl.output(&["--list-sas"]);
    eventually("charon has a Child SA", || listed().contains("INSTALLED"));
    check_traffic(&net, &|| format!("{}\n---\n{}", peer.log(), gateway.log()));
    for is_crash in [true, false, true] {
        if is_crash {
            gateway.crash();
        } else {
            assert!(gateway.end_for_restart().success());
        }
        gateway = run_with_store(&net.right, &conf(Side::Right, "none"), &store);
        check_traffic(&net, &|| format!("{}\n---\n{}", peer.log(), gateway.log()));
        let text = listed();
        assert!(text.contains("t: #1, ESTABLISHED"), "{text}");
        assert_eq!(text.matches("ESTABLISHED").count(), 1, "{text}");
    }
    // The gateway can use the IKE SA: it rekeys it, and the peer agrees.
    let rekeyed = net.right.casemate(&["rekey", "--ike", "t"]);
    assert!(rekeyed.status.success(), "{}", String::from_utf8_lossy(&rekeyed.stderr));
    eventually("charon has the successor", || listed().contains("t: #2, ESTABLISHED"));
    check_traffic(&net, &|| format!("{}\n---\n{}", peer.log(), gateway.log()));
    assert!(gateway.stop().success());
    eventually("charon has no IKE SA", || !listed().contains("ESTABLISHED"));
}

#[test]
fn an_ike_sa_that_cannot_go_on_is_named() {
    let Some(net) = TestNet::build("an_ike_sa_that_cannot_go_on_is_named") else { return };
    let scratch = TempDir::new("store").unwrap();
    let store = scratch.file("sas");
    let right = conf(Side::Right, "none");
    let gateway = run_with_store(&net.right, &right, &store);
    let peer = net.left.run_config(&conf(Side::Left, "start"), None);
    check_traffic(&net, &|| peer.log());

    // A second instance cannot use the store.
    let other = with_store(&net.right, &right, &store).args(["--tun", "other0"]);
    let output = net.right.output_of(other);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains("--store: ") && text.contains("another process uses this store"), "{text}");

    gateway.crash();
    let renamed = right.replace("connections { t {", "connections { other {");
    let gateway = run_with_store(&net.right, &renamed, &store);
    let expected = "an IKE SA of t does not go on: its connection is not configured";
    assert!(gateway.log().contains(expected), "{}", gateway.log());
    assert!(gateway.end_for_restart().success());

    assert!(peer.stop().success());
    let key = with_store(&net.right, &right, &store).arg("--store-key").arg(scratch.file("missing"));
    let output = net.right.output_of(key);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("a file with 32 random bytes was expected"), "{text}");
}

/// The wrapping key is changed by two restarts. A start without the key of the store is refused, and changes
/// nothing.
#[test]
fn the_wrapping_key_is_changed_without_a_negotiation() {
    let Some(net) = TestNet::build("the_wrapping_key_is_changed_without_a_negotiation") else { return };
    let scratch = TempDir::new("store").unwrap();
    let (store, right) = (scratch.file("sas"), conf(Side::Right, "none"));
    let mut gateway = run_with_store(&net.right, &right, &store);
    let peer = net.left.run_config(&conf(Side::Left, "start"), None);
    check_traffic(&net, &|| format!("{}\n---\n{}", peer.log(), gateway.log()));
    let ike = spis(&net.left.status()).remove(0).0;

    let (former, new) = (scratch.file("sas.key"), scratch.file("new.key"));
    fs::write(&new, [9; 32]).unwrap();
    fs::set_permissions(&new, Permissions::from_mode(0o600)).unwrap();
    let with_keys = |first: &Path, second: Option<&Path>| {
        let program = with_store(&net.right, &right, &store).arg("--store-key").arg(first);
        match second {
            Some(second) => program.arg("--second-store-key").arg(second),
            None => program,
        }
    };
    let refused = |first: &Path, second: Option<&Path>, expected: &str| {
        let output = net.right.output_of(with_keys(first, second));
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(expected), "{text}");
    };
    let other = "its data keys are encrypted with another wrapping key: that key was expected";
    for is_crash in [true, false] {
        if is_crash {
            gateway.crash();
        } else {
            assert!(gateway.end_for_restart().success());
        }
        let (from, to) = if is_crash { (&former, &new) } else { (&new, &former) };
        refused(to, None, other);
        refused(to, Some(to), "--second-store-key: both wrapping keys are the same");
        gateway = net.right.start(with_keys(to, Some(from)));
        assert!(gateway.log().contains("encrypted again, with the first wrapping key"), "{}", gateway.log());
        net.right.wait_until(|status| status["store"]["needs_second_key"] == false);
        gateway.crash();
        refused(from, None, other);
        gateway = net.right.start(with_keys(to, None));
        let logs = || format!("{}\n---\n{}", peer.log(), gateway.log());
        assert!(gateway.log().contains("continued with"), "{}", logs());
        check_traffic(&net, &logs);
        assert_eq!(spis(&net.left.status())[0].0, ike, "{}", logs());
    }
    assert_eq!(peer.log().matches("established with").count(), 1, "{}", peer.log());
    // Without an IKE SA, the store has no data keys, so that any key will do.
    assert!(gateway.stop().success());
    let gateway = net.right.start(with_keys(&new, None));
    assert!(gateway.stop().success() && peer.stop().success());
}

/// The record of an IKE SA whose peer has passed several rounds of authentication cannot be made.
#[test]
fn an_ike_sa_without_a_record_is_closed_before_a_restart() {
    let Some(net) = TestNet::build("an_ike_sa_without_a_record_is_closed_before_a_restart") else { return };
    let scratch = TempDir::new("store").unwrap();
    let store = scratch.file("sas");
    let two_rounds = |side: Side, action: &str| {
        let rounds = |own: &str, peer: &str| {
            format!(
                "local {{ auth = psk\n id = {own}1 }}\n local-2 {{ auth = psk\n id = {own}2 }}\n \
                 remote {{ auth = psk\n id = {peer}1 }}\n remote-2 {{ auth = psk\n id = {peer}2 }}"
            )
        };
        let name = |side: Side| if side == Side::Left { "left" } else { "right" };
        let sections = rounds(name(side), name(side.other()));
        conf(side, action).replace("local { auth = psk }\n remote { auth = psk }", &sections)
    };
    let gateway = run_with_store(&net.right, &two_rounds(Side::Right, "none"), &store);
    let peer = net.left.run_config(&two_rounds(Side::Left, "start"), None);
    check_traffic(&net, &|| format!("{}\n---\n{}", peer.log(), gateway.log()));
    assert!(gateway.end_for_restart().success());
    net.left.wait_until(|status| spis(status).is_empty());
    let gateway = run_with_store(&net.right, &two_rounds(Side::Right, "none"), &store);
    assert!(!gateway.log().contains("continued"), "{}", gateway.log());
    assert!(gateway.stop().success() && peer.stop().success());
}
