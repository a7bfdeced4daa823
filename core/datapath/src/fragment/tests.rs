use super::*;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

/// An IPv4 packet with these options (a multiple of 4 bytes).
fn v4_packet(options: &[u8], data: &[u8]) -> Vec<u8> {
    let header_len = 20 + options.len();
    let [len_hi, len_lo] = ((header_len + data.len()) as u16).to_be_bytes();
    let mut packet =
        vec![0x40 | (header_len / 4) as u8, 0x2e, len_hi, len_lo, 0xbe, 0xef, 0, 0, 61, proto::ESP, 0, 0];
    packet.extend([192, 0, 2, 1, 198, 51, 100, 2]);
    packet.extend(options);
    packet.extend(data);
    Ipv4::parse(&mut packet[..]).unwrap().fill_checksum();
    packet
}

/// An IPv6 packet with these extension headers, each `(number, units of 8 bytes)`, in front of ESP.
fn v6_packet(extensions: &[(u8, usize)], data: &[u8]) -> Vec<u8> {
    let payload_len = extensions.iter().map(|(_, units)| units * 8).sum::<usize>() + data.len();
    let first = extensions.first().map_or(proto::ESP, |e| e.0);
    let mut packet = vec![0x62, 0x30, 0, 7, (payload_len >> 8) as u8, payload_len as u8, first, 63];
    packet.extend([0xfd; 16]);
    packet.extend([0xfe; 16]);
    for (i, &(_, units)) in extensions.iter().enumerate() {
        packet.push(extensions.get(i + 1).map_or(proto::ESP, |e| e.0));
        packet.push(units as u8 - 1);
        // One PadN option, or the fields of a routing header, which are ignored.
        packet.extend([1, (units * 8 - 4) as u8]);
        packet.extend(vec![0; units * 8 - 4]);
    }
    packet.extend(data);
    packet
}

fn cut(packet: &[u8], mtu: usize) -> Vec<Vec<u8>> {
    let mut fragments = Fragments::new(packet, mtu, 0xfeed_beef).unwrap();
    let mut out = vec![0xa5; mtu];
    let mut all = vec![];
    while let Some(len) = fragments.next(&mut out) {
        all.push(out[..len].to_vec());
        assert!(all.len() <= 10_000);
    }
    assert!(fragments.is_finished());
    assert_eq!(fragments.next(&mut out), None);
    all
}

fn data(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 256) as u8).collect()
}

/// Reassembles fragments in order, and checks each of them.
fn join_v4(fragments: &[Vec<u8>], mtu: usize) -> (Vec<u8>, bool) {
    let mut whole = vec![];
    let (mut at, mut more) = (None, true);
    for fragment in fragments {
        assert!(more, "a fragment after the last one");
        assert!(fragment.len() <= mtu);
        let ip = Ipv4::parse(&fragment[..]).unwrap();
        assert!(ip.verify_checksum());
        assert_eq!(usize::from(ip.total_len()), fragment.len());
        assert_eq!((ip.ident(), ip.ttl(), ip.tos(), ip.protocol()), (0xbeef, 61, 0x2e, proto::ESP));
        assert_eq!(*at.get_or_insert(ip.frag_offset()), ip.frag_offset());
        more = ip.mf();
        assert!(!more || ip.payload().len().is_multiple_of(8));
        at = Some(ip.frag_offset() + ip.payload().len() as u16);
        whole.extend(ip.payload());
    }
    (whole, more)
}

