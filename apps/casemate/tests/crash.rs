//! `casemate run` on two hosts: one is killed and started again, and only its peer sends. Its packets
//! arrive again within 15 seconds with the default settings, whichever side can initiate.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use serde_json::Value;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testnet::{Host, SetOnDrop, Side, TestNet};

/// Longest time until packets arrive again.
const LIMIT: Duration = Duration::from_secs(15);
/// Reasons in the log for the end of an IKE SA.
const INITIAL_CONTACT: &str = "the peer has reported that it has no other SA, as after a restart";
const TOKEN: &str = "the peer has proved with its crash token that it has forgotten this SA";
const SILENCE: &str = "the peer no longer responded on this SA, as after a restart";
const REPORT: &str = "the peer reports that it does not know this SA, as after a restart";
const ACTIONS: [&str; 3] = ["none", "trap", "start"];

/// A configuration with one connection `t` and its child `c`.
fn conf(side: Side, remote_addrs: &str, start_action: &str, more: &str) -> String {
    format!(
        "connections {{ t {{\n remote_addrs = {remote_addrs}\n local_addrs = {}\n local {{ auth = psk }}\n \
         remote {{ auth = psk }}\n children {{ c {{\n local_ts = {}/32\n remote_ts = {}/32\n \
         start_action = {start_action}\n }} }} }} }}\nsecrets {{ ike {{ secret = \"a secret of the two\" }} }}\n{more}",
        side.outer(true),
        side.inner(true),
        side.other().inner(true),
    )
}

fn has_child(status: &Value) -> bool {
    status["ike_sas"].as_array().unwrap().iter().any(|sa| !sa["children"].as_array().unwrap().is_empty())
}

/// Sends a datagram every 50 ms, until `is_over`.
fn send_datagrams(from: &Host, to: SocketAddr, is_over: &AtomicBool) {
    let socket = from.run(|| UdpSocket::bind((from.side.inner(true), 0))).unwrap();
    while !is_over.load(Ordering::Relaxed) {
        // While there is no Child SA, the send may fail.
        let _ = socket.send_to(b"one way", to);
        thread::sleep(Duration::from_millis(50));
    }
}

/// The left host starts the connection and sends to the right host, which is killed and started again.
/// Returns the time from the restart until a datagram arrives. The log of the left host says with one of
/// these words why its old IKE SA has ended.
fn outage(net: &TestNet, sender: &str, receiver: &str, initiate: bool, why: &[&str]) -> Duration {
    let right = net.right.run_config(receiver, None);
    let left = net.left.run_config(sender, None);
    if initiate {
        assert!(net.left.casemate(&["initiate", "c"]).status.success(), "{}", left.log());
    }
    let socket = net.right.run(|| UdpSocket::bind((Side::Right.inner(true), 0))).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let to = socket.local_addr().unwrap();
    let receives = || socket.recv(&mut [0; 16]).is_ok();
    let is_over = AtomicBool::new(false);
    let outage = thread::scope(|scope| {
        let _is_over = SetOnDrop(&is_over);
        scope.spawn(|| send_datagrams(&net.left, to, &is_over));
        let begin = Instant::now();
        while !receives() {
            assert!(begin.elapsed() < LIMIT, "nothing arrives before the crash:\n{}", left.log());
        }
        right.crash();
        // Packets that were on their way.
        while receives() {}
        let right = net.right.run_config(receiver, None);
        let begin = Instant::now();
        while !receives() {
            let logs = || format!("{}\n---\n{}", left.log(), right.log());
            assert!(begin.elapsed() < LIMIT, "nothing arrives after the crash:\n{}", logs());
        }
        let outage = begin.elapsed();
        net.left.wait_until(has_child);
        assert!(right.stop().success());
        outage
    });
    let says_why = || why.iter().any(|words| left.log().contains(words));
    let begin = Instant::now();
    while !says_why() {
        assert!(begin.elapsed() < LIMIT, "no reason for the end of the IKE SA:\n{}", left.log());
        thread::sleep(Duration::from_millis(20));
    }
    assert!(left.stop().success());
    outage
}

#[test]
fn a_restarted_host_that_names_its_peer_initiates() {
    let Some(net) = TestNet::build("a_restarted_host_that_names_its_peer_initiates") else { return };
    let (left, right) = (Side::Left.outer(true).to_string(), Side::Right.outer(true).to_string());
    for action in ACTIONS {
        let sender = conf(Side::Left, &right, "start", "");
        let receiver = conf(Side::Right, &left, action, "");
        let outage = outage(&net, &sender, &receiver, false, &[INITIAL_CONTACT, TOKEN, REPORT]);
        println!("start_action = {action}: {:.1} s", outage.as_secs_f64());
    }
}

#[test]
fn the_peer_of_a_restarted_host_that_accepts_any_initiates() {
    let Some(net) = TestNet::build("the_peer_of_a_restarted_host_that_accepts_any_initiates") else { return };
    let right = Side::Right.outer(true).to_string();
    let outages = ACTIONS.map(|action| {
        let sender = conf(Side::Left, &right, action, "");
        let receiver = conf(Side::Right, "%any", "none", "");
        let outage = outage(&net, &sender, &receiver, action == "none", &[TOKEN]);
        println!("start_action = {action}: {:.1} s", outage.as_secs_f64());
        outage
    });
    // Not only with the first tick of the event loop.
    assert!(outages.into_iter().min() < Some(Duration::from_secs(1)), "{outages:?}");
}

/// Without tokens, the peer tries a new IKE SA beside the old one.
#[test]
fn a_restarted_host_without_tokens_is_replaced() {
    let Some(net) = TestNet::build("a_restarted_host_without_tokens_is_replaced") else { return };
    let right = Side::Right.outer(true).to_string();
    let receiver = conf(Side::Right, "%any", "none", "charon { quick_crash_detection = no }\n");
    let outage = outage(&net, &conf(Side::Left, &right, "start", ""), &receiver, false, &[REPORT, SILENCE]);
    println!("{:.1} s", outage.as_secs_f64());
}
