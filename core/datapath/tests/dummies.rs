//! Dummy packets (RFC 4303 sections 2.6 and 2.7): on the wire they cannot be distinguished from real packets.
// Helpers outside #[test] functions: a broken expectation is meant to stop the test.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic)]

use casemate_crypto::{CipherAlg, EspSuite, MacAlg, MacKind};
use casemate_datapath::{Direction, Inbound};
use casemate_sa::{DfPolicy, DscpPolicy, DscpSet, Mode, OuterHeader, SaParams, Spi};
use casemate_test_support::hosts::{Ends, Link, LinkSpec, PROVIDERS, Received, packets, suites};
use casemate_wire::dscp::Dscp;
use casemate_wire::ip::v4::Ipv4;
use casemate_wire::ip::v6::Ipv6;
use std::collections::HashSet;

/// The fields that an observer sees, without length, sequence number and encrypted part.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Visible {
    tos: u8,
    df: bool,
    ttl: u8,
    flow_label: u32,
    protocol: u8,
    ends: Vec<u8>,
    /// UDP ports, and whether there is a UDP checksum.
    udp: Option<([u8; 4], bool)>,
    spi: [u8; 4],
    /// Whether the identification is the lower half of the sequence number.
    is_numbered: bool,
}

impl Visible {
    fn of(wire: &[u8]) -> Self {
        let (tos, df, ttl, flow_label, protocol, ident, header) = if wire[0] >> 4 == 4 {
            let ip = Ipv4::parse(wire).unwrap();
            // No options, and a correct length field.
            assert!(ip.verify_checksum() && wire[0] == 0x45 && usize::from(ip.total_len()) == wire.len());
            (ip.tos(), ip.df(), ip.ttl(), 0, ip.protocol(), Some(ip.ident()), 20)
        } else {
            let ip = Ipv6::parse(wire).unwrap();
            assert_eq!(ip.total_len(), wire.len());
            (ip.traffic_class(), true, ip.hop_limit(), ip.flow_label(), ip.next_header(), None, 40)
        };
        let ends = wire[if header == 20 { 12 } else { 8 }..header].to_vec();
        let udp = &wire[header..];
        assert!(protocol != 17 || udp[4..6] == (udp.len() as u16).to_be_bytes());
        let (udp, esp) = match protocol {
            17 => (Some((*udp.first_chunk().unwrap(), udp[6..8] != [0, 0])), &udp[8..]),
            _ => (None, udp),
        };
        let seq = u32::from_be_bytes(*esp[4..].first_chunk().unwrap());
        let is_numbered = ident.is_none_or(|ident| ident == seq as u16);
        let spi = *esp.first_chunk().unwrap();
        Self { tos, df, ttl, flow_label, protocol, ends, udp, spi, is_numbered }
    }
}

/// A packet of `len` bytes between the hosts, of one of several kinds.
fn real(spec: &LinkSpec, len: usize, kind: usize) -> Vec<u8> {
    let (src, dst) = spec.ends.inner;
    let header = if src.is_ipv4() { 28 } else { 48 };
    let mut packet = packets::udp(src, dst, (1_000, 2_000), &vec![7; len - header], kind & 1 == 0);
    let (tos, ttl) = ([0x00, 0x28, 0xb9][kind % 3], if kind & 2 == 0 { 64 } else { 61 });
    if src.is_ipv4() {
        let mut ip = Ipv4::parse_quoted(&mut packet[..]).unwrap();
        ip.set_tos(tos);
        ip.set_ttl(ttl);
        ip.set_ident(kind as u16 * 777);
        ip.fill_checksum();
    } else {
        let mut ip = Ipv6::parse_quoted(&mut packet[..]).unwrap();
        ip.set_traffic_class(tos);
        ip.set_hop_limit(ttl);
        ip.set_flow_label(kind as u32 * 31);
    }
    packet
}

fn specs() -> Vec<LinkSpec> {
    let mut specs = Vec::new();
    for (mode, ends) in [
        (Mode::Tunnel, Ends::tunnel(4, 4)),
        (Mode::Tunnel, Ends::tunnel(4, 6)),
        (Mode::Tunnel, Ends::tunnel(6, 4)),
        (Mode::Tunnel, Ends::tunnel(6, 6)),
        (Mode::Transport, Ends::transport(4)),
        (Mode::Transport, Ends::transport(6)),
    ] {
        for encap in [false, true] {
            let mut spec = LinkSpec::single(ends, mode, suites::esp(suites::gcm(), 1));
            (spec.encap, spec.link_mtu) = (encap, 1_500);
            specs.push(spec.clone());
            if mode == Mode::Tunnel {
                spec.tfc_pad_to = 96;
                specs.push(spec.clone());
                spec.outer = OuterHeader {
                    df: DfPolicy::Clear,
                    dscp: DscpPolicy::Set(10),
                    ttl: 99,
                    ..OuterHeader::default()
                };
                specs.push(spec);
            }
        }
    }
    specs
}

