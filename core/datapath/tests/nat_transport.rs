//! Transport mode through a NAT: upper-layer checksums are corrected (RFC 3948 section 3.1.2).
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

use casemate_datapath::{Direction, Unmatched};
use casemate_sa::{AddrPair, Mode, SaParams, SpdId, Spi, UdpEncap};
use casemate_test_support::hosts::{Host, PROVIDERS, Received, packets, suites};
use casemate_wire::checksum::{Sum, pseudo_v4, pseudo_v6};
use casemate_wire::ip::proto;
use casemate_wire::ip::v4::Ipv4;
use std::net::IpAddr;

const UDP_LITE: u8 = 136;
const DCCP: u8 = 33;

/// A client and a server with a NAT in front of each.
struct DoubleNat {
    client: Host,
    server: Host,
    /// Addresses of the client's packets as the client sees them.
    sent: AddrPair,
    /// Addresses of the client's packets as the server sees them.
    seen: AddrPair,
}

fn addrs(version: u8) -> [AddrPair; 2] {
    let texts = match version {
        4 => [["10.0.0.5", "203.0.113.2"], ["198.51.100.7", "172.16.255.9"]],
        _ => [["fd00::5", "2001:db8:2::2"], ["2001:db8:1::7", "fd12:3456:789a::9"]],
    };
    texts.map(|[src, dst]| AddrPair { src: src.parse().unwrap(), dst: dst.parse().unwrap() })
}

impl DoubleNat {
    fn new(version: u8, knows_original: bool) -> Self {
        let [sent, seen] = addrs(version);
        let host = || Host::with_limits(Unmatched::PassAll, 65_535, casemate_sa::Limits::DEVICE);
        let (mut client, mut server) = (host(), host());
        let transform = suites::esp(suites::gcm(), 1);
        let sa = |path: AddrPair| SaParams {
            encap: Some(UdpEncap { src_port: 4500, dst_port: 4500 }),
            ..SaParams::new(Spi::new(0x1234).unwrap(), path.src, path.dst, Mode::Transport, transform.clone())
        };
        client.dp.add_sa(&sa(sent), Direction::Outbound, &PROVIDERS, client.now).unwrap();
        let original_addrs = Some(sent).filter(|_| knows_original);
        let inbound = SaParams { original_addrs, ..sa(seen) };
        server.dp.add_sa(&inbound, Direction::Inbound, &PROVIDERS, server.now).unwrap();
        client.dp.add_policy(Direction::Outbound, policy(sent)).unwrap();
        Self { client, server, sent, seen }
    }

    /// Sends `payload` from the client and returns the packet that arrives at the server.
    fn pass(&mut self, protocol: u8, payload: &[u8], headers: &[(u8, Vec<u8>)]) -> Vec<u8> {
        let packet = packets::ip(self.sent.src, self.sent.dst, protocol, payload, false);
        let packet = if headers.is_empty() { packet } else { packets::with_v6_headers(&packet, headers) };
        let mut wire = self.client.send(&packet).wire();
        translate(&mut wire, self.seen);
        match self.server.receive(&wire) {
            Received::Packet(packet) => packet,
            other => panic!("{other:?}"),
        }
    }
}

fn policy(addrs: AddrPair) -> casemate_datapath::spd::Policy {
    use casemate_datapath::spd::{Action, Bundle, Policy, Template};
    use casemate_sa::{AddrRange, Protocol, Selector};
    let template =
        Template { protocol: Protocol::Esp, mode: Mode::Transport, src: None, dst: None, reqid: 0 };
    Policy {
        spd: SpdId::MAIN,
        selector: Selector::between(AddrRange::single(addrs.src), AddrRange::single(addrs.dst)),
        action: Action::Protect(Bundle::single(template)),
        priority: 0,
    }
}

/// Applies the NATs to a packet. The UDP header in front of ESP has no checksum.
fn translate(wire: &mut [u8], addrs: AddrPair) {
    match (addrs.src, addrs.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            wire[12..16].copy_from_slice(&src.octets());
            wire[16..20].copy_from_slice(&dst.octets());
            Ipv4::parse(wire).unwrap().fill_checksum();
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            wire[8..24].copy_from_slice(&src.octets());
            wire[24..40].copy_from_slice(&dst.octets());
        }
        _ => panic!("mixed versions"),
    }
}

/// The sum over the pseudo header and `payload`.
fn sum(addrs: AddrPair, protocol: u8, payload: &[u8]) -> Sum {
    let pseudo = match (addrs.src, addrs.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => pseudo_v4(src, dst, protocol, payload.len() as u16),
        (IpAddr::V6(src), IpAddr::V6(dst)) => pseudo_v6(src, dst, protocol, payload.len() as u32),
        _ => panic!("mixed versions"),
    };
    pseudo.add_bytes(payload)
}

