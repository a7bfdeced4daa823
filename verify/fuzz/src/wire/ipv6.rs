//! IPv6 header and extension headers.

use super::assert_parts;
use crate::Target;
use casemate_test_support::hosts::{Ends, packets};
use casemate_wire::ip::v6::{HEADER_LEN, Ipv6};
use casemate_wire::ip::{Ipv6Header, ext};

pub(crate) const TARGET: Target = Target {
    name: "ipv6",
    about: "IPv6 header and extension headers: same result as a naive walk, parse(emit(x)) == x",
    max_len: 512,
    run,
    seeds,
    dictionary: &[],
};

fn run(bytes: &[u8]) {
    if let Ok(quoted) = Ipv6::parse_quoted(bytes) {
        assert_parts(quoted.packet(), &[&bytes[..HEADER_LEN], quoted.payload()]);
        check_chain(&quoted);
        check_setters(bytes, &quoted);
    }
    let Ok(ip) = Ipv6::parse(bytes) else {
        assert!(Ipv6Header::parse(bytes).is_err() && ext::parse_chain(bytes).is_err());
        return;
    };
    let len = ip.total_len();
    assert_eq!(ip.packet(), &bytes[..len]);
    assert!(Ipv6::parse_quoted(bytes).is_ok() && Ipv6::parse(&bytes[..len]).is_ok());
    assert!(Ipv6::parse(&bytes[..len - 1]).is_err(), "the last byte is missing");
    assert_eq!(ext::parse_chain(bytes), ip.chain());
    let mut emitted = [0; HEADER_LEN];
    Ipv6Header::parse(bytes).unwrap().emit(&mut emitted);
    assert_eq!(emitted, bytes[..HEADER_LEN]);
}

/// Result of a walk: position of the upper layer, of a transport mode header, and of the fragment header.
#[derive(Debug, PartialEq)]
struct Walked {
    last: ext::HeaderPosition,
    transport: ext::HeaderPosition,
    fragment_at: Option<usize>,
}

/// Literal implementation of RFC 8200 section 4.
fn walk(packet: &[u8]) -> Option<Walked> {
    let mut place = ext::HeaderPosition { next_header: packet[6], at: HEADER_LEN, next_header_at: 6 };
    let mut found = Walked { last: place, transport: place, fragment_at: None };
    for n in 0.. {
        let header = packet.get(place.at..).unwrap_or_default();
        let len = match place.next_header {
            0 if place.at != HEADER_LEN => return None,
            // Unlike RFC 8200, which allows it: one receiver would see a fragment, another one a complete
            // packet.
            44 if found.fragment_at.is_some() => return None,
            0 | 43 | 60 => (usize::from(*header.get(1)?) + 1) * 8,
            44 => 8,
            _ => break,
        };
        let (header, _) = header.split_at_checked(len)?;
        if n == ext::MAX_HEADERS {
            return None;
        }
        let kind = place.next_header;
        place = ext::HeaderPosition { next_header: header[0], at: place.at + len, next_header_at: place.at };
        if kind != 60 {
            found.transport = place;
        }
        if kind == 44 {
            found.fragment_at = Some(place.next_header_at);
            if header[2] != 0 || header[3] & 0xf8 != 0 {
                break;
            }
        }
    }
    found.last = place;
    Some(found)
}

fn check_chain(ip: &Ipv6<&[u8]>) {
    let packet = ip.packet();
    let chain = ip.chain();
    let found = chain.map(|chain| Walked {
        last: chain.last,
        transport: chain.transport,
        fragment_at: chain.fragment.map(|fragment| fragment.at),
    });
    assert_eq!(found.ok(), walk(packet));
    let Ok(chain) = chain else {
        assert!(ip.headers().any(|header| header.is_err()));
        return;
    };
    assert_eq!(packet[chain.last.next_header_at], chain.last.next_header);
    assert_eq!(packet[chain.transport.next_header_at], chain.transport.next_header);
    assert!(chain.upper().is_some() || chain.is_later_fragment());
    let mut parts = vec![&packet[..HEADER_LEN]];
    for header in ip.headers() {
        let header = header.unwrap();
        assert_eq!(header.next_header, header.bytes[0]);
        check_ext(packet, &header);
        parts.push(header.bytes);
    }
    assert_parts(&packet[..chain.last.at], &parts);
}

fn check_ext(packet: &[u8], header: &ext::ExtHeader<'_>) {
    let is = |kind| header.kind == kind;
    let end = header.at + header.bytes.len();
    for option in header.options().filter_map(Result::ok) {
        assert!(is(ext::ExtHeaderKind::HopByHop) || is(ext::ExtHeaderKind::DestOpts));
        assert_eq!(option.data, &packet[option.data_at..][..option.data.len()]);
        assert_eq!(packet[option.data_at - 2..option.data_at], [option.kind, option.data.len() as u8]);
        assert!(option.data_at + option.data.len() <= end);
        assert_eq!(option.is_mutable(), option.kind & 0x20 != 0);
    }
    assert_eq!(header.routing().is_some(), is(ext::ExtHeaderKind::Routing));
    if let Some(routing) = header.routing() {
        assert_eq!(routing.data, &packet[routing.data_at..end]);
        assert_eq!([routing.kind, routing.segments_left], header.bytes[2..4]);
    }
    assert_eq!(header.fragment().is_some(), is(ext::ExtHeaderKind::Fragment));
    if let Some(fragment) = header.fragment() {
        let mut emitted = [0; ext::FRAGMENT_LEN];
        fragment.emit(header.next_header, &mut emitted);
        let mut expected = header.bytes.to_vec();
        // The reserved fields are lost.
        expected[1] = 0;
        expected[3] &= !6;
        assert_eq!(emitted, expected[..]);
    }
}

/// Sets every field to its current value.
fn check_setters(bytes: &[u8], ip: &Ipv6<&[u8]>) {
    let mut copy = bytes.to_vec();
    let mut same = Ipv6::parse_quoted(&mut copy[..]).unwrap();
    assert_eq!(same.payload_mut(), ip.payload());
    same.set_traffic_class(ip.traffic_class());
    same.set_ecn(ip.ecn());
    same.set_flow_label(ip.flow_label());
    same.set_payload_len(ip.payload_len());
    same.set_next_header(ip.next_header());
    same.set_hop_limit(ip.hop_limit());
    same.set_src(ip.src());
    same.set_dst(ip.dst());
    assert_eq!(ip.traffic_class(), ip.dscp() << 2 | ip.ecn());
    assert_eq!(copy, bytes);
}

fn seeds() -> Vec<Vec<u8>> {
    let (src, dst) = Ends::tunnel(6, 6).inner;
    let plain = packets::udp(src, dst, (1, 2), b"payload", true);
    let hop_by_hop = (0u8, vec![0, 0, 5, 2, 0, 0, 1, 0]);
    let dest_opts = (60u8, vec![0, 0, 0x3e, 4, 1, 2, 3, 4]);
    let routing = (43u8, [&[0, 2, 4, 1, 0, 0, 0, 0][..], &[0xfd; 16]].concat());
    let fragment = |offset: u8, more: u8| (44u8, vec![0, 0, 0, offset << 3 | more, 0, 0, 0, 9]);
    vec![
        packets::with_v6_headers(&plain, &[hop_by_hop.clone(), dest_opts.clone(), routing.clone()]),
        packets::with_v6_headers(&plain, &[hop_by_hop, fragment(0, 1), dest_opts.clone()]),
        packets::with_v6_headers(&plain, &[fragment(2, 0)]),
        packets::with_v6_headers(&plain, &[routing, fragment(0, 0), dest_opts]),
        plain,
    ]
}
