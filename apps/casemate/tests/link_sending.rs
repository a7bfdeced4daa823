//! `casemate run` with the link sender and the early drop of received packets, beside rules of others.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use casemate_linux::netlink::Netlink;
use casemate_linux::netns::FrameCapture;
use std::net::UdpSocket;
use std::time::{Duration, Instant};
use testnet::{Host, Side, TUN, TestNet, WIRE, eventually};

const PORT: u16 = 9_000;
/// Table of the early drop.
const EARLY_DROP: &str = "casemate-received_casemate0";
/// A rule of another program for sent packets.
const OUTPUT: &str = "table inet other {\nchain c {\ntype filter hook output priority 0;\n}\n}\n";

/// Tunnels in both directions, with an SA of this protocol (`esp`, `ah`) and these algorithms.
fn tunnels(side: Side, v4: bool, protocol: &str, algorithms: &str) -> String {
    let mut text = String::new();
    for (from, spi) in [(Side::Left, 0x1001), (Side::Right, 0x1002)] {
        let (src, dst) = (from.outer(v4), from.other().outer(v4));
        text += &format!(
            "xfrm state add src {src} dst {dst} proto {protocol} spi {spi:#x} mode tunnel replay-window 128 {algorithms}\n"
        );
        let dir = if from == side { "out" } else { "in" };
        text += &format!(
            "xfrm policy add src {} dst {} dir {dir} priority 10 tmpl src {src} dst {dst} proto {protocol} mode tunnel\n",
            from.inner(v4),
            from.other().inner(v4)
        );
    }
    text
}

const GCM: &str = "aead 'rfc4106(gcm(aes))' 0x1122334455667788990011223344556677889900 128";
const HMAC: &str =
    "auth-trunc 'hmac(sha256)' 0x1122334455667788990011223344556677889900112233445566778899001122 128";

fn run_tunnels(host: &Host, v4: bool, protocol: &str, algorithms: &str) -> testnet::Running {
    host.run_xfrm(&tunnels(host.side, v4, protocol, algorithms))
}

/// Sends `count` datagrams through the tunnel, a few at a time, and returns how many arrive.
fn send_datagrams(net: &TestNet, v4: bool, count: usize) -> usize {
    let bind = |host: &Host| host.run(|| UdpSocket::bind((host.side.inner(v4), PORT))).unwrap();
    let (left, right) = (bind(&net.left), bind(&net.right));
    right.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let mut received = 0;
    for number in 0..count {
        left.send_to(&number.to_be_bytes(), (Side::Right.inner(v4), PORT)).unwrap();
        received += usize::from(right.recv_from(&mut [0; 64]).is_ok());
    }
    received
}

/// Packets that the IP output of a host's kernel has sent, of each IP version.
fn kernel_output(host: &Host) -> u64 {
    let text = host.stdout_of("cat", &["/proc/net/snmp", "/proc/net/snmp6"]);
    let mut ip = text.lines().filter(|line| line.starts_with("Ip:"));
    let (names, values) = (ip.next().unwrap(), ip.next().unwrap());
    let column = names.split_whitespace().position(|name| name == "OutRequests").unwrap();
    let v4: u64 = values.split_whitespace().nth(column).unwrap().parse().unwrap();
    let v6 = text.lines().find_map(|line| line.strip_prefix("Ip6OutRequests")).unwrap();
    v4 + v6.trim().parse::<u64>().unwrap()
}

fn nft(host: &Host, script: &str) {
    std::fs::write(host.file("script"), script).unwrap();
    host.stdout_of("nft", &["-f", host.file("script").to_str().unwrap()]);
}

fn tables(host: &Host) -> String {
    host.stdout_of("nft", &["list", "tables"])
}

#[test]
fn protected_packets_leave_through_the_packet_socket() {
    let Some(net) = TestNet::build("protected_packets_leave_through_the_packet_socket") else { return };
    for v4 in [true, false] {
        for (protocol, algorithms) in [("esp", GCM), ("ah", HMAC)] {
            let running = [&net.left, &net.right].map(|host| run_tunnels(host, v4, protocol, algorithms));
            assert_eq!(net.left.status()["link_sending"]["in_use"], true);
            assert_eq!(net.left.status()["link_sending"]["reason"], serde_json::Value::Null);
            // The first packets make the next hop known.
            assert_eq!(send_datagrams(&net, v4, 200), 200);
            let before = kernel_output(&net.left);
            let start = Instant::now();
            assert_eq!(send_datagrams(&net, v4, 1_000), 1_000, "{protocol}, IPv4: {v4}");
            // Each datagram passes the IP output into the tunnel; of the protected packets, 32 a second do.
            let others = kernel_output(&net.left) - before - 1_000;
            let most = 40 + 40 * start.elapsed().as_secs();
            assert!(others <= most, "{others} packets of {protocol} passed the raw socket, IPv4: {v4}");
            for process in running {
                assert!(process.stop().success());
            }
        }
    }
}

