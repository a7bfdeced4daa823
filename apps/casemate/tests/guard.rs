//! What the guard of a running gateway lets pass, against an attacker on the wire: docs/manual/guard.md has
//! the table.
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
mod lab;

use attacker::{
    AH, ESP, Site, To, UDP, count, fragments, packet, receive, segment_routed, source_routed, tunnel, udp,
};
use lab::{Side, WIRE};
use std::net::IpAddr;

/// Whom the attacker claims to be, and to whom it writes.
fn ends(to: To, v4: bool) -> (IpAddr, IpAddr) {
    (Side::Left.inner(v4), to.addr(v4))
}

const CASES: [(To, bool); 4] = [(To::Lan, true), (To::Lan, false), (To::Gateway, true), (To::Gateway, false)];
const FORGED: [u8; 64] = [b'!'; 64];

/// A datagram of 128 bytes for this port, in two fragments: of the second one all is payload.
fn datagram(to: To, v4: bool, port: u16, byte: u8, ident: u16) -> [Vec<u8>; 2] {
    fragments(ends(to, v4), UDP, &udp(ends(to, v4), (1, port), &[byte; 120]), 64, ident)
}

#[test]
fn clear_fragments_never_complete_what_came_through_the_tunnel() {
    let test = "clear_fragments_never_complete_what_came_through_the_tunnel";
    let Some(site) = Site::build(test) else { return };
    // Without Casemate the attacker is heard: what follows is the guard's work.
    let socket = site.receiver(To::Lan, true, 7_000);
    site.attack(&datagram(To::Lan, true, 7_000, b'?', 9));
    assert_eq!(receive(&socket, &mut [0; 200]), 120);
    drop(socket);
    let start = |host: &lab::Host| host.protect(&tunnel(host, ""));
    let (left, right) = (start(&site.lab.left), start(&site.lab.right));
    for (to, v4) in CASES {
        let socket = site.receiver(to, v4, 7_000);
        let sent = datagram(to, v4, 7_000, b'a', 10);
        site.send_from_left(&sent);
        assert_eq!(
            site.arrives_before(&socket, v4, b"last"),
            [vec![b'a'; 120]],
            "{to:?} {v4}: the tunnel's own"
        );
        for (ident, clear_first) in [(11, false), (12, true)] {
            let [first, _] = datagram(to, v4, 7_000, b'a', ident);
            let [_, later] = datagram(to, v4, 7_000, b'!', ident);
            if clear_first {
                site.attack(std::slice::from_ref(&later));
            }
            site.send_from_left(&[first]);
            // The first fragment has arrived when this datagram has.
            assert_eq!(site.arrives_before(&socket, v4, b"between"), [[0; 0]; 0]);
            if !clear_first {
                site.attack(&[later]);
            }
            let arrived = site.arrives_before(&socket, v4, b"last");
            assert_eq!(arrived, [[0; 0]; 0], "{to:?} v4 {v4} clear first {clear_first}");
        }
    }
    assert!(left.stop().success() && right.stop().success());
}

#[test]
fn what_claims_to_be_ipsec_is_not_forwarded_in_clear() {
    let Some(site) = Site::build("what_claims_to_be_ipsec_is_not_forwarded_in_clear") else { return };
    let start = |host: &lab::Host| host.protect(&tunnel(host, ""));
    let (left, right) = (start(&site.lab.left), start(&site.lab.right));
    for v4 in [true, false] {
        for port in [500, 4_500, 7_000] {
            let socket = site.receiver(To::Lan, v4, port);
            site.attack(&[packet(ends(To::Lan, v4), UDP, &udp(ends(To::Lan, v4), (1, port), &FORGED))]);
            site.attack(&datagram(To::Lan, v4, port, b'!', port));
            assert_eq!(site.arrives_before(&socket, v4, b"last"), [[0; 0]; 0], "v4 {v4} port {port}");
        }
        let last = site.receiver(To::Lan, v4, 7_001);
        for protocol in [ESP, AH] {
            let socket = site.raw_receiver(To::Lan, v4, protocol);
            site.attack(&[packet(ends(To::Lan, v4), protocol, &FORGED)]);
            site.attack(&fragments(ends(To::Lan, v4), protocol, &FORGED, 32, 77));
            assert_eq!(site.arrives_before(&last, v4, b"last"), [[0; 0]; 0]);
            assert_eq!(count(&socket), 0, "v4 {v4} protocol {protocol}");
        }
        // The gateway itself: cleartext for its own sockets, whole and in fragments.
        let socket = site.receiver(To::Gateway, v4, 7_000);
        let whole = udp(ends(To::Gateway, v4), (1, 7_000), &FORGED);
        site.attack(&[packet(ends(To::Gateway, v4), UDP, &whole)]);
        site.attack(&datagram(To::Gateway, v4, 7_000, b'!', 78));
        // A fragment may claim to be of any protocol; for IPv6 only the first one's claim counts.
        let [first, _] = datagram(To::Gateway, v4, 7_000, b'!', 79);
        let [_, later] = fragments(ends(To::Gateway, v4), ESP, &whole, 64, 79);
        site.attack(&[first, later]);
        assert_eq!(site.arrives_before(&socket, v4, b"last"), [[0; 0]; 0], "v4 {v4}");
    }
    assert!(left.stop().success() && right.stop().success());
}

