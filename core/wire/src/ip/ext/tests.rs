use std::vec::Vec;

use super::*;
use proptest::prelude::*;

// A packet with these extension headers (length in 8-byte units), then `upper` and 8 bytes of it.
fn packet(headers: &[(u8, usize)], upper: u8) -> Vec<u8> {
    let mut bytes = std::vec![0u8; 40];
    bytes[0] = 0x60;
    let mut named_at = 6;
    for &(number, units) in headers {
        bytes[named_at] = number;
        named_at = bytes.len();
        bytes.resize(named_at + units * 8, 0);
        bytes[named_at + 1] = if number == proto::FRAGMENT { 0 } else { (units - 1) as u8 };
    }
    bytes[named_at] = upper;
    bytes.extend([0xee; 8]);
    let len = (bytes.len() - 40) as u16;
    bytes[4..6].copy_from_slice(&len.to_be_bytes());
    bytes
}

#[test]
fn no_extension_header() {
    let chain = walk(&packet(&[], proto::TCP)).unwrap();
    let place = Place { next_header: proto::TCP, at: 40, named_at: 6 };
    assert_eq!(chain, Chain { last: place, transport: place, fragment: None });
    assert_eq!(chain.upper(), Some(proto::TCP));
}

#[test]
fn transport_mode_goes_before_the_last_destination_options_only() {
    let bytes = packet(
        &[(proto::HOP_BY_HOP, 1), (proto::DEST_OPTS, 2), (proto::ROUTING, 3), (proto::DEST_OPTS, 1)],
        proto::UDP,
    );
    let chain = walk(&bytes).unwrap();
    assert_eq!(chain.transport, Place { next_header: proto::DEST_OPTS, at: 88, named_at: 64 });
    assert_eq!(chain.last, Place { next_header: proto::UDP, at: 96, named_at: 88 });
    // With no routing header the destination options are the last ones, and go inside.
    let chain = walk(&packet(&[(proto::DEST_OPTS, 1)], proto::UDP)).unwrap();
    assert_eq!(chain.transport, Place { next_header: proto::DEST_OPTS, at: 40, named_at: 6 });
    let chain = walk(&packet(&[(proto::HOP_BY_HOP, 1), (proto::FRAGMENT, 1)], proto::UDP)).unwrap();
    assert_eq!(chain.transport, Place { next_header: proto::UDP, at: 56, named_at: 48 });
}

#[test]
fn later_fragments_hide_what_follows() {
    let mut bytes = packet(&[(proto::FRAGMENT, 1), (proto::DEST_OPTS, 1)], proto::TCP);
    bytes[42..48].copy_from_slice(&[0x01, 0x01, 9, 8, 7, 6]);
    let chain = walk(&bytes).unwrap();
    assert_eq!(chain.fragment, Some(Fragment { at: 40, offset: 256, more: true, ident: 0x09080706 }));
    assert!(chain.is_later_fragment());
    assert_eq!(chain.upper(), None);
    assert_eq!(chain.last.at, 48);
    bytes[42] = 0;
    let chain = walk(&bytes).unwrap();
    assert!(!chain.is_later_fragment());
    assert_eq!((chain.upper(), chain.last.at), (Some(proto::TCP), 56));
}

#[test]
fn broken_chains_are_refused() {
    let field = |bytes: &[u8]| walk(bytes).unwrap_err().field;
    let many = [(proto::DEST_OPTS, 1); 17];
    assert!(walk(&packet(&many[..16], proto::TCP)).is_ok());
    assert_eq!(field(&packet(&many, proto::TCP)), "IPv6 extension headers");
    assert_eq!(
        field(&packet(&[(proto::ROUTING, 1), (proto::HOP_BY_HOP, 1)], proto::TCP)),
        "IPv6 hop-by-hop options"
    );
    let mut bytes = packet(&[(proto::DEST_OPTS, 1)], proto::TCP);
    bytes[41] = 2;
    assert_eq!(field(&bytes), "IPv6 extension header");
    let twice = packet(&[(proto::FRAGMENT, 1), (proto::DEST_OPTS, 1), (proto::FRAGMENT, 1)], proto::TCP);
    assert_eq!(field(&twice), "IPv6 fragment header");
    // Bytes behind the payload length are not headers.
    bytes[41] = 0;
    bytes[5] = 7;
    assert_eq!(field(&bytes), "IPv6 extension header");
}

