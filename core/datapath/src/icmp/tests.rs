use super::*;
use casemate_sa::Spi;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

const A4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const B4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
const A6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const B6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7);
const ROUTER4: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 9));
const ROUTER6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 9, 0, 0, 0, 0, 9));

fn v4_packet(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let payload_len = payload.len() as u16;
    let header = Ipv4Header { tos: 0, ident: 7, df: true, ttl: 63, protocol, src: A4, dst: B4, payload_len };
    let mut out = [0; 20];
    header.emit(&mut out).unwrap();
    [&out[..], payload].concat()
}

fn v6_packet(next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = [0; 40];
    let payload_len = payload.len() as u16;
    let header = Ipv6Header {
        traffic_class: 0,
        flow_label: 0,
        payload_len,
        next_header,
        hop_limit: 63,
        src: A6,
        dst: B6,
    };
    header.emit(&mut out);
    [&out[..], payload].concat()
}

fn data(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 3 + i / 256) as u8).collect()
}

type Make<'a> = &'a dyn Fn(&mut Packet<'_>) -> Result<(), NoReply>;

/// The reply to `packet`, with so much head and tail room. If there is no reply, the packet must be
/// unchanged.
fn reply_with(packet: &[u8], head: usize, tail: usize, make: Make<'_>) -> Result<Vec<u8>, NoReply> {
    let mut buf = vec![0xa5; head + packet.len() + tail];
    buf[head..head + packet.len()].copy_from_slice(packet);
    let mut p = Packet::new(&mut buf, head, packet.len()).unwrap();
    let made = make(&mut p);
    if made.is_err() {
        assert_eq!(p.data(), packet);
    }
    made.map(|()| p.data().to_vec())
}

fn reply_to(packet: &[u8], make: Make<'_>) -> Result<Vec<u8>, NoReply> {
    reply_with(packet, 64, 0, make)
}

#[test]
fn replies_quote_the_allowed_length() {
    for len in [8, 300, 548 - 20, 548 - 19, 1_480] {
        let packet = v4_packet(proto::UDP, &data(len));
        let reply = reply_to(&packet, &|p| too_big(p, 1_400, Some(ROUTER4))).unwrap();
        let ip = Ipv4::parse(&reply[..]).unwrap();
        assert!(ip.verify_checksum());
        assert_eq!((IpAddr::V4(ip.src()), ip.dst(), ip.protocol()), (ROUTER4, A4, proto::ICMP));
        assert_eq!((usize::from(ip.total_len()), reply.len()), (reply.len(), (packet.len() + 28).min(576)));
        let (error, quote) = IcmpError::parse_v4(ip.payload()).unwrap();
        assert_eq!((error.kind(), error.code(), error.cause()), (3, 4, icmp::Cause::TooBig { mtu: 1_400 }));
        assert_eq!(quote, &packet[..quote.len()]);
    }
    for len in [8, 1_192, 1_193, 2_000] {
        let packet = v6_packet(proto::UDP, &data(len));
        let reply = reply_to(&packet, &|p| prohibited(p, Some(ROUTER6))).unwrap();
        let ip = Ipv6::parse(&reply[..]).unwrap();
        assert_eq!((IpAddr::V6(ip.src()), ip.dst(), ip.next_header()), (ROUTER6, A6, proto::ICMPV6));
        assert_eq!((ip.total_len(), reply.len()), (reply.len(), (packet.len() + 48).min(1_280)));
        let (error, quote) = IcmpError::parse_v6(ip.payload(), ip.src(), ip.dst()).unwrap();
        assert_eq!((error.kind(), error.code()), (1, 1));
        assert_eq!(quote, &packet[..quote.len()]);
    }
}

#[test]
fn types_and_codes() {
    let kind_and_code = |reply: &[u8], at: usize| (reply[at], reply[at + 1], reply[at + 7]);
    let (four, six) = (v4_packet(17, &data(40)), v6_packet(17, &data(40)));
    assert_eq!(kind_and_code(&reply_to(&four, &|p| prohibited(p, None)).unwrap(), 20), (3, 13, 0));
    assert_eq!(kind_and_code(&reply_to(&six, &|p| too_big(p, 1_281, None)).unwrap(), 40), (2, 0, 1));
}

#[test]
fn source_of_reply_defaults_to_the_destination() {
    let (four, six) = (v4_packet(17, &data(40)), v6_packet(17, &data(40)));
    for ours in [None, Some(ROUTER6)] {
        let reply = reply_to(&four, &|p| prohibited(p, ours)).unwrap();
        assert_eq!(Ipv4::parse(&reply[..]).unwrap().src(), B4);
    }
    for ours in [None, Some(ROUTER4)] {
        let reply = reply_to(&six, &|p| prohibited(p, ours)).unwrap();
        assert_eq!(Ipv6::parse(&reply[..]).unwrap().src(), B6);
    }
}

#[test]
fn reply_uses_head_or_tail_room() {
    for (packet, headers, max) in
        [(v4_packet(17, &data(1_400)), 28, 576), (v6_packet(17, &data(1_400)), 48, 1_280)]
    {
        let expected = reply_with(&packet, headers, 0, &|p| prohibited(p, None)).unwrap();
        assert_eq!(expected.len(), max);
        assert_eq!(
            reply_with(&packet, 0, 0, &|p| prohibited(p, None)),
            Ok(expected),
            "the part that is not quoted gives room"
        );
    }
    for packet in [v4_packet(17, &data(530)), v6_packet(17, &data(1_200))] {
        let result = reply_with(&packet, 10, 10, &|p| prohibited(p, None));
        assert_eq!(result, Err(NoReply::NoRoom), "too little room: the packet is unchanged");
    }
    for (packet, headers) in [(v4_packet(17, &data(40)), 28), (v6_packet(17, &data(40)), 48)] {
        let expected = reply_with(&packet, headers, 0, &|p| prohibited(p, None)).unwrap();
        assert_eq!(reply_with(&packet, headers - 1, headers, &|p| prohibited(p, None)), Ok(expected));
        let result = reply_with(&packet, headers - 1, headers - 1, &|p| prohibited(p, None));
        assert_eq!(result, Err(NoReply::NoRoom));
    }
}

#[test]
fn no_error_about_an_error() {
    for kind in 0..=255 {
        let expected = if [3, 4, 5, 11, 12].contains(&kind) { Some(NoReply::IcmpError) } else { None };
        let packet = v4_packet(proto::ICMP, &[kind, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(reply_to(&packet, &|p| prohibited(p, None)).err(), expected, "ICMPv4 type {kind}");

        let expected = if kind < 128 || kind == 137 { Some(NoReply::IcmpError) } else { None };
        // After destination options.
        let packet =
            v6_packet(proto::DEST_OPTS, &[proto::ICMPV6, 0, 1, 4, 0, 0, 0, 0, kind, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(reply_to(&packet, &|p| prohibited(p, None)).err(), expected, "ICMPv6 type {kind}");
    }
    assert_eq!(reply_to(&v4_packet(proto::ICMP, &[]), &|p| prohibited(p, None)), Err(NoReply::IcmpError));
    assert_eq!(reply_to(&v6_packet(proto::ICMPV6, &[]), &|p| prohibited(p, None)), Err(NoReply::IcmpError));
}

#[test]
fn no_error_to_or_about_multicast() {
    let four = |src: [u8; 4], dst: [u8; 4]| {
        let mut packet = v4_packet(17, &data(40));
        packet[12..16].copy_from_slice(&src);
        packet[16..20].copy_from_slice(&dst);
        reply_to(&packet, &|p| too_big(p, 1_300, Some(ROUTER4))).err()
    };
    assert_eq!(four([10, 0, 0, 1], [10, 0, 0, 2]), None);
    assert_eq!(four([10, 0, 0, 1], [224, 0, 0, 5]), Some(NoReply::Multicast));
    assert_eq!(four([10, 0, 0, 1], [255; 4]), Some(NoReply::Multicast));
    for src in [[0; 4], [0, 1, 2, 3], [127, 0, 0, 1], [224, 0, 0, 1], [240, 0, 0, 1], [255; 4]] {
        assert_eq!(four(src, [10, 0, 0, 2]), Some(NoReply::NoSingleSource), "{src:?}");
    }

    let six = |src: &str, dst: &str, make: Make<'_>| {
        let mut packet = v6_packet(17, &data(40));
        packet[8..24].copy_from_slice(&src.parse::<Ipv6Addr>().unwrap().octets());
        packet[24..40].copy_from_slice(&dst.parse::<Ipv6Addr>().unwrap().octets());
        reply_to(&packet, make).err()
    };
    for src in ["::", "::1", "ff02::1"] {
        assert_eq!(six(src, "fd00::2", &|p| too_big(p, 1_300, None)), Some(NoReply::NoSingleSource));
    }
    assert_eq!(six("fd00::1", "ff0e::2", &|p| prohibited(p, Some(ROUTER6))), Some(NoReply::Multicast));
    assert_eq!(
        six("fd00::1", "ff0e::2", &|p| too_big(p, 1_300, Some(ROUTER6))),
        None,
        "exception of RFC 4443"
    );
    assert_eq!(six("fd00::1", "ff0e::2", &|p| too_big(p, 1_300, None)), Some(NoReply::NoAddress));
}

#[test]
fn only_first_fragments_get_replies() {
    let mut four = v4_packet(17, &data(40));
    Ipv4::parse(&mut four[..]).unwrap().set_fragment(0, true);
    assert!(reply_to(&four, &|p| prohibited(p, None)).is_ok());
    Ipv4::parse(&mut four[..]).unwrap().set_fragment(8, false);
    assert_eq!(reply_to(&four, &|p| prohibited(p, None)), Err(NoReply::LaterFragment));

    let six =
        |offset_and_more| v6_packet(44, &[&[17, 0, 0, offset_and_more, 0, 0, 0, 1], &data(40)[..]].concat());
    assert!(reply_to(&six(1), &|p| prohibited(p, None)).is_ok());
    assert_eq!(reply_to(&six(8), &|p| prohibited(p, None)), Err(NoReply::LaterFragment));
    assert!(matches!(reply_to(&[0x45; 9], &|p| prohibited(p, None)), Err(NoReply::Malformed(_))));
}

/// A router's "too big" error that quotes the first `quote_len` bytes of `packet`.
fn complaint(packet: &[u8], mtu: u32, quote_len: usize) -> Vec<u8> {
    let mut message = [0; 2_000];
    let quote = &packet[..quote_len.min(packet.len())];
    let error = IcmpError::too_big(ip::version(packet).unwrap(), mtu);
    match ip::version(packet).unwrap() {
        IpVersion::V4 => {
            let len = error.emit_v4(quote, &mut message).unwrap();
            v4_packet(proto::ICMP, &message[..len])
        }
        IpVersion::V6 => {
            let len = error.emit_v6(quote, A6, B6, &mut message).unwrap();
            v6_packet(proto::ICMPV6, &message[..len])
        }
    }
}

/// Protocol, first payload bytes and expected quote of protected packets.
fn protected() -> [(u8, Vec<u8>, Quoted); 3] {
    let spi = |spi| Spi::new(spi).unwrap();
    [
        (proto::ESP, vec![0x11, 0x22, 0x33, 0x44, 0, 0, 0, 9], Quoted::Esp(spi(0x1122_3344))),
        (proto::AH, vec![4, 4, 0, 0, 0x11, 0x22, 0x33, 0x45, 0, 0, 0, 9], Quoted::Ah(spi(0x1122_3345))),
        (
            proto::UDP,
            vec![0x11, 0x94, 0x13, 0x88, 5, 0, 0, 0, 0x11, 0x22, 0x33, 0x46, 0, 0, 0, 9],
            Quoted::UdpEsp { src_port: 4500, dst_port: 5000, spi: spi(0x1122_3346) },
        ),
    ]
}

#[test]
fn pmtu_errors_about_protected_packets_are_parsed() {
    for (protocol, start, quoted) in protected() {
        let payload = [start, data(1_400)].concat();
        let sent = v4_packet(protocol, &payload);
        let expected = PmtuUpdate { src: A4.into(), dst: B4.into(), quoted, mtu: 1_300 };
        assert_eq!(parse_inbound(&complaint(&sent, 1_300, 2_000)), Some(expected));
        assert_eq!(parse_inbound(&complaint(&sent, 0, 2_000)), Some(PmtuUpdate { mtu: 1_006, ..expected }));
        assert_eq!(parse_inbound(&complaint(&sent, sent.len() as u32, 2_000)), None, "the packet fits");
        // RFC 792 requires 8 bytes after the header. With UDP they do not contain the SPI.
        let is_udp = matches!(quoted, Quoted::UdpEsp { .. });
        assert_eq!(parse_inbound(&complaint(&sent, 1_300, 28)), (!is_udp).then_some(expected));

        // After a hop-by-hop header.
        let payload = [&[protocol, 0, 1, 4, 0, 0, 0, 0], &payload[..]].concat();
        let sent = v6_packet(proto::HOP_BY_HOP, &payload);
        let expected = PmtuUpdate { src: A6.into(), dst: B6.into(), quoted, mtu: 1_300 };
        assert_eq!(parse_inbound(&complaint(&sent, 1_300, 2_000)), Some(expected));
        assert_eq!(
            parse_inbound(&complaint(&sent, 1_280, 2_000)),
            Some(PmtuUpdate { mtu: 1_280, ..expected })
        );
        assert_eq!(parse_inbound(&complaint(&sent, 1_279, 2_000)), None);
        assert_eq!(parse_inbound(&complaint(&sent, 1_500, 2_000)), None);
    }
}

#[test]
fn other_packets_are_ignored() {
    let esp = v4_packet(proto::ESP, &data(1_400)[1..]);
    assert!(parse_inbound(&complaint(&esp, 1_300, 100)).is_some());
    assert_eq!(parse_inbound(&esp), None);
    let mut damaged = complaint(&esp, 1_300, 100);
    damaged[30] ^= 1;
    assert_eq!(parse_inbound(&damaged), None);
    let mut fragment = complaint(&esp, 1_300, 100);
    fragment[6] |= 0x20;
    assert_eq!(parse_inbound(&fragment), None);

    let mut later = esp.clone();
    later[7] = 1;
    assert_eq!(parse_inbound(&complaint(&later, 1_300, 100)), None);
    for (offset_and_more, understood) in [(1, true), (8, false)] {
        let header = [proto::ESP, 0, 0, offset_and_more, 0, 0, 0, 1];
        let sent = v6_packet(proto::FRAGMENT, &[&header, &data(1_400)[1..]].concat());
        assert_eq!(parse_inbound(&complaint(&sent, 1_300, 100)).is_some(), understood);
    }
    let whole = complaint(&v6_packet(proto::ESP, &data(1_400)[1..]), 1_300, 100);
    let header = [proto::ICMPV6, 0, 0, 0, 0, 0, 0, 1];
    assert!(parse_inbound(&whole).is_some());
    assert_eq!(parse_inbound(&v6_packet(proto::FRAGMENT, &[&header, &whole[40..]].concat())), None);
    assert_eq!(parse_inbound(&complaint(&v4_packet(proto::TCP, &data(1_400)), 1_300, 100)), None);
    assert_eq!(parse_inbound(&complaint(&v4_packet(proto::ESP, &[0; 1_400]), 1_300, 100)), None, "SPI 0");
    let mut ike = vec![0x11, 0x94, 0x11, 0x94, 5, 0, 0, 0, 0, 0, 0, 0];
    ike.extend(data(1_400));
    assert_eq!(parse_inbound(&complaint(&v4_packet(proto::UDP, &ike), 1_300, 100)), None);
    let other = reply_to(&esp, &|p| prohibited(p, None)).unwrap();
    assert_eq!(parse_inbound(&other), None);
}

proptest! {
    #[test]
    fn any_bytes(
        mut packet in prop::collection::vec(any::<u8>(), 0..150), version in 4u8..7, quoted_version in 4u8..7,
        kind in prop::sample::select(vec![2u8, 3]),
        protocol in prop::sample::select(vec![50u8, 51, 17, 44, 0, 60]),
    ) {
        // Mostly valid headers, so that the parser reads the quote.
        if packet.len() >= 90 {
            let len = packet.len() as u16;
            packet[0] = version << 4 | 5;
            let at = if version == 6 { 40 } else { 20 };
            let quote = at + 8;
            if version == 6 {
                packet[4..6].copy_from_slice(&(len - 40).to_be_bytes());
                packet[6] = proto::ICMPV6;
            } else {
                packet[2..4].copy_from_slice(&len.to_be_bytes());
                packet[6..10].copy_from_slice(&[0, 0, 64, proto::ICMP]);
            }
            packet[at..at + 2].copy_from_slice(&[kind, if version == 6 { 0 } else { 4 }]);
            packet[quote] = quoted_version << 4 | 5;
            packet[quote + if quoted_version == 6 { 6 } else { 9 }] = protocol;
            packet[at + 2..at + 4].fill(0);
            let sum = if version == 6 {
                let ip = Ipv6::parse(&packet[..]).unwrap();
                pseudo_v6(ip.src(), ip.dst(), proto::ICMPV6, ip.payload_len().into())
            } else {
                Sum::ZERO
            };
            let sum = sum.add_bytes(&packet[at..]).finish();
            packet[at + 2..at + 4].copy_from_slice(&sum.to_be_bytes());
        }
        parse_inbound(&packet);
        let _ = reply_with(&packet, 10, 60, &|p| too_big(p, 1_300, None));
        let _ = reply_with(&packet, 60, 0, &|p| prohibited(p, Some(ROUTER6)));
    }
}