#[test]
fn what_no_policy_names_is_forwarded_as_it_was() {
    let Some(site) = Site::build("what_no_policy_names_is_forwarded_as_it_was") else { return };
    let start = |host: &lab::Host| host.protect(&tunnel(host, ""));
    let (left, right) = (start(&site.lab.left), start(&site.lab.right));
    for v4 in [true, false] {
        let ends = (Side::Left.outer(v4), To::Open.addr(v4));
        for port in [500, 4_500, 7_000] {
            let socket = site.receiver(To::Open, v4, port);
            let datagram = udp(ends, (1, port), &[b'a'; 120]);
            site.attack(&[packet(ends, UDP, &datagram)]);
            site.attack(&fragments(ends, UDP, &datagram, 64, port));
            for _ in 0..2 {
                assert_eq!(receive(&socket, &mut [0; 200]), 120, "v4 {v4} port {port}");
            }
        }
        for protocol in [ESP, AH] {
            let socket = site.raw_receiver(To::Open, v4, protocol);
            socket.set_nonblocking(false).unwrap();
            socket.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
            // An AH header without options, so that IPv6 has nothing to say against it.
            let body = [&[59, 1, 0, 0, 0, 0, 1, 0][..], &[0; 56]].concat();
            site.attack(&[packet(ends, protocol, &body)]);
            assert!(
                lab::uninterrupted(|| std::io::Read::read(&mut &socket, &mut [0; 200])).unwrap() >= 64,
                "v4 {v4} protocol {protocol}"
            );
        }
    }
    assert!(left.stop().success() && right.stop().success());
}

/// RFC 4301 section 7.4: a policy for ports decides nothing for a later fragment, so no clear one passes
/// where one is.
#[test]
fn fragments_do_not_pass_where_ports_are_protected() {
    let Some(site) = Site::build("fragments_do_not_pass_where_ports_are_protected") else { return };
    let start = |host: &lab::Host| host.protect(&tunnel(host, "proto udp dport 7000"));
    let right = start(&site.lab.right);
    for v4 in [true, false] {
        let (guarded, open) = (site.receiver(To::Lan, v4, 7_000), site.receiver(To::Lan, v4, 7_001));
        for port in [7_000, 7_001] {
            // Whether the first fragment shows a port that is protected or not, the later one shows none.
            site.attack(&datagram(To::Lan, v4, port, b'!', port));
        }
        let whole = |port| packet(ends(To::Lan, v4), UDP, &udp(ends(To::Lan, v4), (1, port), b"whole"));
        site.attack(&[whole(7_000), whole(7_001)]);
        let mut buffer = [0; 200];
        let len = receive(&open, &mut buffer);
        assert_eq!(buffer[..len], *b"whole", "v4 {v4}: nothing protects this port");
        guarded.set_nonblocking(true).unwrap();
        assert!(guarded.recv(&mut buffer).is_err(), "v4 {v4}");
    }
    assert!(right.stop().success());
}