/// A payload of `len` bytes with a correct checksum at `at` for these addresses.
fn payload(addrs: AddrPair, protocol: u8, at: usize, len: usize, fill: u8) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len).map(|n| fill.wrapping_mul(31).wrapping_add(n as u8)).collect();
    bytes[at..at + 2].fill(0);
    let checksum = match sum(addrs, protocol, &bytes).finish() {
        0 if protocol == proto::UDP => 0xffff,
        checksum => checksum,
    };
    bytes[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

const CHECKED: [(u8, usize); 5] =
    [(proto::TCP, 16), (proto::UDP, 6), (UDP_LITE, 6), (DCCP, 6), (proto::ICMPV6, 2)];

#[test]
fn checksums_are_correct_after_nat() {
    for version in [4, 6] {
        let mut natted = DoubleNat::new(version, true);
        let mut without = DoubleNat::new(version, false);
        for (protocol, at) in CHECKED {
            for len in [20, 21, 64, 1_000] {
                for fill in 0..20 {
                    let bytes = payload(natted.sent, protocol, at, len, fill);
                    let arrived = natted.pass(protocol, &bytes, &[]);
                    let inner = &arrived[arrived.len() - len..];
                    assert!(
                        sum(natted.seen, protocol, inner).is_valid(),
                        "{version} {protocol} {len} {fill}"
                    );
                    assert_eq!((&inner[..at], &inner[at + 2..]), (&bytes[..at], &bytes[at + 2..]));
                    let broken = without.pass(protocol, &bytes, &[]);
                    assert!(!sum(natted.seen, protocol, &broken[broken.len() - len..]).is_valid());
                }
            }
        }
    }
}

#[test]
fn wrong_checksum_stays_wrong() {
    let mut natted = DoubleNat::new(4, true);
    let mut bytes = payload(natted.sent, proto::TCP, 16, 40, 1);
    bytes[30] ^= 4;
    let arrived = natted.pass(proto::TCP, &bytes, &[]);
    assert!(!sum(natted.seen, proto::TCP, &arrived[20..]).is_valid());
}

/// RFC 768: zero means "no checksum", and a computed checksum of zero is sent as 0xFFFF.
#[test]
fn udp_checksum_zero_stays_and_never_results() {
    let mut natted = DoubleNat::new(4, true);
    let bytes = [0, 5, 0, 6, 0, 12, 0, 0, 1, 2, 3, 4];
    assert_eq!(natted.pass(proto::UDP, &bytes, &[])[20..], bytes);
    // The last word makes the sum with the server's addresses all ones.
    let mut bytes = payload(natted.sent, proto::UDP, 6, 12, 3);
    bytes[6..8].fill(0);
    bytes[10..].fill(0);
    let missing = sum(natted.seen, proto::UDP, &bytes).finish();
    bytes[10..].copy_from_slice(&missing.to_be_bytes());
    let checksum = sum(natted.sent, proto::UDP, &bytes).finish();
    bytes[6..8].copy_from_slice(&checksum.to_be_bytes());
    assert_eq!(natted.pass(proto::UDP, &bytes, &[])[26..28], [0xff, 0xff]);
}

#[test]
fn packets_without_such_checksum_stay_unchanged() {
    for version in [4, 6] {
        let mut natted = DoubleNat::new(version, true);
        let mut untouched = |protocol: u8, bytes: &[u8]| {
            let arrived = natted.pass(protocol, bytes, &[]);
            assert_eq!(arrived[arrived.len() - bytes.len()..], *bytes, "{version} {protocol}");
        };
        let bytes: Vec<u8> = (1..=40).collect();
        for protocol in [proto::ICMP, proto::SCTP, 47, 89, 103] {
            untouched(protocol, &bytes);
        }
        // Too short for the checksum field.
        for (protocol, at) in CHECKED {
            for len in 0..at + 2 {
                untouched(protocol, &bytes[..len]);
            }
        }
    }
}

#[test]
fn checksum_after_extension_headers_is_found() {
    let mut natted = DoubleNat::new(6, true);
    let bytes = payload(natted.sent, proto::TCP, 16, 33, 9);
    let options = || vec![0, 0, 1, 4, 0, 0, 0, 0];
    for headers in [
        vec![(proto::DEST_OPTS, options())],
        vec![(proto::HOP_BY_HOP, options()), (proto::DEST_OPTS, options())],
    ] {
        let arrived = natted.pass(proto::TCP, &bytes, &headers);
        assert!(sum(natted.seen, proto::TCP, &arrived[arrived.len() - 33..]).is_valid());
    }
}