fn join_v6(fragments: &[Vec<u8>], mtu: usize, headers: &[u8], next_header_at: usize) -> (u8, Vec<u8>) {
    let (mut whole, mut more, mut next_header) = (vec![], true, None);
    for fragment in fragments {
        assert!(more && fragment.len() <= mtu);
        let ip = Ipv6::parse(&fragment[..]).unwrap();
        assert_eq!(ip.total_len(), fragment.len());
        let mut expected = headers.to_vec();
        expected[4..6].copy_from_slice(&fragment[4..6]);
        expected[next_header_at] = proto::FRAGMENT;
        let (found, data) = fragment.split_at(headers.len());
        assert_eq!(found, expected);
        let header =
            ip.headers().map(Result::unwrap).find(|h| h.kind == ext::ExtHeaderKind::Fragment).unwrap();
        let f = header.fragment().unwrap();
        assert_eq!((usize::from(f.offset), f.ident), (whole.len(), 0xfeed_beef));
        assert_eq!(*next_header.get_or_insert(header.next_header), header.next_header);
        assert!(!f.more || data.len().is_multiple_of(8));
        more = f.more;
        whole.extend(&data[8..]);
    }
    assert!(!more);
    (next_header.unwrap(), whole)
}

proptest! {
    #[test]
    fn v4_fragments_reassemble(len in 0usize..5_000, mtu in 28usize..1_600) {
        let packet = v4_packet(&[], &data(len));
        let fragments = cut(&packet, mtu);
        if packet.len() <= mtu {
            prop_assert_eq!(fragments, vec![packet]);
        } else {
            prop_assert_eq!(join_v4(&fragments, mtu), (data(len), false));
            // The minimum number of fragments.
            let (unit, last) = ((mtu - 20) & !7, mtu - 20);
            let between = len.saturating_sub(unit).saturating_sub(last).div_ceil(unit);
            prop_assert_eq!(fragments.len(), between + 2);
        }
    }

    #[test]
    fn v4_fragments_may_be_fragmented_again(
        len in 600usize..5_000,
        mtu in 100usize..1_400,
        smaller in 28usize..99,
    ) {
        let packet = v4_packet(&[], &data(len));
        let again: Vec<_> = cut(&packet, mtu).iter().flat_map(|f| cut(f, smaller)).collect();
        prop_assert_eq!(join_v4(&again, smaller), (data(len), false));
    }

    #[test]
    fn v6_fragments_reassemble(
        len in 8usize..5_000,
        mtu in 150usize..1_600,
        hop: bool, before: bool, routing: bool, after: bool,
        units in 1usize..4,
    ) {
        let mut extensions = vec![];
        let mut add = |on: bool, number: u8| if on { extensions.push((number, units)) };
        add(hop, proto::HOP_BY_HOP);
        add(before && routing, proto::DEST_OPTS);
        add(routing, proto::ROUTING);
        add(after, proto::DEST_OPTS);
        let packet = v6_packet(&extensions, &data(len));
        // Destination options after a routing header are for the final destination, so only the first
        // fragment has them.
        let headers_len = 40 + 8 * units * (extensions.len() - usize::from(after));
        let next_header_at = if headers_len == 40 { 6 } else { headers_len - 8 * units };
        let fragments = cut(&packet, mtu);
        if packet.len() <= mtu {
            prop_assert_eq!(fragments, vec![packet]);
        } else {
            let (next_header, whole) = join_v6(&fragments, mtu, &packet[..headers_len], next_header_at);
            prop_assert_eq!(next_header, packet[next_header_at]);
            prop_assert_eq!(whole, &packet[headers_len..]);
        }
    }

    #[test]
    fn any_bytes_any_mtu(
        mut packet in proptest::collection::vec(any::<u8>(), 0..200),
        mtu in 0usize..200,
        version in 4u8..7,
        ident: u32,
    ) {
        if let Some(first) = packet.first_mut() {
            *first = version << 4 | 5 | *first & 3;
        }
        // Mostly correct lengths, so that the parser reads the rest.
        let (at, len) = if version == 6 { (4, packet.len().saturating_sub(40)) } else { (2, packet.len()) };
        if let Some(field) = packet.get_mut(at..at + 2).filter(|_| ident % 8 != 0) {
            field.copy_from_slice(&(len as u16).to_be_bytes());
        }
        if let Ok(mut fragments) = Fragments::new(&packet, mtu, ident) {
            let mut out = [0; 200];
            let mut count = 0;
            while let Some(len) = fragments.next(&mut out) {
                prop_assert!(len <= mtu);
                count += 1;
                prop_assert!(count <= 200);
            }
            prop_assert!(fragments.is_finished());
        }
    }
}

