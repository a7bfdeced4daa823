//! Fragmentation: reassembled fragments equal the original packet.

use super::generate;
use crate::Target;
use crate::input::{Input, Script};
use casemate_datapath::fragment::{CannotFragment, Fragments};
use casemate_datapath::reassembly::{MAX_FRAGMENTS, Reassembler, Reassembly, ReassemblyError, Sender};
use casemate_sa::Instant;
use casemate_test_support::hosts::Ends;
use casemate_wire::ip::{IpVersion, Ipv4, Ipv6, ext, v6, version};

pub(crate) const TARGET: Target = Target {
    name: "fragment",
    about: "Fragmentation: no fragment exceeds the MTU, reassembled fragments equal the packet",
    max_len: 2_048,
    run,
    seeds,
    dictionary: &[],
};

/// Longer than any generated packet.
const LONGEST: usize = 4_096;

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (shape, mtu) = (input.u8(), usize::from(input.u16() % 2_000));
    let packet = match shape & 3 {
        0 => input.rest().to_vec(),
        n => {
            let version = if n & 1 == 1 { 4 } else { 6 };
            generate::packet(&mut input, Ends::tunnel(version, version).inner)
        }
    };
    let from = usize::from(shape >> 2);
    match Fragments::new(&packet, mtu, 0xfeed_beef) {
        Ok(fragments) => check(&packet, mtu, fragments, from),
        Err(CannotFragment::MtuTooSmall { needed }) => {
            assert!(mtu < needed);
            match Fragments::new(&packet, needed, 0xfeed_beef) {
                Ok(fragments) => check(&packet, needed, fragments, from),
                Err(why) => {
                    assert!(!matches!(why, CannotFragment::MtuTooSmall { .. }), "the needed MTU was {needed}")
                }
            }
        }
        Err(CannotFragment::DontFragment) => {
            let ip = Ipv4::parse(&packet[..]).unwrap();
            assert!(ip.df() && usize::from(ip.total_len()) > mtu);
        }
        Err(CannotFragment::AlreadyFragment) => {
            assert!(ext::parse_chain(&packet).unwrap().fragment.is_some())
        }
        Err(CannotFragment::BadFragment) => assert!(Ipv4::parse(&packet[..]).unwrap().is_fragment()),
        Err(CannotFragment::Malformed(_)) => {}
    }
}

fn check(packet: &[u8], mtu: usize, mut fragments: Fragments<'_>, from: usize) {
    let mut pieces = Vec::new();
    let mut out = vec![0xee; mtu];
    // A buffer that is too small is distinguishable from the end.
    assert!(!fragments.is_finished() && fragments.clone().next(&mut []).is_none());
    while let Some(len) = fragments.next(&mut out) {
        assert!(len <= mtu);
        pieces.push(out[..len].to_vec());
        assert!(pieces.len() <= packet.len(), "endless");
    }
    assert!(fragments.is_finished() && fragments.next(&mut out).is_none());
    let packet = &packet[..total_len(packet)];
    if packet.len() <= mtu {
        assert_eq!(pieces, [packet]);
        return;
    }
    assert!(pieces.len() > 1);
    match version(packet).unwrap() {
        IpVersion::V4 => check_v4(packet, &pieces),
        IpVersion::V6 => check_v6(packet, &pieces),
    }
    reassemble(packet, pieces, from);
}

fn total_len(packet: &[u8]) -> usize {
    match version(packet).unwrap() {
        IpVersion::V4 => Ipv4::parse(packet).unwrap().total_len().into(),
        IpVersion::V6 => Ipv6::parse(packet).unwrap().total_len(),
    }
}

fn check_v4(packet: &[u8], pieces: &[Vec<u8>]) {
    let whole = Ipv4::parse(packet).unwrap();
    let (mut at, mut data) = (whole.frag_offset(), Vec::new());
    for (n, piece) in pieces.iter().enumerate() {
        let ip = Ipv4::parse(&piece[..]).unwrap();
        let is_last = n + 1 == pieces.len();
        assert!(ip.verify_checksum() && !ip.df());
        assert_eq!((usize::from(ip.total_len()), ip.frag_offset()), (piece.len(), at));
        assert_eq!(ip.mf(), whole.mf() || !is_last);
        assert!(is_last || ip.payload().len().is_multiple_of(8));
        let fields = |ip: &Ipv4<&[u8]>| (ip.tos(), ip.ident(), ip.ttl(), ip.protocol(), ip.src(), ip.dst());
        assert_eq!(fields(&ip), fields(&whole));
        let copied = |ip: &Ipv4<&[u8]>| -> Vec<Vec<u8>> {
            let options = ip.options_iter().map(Result::unwrap).filter(|option| n == 0 || option.copied());
            options.map(|option| [&[option.kind], option.data].concat()).collect()
        };
        assert_eq!(copied(&ip), copied(&whole));
        at += ip.payload().len() as u16;
        data.extend_from_slice(ip.payload());
    }
    assert_eq!(data, whole.payload());
}