#[test]
fn captured_packets_are_complete() {
    let Some(net) = TestNet::build("captured_packets_are_complete") else { return };
    let _running = [&net.left, &net.right].map(|host| run_tunnels(host, true, "esp", GCM));
    assert_eq!(send_datagrams(&net, true, 200), 200);
    let capture = net.right.run(|| FrameCapture::open(Netlink::open()?.link(WIRE)?.index)).unwrap();
    assert_eq!(send_datagrams(&net, true, 20), 20);
    let (mut count, mut idents, mut buffer) = (0, Vec::new(), vec![0; 2_000]);
    while let Some(len) = capture.next(&mut buffer, Duration::from_millis(100)).unwrap() {
        let frame = &buffer[..len];
        if frame[12..14] != [0x08, 0x00] || frame[14 + 9] != 50 {
            continue;
        }
        let ip = casemate_wire::ip::Ipv4::parse(&frame[14..]).unwrap();
        assert!(ip.verify_checksum());
        assert_eq!(usize::from(u16::from_be_bytes([frame[16], frame[17]])), len - 14);
        assert_ne!(ip.ident(), 0);
        idents.push(ip.ident());
        count += 1;
    }
    assert!(count >= 20, "{count}");
    idents.dedup();
    assert_eq!(idents.len(), count, "each packet has its own identification");
}

#[test]
fn rules_of_other_programs_are_obeyed_within_a_second() {
    let Some(net) = TestNet::build("rules_of_other_programs_are_obeyed_within_a_second") else { return };
    let _running = [&net.left, &net.right].map(|host| run_tunnels(host, true, "esp", GCM));
    assert_eq!(send_datagrams(&net, true, 100), 100);
    nft(&net.left, OUTPUT);
    let start = Instant::now();
    net.left.wait_until(|status| status["link_sending"]["in_use"] == false);
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    let reason = "the chain `c` of the nftables table `other` sees sent packets";
    assert_eq!(net.left.status()["link_sending"]["reason"], reason);
    let shown = net.left.stdout_of(env!("CARGO_BIN_EXE_casemate"), &["status"]);
    assert!(shown.contains(&format!("Single packets are sent through the raw socket: {reason}.")), "{shown}");
    // The rule applies to protected packets.
    nft(&net.left, "add rule inet other c meta l4proto esp drop\n");
    assert_eq!(send_datagrams(&net, true, 3), 0);
    nft(&net.left, "delete table inet other\n");
    net.left.wait_until(|status| status["link_sending"]["in_use"] == true);
    assert_eq!(send_datagrams(&net, true, 100), 100);
    let shown = net.left.stdout_of(env!("CARGO_BIN_EXE_casemate"), &["status"]);
    assert!(shown.contains("Single packets are sent directly to the next hop."), "{shown}");
}

#[test]
fn received_packets_are_dropped_early_and_the_rules_end_with_the_process() {
    let test = "received_packets_are_dropped_early_and_the_rules_end_with_the_process";
    let Some(net) = TestNet::build(test) else { return };
    let [_left, right] = [&net.left, &net.right].map(|host| run_tunnels(host, true, "esp", GCM));
    eventually("the table exists", || tables(&net.right).contains(EARLY_DROP));
    assert_eq!(send_datagrams(&net, true, 100), 100);
    let rules = net.right.stdout_of("nft", &["list", "table", "inet", EARLY_DROP]);
    assert!(rules.contains(&Side::Right.outer(true).to_string()), "{rules}");
    let counters = rules.split("counter packets ").skip(1);
    let packets = counters.map(|counter| counter.split(' ').next().unwrap().parse::<u32>().unwrap());
    assert!(packets.sum::<u32>() >= 100, "{rules}");
    assert_eq!(net.right.status()["link_sending"]["in_use"], true, "the rules are our own");
    // An SA of the kernel's IPsec, without keys.
    let add = "xfrm state allocspi src 192.0.2.1 dst 192.0.2.2 proto esp min 0x5000 max 0x5fff";
    if net.right.output("ip", &add.split(' ').collect::<Vec<_>>()).status.success() {
        eventually("the kernel gets its packets", || !tables(&net.right).contains(EARLY_DROP));
        assert_eq!(send_datagrams(&net, true, 10), 10);
        net.right.stdout_of("ip", &["xfrm", "state", "flush"]);
        eventually("packets are dropped early", || tables(&net.right).contains(EARLY_DROP));
    } else {
        casemate_test_support::skip("SAs of the kernel's IPsec: it has none");
    }
    right.crash();
    let after = tables(&net.right);
    assert!(!after.contains(EARLY_DROP) && after.contains(&format!("casemate_{TUN}")), "{after}");
}

#[test]
fn link_sending_can_be_switched_off() {
    let Some(net) = TestNet::build("link_sending_can_be_switched_off") else { return };
    let conf = "performance {\n link_sending = no\n}\n";
    let running = net.left.run_config(conf, None);
    assert_eq!(net.left.status()["link_sending"]["in_use"], false);
    assert_eq!(net.left.status()["link_sending"]["reason"], "it is switched off");
    assert!(running.stop().success());
    let running = net.left.run_config("", None);
    assert_eq!(net.left.status()["link_sending"]["in_use"], true);
    std::fs::write(net.left.file("conf"), conf).unwrap();
    assert!(net.left.casemate(&["reload"]).status.success());
    let warning = "performance: the changes take effect when the instance is restarted";
    eventually("a warning about the reload", || running.log().contains(warning));
}