#[test]
fn v4_options_are_copied_by_their_flag() {
    // Record route (not copied), NOP, strict source route (copied), stream id (copied), end.
    let options = [7, 3, 4, 1, 137, 7, 4, 9, 9, 9, 9, 136, 4, 0xab, 0xcd, 0];
    let fragments = cut(&v4_packet(&options, &data(100)), 64);
    let headers: Vec<_> = fragments.iter().map(|f| Ipv4::parse(&f[..]).unwrap().options().to_vec()).collect();
    assert_eq!(headers[0], options);
    assert!(headers.len() > 2);
    for later in &headers[1..] {
        assert_eq!(later[..], [137, 7, 4, 9, 9, 9, 9, 136, 4, 0xab, 0xcd, 0]);
    }
    assert_eq!(join_v4(&fragments, 64), (data(100), false));

    // If no option is copied, later fragments have the short header.
    let fragments = cut(&v4_packet(&[7, 3, 4, 0], &data(100)), 64);
    assert_eq!(Ipv4::parse(&fragments[1][..]).unwrap().header_len(), 20);
    assert_eq!(fragments[1].len(), 20 + 40, "the short header leaves 40 bytes for data");
}

#[test]
fn errors_for_packets_that_cannot_be_fragmented() {
    use CannotFragment::{AlreadyFragment, BadFragment, DontFragment, MtuTooSmall};
    let cannot = |packet: &[u8], mtu| Fragments::new(packet, mtu, 1).unwrap_err();

    let mut df = v4_packet(&[], &data(100));
    Ipv4::parse(&mut df[..]).unwrap().set_df(true);
    assert_eq!(cannot(&df, 100), DontFragment);
    assert_eq!(cut(&df, 120), [df.clone()], "a packet that fits needs no fragments");

    assert_eq!(cannot(&v4_packet(&[], &data(100)), 27), MtuTooSmall { needed: 28 });
    assert_eq!(cannot(&v4_packet(&[1; 40], &data(100)), 67), MtuTooSmall { needed: 68 });
    assert!(matches!(cannot(&v4_packet(&[131, 9, 0, 0], &data(100)), 60), CannotFragment::Malformed(_)));

    // Hop-by-hop options, fragment header, destination options, 8 bytes of ESP.
    let v6 = v6_packet(&[(proto::HOP_BY_HOP, 1), (proto::DEST_OPTS, 2)], &data(200));
    assert_eq!(cannot(&v6, 79), MtuTooSmall { needed: 80 });
    assert!(Fragments::new(&v6, 80, 1).is_ok());
    assert_eq!(cannot(&cut(&v6, 200)[0], 100), AlreadyFragment);

    let mut odd = v4_packet(&[], &data(99));
    Ipv4::parse(&mut odd[..]).unwrap().set_fragment(8, true);
    assert_eq!(cannot(&odd, 60), BadFragment);
    let mut too_far = v4_packet(&[], &data(100));
    Ipv4::parse(&mut too_far[..]).unwrap().set_fragment(65_528, false);
    assert_eq!(cannot(&too_far, 60), BadFragment);

    assert!(matches!(cannot(&[], 100), CannotFragment::Malformed(_)));
    assert!(matches!(cannot(&df[..100], 100), CannotFragment::Malformed(_)));
}

#[test]
fn bytes_after_the_packet_are_ignored() {
    let packet = v4_packet(&[], &data(100));
    let padded = [packet.clone(), vec![0xee; 46]].concat();
    assert_eq!(cut(&padded, 120), core::slice::from_ref(&packet));
    assert_eq!(cut(&padded, 60), cut(&packet, 60));
}

#[test]
fn short_buffer_is_not_the_end() {
    let packet = v4_packet(&[], &data(100));
    let mut fragments = Fragments::new(&packet, 60, 0).unwrap();
    assert_eq!(fragments.next(&mut [0; 59]), None);
    assert!(!fragments.is_finished());
    assert_eq!(fragments.next(&mut [0; 60]), Some(60));
}