fn check_v6(packet: &[u8], pieces: &[Vec<u8>]) {
    let chain = ext::parse_chain(packet).unwrap();
    let mut data = Vec::new();
    for (n, piece) in pieces.iter().enumerate() {
        let ip = Ipv6::parse(&piece[..]).unwrap();
        assert_eq!(ip.total_len(), piece.len());
        let header =
            ip.headers().map(Result::unwrap).find(|h| h.kind == ext::ExtHeaderKind::Fragment).unwrap();
        let fragment = header.fragment().unwrap();
        let expected = ext::FragmentHeader {
            at: chain.transport.at,
            offset: data.len() as u16,
            more: n + 1 < pieces.len(),
            ident: 0xfeed_beef,
        };
        assert_eq!((fragment, header.next_header), (expected, chain.transport.next_header));
        let mut headers = piece[..fragment.at].to_vec();
        headers[4..6].copy_from_slice(&packet[4..6]);
        headers[chain.transport.next_header_at] = chain.transport.next_header;
        assert_eq!(headers, packet[..fragment.at]);
        let payload = &piece[fragment.at + ext::FRAGMENT_LEN..];
        assert!(!fragment.more || payload.len().is_multiple_of(8));
        data.extend_from_slice(payload);
    }
    assert_eq!(data, packet[chain.transport.at..]);
    // RFC 7112 section 5: the first fragment contains all headers.
    assert!(
        chain.last.at + 8 <= pieces[0].len() - ext::FRAGMENT_LEN + v6::HEADER_LEN
            || chain.last.at + 8 > packet.len()
    );
}

/// Reassembles the fragments, in a rotated order.
fn reassemble(packet: &[u8], mut pieces: Vec<Vec<u8>>, from: usize) {
    let mut expected = packet.to_vec();
    if let Ok(mut ip) = Ipv4::parse(&mut expected[..]) {
        if ip.is_fragment() {
            return;
        }
        ip.set_fragment(0, false);
        ip.fill_checksum();
    }
    let (count, from) = (pieces.len(), from % pieces.len());
    pieces.rotate_left(from);
    let mut reassembler = Reassembler::new(1, LONGEST);
    for (n, piece) in pieces.iter().enumerate() {
        match reassembler.push(Instant::ZERO, piece, Sender::Known) {
            Reassembly::Held => assert!(n + 1 < count, "all fragments have arrived"),
            Reassembly::Whole(whole) => {
                assert_eq!(n + 1, count);
                assert_eq!(whole.data(), expected);
            }
            // Limits of the receiver.
            Reassembly::Dropped(ReassemblyError::TooManyFragments) => {
                assert!(count > MAX_FRAGMENTS);
                return;
            }
            Reassembly::Dropped(ReassemblyError::TinyFirst | ReassemblyError::HeadersTooLong) => return,
            Reassembly::Dropped(error) => panic!("{error}"),
        }
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let start = |shape: u8, mtu: u16| Script::default().u8(shape).u16(mtu);
    vec![
        start(1, 576).bytes(&[0x80, 0xb8, 200, 4, 1, 2, 3, 4]).finish(),
        start(5, 700).bytes(&[0x90, 0, 99, 0, 2, 148, 4, 0, 0, 7, 7, 4, 0, 0, 0, 0, 0]).finish(),
        start(2, 1280).bytes(&[0x80, 0xb8, 200, 4, 1, 2, 3, 4]).finish(),
        start(6, 1280)
            .bytes(&[0x90, 0xb8, 250, 0, 1, 2, 0, 0, 5, 2, 0, 0, 1, 0, 0, 0, 0, 1, 4, 0, 0, 0, 0])
            .finish(),
        start(0, 28)
            .bytes(&casemate_test_support::hosts::packets::udp(
                Ends::tunnel(4, 4).inner.0,
                Ends::tunnel(4, 4).inner.1,
                (1, 2),
                &[7; 100],
                false,
            ))
            .finish(),
    ]
}
