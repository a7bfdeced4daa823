//! Host names in `swanctl.conf`: lookups block nothing else, happen once per start, and work while the
//! guard of a previous run is in place.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use std::fs;
use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;
use testnet::{Host, ReplacedFile, Running, Side, TestNet};

const A: [u8; 2] = [0, 1];

/// A name server on the right host that has one address for every name.
struct NameServer {
    /// Number of queries for IPv4 addresses.
    queries: Arc<AtomicUsize>,
    is_silent: Arc<AtomicBool>,
}

impl NameServer {
    fn start(host: &Host) -> Self {
        let socket = host.run(|| UdpSocket::bind((host.side.outer(true), 53))).unwrap();
        let (queries, is_silent) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (count, silent) = (queries.clone(), is_silent.clone());
        let IpAddr::V4(addr) = host.side.outer(true) else { unreachable!() };
        // The thread ends with the test.
        thread::spawn(move || {
            let mut buffer = [0; 512];
            while let Ok((len, client)) = socket.recv_from(&mut buffer) {
                if silent.load(Ordering::Relaxed) {
                    continue;
                }
                if let Some(reply) = reply(&buffer[..len], addr.octets(), &count) {
                    let _ = socket.send_to(&reply, client);
                }
            }
        });
        Self { queries, is_silent }
    }
}

/// The response to a query with one question (RFC 1035 section 4).
fn reply(query: &[u8], addr: [u8; 4], queries: &AtomicUsize) -> Option<Vec<u8>> {
    let name = query.get(12..)?.iter().position(|byte| *byte == 0)? + 13;
    let question = query.get(12..name + 4)?;
    let is_a = question[question.len() - 4..question.len() - 2] == A;
    let mut reply = [&query[..2], &[0x81, 0x80, 0, 1, 0, u8::from(is_a), 0, 0, 0, 0], question].concat();
    if is_a {
        queries.fetch_add(1, Ordering::Relaxed);
        reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        reply.extend(addr);
    }
    Some(reply)
}

fn conf(side: Side, remote: &str) -> String {
    format!(
        "connections {{\n t {{\n  version = 2\n  local_addrs = {}\n  remote_addrs = {remote}\n  \
         proposals = aes128gcm16-prfsha256-x25519\n  local {{\n   auth = psk\n   id = {side:?}.test\n  }}\n  \
         remote {{\n   auth = psk\n   id = {:?}.test\n  }}\n  children {{\n   c {{\n    local_ts = {}/32\n    \
         remote_ts = {}/32\n    esp_proposals = aes128gcm16\n   }}\n  }}\n }}\n}}\n\
         secrets {{\n ike-1 {{\n  secret = \"a secret of two hosts\"\n }}\n}}\n",
        side.outer(true),
        side.other(),
        side.inner(true),
        side.other().inner(true),
    )
}

/// Starts Casemate with the right host as name server.
fn start(host: &Host, conf: &str) -> Running {
    let resolver = host.file("resolv.conf");
    let server = Side::Right.outer(true);
    fs::write(&resolver, format!("nameserver {server}\noptions timeout:8 attempts:1\n")).unwrap();
    host.run_config_with_nft(conf, &ReplacedFile { path: "/etc/resolv.conf".into(), by: resolver })
}

fn initiates(host: &Host) {
    let output = host.casemate(&["initiate", "c"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn silent_name_server_delays_no_packet() {
    let Some(net) = TestNet::build("a_name_server_that_does_not_answer") else { return };
    let server = NameServer::start(&net.right);
    let right = net.right.run_config(&conf(Side::Right, "%any"), None);
    let left = start(&net.left, &conf(Side::Left, "gateway.test"));
    initiates(&net.left);
    assert!(net.left.pings(Side::Right.inner(true), 100));
    server.is_silent.store(true, Ordering::Relaxed);
    thread::scope(|scope| {
        let reload = scope.spawn(|| net.left.casemate(&["reload"]));
        thread::sleep(Duration::from_millis(500));
        for _ in 0..3 {
            assert!(net.left.pings_first_time(Side::Right.inner(true), 100), "{}", left.log());
        }
        assert!(net.left.casemate(&["status"]).status.success());
        assert!(!reload.is_finished(), "the lookup ended before the packets passed: {}", left.log());
        let output = reload.join().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && stderr.contains("gateway.test"), "{stderr}");
    });
    assert!(left.stop().success() && right.stop().success());
}

#[test]
fn each_start_resolves_a_name_once_even_with_an_older_guard() {
    let Some(net) = TestNet::build("each_start_looks_a_name_up_once") else { return };
    let server = NameServer::start(&net.right);
    let right = net.right.run_config(&conf(Side::Right, "%any"), None);
    for round in 1..=3 {
        let left = start(&net.left, &conf(Side::Left, "gateway.test"));
        assert_eq!(server.queries.load(Ordering::Relaxed), round, "{}", left.log());
        assert_eq!(left.log().contains("took over the guard"), round > 1, "{}", left.log());
        assert!(!left.log().contains("a reload will fail"), "{}", left.log());
        initiates(&net.left);
        assert!(net.left.pings(Side::Right.inner(true), 100));
        left.crash();
    }
    assert!(right.stop().success());
}
