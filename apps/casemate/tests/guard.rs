//! The guard of a running gateway against an attacker on the wire. The table is in docs/manual/guard.md.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test may fail"
)]

#[allow(dead_code, reason = "other tests use the rest")]
mod attacker;
#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use attacker::{
    AH, AttackNet, Destination, ESP, Ports, SourceRoute, UDP, count, fragments, packet, receive,
    segment_routed, source_routed, tunnel, udp,
};
use casemate_sa::AddrPair;
use std::net::IpAddr;
use testnet::{Side, WIRE};

/// The forged source and the destination of the attacker's packets.
fn addresses(to: Destination, v4: bool) -> AddrPair {
    AddrPair { src: Side::Left.inner(v4), dst: to.addr(v4) }
}

/// Destinations, and whether the packets are IPv4 packets.
const CASES: [(Destination, bool); 4] = [
    (Destination::Lan, true),
    (Destination::Lan, false),
    (Destination::Gateway, true),
    (Destination::Gateway, false),
];
const FORGED: [u8; 64] = [b'!'; 64];

/// A UDP datagram of 128 bytes in two fragments; the second contains payload only.
fn datagram(to: Destination, v4: bool, port: u16, byte: u8, ident: u16) -> [Vec<u8>; 2] {
    fragments(
        addresses(to, v4),
        UDP,
        &udp(addresses(to, v4), Ports { src: 1, dst: port }, &[byte; 120]),
        64,
        ident,
    )
}

#[test]
fn clear_fragments_never_complete_protected_datagrams() {
    let test = "clear_fragments_never_complete_protected_datagrams";
    let Some(attack_net) = AttackNet::build(test) else { return };
    // Without Casemate the attacker's datagram arrives, so the guard causes the later drops.
    let socket = attack_net.receiver(Destination::Lan, true, 7_000);
    attack_net.attack(&datagram(Destination::Lan, true, 7_000, b'?', 9));
    assert_eq!(receive(&socket, &mut [0; 200]), 120);
    drop(socket);
    let start = |host: &testnet::Host| host.run_xfrm(&tunnel(host, ""));
    let (left, right) = (start(&attack_net.net.left), start(&attack_net.net.right));
    for (to, v4) in CASES {
        let socket = attack_net.receiver(to, v4, 7_000);
        let sent = datagram(to, v4, 7_000, b'a', 10);
        attack_net.send_from_left(&sent);
        assert_eq!(
            attack_net.received_before(&socket, v4, b"last"),
            [vec![b'a'; 120]],
            "{to:?} {v4}: protected fragments"
        );
        for (ident, clear_first) in [(11, false), (12, true)] {
            let [first, _] = datagram(to, v4, 7_000, b'a', ident);
            let [_, later] = datagram(to, v4, 7_000, b'!', ident);
            if clear_first {
                attack_net.attack(std::slice::from_ref(&later));
            }
            attack_net.send_from_left(&[first]);
            // The first fragment arrives before this datagram.
            assert_eq!(attack_net.received_before(&socket, v4, b"between"), [[0; 0]; 0]);
            if !clear_first {
                attack_net.attack(&[later]);
            }
            let arrived = attack_net.received_before(&socket, v4, b"last");
            assert_eq!(arrived, [[0; 0]; 0], "{to:?} v4 {v4} clear first {clear_first}");
        }
    }
    assert!(left.stop().success() && right.stop().success());
}

#[test]
fn clear_packets_that_look_like_ipsec_are_not_forwarded() {
    let Some(attack_net) = AttackNet::build("clear_packets_that_look_like_ipsec_are_not_forwarded") else {
        return;
    };
    let start = |host: &testnet::Host| host.run_xfrm(&tunnel(host, ""));
    let (left, right) = (start(&attack_net.net.left), start(&attack_net.net.right));
    for v4 in [true, false] {
        for port in [500, 4_500, 7_000] {
            let socket = attack_net.receiver(Destination::Lan, v4, port);
            attack_net.attack(&[packet(
                addresses(Destination::Lan, v4),
                UDP,
                &udp(addresses(Destination::Lan, v4), Ports { src: 1, dst: port }, &FORGED),
            )]);
            attack_net.attack(&datagram(Destination::Lan, v4, port, b'!', port));
            assert_eq!(attack_net.received_before(&socket, v4, b"last"), [[0; 0]; 0], "v4 {v4} port {port}");
        }
        let last = attack_net.receiver(Destination::Lan, v4, 7_001);
        for protocol in [ESP, AH] {
            let socket = attack_net.raw_receiver(Destination::Lan, v4, protocol);
            attack_net.attack(&[packet(addresses(Destination::Lan, v4), protocol, &FORGED)]);
            attack_net.attack(&fragments(addresses(Destination::Lan, v4), protocol, &FORGED, 32, 77));
            assert_eq!(attack_net.received_before(&last, v4, b"last"), [[0; 0]; 0]);
            assert_eq!(count(&socket), 0, "v4 {v4} protocol {protocol}");
        }
        // Cleartext to the gateway's own sockets, whole and in fragments.
        let socket = attack_net.receiver(Destination::Gateway, v4, 7_000);
        let whole = udp(addresses(Destination::Gateway, v4), Ports { src: 1, dst: 7_000 }, &FORGED);
        attack_net.attack(&[packet(addresses(Destination::Gateway, v4), UDP, &whole)]);
        attack_net.attack(&datagram(Destination::Gateway, v4, 7_000, b'!', 78));
        // A fragment may claim any protocol; for IPv6 only the claim of the first fragment counts.
        let [first, _] = datagram(Destination::Gateway, v4, 7_000, b'!', 79);
        let [_, later] = fragments(addresses(Destination::Gateway, v4), ESP, &whole, 64, 79);
        attack_net.attack(&[first, later]);
        assert_eq!(attack_net.received_before(&socket, v4, b"last"), [[0; 0]; 0], "v4 {v4}");
    }
    assert!(left.stop().success() && right.stop().success());
}