/// Between hosts, where the addresses of IKE and encapsulated ESP are protected themselves.
#[test]
fn encapsulated_esp_reaches_the_gateway_in_fragments_too() {
    let Some(site) = Site::build("encapsulated_esp_reaches_the_gateway_in_fragments_too") else { return };
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
        let running = site.lab.right.protect(&file.replace(" ::", if v4 { " 0.0.0.0" } else { " ::" }));
        let socket = site.lab.right.netns.run(|| std::net::UdpSocket::bind((right, 7_000))).unwrap().unwrap();
        socket.set_nonblocking(true).unwrap();
        // An SPI that there is not.
        let esp = [&[0, 0, 0x99, 0x99][..], &[1; 100]].concat();
        let ends = (left, right);
        let unknown = |wanted: u64| site.lab.right.waits_until(|status| status["drops"]["no-sa"] == wanted);
        site.attack(&fragments(ends, UDP, &udp(ends, (1, 7_000), &FORGED), 32, 5));
        site.attack(&[packet(ends, UDP, &udp(ends, (1, 7_000), &FORGED))]);
        site.attack(&[packet(ends, UDP, &udp(ends, (4_500, 4_500), &esp))]);
        unknown(1);
        site.attack(&fragments(ends, UDP, &udp(ends, (4_500, 4_500), &esp), 64, 6));
        unknown(2);
        assert!(socket.recv(&mut [0; 200]).is_err(), "v4 {v4}");
        assert!(running.stop().success());
    }
}

/// While a packet waits to be sent on by its source route, its destination is still the gateway's address.
#[test]
fn source_routes_do_not_lead_past_the_guard() {
    let Some(site) = Site::build("source_routes_do_not_lead_past_the_guard") else { return };
    let permit = |interfaces: &[&str]| {
        for name in interfaces {
            std::fs::write(format!("/proc/sys/net/ipv4/conf/{name}/accept_source_route"), "1").unwrap();
            std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/seg6_enabled"), "1").unwrap();
        }
    };
    site.on(To::Gateway, || permit(&["all", WIRE, "lan0"]));
    site.on(To::Lan, || permit(&["all", "lan0"]));
    // Loose and strict, by an address that is protected and by one that is not.
    let attacks = |byte: u8| {
        let (IpAddr::V4(src), IpAddr::V4(dst)) = ends(To::Lan, true) else { panic!() };
        let datagram = udp(ends(To::Lan, true), (1, 7_000), &[byte; 100]);
        let mut packets = Vec::new();
        for (option, via) in [(0x83, true), (0x89, true), (0x83, false), (0x89, false)] {
            let via = if via { Side::Right.outer(true) } else { [172, 16, 5, 1].into() };
            let IpAddr::V4(via) = via else { panic!() };
            for passed in [false, true] {
                packets.push(source_routed((src, dst), via, (option, passed), &datagram));
            }
        }
        packets
    };
    let segments = |byte: u8| {
        let (IpAddr::V6(src), IpAddr::V6(dst)) = ends(To::Lan, false) else { panic!() };
        let IpAddr::V6(via) = Side::Right.outer(false) else { panic!() };
        let datagram = udp(ends(To::Lan, false), (1, 7_000), &[byte; 100]);
        [segment_routed((src, dst), via, UDP, &datagram)]
    };
    // Without Casemate they arrive: what follows is the guard's work.
    let (v4, v6) = (site.receiver(To::Lan, true, 7_000), site.receiver(To::Lan, false, 7_000));
    site.attack(&attacks(b'?'));
    site.attack(&segments(b'?'));
    let mut buffer = [0; 200];
    for _ in attacks(b'?') {
        assert_eq!(receive(&v4, &mut buffer), 100);
    }
    assert_eq!(receive(&v6, &mut buffer), 100);
    let start = |host: &lab::Host| host.protect(&tunnel(host, ""));
    let (left, right) = (start(&site.lab.left), start(&site.lab.right));
    site.attack(&attacks(b'!'));
    site.attack(&segments(b'!'));
    assert_eq!(site.arrives_before(&v4, true, b"last"), [[0; 0]; 0]);
    assert_eq!(site.arrives_before(&v6, false, b"last"), [[0; 0]; 0]);
    assert!(left.stop().success() && right.stop().success());
}
