//! The packet path around the data path: reassembly, floods of fragments, and fragmentation.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

use casemate::path::{
    ExclusiveAccess, FragmentPlan, InboundFragments, OpenedDatagram, OpenedFragments, OutboundAction,
    OutboundPath, Reassembled,
};
use casemate_datapath::fragment::Fragments;
use casemate_datapath::spd::{Action, Policy};
use casemate_datapath::{Direction, DropReason, Inbound, Role, Unmatched};
use casemate_sa::{AddrRange, Limits, Mode, PortRange, SaParams, Selector, SpdId, Spi};
use casemate_test_support::TestRng;
use casemate_test_support::hosts::{Ends, Host, Link, LinkSpec, PROVIDERS, Received, packets, suites};
use casemate_wire::ip::{Ipv4, proto};
use core::net::IpAddr;

const LIMITS: Limits = Limits { reassemblies: 8, ..Limits::SERVER };

fn tunnel(version: u8) -> LinkSpec {
    let esp = suites::esp(suites::gcm(), 1);
    LinkSpec { link_mtu: 1_500, ..LinkSpec::single(Ends::tunnel(version, version), Mode::Tunnel, esp) }
}

/// The hosts with a policy for UDP port 500 before that of the tunnel.
fn behind(spec: &LinkSpec, direction: Direction, action: Action) -> Link {
    let mut link = spec.build();
    let host = if direction == Direction::Outbound { &mut link.a } else { &mut link.b };
    let id = host.dp.policies(direction).next().unwrap().0;
    let policy = host.dp.remove_policy(direction, id).unwrap();
    let any = if spec.ends.inner.0.is_ipv4() { AddrRange::ANY_V4 } else { AddrRange::ANY_V6 };
    let dst_port = PortRange::single(500);
    let selector = Selector { proto: Some(proto::UDP), dst_port, ..Selector::between(any, any) };
    host.dp.add_policy(direction, Policy { spd: SpdId::MAIN, selector, action, priority: 0 }).unwrap();
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

fn unlocked<'a>(host: &'a mut Host, rng: &'a mut TestRng) -> ExclusiveAccess<'a> {
    ExclusiveAccess { datapath: &mut host.dp, rng }
}

/// The fragments of a packet.
fn pieces(packet: &[u8], cut: FragmentPlan) -> Vec<Vec<u8>> {
    let mut fragments = cut.fragments(packet).unwrap();
    let mut piece = vec![0; cut.mtu];
    std::iter::from_fn(|| fragments.next(&mut piece).map(|len| piece[..len].to_vec())).collect()
}

#[test]
fn fragmented_datagrams_pass_a_tunnel_after_port_policies() {
    for (version, reversed) in [(4, false), (4, true), (6, false), (6, true)] {
        let spec = tunnel(version);
        let mut link = behind(&spec, Direction::Outbound, Action::Bypass);
        let (mut rng, mut out) = (TestRng::new(1), OutboundPath::gateway(&LIMITS, 1));
        let mut arrivals = InboundFragments::new(&LIMITS, 8);
        for port in [2_000, 500] {
            let packet = udp(&spec, port);
            let mut parts = fragments(&packet, 1_280);
            if reversed {
                parts.reverse();
            }
            let (now, last) = (link.a.now, parts.pop().unwrap());
            for part in &parts {
                assert!(
                    out.reassemble(now, SpdId::MAIN, part, &mut unlocked(&mut link.a, &mut rng)).is_none()
                );
            }
            let joined = out.reassemble(now, SpdId::MAIN, &last, &mut unlocked(&mut link.a, &mut rng));
            let Some((whole, OutboundAction::Send { sa, plan: Some(cut) })) = joined else {
                panic!("{joined:?}")
            };
            // In clear, the packet may use another link than the SA.
            let mtu = if port == 500 && version == 6 { 1_280 } else { 1_500 };
            assert_eq!((sa.is_some(), cut.mtu), (port == 2_000, mtu));
            let mut received = None;
            for piece in pieces(whole.data(), cut) {
                let mut lender = unlocked(&mut link.b, &mut rng);
                received =
                    received.or(arrivals.push(now, &piece, &mut lender).whole().map(|p| p.data().to_vec()));
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
fn policy_applies_to_reassembled_datagrams_of_a_tunnel() {
    for (version, role) in [(4, Role::Gateway), (6, Role::Gateway), (4, Role::Host), (6, Role::Host)] {
        let spec = tunnel(version);
        let mut link = behind(&spec, Direction::Inbound, Action::Discard);
        link.b.dp.set_role(role);
        let (mut rng, mut opened) = (TestRng::new(1), OpenedFragments::new(&LIMITS, 1));
        for port in [2_000, 500] {
            let packet = udp(&spec, port);
            let mut whole = None;
            for part in fragments(&packet, 1_280) {
                let wire = link.a.send(&part).wire();
                let Received::Other(Inbound::ReassembleOpened(via)) = link.b.receive(&wire) else {
                    panic!("a fragment waits")
                };
                let (now, mut lender) = (link.b.now, unlocked(&mut link.b, &mut rng));
                if let Reassembled::Whole(OpenedDatagram { packet, plan: cut, .. }) =
                    opened.push(now, via, &part, &mut lender)
                {
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

/// A clear-text datagram may use a narrower link, so it may be fragmented even if it fits the data path's
/// link.
#[test]
fn clear_text_datagrams_may_be_fragmented_for_their_link() {
    for version in [4, 6] {
        let spec = tunnel(version);
        let mut link = behind(&spec, Direction::Outbound, Action::Bypass);
        let (mut rng, mut out) = (TestRng::new(1), OutboundPath::gateway(&LIMITS, 1));
        let (from, to) = spec.ends.inner;
        let mut parts = fragments(&packets::udp(from, to, (1_000, 500), &[7; 1_400], false), 1_280);
        for part in parts.iter_mut().filter(|_| version == 4) {
            let mut ip = Ipv4::parse(&mut part[..]).unwrap();
            ip.set_df(true);
            ip.fill_checksum();
        }
        let now = link.a.now;
        assert!(out.reassemble(now, SpdId::MAIN, &parts[0], &mut unlocked(&mut link.a, &mut rng)).is_none());
        let joined = out.reassemble(now, SpdId::MAIN, &parts[1], &mut unlocked(&mut link.a, &mut rng));
        let Some((whole, OutboundAction::Send { sa: None, plan: cut })) = joined else {
            panic!("{joined:?}")
        };
        assert_eq!(cut.map(|cut| cut.mtu), (version == 6).then_some(1_280));
        assert_eq!(pieces(whole.data(), FragmentPlan { mtu: 1_280, ident: 1 }).len(), 2);
    }
}

/// Another gateway reassembled the packet and sealed it whole.
#[test]
fn long_v6_packets_of_a_tunnel_are_fragmented() {
    let mut opened = OpenedFragments::new(&LIMITS, 1);
    for version in [4, 6] {
        let packet = udp(&tunnel(version), 2_000);
        let (mut rng, mut host) = (TestRng::new(1), Host::new(Unmatched::Discard, 1_500));
        let cut = opened.plan_fragments(&packet, 1_500, &mut unlocked(&mut host, &mut rng));
        assert_eq!(cut.map(|cut| cut.mtu), (version == 6).then_some(1_280));
        assert_eq!(opened.plan_fragments(&packet, packet.len(), &mut unlocked(&mut host, &mut rng)), None);
        host.dp.set_local_addrs(&[tunnel(version).ends.inner.1]);
        let for_us = opened.plan_fragments(&packet, 1_500, &mut unlocked(&mut host, &mut rng));
        assert_eq!(for_us, None, "the local stack receives it whole");
    }
}

/// The gateway's own stack would reassemble fragments from an SA with other fragments. Only fragments from
/// the same SA form a datagram.
#[test]
fn fragments_for_the_gateway_are_reassembled_per_sa() {
    for version in [4, 6] {
        let spec = tunnel(version);
        let mut link = spec.build();
        // Another SA of the same peer for the same policy.
        let params = SaParams { spi: Spi::new(0x2000).unwrap(), ..spec.params(0, true) };
        let mut peer = Host::new(Unmatched::Discard, 1_500);
        peer.dp.add_sa(&params, Direction::Outbound, &PROVIDERS, peer.now).unwrap();
        peer.dp.add_policy(Direction::Outbound, spec.policy(true)).unwrap();
        link.b.dp.add_sa(&params, Direction::Inbound, &PROVIDERS, link.b.now).unwrap();
        let packet = udp(&spec, 2_000);
        let parts = fragments(&packet, 1_280);
        assert_eq!(parts.len(), 3);
        // Fragments for other hosts are forwarded unchanged.
        let wire = link.a.send(&parts[0]).wire();
        assert_eq!(link.b.receive(&wire), Received::Packet(parts[0].clone()));
        link.b.dp.set_local_addrs(&["192.0.2.99".parse().unwrap(), spec.ends.inner.1]);
        let (mut rng, mut opened) = (TestRng::new(1), OpenedFragments::new(&LIMITS, 1));
        let mut join = |wire: &[u8], part: &[u8], b: &mut Host| {
            let Received::Other(Inbound::ReassembleOpened(via)) = b.receive(wire) else {
                panic!("a fragment waits")
            };
            let now = b.now;
            let joined = opened.push(now, via, part, &mut unlocked(b, &mut rng));
            joined.whole().map(|whole| (whole.packet.data().to_vec(), whole.plan))
        };
        assert_eq!(join(&link.a.send(&parts[0]).wire(), &parts[0], &mut link.b), None);
        assert_eq!(join(&link.a.send(&parts[1]).wire(), &parts[1], &mut link.b), None);
        assert_eq!(join(&peer.send(&parts[2]).wire(), &parts[2], &mut link.b), None, "another SA");
        let whole = join(&link.a.send(&parts[2]).wire(), &parts[2], &mut link.b);
        assert_eq!(whole, Some((packet, None)));
    }
}

#[test]
fn flood_of_forged_fragments_does_not_block_a_peer() {
    let spec = tunnel(4);
    let mut link = spec.build();
    let (mut rng, mut arrivals) = (TestRng::new(1), InboundFragments::new(&LIMITS, 8));
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
            arrivals.push(now, &forged, &mut unlocked(&mut link.b, &mut rng));
        }
        let joined = arrivals.push(now, part, &mut unlocked(&mut link.b, &mut rng));
        whole = whole.or(joined.whole().map(|packet| packet.data().to_vec()));
    }
    assert_eq!(whole, Some(wire));
    assert!(link.b.dp.drops().get(DropReason::FragmentTableFull) > 100);
}

/// A stack that leaves fragmentation to the adapter may leave out the identification, and its DF bit is
/// ignored.
#[test]
fn host_datagrams_get_identification_and_are_fragmented() {
    let spec = tunnel(4);
    let mut link = behind(&spec, Direction::Outbound, Action::Bypass);
    link.a.dp.set_role(Role::Host);
    let (mut rng, mut out) = (TestRng::new(1), OutboundPath::host(0xffff));
    let (IpAddr::V4(from), IpAddr::V4(to)) = spec.ends.inner else { panic!("IPv4") };
    let mut datagram = packets::udp(from.into(), to.into(), (1, 500), &[7; 3_000], true);
    let mut ip = Ipv4::parse(&mut datagram[..]).unwrap();
    ip.set_ident(0);
    ip.fill_checksum();
    let mut storage = [vec![0; 256], datagram.clone(), vec![0; 160]].concat();
    let mut packet = casemate_wire::packet::Packet::new(&mut storage, 256, datagram.len()).unwrap();
    let now = link.a.now;
    let leaving = out.protect(now, &mut packet, &mut unlocked(&mut link.a, &mut rng));
    let OutboundAction::Send { sa: None, plan: Some(cut) } = leaving else { panic!("{leaving:?}") };
    let parts = pieces(packet.data(), cut);
    assert_eq!(parts.len(), 3);
    for part in parts {
        let ip = Ipv4::parse(&part[..]).unwrap();
        assert!(ip.ident() != 0 && ip.verify_checksum() && part.len() <= 1_500);
    }
}
