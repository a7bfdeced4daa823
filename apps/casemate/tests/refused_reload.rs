//! `casemate run` when a reload is refused although the file has no error, because the SPD has no room for
//! its policies: nothing of the new configuration takes effect, and nothing of the former one is forgotten.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use std::fmt::Write as _;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;
use testnet::{Host, Side, TestNet, eventually};

/// The configuration at start: `silent` retransmits every 0.5 s to a host that does not respond, and `far`
/// has no route to its peer.
fn former() -> String {
    let connection = |name: &str, peer: &str, traffic: &str, action: &str| {
        format!(
            "{name} {{\n remote_addrs = {peer}\n local {{ auth = psk\n id = left }}\n \
             remote {{ auth = psk\n id = {name} }}\n children {{ c {{\n remote_ts = {traffic}\n \
             start_action = {action} }} }} }}\n"
        )
    };
    let silent = connection("silent", &Side::Right.outer(true).to_string(), "10.8.0.0/16", "start");
    let far = connection("far", "198.51.100.1", "10.9.0.0/16", "trap");
    format!(
        "charon {{ retransmit_timeout = 0.5\n retransmit_base = 1\n retransmit_tries = 100 }}\n\
         connections {{\n{silent}{far}}}\nsecrets {{ ike {{ secret = \"a secret of the two\" }} }}\n"
    )
}

/// A configuration with more policies than the SPD takes, and other settings.
fn too_large() -> String {
    let networks = |side: u8| {
        (0..400).fold(String::new(), |mut list, number| {
            let (high, low) = (number / 256, number % 256);
            let separator = if list.is_empty() { "" } else { ", " };
            write!(list, "{separator}10.{}.{low}.0/24", u16::from(side) + high).unwrap();
            list
        })
    };
    format!(
        "charon {{ retransmit_timeout = 77\n quick_crash_detection = no }}\n\
         connections {{ large {{\n remote_addrs = 192.0.2.9\n local {{ auth = psk }}\n remote {{ auth = psk }}\n \
         children {{ c {{\n local_ts = {}\n remote_ts = {}\n start_action = trap }} }} }} }}\n",
        networks(100),
        networks(200)
    )
}

/// The response to a request on an IKE SA that the host does not know.
fn response_to_unknown_request(net: &TestNet) -> Vec<u8> {
    let socket = net.right.run(|| UdpSocket::bind((Side::Right.outer(false), 500))).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    // RFC 7296 section 3.1: SPIs, Encrypted payload next, version 2.0, INFORMATIONAL, message 0, length.
    let mut request = [[7; 8], [8; 8]].concat();
    request.extend([46, 0x20, 37, 0x08, 0, 0, 0, 0, 0, 0, 0, 76]);
    request.extend([0, 0, 0, 48]);
    request.resize(76, 9);
    socket.send_to(&request, SocketAddr::new(Side::Left.outer(false), 500)).unwrap();
    let mut response = vec![0; 1024];
    let len = socket.recv(&mut response).unwrap();
    response.truncate(len);
    response
}

/// Whether a response has the token of quick crash detection: notification 16419 (RFC 6290 section 8).
fn has_token(response: &[u8]) -> bool {
    response.windows(2).any(|kind| kind == 16_419_u16.to_be_bytes())
}

/// The last error of a connection.
fn last_error(host: &Host, name: &str) -> Option<String> {
    let status = host.status();
    let connections = status["connections"].as_array().unwrap();
    let connection = connections.iter().find(|connection| connection["name"] == name).unwrap();
    connection["last_error"]["text"].as_str().map(str::to_owned)
}

#[test]
fn a_refused_configuration_leaves_nothing_and_takes_nothing() {
    let Some(net) = TestNet::build("a_refused_configuration_leaves_nothing_and_takes_nothing") else {
        return;
    };
    let left = net.left.run_config(&former(), None);
    let _ = net.left.pings_at_once("10.9.0.1".parse().unwrap(), 8);
    eventually("the failure of `far` is known", || last_error(&net.left, "far").is_some());
    let error = last_error(&net.left, "far");
    assert!(has_token(&response_to_unknown_request(&net)), "{}", left.log());

    std::fs::write(net.left.file("conf"), too_large()).unwrap();
    let refused = net.left.casemate(&["reload"]);
    assert_eq!(refused.status.code(), Some(1));
    let refusal = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refusal.contains("policy table is full"), "{refusal}");

    std::fs::write(net.left.file("conf"), "connections {\n far {\n childs {\n }\n }\n}\n").unwrap();
    let wrong = net.left.casemate(&["reload"]);
    let shown = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert_eq!(wrong.status.code(), Some(2), "a wrong file: {shown}");
    assert!(shown.contains("did you mean `children`?"), "{shown}");

    assert_eq!(last_error(&net.left, "far"), error, "the history of the connection is kept");
    assert!(has_token(&response_to_unknown_request(&net)), "peers still get tokens");
    let lines = || left.log().lines().filter(|line| line.contains("sent again")).count();
    let before = lines();
    eventually("two more retransmissions", || lines() >= before + 2);
    let waits_longer = |line: &str| line.contains("sent again") && !line.ends_with("next in 0.5 s");
    assert!(!left.log().lines().any(waits_longer), "{}", left.log());
    assert!(left.stop().success());
}