fn dummy(link: &mut Link, len: usize) -> Vec<u8> {
    let wire = link.a.dummy(link.a_out[0], len).wire();
    assert!(matches!(link.b.receive(&wire), Received::Other(Inbound::Consumed(_))));
    wire
}

/// All packets have the same visible fields from the first one on, whatever the real packets. A value that
/// dummies copied from real packets would show by its first appearance.
#[test]
fn all_packets_have_the_same_visible_fields() {
    for spec in specs() {
        for is_dummy_first in [true, false] {
            let mut link = spec.build();
            assert!(link.a.dp.enable_dummies(link.a_out[0]));
            let mut seen = Vec::new();
            if is_dummy_first {
                seen.push(Visible::of(&dummy(&mut link, 100)));
            }
            for kind in 0..6 {
                let packet = real(&spec, 100 + kind, kind);
                let wire = link.a.send(&packet).wire();
                seen.push(Visible::of(&wire));
                let Received::Packet(received) = link.b.receive(&wire) else { panic!("{spec:?}") };
                // In tunnel mode the inner packet is unchanged.
                assert!(spec.layers[0].0 == Mode::Transport || received == packet, "{spec:?}");
                seen.push(Visible::of(&dummy(&mut link, 100)));
            }
            assert!(seen.iter().all(|visible| *visible == seen[0]), "{spec:?}\n{seen:#?}");
            assert!(seen[0].is_numbered, "{seen:?}");
        }
    }
}

/// An SA for some classes of service shows one of them, so that the network can prioritize it.
#[test]
fn sa_for_one_class_shows_that_class() {
    let spec = LinkSpec::single(Ends::tunnel(4, 4), Mode::Tunnel, suites::esp(suites::gcm(), 1));
    let mut link = spec.build();
    let urgent: DscpSet = [46].map(|value| Dscp::new(value).unwrap()).into_iter().collect();
    let params = SaParams { spi: Spi::new(0x2000).unwrap(), dscp: urgent, ..spec.params(0, true) };
    let id = link.a.dp.add_sa(&params, Direction::Outbound, &PROVIDERS, link.a.now).unwrap();
    assert!(link.a.dp.enable_dummies(id));
    assert_eq!(Visible::of(&link.a.dummy(id, 100).wire()).tos, 46 << 2);
}

/// AH covers the identification, so an inner packet with AH keeps it.
#[test]
fn ah_inside_stays_intact() {
    let mut spec = LinkSpec::single(Ends::transport(4), Mode::Transport, suites::esp(suites::gcm(), 1));
    spec.layers.insert(0, (Mode::Transport, suites::ah(MacAlg::standard(MacKind::HmacSha256), 1)));
    let mut link = spec.build();
    assert!(!link.a.dp.enable_dummies(link.a_out[0]), "AH has no dummies");
    assert!(link.a.dp.enable_dummies(link.a_out[1]));
    for kind in 0..6 {
        let wire = link.a.send(&real(&spec, 100, kind)).wire();
        assert!(matches!(link.b.receive(&wire), Received::Packet(_)), "{kind}");
    }
}

#[test]
fn dummies_have_lengths_that_real_packets_have() {
    for spec in specs() {
        let mut link = spec.build();
        let shortest = if spec.ends.inner.0.is_ipv4() { 28 } else { 48 };
        let longest = link.a.dp.inner_mtu(link.a_out[0], 1_500).unwrap();
        let mut lens = HashSet::new();
        for len in shortest..=longest {
            lens.insert(link.a.send(&real(&spec, len, 0)).wire().len());
        }
        for len in 0..=1_600 {
            let dummy = dummy(&mut link, len).len();
            assert!(lens.contains(&dummy), "{spec:?}: a dummy of {len} bytes has {dummy}");
        }
        // With a lower path MTU, real packets are shorter or are fragmented.
        link.a.dp.set_path_mtu(link.a_out[0], 1_300, link.a.now);
        assert!((0..=1_600).all(|len| dummy(&mut link, len).len() <= 1_300), "{spec:?}");
    }
}

#[test]
fn dummy_does_not_leak_the_buffer() {
    // The test host fills the buffer with 0x77. NULL encryption shows what the receiver sees.
    let null = EspSuite::Separate(CipherAlg::Null, MacAlg::standard(MacKind::HmacSha256));
    let mut link = LinkSpec::single(Ends::tunnel(4, 4), Mode::Tunnel, suites::esp(null, 1)).build();
    let wire = dummy(&mut link, 500);
    assert!(!wire.windows(4).any(|bytes| bytes == [0x77; 4]));
}
