//! TCP segments under an SA fill the path MTU exactly.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

use casemate_datapath::spd::{Action, Policy};
use casemate_datapath::{Direction, Role};
use casemate_sa::{AddrRange, Mode, Selector, SpdId};
use casemate_test_support::hosts::{Ends, Link, LinkSpec, Received, Sent, packets, suites};
use casemate_wire::ip::proto;
use core::net::IpAddr;

/// A TCP segment with these flags; a SYN has an MSS of 9,000.
fn tcp(from: IpAddr, to: IpAddr, flags: u8, data: usize) -> Vec<u8> {
    let mut segment = vec![0, 80, 0x30, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, flags, 0xFF, 0xFF, 0, 0, 0, 0];
    if flags & 2 != 0 {
        segment[12] = 0x60;
        segment.extend([2, 4, 0x23, 0x28]);
    }
    segment.resize(segment.len() + data, 7);
    packets::ip(from, to, proto::TCP, &segment, true)
}

fn announced(packet: &[u8], ip_header: usize) -> usize {
    usize::from(u16::from_be_bytes([packet[ip_header + 22], packet[ip_header + 23]]))
}

fn specs() -> Vec<LinkSpec> {
    let esp = |suite| suites::esp(suite, 1);
    let mut natt = LinkSpec::single(Ends::tunnel(4, 6), Mode::Tunnel, esp(suites::cbc_sha1()));
    natt.encap = true;
    let mut bundle = LinkSpec::single(Ends::transport(4), Mode::Transport, esp(suites::gcm()));
    bundle.layers.push((Mode::Tunnel, esp(suites::cbc_sha1())));
    vec![
        LinkSpec::single(Ends::tunnel(4, 4), Mode::Tunnel, esp(suites::gcm())),
        LinkSpec::single(Ends::tunnel(6, 4), Mode::Tunnel, esp(suites::cbc_sha1())),
        LinkSpec::single(Ends::transport(6), Mode::Transport, esp(suites::cbc_sha1())),
        natt,
        bundle,
    ]
}

/// The MSS of a connection from `a` that arrives at `b`, and the other way round, if only the link of `a` is
/// narrow.
fn announced_through(link: &mut Link, spec: &LinkSpec) -> (usize, usize) {
    let (a, b) = spec.ends.inner;
    let header = if a.is_ipv4() { 20 } else { 40 };
    link.b.dp.set_link_mtu(65_535);
    let open = |received| match received {
        Received::Packet(packet) => packet,
        other => panic!("{other:?}"),
    };
    let wire = link.a.send(&tcp(a, b, 0x02, 0)).wire();
    let out = open(link.b.receive(&wire));
    let wire = link.b.send(&tcp(b, a, 0x12, 0)).wire();
    let back = open(link.a.receive(&wire));
    (announced(&out, header), announced(&back, header))
}

#[test]
fn full_segment_fits_exactly() {
    for mut spec in specs() {
        spec.link_mtu = 1500;
        let (a, b) = spec.ends.inner;
        let mut link = spec.build();
        // Each MSS is lowered once: on its way out at one end, or on its way in.
        let (most, back) = announced_through(&mut link, &spec);
        assert_eq!(back, most);
        assert!((1300..1460).contains(&most), "{most}");
        let mut send = |data| link.a.send(&tcp(a, b, 0x10, data));
        match send(most) {
            Sent::Wire(wire, sealed) => {
                assert_eq!(sealed.fragment_to, None);
                assert!(wire.len() > 1500 - 16 && wire.len() <= 1500, "{}", wire.len());
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(send(most + 1), Sent::Reply(..)), "{most} is as much as fits");
        // A lower path MTU applies too.
        let outermost = *link.a_out.last().unwrap();
        link.a.dp.set_path_mtu(outermost, 1_300, link.a.now);
        let (narrow, back) = announced_through(&mut link, &spec);
        assert!(
            narrow == back && narrow <= most - 200 + 16 && narrow >= most - 200 - 16,
            "{narrow} {back} {most}"
        );
    }
}

/// The link MTU of the SA applies, not that of the data path.
#[test]
fn link_mtu_of_the_sa_applies() {
    for mut spec in specs() {
        spec.link_mtu = 1_500;
        let mut link = spec.build();
        let usual = announced_through(&mut link, &spec).0;
        let outermost = *link.a_out.last().unwrap();
        assert!(link.a.dp.set_sa_link_mtu(outermost, 9_000));
        let wide = announced_through(&mut link, &spec).0;
        assert!((8_800..8_960).contains(&wide), "{wide}");
        let (a, b) = spec.ends.inner;
        match link.a.send(&tcp(a, b, 0x10, wide)) {
            Sent::Wire(wire, sealed) => {
                assert!(sealed.fragment_to.is_none() && wire.len() > 8_900, "{}", wire.len());
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(link.a.dp.max_link_mtu(), 9_000, "packets from the peer may be that long");
        assert!(link.a.dp.set_sa_link_mtu(outermost, 1_300));
        let narrow = announced_through(&mut link, &spec).0;
        assert!(narrow <= usual - 200 + 16 && narrow >= usual - 200 - 16, "{narrow} {usual}");
    }
}

/// A gateway does not change bypassed packets. A host that leaves fragmentation to the data path gets the MSS
/// of its link.
#[test]
fn clear_text_mss_is_lowered_for_hosts_only() {
    let mut spec = specs()[0].clone();
    spec.link_mtu = 1500;
    let (a, _) = spec.ends.inner;
    let elsewhere: IpAddr = "198.51.100.1".parse().unwrap();
    for (role, expected) in [(Role::Gateway, 9_000), (Role::Host, 1_460)] {
        let mut host = spec.build().a;
        host.dp.set_role(role);
        for direction in [Direction::Outbound, Direction::Inbound] {
            host.dp.add_policy(direction, bypass()).unwrap();
        }
        let Sent::Bypass(out) = host.send(&tcp(a, elsewhere, 0x02, 0)) else { panic!("bypassed") };
        let Received::Packet(back) = host.receive(&tcp(elsewhere, a, 0x12, 0)) else { panic!("bypassed") };
        assert_eq!((announced(&out, 20), announced(&back, 20)), (expected, expected), "{role:?}");
    }
}

/// A policy that bypasses everything, with the lowest precedence.
fn bypass() -> Policy {
    let any = AddrRange::prefix("0.0.0.0".parse().unwrap(), 0).unwrap();
    Policy {
        spd: SpdId::MAIN,
        selector: Selector::between(any, any),
        action: Action::Bypass,
        priority: u32::MAX,
    }
}

#[test]
fn other_packets_than_syn_stay_unchanged() {
    let spec = &specs()[0];
    let (a, b) = spec.ends.inner;
    let mut link = spec.build();
    link.a.dp.set_link_mtu(1_500);
    let mut fragment = tcp(a, b, 0x02, 0);
    fragment[6] = 0x20;
    // A SYN without an MSS, a SYN with a small MSS, and a truncated header.
    let mut silent = tcp(a, b, 0x02, 0);
    silent[40..44].copy_from_slice(&[1; 4]);
    let mut modest = tcp(a, b, 0x02, 0);
    modest[42..44].copy_from_slice(&536u16.to_be_bytes());
    let short = packets::ip(a, b, proto::TCP, &[0, 80, 0x30, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0x60, 2], true);
    for other in
        [tcp(a, b, 0x10, 100), packets::udp(a, b, (1, 2), &[2; 40], true), fragment, silent, modest, short]
    {
        let wire = link.a.send(&other).wire();
        assert_eq!(link.b.receive(&wire), Received::Packet(other));
    }
}
