//! Names of hosts in `swanctl.conf`: who waits while they are looked up, how often that happens, and what the
//! guard of a former run lets through meanwhile.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod lab;

use lab::{Host, Lab, Running, Side};
use std::fs;
use std::net::{IpAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

const A: [u8; 2] = [0, 1];

/// A name server on the right host that knows one address.
struct NameServer {
    /// Queries for IPv4 addresses.
    queries: Arc<AtomicUsize>,
    is_silent: Arc<AtomicBool>,
}

impl NameServer {
    fn start(host: &Host) -> Self {
        let socket = host.run(|| UdpSocket::bind((host.side.outer(true), 53))).unwrap();
        let (queries, is_silent) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (count, silent) = (queries.clone(), is_silent.clone());
        let IpAddr::V4(addr) = host.side.outer(true) else { unreachable!() };
        // It ends with the test.
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

/// The answer to a query with one question (RFC 1035 section 4).
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

/// Starts Casemate where names are asked of the right host.
fn start(host: &Host, conf: &str) -> Running {
    let resolver = host.file("resolv.conf");
    let server = Side::Right.outer(true);
    fs::write(&resolver, format!("nameserver {server}\noptions timeout:8 attempts:1\n")).unwrap();
    host.negotiate_with_nft(conf, &(resolver, PathBuf::from("/etc/resolv.conf")))
}

fn initiates(host: &Host) {
    let output = host.casemate(&["initiate", "c"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_name_server_that_does_not_answer_holds_up_no_packet() {
    let Some(lab) = Lab::build("a_name_server_that_does_not_answer") else { return };
    let server = NameServer::start(&lab.right);
    let right = lab.right.negotiate(&conf(Side::Right, "%any"), None);
    let left = start(&lab.left, &conf(Side::Left, "gateway.test"));
    initiates(&lab.left);
    assert!(lab.left.hears(Side::Right.inner(true), 100));
    server.is_silent.store(true, Ordering::Relaxed);
    thread::scope(|scope| {
        let reload = scope.spawn(|| lab.left.casemate(&["reload"]));
        thread::sleep(Duration::from_millis(500));
        for _ in 0..3 {
            assert!(lab.left.hears_first(Side::Right.inner(true), 100), "{}", left.said());
        }
        assert!(lab.left.casemate(&["status"]).status.success());
        assert!(!reload.is_finished(), "the name was looked up before the packets passed: {}", left.said());
        let output = reload.join().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains("gateway.test"), "{said}");
    });
    assert!(left.stop().success() && right.stop().success());
}

#[test]
fn each_start_looks_a_name_up_once_also_behind_the_guard_of_a_former_run() {
    let Some(lab) = Lab::build("each_start_looks_a_name_up_once") else { return };
    let server = NameServer::start(&lab.right);
    let right = lab.right.negotiate(&conf(Side::Right, "%any"), None);
    for round in 1..=3 {
        let left = start(&lab.left, &conf(Side::Left, "gateway.test"));
        assert_eq!(server.queries.load(Ordering::Relaxed), round, "{}", left.said());
        assert_eq!(left.said().contains("took over the guard"), round > 1, "{}", left.said());
        assert!(!left.said().contains("a reload will fail"), "{}", left.said());
        initiates(&lab.left);
        assert!(lab.left.hears(Side::Right.inner(true), 100));
        left.crash();
    }
    assert!(right.stop().success());
}
