//! `casemate trace` with real packets between two hosts.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use casemate_test_support::{Process, Program};
use serde_json::Value;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;
use testnet::{Host, Side, TestNet, WIRE};

const TIMEOUT: Duration = Duration::from_secs(20);

/// A tunnel in each direction, and a policy that discards other traffic of the left host.
fn tunnel(side: Side) -> String {
    let mut text = String::from("ip xfrm policy add dst 10.99.0.0/16 dir out action block\n");
    for (from, spi) in [(Side::Left, 0x1001), (Side::Right, 0x1002)] {
        let (src, dst) = (from.outer(true), from.other().outer(true));
        let key = format!("{:02x}", spi & 0xff).repeat(20);
        let dir = if from == side { "out" } else { "in" };
        text += &format!(
            "ip xfrm state add src {src} dst {dst} proto esp spi {spi:#x} mode tunnel replay-window 128 \
             aead 'rfc4106(gcm(aes))' 0x{key} 128\n\
             ip xfrm policy add src {} dst {} dir {dir} tmpl src {src} dst {dst} proto esp mode tunnel\n",
            from.inner(true),
            from.other().inner(true)
        );
    }
    text
}

/// A running `casemate trace`.
struct TraceClient(Process);

impl TraceClient {
    /// Starts the command and waits until the instance traces.
    fn start(host: &Host, count: u16, timeout: u16, args: &[&str]) -> Self {
        let (packets, seconds) = (count.to_string(), timeout.to_string());
        let program = Program::new(env!("CARGO_BIN_EXE_casemate")).arg("trace").args(args);
        let program = program.args(["--count", &packets, "--timeout", &seconds]);
        let mut process = program.log_to(&host.file("trace")).start_with(|command| host.netns.spawn(command));
        let packets = if count == 1 { "1 packet".to_owned() } else { format!("{count} packets") };
        let line = format!("tracing the next {packets} for at most {timeout} s; Ctrl-C ends the trace");
        process.wait_for_line(&line, TIMEOUT);
        Self(process)
    }

    /// Waits for the end of the trace and returns what it printed.
    fn text(mut self) -> String {
        assert!(self.0.wait(TIMEOUT).success(), "{}", self.0.log());
        self.0.log()
    }

    /// Like [`text`](Self::text), for `--json`: the packets.
    fn packets(self) -> Vec<Value> {
        let text = self.text();
        let lines = text.lines().filter(|line| line.starts_with('{'));
        lines.map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// The names of the steps of a packet.
fn steps(packet: &Value) -> Vec<&str> {
    packet["steps"].as_array().unwrap().iter().map(|step| step["step"].as_str().unwrap()).collect()
}

fn last(packet: &Value) -> &Value {
    packet["steps"].as_array().unwrap().last().unwrap()
}

/// Sends ESP from one host to the other, with this SPI, sequence number and no valid ICV.
fn send_esp(from: &Host, spi: u32, number: u32) {
    let open = || Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(50)));
    let socket = from.run(open).unwrap();
    let packet = [&spi.to_be_bytes()[..], &number.to_be_bytes(), &[0x55; 32]].concat();
    socket.send_to(&packet, &SockAddr::from(SocketAddr::new(from.side.other().outer(true), 0))).unwrap();
}

/// The example in the manual.
fn documented_trace() -> &'static str {
    let page = include_str!("../../../docs/manual/trace.md");
    page.split("```text\n").nth(1).unwrap().split("```").next().unwrap()
}

/// The lines of a trace without times.
fn comparable(text: &str) -> Vec<String> {
    let line = |line: &str| match line.split_once(" s: ") {
        Some((_, what)) => Some(what.to_owned()),
        None => line.starts_with("  ").then(|| line.to_owned()),
    };
    text.lines().filter_map(line).collect()
}