#[test]
fn options_are_listed_and_bad_ones_end_the_list() {
    let mut bytes = packet(&[(proto::HOP_BY_HOP, 2)], proto::TCP);
    bytes[42..56].copy_from_slice(&[5, 2, 0, 0, 0, 0x3e, 3, 7, 8, 9, 1, 2, 0, 0]);
    let options = |bytes: &[u8]| {
        let ip = Ipv6::parse(bytes).unwrap();
        let header = ip.headers().next().unwrap().unwrap();
        header
            .options()
            .map(|o| o.map(|o| (o.kind, o.data_at, o.data.to_vec(), o.may_change())))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        options(&bytes),
        [
            Ok((5, 44, std::vec![0, 0], false)),
            Ok((0x3e, 49, std::vec![7, 8, 9], true)),
            Ok((1, 54, std::vec![0, 0], false))
        ]
    );
    bytes[53] = 3;
    assert_eq!(options(&bytes).len(), 3);
    assert!(options(&bytes)[2].is_err());
    bytes[52..56].copy_from_slice(&[0, 0, 0, 5]);
    assert!(options(&bytes)[2].is_err());
}

#[test]
fn routing_fields() {
    let mut bytes = packet(&[(proto::ROUTING, 3)], proto::TCP);
    bytes[42..44].copy_from_slice(&[4, 1]);
    let ip = Ipv6::parse(&bytes[..]).unwrap();
    let header = ip.headers().next().unwrap().unwrap();
    let routing = header.routing().unwrap();
    let options = ExtHeader { kind: Kind::DestOpts, ..header };
    assert_eq!((options.routing(), options.fragment()), (None, None));
    assert_eq!((routing.kind, routing.segments_left, routing.data.len(), routing.data_at), (4, 1, 20, 44));
    assert_eq!(header.fragment(), None);
    assert_eq!(header.options().next(), None);
}

proptest! {
    #[test]
    fn fragment_round_trip(next_header: u8, units in 0u16..8192, more: bool, ident: u32) {
        let fragment = Fragment { at: 40, offset: units << 3, more, ident };
        let mut out = [0; FRAGMENT_LEN];
        fragment.emit(next_header, &mut out);
        let header = ExtHeader { kind: Kind::Fragment, at: 40, bytes: &out, next_header };
        prop_assert_eq!(header.fragment(), Some(fragment));
        prop_assert_eq!(fragment.is_atomic(), units == 0 && !more);
        prop_assert_eq!(out[0], next_header);
    }

    #[test]
    fn chains_are_found_as_built(
        hop in any::<bool>(),
        middle in proptest::collection::vec((prop_oneof![Just(43u8), Just(44), Just(60)], 1usize..5), 0..8),
    ) {
        let mut headers: Vec<(u8, usize)> = if hop { std::vec![(0, 2)] } else { Vec::new() };
        // A second fragment header is refused.
        let mut fragments = middle.iter().filter(|header| header.0 == 44).count();
        headers.extend(middle.iter().map(|&(n, units)| match n {
            44 if fragments > 1 => {
                fragments -= 1;
                (43, units)
            }
            44 => (44, 1),
            n => (n, units),
        }));
        let chain = walk(&packet(&headers, proto::ESP)).unwrap();
        let end = |n: usize| 40 + headers[..n].iter().map(|h| h.1 * 8).sum::<usize>();
        let named = |n: usize| if n == 0 { 6 } else { end(n - 1) };
        let outside = headers.iter().rposition(|h| h.0 != 60).map_or(0, |last| last + 1);
        prop_assert_eq!((chain.last.at, chain.last.named_at), (end(headers.len()), named(headers.len())));
        prop_assert_eq!((chain.transport.at, chain.transport.named_at), (end(outside), named(outside)));
        prop_assert_eq!(chain.upper(), Some(proto::ESP));
    }

    #[test]
    fn any_bytes_never_panic(first in 0u8..64, mut bytes in proptest::collection::vec(0u8..64, 40..200)) {
        let len = (bytes.len() - 40) as u16;
        (bytes[0], bytes[6]) = (0x60, first);
        bytes[4..6].copy_from_slice(&len.to_be_bytes());
        if let Ok(ip) = Ipv6::parse(&bytes) {
            for header in ip.headers().flatten() {
                prop_assert_eq!(&bytes[header.at..header.at + header.bytes.len()], header.bytes);
                for option in header.options().flatten() {
                    prop_assert_eq!(&bytes[option.data_at..option.data_at + option.data.len()], option.data);
                }
            }
            if let Ok(chain) = ip.chain() {
                prop_assert_eq!(bytes[chain.last.named_at], chain.last.next_header);
                prop_assert_eq!(bytes[chain.transport.named_at], chain.transport.next_header);
                prop_assert!(chain.transport.at <= chain.last.at && chain.last.at <= bytes.len());
            }
        }
    }
}
