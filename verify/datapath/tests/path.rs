//! The packet path around the data path: fragments in any order, floods of them, and what is cut.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

use casemate::path::{Arrivals, Cut, Joined, Leaving, Opened, OutboundPath, Unlocked};
use casemate_datapath::fragment::Fragments;
use casemate_datapath::spd::{Action, Policy};
use casemate_datapath::{Direction, DropReason, Inbound, Role, Unmatched};
use casemate_datapath_tests::{Ends, Host, Link, LinkSpec, NotRandom, PROVIDERS, Received, packets, suites};
use casemate_sa::{AddrRange, Limits, Mode, PortRange, SaParams, Selector, Spi};
use casemate_wire::ip::{Ipv4, proto};
use core::net::IpAddr;

const LIMITS: Limits = Limits { reassemblies: 8, ..Limits::SERVER };

fn tunnel(version: u8) -> LinkSpec {
    let esp = suites::esp(suites::gcm(), 1);
    LinkSpec { link_mtu: 1_500, ..LinkSpec::single(Ends::tunnel(version, version), Mode::Tunnel, esp) }
}

/// The link with a policy for UDP to port 500 in front of the tunnel's.
fn behind(spec: &LinkSpec, direction: Direction, action: Action) -> Link {
    let mut link = spec.build();
    let host = if direction == Direction::Outbound { &mut link.a } else { &mut link.b };
    let id = host.dp.policies(direction).next().unwrap().0;
    let policy = host.dp.remove_policy(direction, id).unwrap();
    let any = if spec.ends.inner.0.is_ipv4() { AddrRange::ANY_V4 } else { AddrRange::ANY_V6 };
    let dst_port = PortRange::single(500);
    let selector = Selector { proto: Some(proto::UDP), dst_port, ..Selector::between(any, any) };
    host.dp.add_policy(direction, Policy { selector, action, priority: 0 }).unwrap();
    host.dp.add_policy(direction, Policy { priority: 9, ..policy }).unwrap();
    link
}

fn udp(spec: &LinkSpec, port: u16) -> Vec<u8> {
    packets::udp(spec.ends.inner.0, spec.ends.inner.1, (1_000, port), &[7; 3_000], false)
}

fn fragments(packet: &[u8], mtu: usize) -> Vec<Vec<u8>> {
    let mut cut = Fragments::new(packet, mtu, 9).unwrap();
    let mut piece = vec![0; mtu];
    std::iter::from_fn(|| cut.next(&mut piece).map(|len| piece[..len].to_vec())).collect()
}

fn unlocked<'a>(host: &'a mut Host, rng: &'a mut NotRandom) -> Unlocked<'a> {
    Unlocked { datapath: &mut host.dp, rng }
}

/// The pieces that a packet leaves in.
fn pieces(packet: &[u8], cut: Cut) -> Vec<Vec<u8>> {
    let mut fragments = cut.pieces(packet).unwrap();
    let mut piece = vec![0; cut.mtu];
    std::iter::from_fn(|| fragments.next(&mut piece).map(|len| piece[..len].to_vec())).collect()
}

#[test]
fn datagrams_of_a_host_arrive_whole_through_a_tunnel_behind_policies_for_ports() {
    for (version, reversed) in [(4, false), (4, true), (6, false), (6, true)] {
        let spec = tunnel(version);
        let mut link = behind(&spec, Direction::Outbound, Action::Bypass);
        let (mut rng, mut out) = (NotRandom::default(), OutboundPath::gateway(&LIMITS, 1));
        let mut arrivals = Arrivals::new(&LIMITS, 8);
        for port in [2_000, 500] {
            let packet = udp(&spec, port);
            let mut parts = fragments(&packet, 1_280);
            if reversed {
                parts.reverse();
            }
            let (now, last) = (link.a.now, parts.pop().unwrap());
            for part in &parts {
                assert!(out.reassemble(now, part, &mut unlocked(&mut link.a, &mut rng)).is_none());
            }
            let joined = out.reassemble(now, &last, &mut unlocked(&mut link.a, &mut rng));
            let Some((whole, Leaving::Send { sa, cut: Some(cut) })) = joined else { panic!("{joined:?}") };
            // In clear, it may take another link than that of the SA.
            let mtu = if port == 500 && version == 6 { 1_280 } else { 1_500 };
            assert_eq!((sa.is_some(), cut.mtu), (port == 2_000, mtu));
            let mut received = None;
            for piece in pieces(whole.data(), cut) {
                let mut lender = unlocked(&mut link.b, &mut rng);
                received =
                    received.or(arrivals.join(now, &piece, &mut lender).whole().map(|p| p.data().to_vec()));
            }
            let received = received.unwrap();
            match port {
                500 => assert_eq!(received, packet, "in clear"),
                _ => assert_eq!(link.b.receive(&received), Received::Packet(packet)),
            }
        }
    }
}