#[test]
fn a_flow_in_both_directions() {
    let Some(net) = TestNet::build("a_flow_in_both_directions") else { return };
    let start = |host: &Host| host.run_xfrm_with_args(&tunnel(host.side), &["--threads", "2"]);
    let (left, right) = (start(&net.left), start(&net.right));
    let there = Side::Right.inner(true);
    let trace = TraceClient::start(&net.left, 2, 60, &["dst", "10.2.0.1", "proto", "icmp"]);
    assert!(net.left.pings(there, 56), "{}", left.log());
    let text = trace.text();
    assert_eq!(comparable(&text), comparable(documented_trace()), "docs/manual/trace.md: {text}");
    assert!(text.ends_with("2 packets: the count is reached\n"), "{text}");
    // With the selector of another flow, the time ends the trace.
    let trace = TraceClient::start(&net.left, 2, 1, &["dst", "10.2.0.1", "proto", "udp"]);
    assert!(net.left.pings(there, 56), "{}", left.log());
    assert!(trace.text().ends_with("0 packets: the time is over\n"));
    assert!(left.stop().success() && right.stop().success());
}

#[test]
fn drops_with_their_reasons() {
    let Some(net) = TestNet::build("drops_with_their_reasons") else { return };
    let (left, right) = (net.left.run_xfrm(&tunnel(Side::Left)), net.right.run_xfrm(&tunnel(Side::Right)));
    let trace = TraceClient::start(&net.left, 1, 60, &["dst 10.99.0.0/16", "--json"]);
    let socket = net.left.run(|| UdpSocket::bind((Side::Left.inner(true), 0))).unwrap();
    // The kernel may report the ICMP error of an earlier packet.
    let _ = socket.send_to(b"x", ("10.99.0.1", 9));
    let packets = trace.packets();
    assert_eq!(steps(&packets[0]), ["outgoing", "policy", "rejected"], "{packets:?}");
    assert_eq!(last(&packets[0])["reason"], "policy-discard");
    assert_eq!(packets[0]["steps"][1]["action"], "discard");

    assert!(net.right.pings(Side::Left.inner(true), 8), "the right host has used sequence numbers");
    let trace = TraceClient::start(&net.left, 3, 60, &["peer", "192.0.2.2", "dir", "in", "--json"]);
    for (spi, number) in [(0x9999, 1), (0x1002, 1), (0x1002, 99)] {
        send_esp(&net.right, spi, number);
    }
    let packets = trace.packets();
    let reasons: Vec<_> = packets.iter().map(|packet| last(packet)["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons, ["no-sa", "replay", "icv-mismatch"], "{packets:?}");
    assert_eq!(packets[0]["steps"][0]["header"]["spi"], "0x00009999");
    assert_eq!(steps(&packets[1]), ["incoming", "sa", "dropped"]);
    assert_eq!(steps(&packets[2]), ["incoming", "sa", "not-replayed", "dropped"]);
    // A selector for the inner packet cannot match them.
    let trace = TraceClient::start(&net.left, 1, 2, &["dst", "10.2.0.1"]);
    send_esp(&net.right, 0x9999, 1);
    let text = trace.text();
    assert!(text.contains("1 packet was dropped before decryption"), "{text}");
    assert!(left.stop().success() && right.stop().success());
}

#[test]
fn a_packet_that_is_too_long_for_the_path() {
    let Some(net) = TestNet::build("a_packet_that_is_too_long") else { return };
    let (left, right) = (net.left.run_xfrm(&tunnel(Side::Left)), net.right.run_xfrm(&tunnel(Side::Right)));
    net.left.stdout_of("ip", &["link", "set", "dev", WIRE, "mtu", "1000"]);
    let socket = net.left.run(|| UdpSocket::bind((Side::Left.inner(true), 0))).unwrap();
    let send = || {
        let trace = TraceClient::start(&net.left, 1, 60, &["dst 10.2.0.1 proto udp dport 9", "--json"]);
        socket.send_to(&[0; 1_200], (Side::Right.inner(true), 9)).unwrap();
        trace.packets()
    };
    // The SA learns the MTU of the link from the first packet.
    send();
    let packets = send();
    assert_eq!(steps(&packets[0]), ["outgoing", "policy", "sa", "size", "rejected"], "{packets:?}");
    let size = &packets[0]["steps"][3];
    assert_eq!((&size["length"], &size["path_mtu"]), (&Value::from(1_228), &Value::from(1_000)), "{size}");
    assert!(size["protected_length"].as_u64().unwrap() > 1_228, "{size}");
    assert!(size["inner_mtu"].as_u64().unwrap() < 1_000, "{size}");
    assert_eq!(last(&packets[0])["reason"], "too-big");
    assert!(left.stop().success() && right.stop().success());
}

/// A configuration with a trap for transport mode between the hosts, and a scheduler.
fn trap(side: Side) -> String {
    format!(
        "connections {{ t {{\n remote_addrs = {}\n local {{ auth = psk }}\n remote {{ auth = psk }}\n\
         children {{ c {{\n mode = transport\n start_action = trap\n }} }} }} }}\n\
         secrets {{ ike {{ secret = \"a secret of the two\" }} }}\nscheduler {{ }}\n",
        side.other().outer(true)
    )
}

#[test]
fn a_packet_that_waits_for_its_sa() {
    let Some(net) = TestNet::build("a_packet_that_waits_for_its_sa") else { return };
    let (left, right) =
        (net.left.run_config(&trap(Side::Left), None), net.right.run_config(&trap(Side::Right), None));
    let there = Side::Right.outer(true);
    let trace = TraceClient::start(&net.left, 3, 60, &["dst", "192.0.2.2", "proto", "icmp", "--json"]);
    assert!(net.left.pings_first_time(there, 8), "{}", left.log());
    let packets = trace.packets();
    assert_eq!(steps(&packets[0]), ["outgoing", "policy", "held"], "{packets:?}");
    assert_eq!(packets[0]["steps"][0]["class"], "standard");
    assert_eq!(packets[0]["steps"][1]["trap"], "t/c");
    assert_eq!(last(&packets[1])["step"], "route", "{packets:?}");
    let sa = &packets[1]["steps"][2];
    assert_eq!(
        (&sa["name"], &sa["suite"]),
        (&Value::from("t/c"), &Value::from("aes128gcm16")),
        "{packets:?}"
    );
    assert_eq!(last(&packets[2])["step"], "delivered", "{packets:?}");
    assert!(left.stop().success() && right.stop().success());
}

#[test]
fn one_trace_at_a_time_and_a_client_that_disconnects() {
    let Some(net) = TestNet::build("one_trace_at_a_time") else { return };
    let left = net.left.run_xfrm(&tunnel(Side::Left));
    let mut first = TraceClient::start(&net.left, 1_000, 600, &[]);
    let second = net.left.casemate(&["trace"]);
    let error = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(1), "{error}");
    assert!(error.contains("a trace is already running"), "{error}");
    first.0.kill();
    // The instance notices it with the next request at the latest.
    let trace = || net.left.casemate(&["trace", "--timeout", "1"]);
    testnet::eventually("the next trace starts", || trace().status.success());
    for wrong in [&["trace", "src"][..], &["trace", "--count", "0"], &["trace", "up", "1"]] {
        let output = net.left.casemate(wrong);
        assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert!(left.stop().success());
}

#[test]
fn more_packets_than_can_be_traced() {
    const SENT: usize = 2_000;
    let Some(net) = TestNet::build("more_packets_than_can_be_traced") else { return };
    let start = |host: &Host| host.run_xfrm_with_args(&tunnel(host.side), &["--threads", "2"]);
    let (left, right) = (start(&net.left), start(&net.right));
    let trace = TraceClient::start(&net.left, 1_000, 2, &["proto udp dport 9", "--json"]);
    let socket = net.left.run(|| UdpSocket::bind((Side::Left.inner(true), 0))).unwrap();
    for _ in 0..SENT {
        // The kernel may report that the port is closed.
        let _ = socket.send_to(&[0; 64], (Side::Right.inner(true), 9));
    }
    let packets = trace.packets();
    assert!(packets.len() <= 1_000, "{}", packets.len());
    let mut numbers: Vec<_> = packets.iter().map(|packet| packet["packet"].as_u64().unwrap()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), packets.len(), "each packet is shown once");
    for packet in &packets {
        let steps = steps(packet);
        assert_eq!((steps[0], steps.last()), ("outgoing", Some(&"route")), "{packet}");
    }
    assert!(packets.len() > 20, "{}", packets.len());
    assert!(net.left.pings(Side::Right.inner(true), 8), "{}", left.log());
    assert!(left.stop().success() && right.stop().success());
}
