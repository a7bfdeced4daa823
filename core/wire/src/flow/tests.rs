use std::vec::Vec;

use super::*;
use crate::ip::{Ipv4Header, Ipv6Header, ext};
use proptest::prelude::*;

const PORTS: FlowPorts = FlowPorts::new(1, 2);
const A4: Ipv4Addr = Ipv4Addr::new(10, 1, 2, 3);
const B4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 200);
const A6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 2, 3, 4, 5, 6);
const B6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 7, 8, 9, 10);

fn v4(protocol: u8, upper: &[u8]) -> Vec<u8> {
    let payload_len = upper.len() as u16;
    let header = Ipv4Header { tos: 0, ident: 1, df: false, ttl: 64, protocol, src: A4, dst: B4, payload_len };
    let mut bytes = std::vec![0; 20];
    header.emit(bytes.first_chunk_mut().unwrap()).unwrap();
    bytes.extend(upper);
    bytes
}

fn v6(next_header: u8, payload: &[u8]) -> Vec<u8> {
    let header = Ipv6Header {
        traffic_class: 0,
        flow_label: 0,
        payload_len: payload.len() as u16,
        next_header,
        hop_limit: 64,
        src: A6,
        dst: B6,
    };
    let mut bytes = std::vec![0; 40];
    header.emit(bytes.first_chunk_mut().unwrap());
    bytes.extend(payload);
    bytes
}

fn fragment(offset: u16, more: bool, next_header: u8) -> [u8; 8] {
    let mut out = [0; 8];
    ext::FragmentHeader { at: 40, offset, more, ident: 9 }.emit(next_header, &mut out);
    out
}

#[test]
fn ports_by_protocol() {
    let upper = [0x12, 0x34, 0x56, 0x78, 0, 0, 0, 0];
    for (number, ports) in [
        (proto::TCP, FlowPorts::new(0x1234, 0x5678)),
        (proto::UDP, FlowPorts::new(0x1234, 0x5678)),
        (proto::UDP_LITE, FlowPorts::new(0x1234, 0x5678)),
        (proto::SCTP, FlowPorts::new(0x1234, 0x5678)),
        (proto::DCCP, FlowPorts::new(0x1234, 0x5678)),
        (proto::ICMP, FlowPorts::new(0x12, 0x34)),
        (proto::ICMPV6, FlowPorts::new(0x12, 0x34)),
        (proto::MOBILITY, FlowPorts::new(0x56, 0)),
        (proto::ESP, FlowPorts::NONE),
        (proto::AH, FlowPorts::NONE),
    ] {
        assert_eq!(FlowKey::parse(&v4(number, &upper)), Ok(FlowKey::v4(A4, B4, number, ports)));
        assert_eq!(FlowKey::parse(&v6(number, &upper)), Ok(FlowKey::v6(A6, B6, number, ports)));
    }
}

#[test]
fn ports_beyond_a_short_packet_are_opaque() {
    for (number, min) in [(proto::TCP, 4), (proto::ICMPV6, 2), (proto::MOBILITY, 3), (proto::NO_NEXT, 0)] {
        for packet in [v4(number, &[0; 4][..min]), v6(number, &[0; 4][..min])] {
            assert!(FlowKey::parse(&packet).is_ok());
        }
        if min > 0 {
            for packet in [v4(number, &[0; 4][..min - 1]), v6(number, &[0; 4][..min - 1])] {
                assert_eq!(FlowKey::parse(&packet).unwrap().ports(), None);
                assert_eq!(FlowKey::parse_quoted(&packet).unwrap().ports(), None);
            }
        }
    }
    let quoted = FlowKey::parse_quoted(&v4(proto::UDP, &[0, 1, 0, 2, 0, 0, 0, 0])[..24]).unwrap();
    assert_eq!(quoted, FlowKey::v4(A4, B4, proto::UDP, PORTS));
}

#[test]
fn fragments_of_ipv4() {
    let mut bytes = v4(proto::UDP, &[0, 1, 0, 2]);
    bytes[6] = 0x40;
    assert_eq!(FlowKey::parse(&bytes).unwrap().fragment(), FragmentKind::Whole);
    bytes[6] = 0x20;
    let first = FlowKey::parse(&bytes).unwrap();
    assert_eq!((first.fragment(), first.ports()), (FragmentKind::First, Some(PORTS)));
    for flags in [[0x20, 1], [0, 1]] {
        bytes[6..8].copy_from_slice(&flags);
        let later = FlowKey::parse(&bytes).unwrap();
        assert_eq!((later.fragment(), later.ports(), later.proto()), (FragmentKind::Later, None, Some(17)));
    }
    let mut short = v4(proto::UDP, &[0, 1, 0]);
    short[6] = 0x20;
    assert_eq!(FlowKey::parse(&short).unwrap().ports(), None);
}