#[test]
fn traffic_without_a_policy_is_forwarded_unchanged() {
    let Some(attack_net) = AttackNet::build("traffic_without_a_policy_is_forwarded_unchanged") else {
        return;
    };
    let start = |host: &testnet::Host| host.run_xfrm(&tunnel(host, ""));
    let (left, right) = (start(&attack_net.net.left), start(&attack_net.net.right));
    for v4 in [true, false] {
        let addrs = AddrPair { src: Side::Left.outer(v4), dst: Destination::Open.addr(v4) };
        for port in [500, 4_500, 7_000] {
            let socket = attack_net.receiver(Destination::Open, v4, port);
            let datagram = udp(addrs, Ports { src: 1, dst: port }, &[b'a'; 120]);
            attack_net.attack(&[packet(addrs, UDP, &datagram)]);
            attack_net.attack(&fragments(addrs, UDP, &datagram, 64, port));
            for _ in 0..2 {
                assert_eq!(receive(&socket, &mut [0; 200]), 120, "v4 {v4} port {port}");
            }
        }
        for protocol in [ESP, AH] {
            let socket = attack_net.raw_receiver(Destination::Open, v4, protocol);
            socket.set_nonblocking(false).unwrap();
            socket.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
            // An AH header without options, which IPv6 accepts.
            let body = [&[59, 1, 0, 0, 0, 0, 1, 0][..], &[0; 56]].concat();
            attack_net.attack(&[packet(addrs, protocol, &body)]);
            assert!(
                testnet::retry_interrupted(|| std::io::Read::read(&mut &socket, &mut [0; 200])).unwrap()
                    >= 64,
                "v4 {v4} protocol {protocol}"
            );
        }
    }
    assert!(left.stop().success() && right.stop().success());
}

/// RFC 4301 section 7.4: a policy for ports cannot match a later fragment, so no clear fragment passes
/// where such a policy applies.
#[test]
fn clear_fragments_do_not_pass_where_ports_are_protected() {
    let Some(attack_net) = AttackNet::build("clear_fragments_do_not_pass_where_ports_are_protected") else {
        return;
    };
    let start = |host: &testnet::Host| host.run_xfrm(&tunnel(host, "proto udp dport 7000"));
    let right = start(&attack_net.net.right);
    for v4 in [true, false] {
        let (guarded, open) = (
            attack_net.receiver(Destination::Lan, v4, 7_000),
            attack_net.receiver(Destination::Lan, v4, 7_001),
        );
        for port in [7_000, 7_001] {
            // Protected or not, the port is visible in the first fragment only.
            attack_net.attack(&datagram(Destination::Lan, v4, port, b'!', port));
        }
        let whole = |port| {
            packet(
                addresses(Destination::Lan, v4),
                UDP,
                &udp(addresses(Destination::Lan, v4), Ports { src: 1, dst: port }, b"whole"),
            )
        };
        attack_net.attack(&[whole(7_000), whole(7_001)]);
        let mut buffer = [0; 200];
        let len = receive(&open, &mut buffer);
        assert_eq!(buffer[..len], *b"whole", "v4 {v4}: this port is not protected");
        guarded.set_nonblocking(true).unwrap();
        assert!(guarded.recv(&mut buffer).is_err(), "v4 {v4}");
    }
    assert!(right.stop().success());
}