#[test]
fn what_a_tunnel_delivers_in_fragments_is_judged_whole() {
    for (version, role) in [(4, Role::Gateway), (6, Role::Gateway), (4, Role::Host), (6, Role::Host)] {
        let spec = tunnel(version);
        let mut link = behind(&spec, Direction::Inbound, Action::Discard);
        link.b.dp.set_role(role);
        let (mut rng, mut opened) = (NotRandom::default(), Opened::new(&LIMITS, 1));
        for port in [2_000, 500] {
            let packet = udp(&spec, port);
            let mut whole = None;
            for part in fragments(&packet, 1_280) {
                let wire = link.a.send(&part).wire();
                let Received::Other(Inbound::ReassembleOpened(via)) = link.b.receive(&wire) else {
                    panic!("a fragment waits")
                };
                let (now, mut lender) = (link.b.now, unlocked(&mut link.b, &mut rng));
                if let Joined::Whole((packet, cut)) = opened.join(now, via, &part, &mut lender) {
                    whole = Some((packet.data().to_vec(), cut.map(|cut| cut.mtu)));
                }
            }
            // Linux forwards no IPv6 packet that is longer than its link.
            let cut = (version == 6 && role == Role::Gateway).then_some(1_280);
            assert_eq!(whole, (port == 2_000).then_some((packet, cut)));
        }
        assert_eq!(link.b.dp.drops().get(DropReason::PolicyDiscard), 1);
    }
}

/// A datagram in clear may meet a narrower link, so what fits the data path's may be cut, too.
#[test]
fn datagrams_in_clear_may_be_cut_for_their_own_link() {
    for version in [4, 6] {
        let spec = tunnel(version);
        let mut link = behind(&spec, Direction::Outbound, Action::Bypass);
        let (mut rng, mut out) = (NotRandom::default(), OutboundPath::gateway(&LIMITS, 1));
        let (from, to) = spec.ends.inner;
        let mut parts = fragments(&packets::udp(from, to, (1_000, 500), &[7; 1_400], false), 1_280);
        for part in parts.iter_mut().filter(|_| version == 4) {
            let mut ip = Ipv4::parse(&mut part[..]).unwrap();
            ip.set_df(true);
            ip.fill_checksum();
        }
        let now = link.a.now;
        assert!(out.reassemble(now, &parts[0], &mut unlocked(&mut link.a, &mut rng)).is_none());
        let joined = out.reassemble(now, &parts[1], &mut unlocked(&mut link.a, &mut rng));
        let Some((whole, Leaving::Send { sa: None, cut })) = joined else { panic!("{joined:?}") };
        assert_eq!(cut.map(|cut| cut.mtu), (version == 6).then_some(1_280));
        assert_eq!(pieces(whole.data(), Cut { mtu: 1_280, ident: 1 }).len(), 2);
    }
}

/// What another gateway put together and sealed whole.
#[test]
fn long_packets_that_a_tunnel_delivers_are_cut_if_they_are_v6() {
    let mut opened = Opened::new(&LIMITS, 1);
    for version in [4, 6] {
        let packet = udp(&tunnel(version), 2_000);
        let (mut rng, mut host) = (NotRandom::default(), Host::new(Unmatched::Discard, 1_500));
        let cut = opened.cut_long(&packet, 1_500, &mut unlocked(&mut host, &mut rng));
        assert_eq!(cut.map(|cut| cut.mtu), (version == 6).then_some(1_280));
        assert_eq!(opened.cut_long(&packet, packet.len(), &mut unlocked(&mut host, &mut rng)), None);
        host.dp.set_hosts(&[tunnel(version).ends.inner.1]);
        let for_us = opened.cut_long(&packet, 1_500, &mut unlocked(&mut host, &mut rng));
        assert_eq!(for_us, None, "its own stack takes it whole");
    }
}