#[test]
fn fragments_of_ipv6() {
    let udp = [0, 1, 0, 2];
    let key = |offset, more, next, rest: &[u8]| {
        FlowKey::parse(&v6(proto::FRAGMENT, &[&fragment(offset, more, next), rest].concat())).unwrap()
    };
    assert_eq!(key(0, false, proto::UDP, &udp), FlowKey::v6(A6, B6, proto::UDP, PORTS));
    let first = key(0, true, proto::UDP, &udp);
    assert_eq!((first.fragment(), first.ports()), (FragmentKind::First, Some(PORTS)));
    let later = key(8, false, proto::UDP, &udp);
    assert_eq!((later.fragment(), later.proto(), later.ports()), (FragmentKind::Later, Some(17), None));
    let hidden = key(8, true, proto::DEST_OPTS, &udp);
    assert_eq!((hidden.fragment(), hidden.proto(), hidden.ports()), (FragmentKind::Later, None, None));
}

#[test]
fn extension_headers_are_skipped_and_esp_is_not() {
    let payload =
        [&[proto::ROUTING, 0, 0, 0, 0, 0, 0, 0][..], &[proto::TCP, 0, 0, 0, 0, 0, 0, 0], &[0, 1, 0, 2]];
    let key = FlowKey::parse(&v6(proto::HOP_BY_HOP, &payload.concat())).unwrap();
    assert_eq!(key, FlowKey::v6(A6, B6, proto::TCP, PORTS));
    let key = FlowKey::parse(&v6(proto::ESP, &[proto::TCP; 16])).unwrap();
    assert_eq!(key.proto(), Some(proto::ESP));
}

#[test]
fn getters_return_the_addresses() {
    let key = FlowKey::v4(A4, B4, 6, PORTS);
    assert_eq!((key.version(), key.src(), key.dst()), (IpVersion::V4, A4.into(), B4.into()));
    assert_eq!((key.src_bits(), key.dst_bits()), (A4.to_bits().into(), B4.to_bits().into()));
    let key = FlowKey::v6(A6, B6, 6, PORTS);
    assert_eq!((key.version(), key.src(), key.dst()), (IpVersion::V6, A6.into(), B6.into()));
    assert_eq!((key.src_bits(), key.dst_bits()), (A6.to_bits(), B6.to_bits()));
    // The IPv6 address with the same number belongs to another flow.
    let low = |bits: u32| Ipv6Addr::from_bits(bits.into());
    assert_ne!(FlowKey::v6(low(1), low(2), 6, PORTS), FlowKey::v4(1.into(), 2.into(), 6, PORTS));
}

#[test]
fn a_key_contains_the_dscp_and_not_the_ecn() {
    let payload = [0, 1, 0, 2, 0, 8, 0, 0];
    for tos in 0..=255u8 {
        let (mut four, mut six) = (v4(proto::UDP, &payload), v6(proto::UDP, &payload));
        four[1] = tos;
        (six[0], six[1]) = (0x60 | tos >> 4, tos << 4);
        let dscp = Dscp::from_tos(tos);
        for (packet, plain) in
            [(&four, FlowKey::v4(A4, B4, proto::UDP, PORTS)), (&six, FlowKey::v6(A6, B6, proto::UDP, PORTS))]
        {
            let key = FlowKey::parse(packet).unwrap();
            assert_eq!((key, key.dscp()), (plain.with_dscp(dscp), dscp));
            assert_eq!(FlowKey::parse_quoted(packet), Ok(key));
        }
    }
}

#[test]
fn keys_with_different_bits_are_unequal() {
    let key = FlowKey::v6(A6, B6, 6, PORTS);
    assert_eq!(key, FlowKey(key.0));
    for word in 0..5 {
        let mut other = key;
        other.0[word] ^= 1;
        assert_ne!(key, other);
    }
}