/// Transport mode between hosts, where the policies protect the addresses of IKE and encapsulated ESP.
#[test]
fn fragmented_encapsulated_esp_reaches_the_gateway() {
    let Some(attack_net) = AttackNet::build("fragmented_encapsulated_esp_reaches_the_gateway") else {
        return;
    };
    for v4 in [true, false] {
        let (left, right) = (Side::Left.outer(v4), Side::Right.outer(v4));
        let mut file = String::new();
        for (src, dst, dir, spi) in [(left, right, "in", 1), (right, left, "out", 2)] {
            file += &format!(
                "xfrm state add src {src} dst {dst} proto esp spi {spi:#x}000 mode transport encap espinudp 4500 4500 :: \
                 enc 'cbc(aes)' 0x{0} auth-trunc 'hmac(sha256)' 0x{0}{0} 128\n\
                 xfrm policy add src {src} dst {dst} dir {dir} tmpl src {src} dst {dst} proto esp mode transport\n",
                "0a".repeat(16)
            );
        }
        let running =
            attack_net.net.right.run_xfrm(&file.replace(" ::", if v4 { " 0.0.0.0" } else { " ::" }));
        let socket =
            attack_net.net.right.netns.run(|| std::net::UdpSocket::bind((right, 7_000))).unwrap().unwrap();
        socket.set_nonblocking(true).unwrap();
        // An unknown SPI.
        let esp = [&[0, 0, 0x99, 0x99][..], &[1; 100]].concat();
        let addrs = AddrPair { src: left, dst: right };
        let unknown =
            |wanted: u64| attack_net.net.right.wait_until(|status| status["drops"]["no-sa"] == wanted);
        attack_net.attack(&fragments(addrs, UDP, &udp(addrs, Ports { src: 1, dst: 7_000 }, &FORGED), 32, 5));
        attack_net.attack(&[packet(addrs, UDP, &udp(addrs, Ports { src: 1, dst: 7_000 }, &FORGED))]);
        attack_net.attack(&[packet(addrs, UDP, &udp(addrs, Ports { src: 4_500, dst: 4_500 }, &esp))]);
        unknown(1);
        attack_net.attack(&fragments(addrs, UDP, &udp(addrs, Ports { src: 4_500, dst: 4_500 }, &esp), 64, 6));
        unknown(2);
        assert!(socket.recv(&mut [0; 200]).is_err(), "v4 {v4}");
        assert!(running.stop().success());
    }
}

/// Until a packet is forwarded along its source route, its destination is the gateway's address.
#[test]
fn source_routes_do_not_bypass_the_guard() {
    let Some(attack_net) = AttackNet::build("source_routes_do_not_bypass_the_guard") else { return };
    let permit = |interfaces: &[&str]| {
        for name in interfaces {
            std::fs::write(format!("/proc/sys/net/ipv4/conf/{name}/accept_source_route"), "1").unwrap();
            std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/seg6_enabled"), "1").unwrap();
        }
    };
    attack_net.on(Destination::Gateway, || permit(&["all", WIRE, "lan0"]));
    attack_net.on(Destination::Lan, || permit(&["all", "lan0"]));
    // Loose and strict source routes, through a protected and an unprotected address.
    let attacks = |byte: u8| {
        let addrs = addresses(Destination::Lan, true);
        let (IpAddr::V4(src), IpAddr::V4(dst)) = (addrs.src, addrs.dst) else { panic!() };
        let datagram = udp(addrs, Ports { src: 1, dst: 7_000 }, &[byte; 100]);
        let mut packets = Vec::new();
        for (option, via) in [(0x83, true), (0x89, true), (0x83, false), (0x89, false)] {
            let via = if via { Side::Right.outer(true) } else { [172, 16, 5, 1].into() };
            let IpAddr::V4(via) = via else { panic!() };
            for has_passed in [false, true] {
                packets.push(source_routed(src, dst, SourceRoute { via, option, has_passed }, &datagram));
            }
        }
        packets
    };
    let segments = |byte: u8| {
        let addrs = addresses(Destination::Lan, false);
        let (IpAddr::V6(src), IpAddr::V6(dst)) = (addrs.src, addrs.dst) else { panic!() };
        let IpAddr::V6(via) = Side::Right.outer(false) else { panic!() };
        let datagram = udp(addrs, Ports { src: 1, dst: 7_000 }, &[byte; 100]);
        [segment_routed(src, dst, via, &datagram)]
    };
    // Without Casemate the packets arrive, so the guard causes the later drops.
    let (v4, v6) = (
        attack_net.receiver(Destination::Lan, true, 7_000),
        attack_net.receiver(Destination::Lan, false, 7_000),
    );
    attack_net.attack(&attacks(b'?'));
    attack_net.attack(&segments(b'?'));
    let mut buffer = [0; 200];
    for _ in attacks(b'?') {
        assert_eq!(receive(&v4, &mut buffer), 100);
    }
    assert_eq!(receive(&v6, &mut buffer), 100);
    let start = |host: &testnet::Host| host.run_xfrm(&tunnel(host, ""));
    let (left, right) = (start(&attack_net.net.left), start(&attack_net.net.right));
    attack_net.attack(&attacks(b'!'));
    attack_net.attack(&segments(b'!'));
    assert_eq!(attack_net.received_before(&v4, true, b"last"), [[0; 0]; 0]);
    assert_eq!(attack_net.received_before(&v6, false, b"last"), [[0; 0]; 0]);
    assert!(left.stop().success() && right.stop().success());
}