/// A gateway's own stack would put fragments that came through an SA together with others. Only those that came
/// through the same SA make a datagram.
#[test]
fn fragments_for_the_gateway_itself_wait_for_those_of_their_sa() {
    for version in [4, 6] {
        let spec = tunnel(version);
        let mut link = spec.build();
        // Another SA of the same peer, for the same policy.
        let params = SaParams { spi: Spi::new(0x2000).unwrap(), ..spec.params(0, true) };
        let mut peer = Host::new(Unmatched::Discard, 1_500);
        peer.dp.add_sa(&params, Direction::Outbound, &PROVIDERS, peer.now).unwrap();
        peer.dp.add_policy(Direction::Outbound, spec.policy(true)).unwrap();
        link.b.dp.add_sa(&params, Direction::Inbound, &PROVIDERS, link.b.now).unwrap();
        let packet = udp(&spec, 2_000);
        let parts = fragments(&packet, 1_280);
        assert_eq!(parts.len(), 3);
        // Those for others are forwarded as they are.
        let wire = link.a.send(&parts[0]).wire();
        assert_eq!(link.b.receive(&wire), Received::Packet(parts[0].clone()));
        link.b.dp.set_hosts(&["192.0.2.99".parse().unwrap(), spec.ends.inner.1]);
        let (mut rng, mut opened) = (NotRandom::default(), Opened::new(&LIMITS, 1));
        let mut join = |wire: &[u8], part: &[u8], b: &mut Host| {
            let Received::Other(Inbound::ReassembleOpened(via)) = b.receive(wire) else {
                panic!("a fragment waits")
            };
            let now = b.now;
            let joined = opened.join(now, via, part, &mut unlocked(b, &mut rng));
            joined.whole().map(|(packet, cut)| (packet.data().to_vec(), cut))
        };
        assert_eq!(join(&link.a.send(&parts[0]).wire(), &parts[0], &mut link.b), None);
        assert_eq!(join(&link.a.send(&parts[1]).wire(), &parts[1], &mut link.b), None);
        assert_eq!(join(&peer.send(&parts[2]).wire(), &parts[2], &mut link.b), None, "another SA");
        let whole = join(&link.a.send(&parts[2]).wire(), &parts[2], &mut link.b);
        assert_eq!(whole, Some((packet, None)));
    }
}

#[test]
fn a_flood_of_forged_fragments_does_not_stop_those_of_a_peer() {
    let spec = tunnel(4);
    let mut link = spec.build();
    let (mut rng, mut arrivals) = (NotRandom::default(), Arrivals::new(&LIMITS, 8));
    let wire = link.a.send(&udp(&spec, 2_000)).wire();
    let parts = fragments(&wire, 1_280);
    let now = link.b.now;
    let mut whole = None;
    for part in &parts {
        for n in 0..200u8 {
            let mut forged = parts[0].clone();
            let mut ip = Ipv4::parse(&mut forged[..]).unwrap();
            ip.set_src([198, 51, 100, n].into());
            ip.fill_checksum();
            arrivals.join(now, &forged, &mut unlocked(&mut link.b, &mut rng));
        }
        let joined = arrivals.join(now, part, &mut unlocked(&mut link.b, &mut rng));
        whole = whole.or(joined.whole().map(|packet| packet.data().to_vec()));
    }
    assert_eq!(whole, Some(wire));
    assert!(link.b.dp.drops().get(DropReason::FragmentTableFull) > 100);
}

/// A stack that leaves cutting to us need not number its datagrams, and its DF bit says nothing.
#[test]
fn datagrams_of_a_stack_are_numbered_and_cut() {
    let spec = tunnel(4);
    let mut link = behind(&spec, Direction::Outbound, Action::Bypass);
    link.a.dp.set_role(Role::Host);
    let (mut rng, mut out) = (NotRandom::default(), OutboundPath::host(0xffff));
    let (IpAddr::V4(from), IpAddr::V4(to)) = spec.ends.inner else { panic!("IPv4") };
    let mut datagram = packets::udp(from.into(), to.into(), (1, 500), &[7; 3_000], true);
    let mut ip = Ipv4::parse(&mut datagram[..]).unwrap();
    ip.set_ident(0);
    ip.fill_checksum();
    let mut storage = [vec![0; 256], datagram.clone(), vec![0; 160]].concat();
    let mut packet = casemate_wire::packet::Packet::new(&mut storage, 256, datagram.len()).unwrap();
    let now = link.a.now;
    let leaving = out.protect(now, &mut packet, &mut unlocked(&mut link.a, &mut rng));
    let Leaving::Send { sa: None, cut: Some(cut) } = leaving else { panic!("{leaving:?}") };
    let parts = pieces(packet.data(), cut);
    assert_eq!(parts.len(), 3);
    for part in parts {
        let ip = Ipv4::parse(&part[..]).unwrap();
        assert!(ip.ident() != 0 && ip.verify_checksum() && part.len() <= 1_500);
    }
}