proptest! {
    #[test]
    fn round_trip(
        proto: Option<u8>,
        ports: Option<[u16; 2]>,
        which in 0usize..3,
        a: Ipv6Addr,
        b: Ipv4Addr,
        tos: u8,
    ) {
        let fragment = [FragmentKind::Whole, FragmentKind::First, FragmentKind::Later][which];
        let ports = ports.map(|[src, dst]| FlowPorts { src, dst });
        let bits = ports.map_or(OPAQUE_PORTS, FlowPorts::to_bits);
        for key in
            [FlowKey::pack_v4(b, A4, proto, bits, fragment), FlowKey::pack_v6(a, A6, proto, bits, fragment)]
        {
            prop_assert_eq!((key.proto(), key.ports(), key.fragment()), (proto, ports, fragment));
            let marked = key.with_dscp(Dscp::from_tos(tos));
            prop_assert_eq!((marked.proto(), marked.ports(), marked.fragment()), (proto, ports, fragment));
            prop_assert_eq!(
                (marked.src(), marked.dst(), marked.version()),
                (key.src(), key.dst(), key.version())
            );
            prop_assert_eq!((marked.dscp(), key.dscp()), (Dscp::from_tos(tos), Dscp::DEFAULT));
            prop_assert_eq!(marked == key, tos < 4);
            prop_assert_eq!(marked.with_dscp(Dscp::DEFAULT), key);
            let back = marked.reversed();
            prop_assert_eq!((back.src(), back.dst(), back.version()), (key.dst(), key.src(), key.version()));
            prop_assert_eq!((back.proto(), back.fragment(), back.dscp()), (proto, fragment, marked.dscp()));
            let is_typed = [proto::ICMP, proto::ICMPV6, proto::MOBILITY].map(Some).contains(&proto);
            prop_assert_eq!(back.ports(), ports.filter(|_| !is_typed).map(FlowPorts::reversed));
        }
        prop_assert_eq!(FlowKey::pack_v4(b, A4, proto, bits, fragment).src(), IpAddr::from(b));
        prop_assert_eq!(FlowKey::pack_v6(a, A6, proto, bits, fragment).src(), IpAddr::from(a));
    }

    #[test]
    fn any_bytes_never_panic(mut bytes in proptest::collection::vec(0u8..64, 0..120), six: bool) {
        if bytes.len() >= 40 {
            let len = bytes.len() as u16;
            if six {
                bytes[0] = 0x60;
                bytes[4..6].copy_from_slice(&(len - 40).to_be_bytes());
            } else {
                bytes[0] |= 0x45;
                bytes[2..4].copy_from_slice(&len.to_be_bytes());
            }
        }
        let quoted = FlowKey::parse_quoted(&bytes);
        if let Ok(key) = FlowKey::parse(&bytes) {
            prop_assert_eq!(quoted, Ok(key));
        }
    }
}

/// The fast path of [`HeaderSummary::parse`] must return the same result as the general path, or nothing.
fn assert_fast_path(packet: &[u8]) -> bool {
    let Some(common) = HeaderSummary::parse_common_v4(packet) else { return false };
    let any = HeaderSummary::parse_any(packet).unwrap();
    assert_eq!((common.key, common.rest), (any.key, any.rest));
    true
}

#[test]
fn the_fast_path_covers_tcp_and_udp() {
    for proto in 0..=255 {
        let packet = v4(proto, &[1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(assert_fast_path(&packet), proto == proto::TCP || proto == proto::UDP);
    }
    // Ports beyond the end of the packet.
    assert!(!assert_fast_path(&v4(proto::UDP, &[1, 2, 3])));
    let mut short = v4(proto::UDP, &[1, 2, 3]);
    short.push(4);
    assert!(!assert_fast_path(&short));
}

proptest! {
    #[test]
    fn the_fast_path_agrees_for_any_header_fields(
        fields in proptest::array::uniform8(any::<u8>()),
        udp: bool,
        zero in 0..256u32,
        len in 0..64usize,
        trailing in 0..3usize,
    ) {
        let mut packet = v4(if udp { 17 } else { 6 }, &[7; 64][..len]);
        packet.resize(packet.len() + trailing, 9);
        // Version and header length, TOS, total length and fragment field: each one random or unchanged.
        for (at, value) in [0, 1, 2, 3, 6, 7, 9, 12].into_iter().zip(fields) {
            if zero >> (at % 8) & 1 == 1 {
                packet[at] = value;
            }
        }
        assert_fast_path(&packet);
    }
}
