//! RFC 4301 section 7: every fragment gets the verdict of its datagram, whatever fields the fragment itself
//! has.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

use casemate_datapath::fragment::Fragments;
use casemate_datapath::reassembly::{Reassembler, Reassembly, Sender};
use casemate_datapath::spd::{Action, Policy};
use casemate_datapath::{Direction, DropReason, Inbound, SecPath};
use casemate_sa::{AddrRange, Mode, PortRange, Selector, SpdId, Spi};
use casemate_test_support::hosts::{Ends, Host, Link, LinkSpec, PROVIDERS, Received, Sent, packets, suites};
use casemate_wire::ip::proto;

const MTU: usize = 1_280;

fn tunnel(version: u8) -> LinkSpec {
    let esp = suites::esp(suites::gcm(), 1);
    LinkSpec { link_mtu: 1_500, ..LinkSpec::single(Ends::tunnel(version, version), Mode::Tunnel, esp) }
}

fn fragments(packet: &[u8]) -> Vec<Vec<u8>> {
    let mut cut = Fragments::new(packet, MTU, 9).unwrap();
    let mut piece = [0; MTU];
    std::iter::from_fn(|| cut.next(&mut piece).map(|len| piece[..len].to_vec())).collect()
}

/// The datagram, reassembled from these fragments.
fn whole(fragments: &[Vec<u8>], reversed: bool) -> Vec<u8> {
    let mut reassembler = Reassembler::new(1, 65_535);
    let mut order: Vec<_> = fragments.iter().collect();
    if reversed {
        order.reverse();
    }
    for fragment in order {
        let now = casemate_sa::Instant::ZERO;
        if let Reassembly::Whole(packet) = reassembler.push(now, fragment, Sender::Known) {
            return packet.data().to_vec();
        }
    }
    panic!("fragments are missing")
}

fn udp(spec: &LinkSpec, port: u16) -> Vec<u8> {
    packets::udp(spec.ends.inner.0, spec.ends.inner.1, (1_000, port), &[7; 3_000], false)
}

/// A policy for UDP to one port between any addresses.
fn to_port(spec: &LinkSpec, port: u16, action: Action) -> Policy {
    let any = if spec.ends.inner.0.is_ipv4() { AddrRange::ANY_V4 } else { AddrRange::ANY_V6 };
    let selector = Selector {
        proto: Some(proto::UDP),
        dst_port: PortRange::single(port),
        ..Selector::between(any, any)
    };
    Policy { spd: SpdId::MAIN, selector, action, priority: 0 }
}

/// The hosts with another policy before that of the tunnel.
fn behind(spec: &LinkSpec, direction: Direction, first: Policy) -> Link {
    let mut link = spec.build();
    let host = if direction == Direction::Outbound { &mut link.a } else { &mut link.b };
    let id = host.dp.policies(direction).next().unwrap().0;
    let policy = host.dp.remove_policy(direction, id).unwrap();
    host.dp.add_policy(direction, first).unwrap();
    host.dp.add_policy(direction, Policy { priority: 9, ..policy }).unwrap();
    link
}

/// Checks that all fragments are to be reassembled, and that the whole datagram is sealed and then
/// fragmented.
#[track_caller]
fn is_protected_whole(link: &mut Link, packet: &[u8]) {
    let pieces = fragments(packet);
    for piece in &pieces {
        assert_eq!(link.a.send(piece), Sent::Reassemble);
    }
    for reversed in [false, true] {
        match link.a.send_reassembled(&whole(&pieces, reversed)) {
            Sent::Wire(wire, sealed) => {
                assert_eq!(sealed.fragment_to, Some(1_500));
                assert_eq!(link.b.receive(&wire), Received::Packet(packet.to_vec()));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn tunnel_for_a_port_carries_all_lengths() {
    for version in [4, 6] {
        let spec = tunnel(version);
        let mut link = spec.build();
        let id = link.a.dp.policies(Direction::Outbound).next().unwrap().0;
        let mut policy = link.a.dp.remove_policy(Direction::Outbound, id).unwrap();
        (policy.selector.proto, policy.selector.dst_port) = (Some(proto::UDP), PortRange::single(2_000));
        link.a.dp.add_policy(Direction::Outbound, policy).unwrap();
        is_protected_whole(&mut link, &udp(&spec, 2_000));
        // The whole datagram decides: the tunnel is not for this port.
        let other = udp(&spec, 2_001);
        fragments(&other).iter().for_each(|piece| assert_eq!(link.a.send(piece), Sent::Reassemble));
        assert_eq!(link.a.send_reassembled(&other), Sent::Drop(DropReason::NoPolicy));
    }
}

#[test]
fn port_policies_before_a_tunnel_apply_to_whole_datagrams() {
    for (version, action) in
        [(4, Action::Bypass), (6, Action::Bypass), (4, Action::Discard), (6, Action::Discard)]
    {
        let spec = tunnel(version);
        let mut link = behind(&spec, Direction::Outbound, to_port(&spec, 500, action.clone()));
        is_protected_whole(&mut link, &udp(&spec, 2_000));
        let own = udp(&spec, 500);
        fragments(&own).iter().for_each(|piece| assert_eq!(link.a.send(piece), Sent::Reassemble));
        match (action, link.a.send_reassembled(&own)) {
            (Action::Bypass, Sent::Bypass(packet)) => assert_eq!(packet, own),
            (Action::Discard, Sent::Reply(DropReason::PolicyDiscard, _)) => {}
            (_, other) => panic!("{other:?}"),
        }
    }
}

/// RFC 4301 section 7.1: a tunnel for all ports carries the fragments themselves.
#[test]
fn tunnel_for_all_ports_carries_fragments() {
    for version in [4, 6] {
        let spec = tunnel(version);
        let mut link = behind(
            &spec,
            Direction::Outbound,
            Policy {
                spd: SpdId::MAIN,
                selector: Selector { proto: Some(proto::TCP), ..to_port(&spec, 80, Action::Bypass).selector },
                ..to_port(&spec, 80, Action::Bypass)
            },
        );
        for piece in fragments(&udp(&spec, 2_000)) {
            let wire = link.a.send(&piece).wire();
            assert_eq!(link.b.receive(&wire), Received::Packet(piece));
        }
    }
}

/// Extension headers after the fragment header hide the protocol from all fragments but the first.
#[test]
fn hidden_protocol_needs_the_whole_datagram() {
    let spec = tunnel(6);
    let mut tcp = to_port(&spec, 0, Action::Discard);
    (tcp.selector.proto, tcp.selector.dst_port) = (Some(proto::TCP), PortRange::ANY);
    let mut link = behind(&spec, Direction::Outbound, tcp);
    let options = (proto::DEST_OPTS, vec![0, 0, 1, 4, 0, 0, 0, 0]);
    let packet = packets::with_v6_headers(&udp(&spec, 2_000), &[options]);
    is_protected_whole(&mut link, &packet);
    // If every fragment has the protocol, it decides.
    for piece in fragments(&udp(&spec, 2_000)) {
        link.a.send(&piece).wire();
    }
}

/// An SA with manual keys may have its own selector.
#[test]
fn sa_for_a_port_carries_all_lengths() {
    let spec = tunnel(4);
    let mut link = spec.build();
    link.a.dp.remove_sa(link.a_out[0]);
    let mut params = spec.params(0, true);
    params.selector = Some(to_port(&spec, 2_000, Action::Bypass).selector);
    link.a.dp.add_sa(&params, Direction::Outbound, &PROVIDERS, link.a.now).unwrap();
    is_protected_whole(&mut link, &udp(&spec, 2_000));
}

/// The fragments of `packet` that the tunnel delivers.
fn opened(link: &mut Link, packet: &[u8]) -> Vec<(Vec<u8>, Received)> {
    let through = |piece: &Vec<u8>| {
        let wire = link.a.send(piece).wire();
        (piece.clone(), link.b.receive(&wire))
    };
    fragments(packet).iter().map(through).collect()
}

#[test]
fn inbound_port_policies_apply_to_whole_datagrams() {
    for version in [4, 6] {
        let spec = tunnel(version);
        let mut link = behind(&spec, Direction::Inbound, to_port(&spec, 500, Action::Discard));
        for (port, is_admitted) in [(2_000, true), (500, false)] {
            let packet = udp(&spec, port);
            let mut seen: Option<SecPath> = None;
            for (_, received) in opened(&mut link, &packet) {
                let Received::Other(Inbound::ReassembleOpened(via)) = received else {
                    panic!("{received:?}")
                };
                assert!(seen.is_none_or(|seen| seen == via));
                seen = Some(via);
            }
            let verdict = link.b.admit_reassembled(seen.unwrap(), &packet);
            match is_admitted {
                true => assert_eq!(verdict, Received::Packet(packet)),
                false => assert_eq!(verdict, Received::Other(Inbound::Drop(DropReason::PolicyDiscard))),
            }
        }
        // An SA that does not exist any more admits nothing.
        let (_, received) = opened(&mut link, &udp(&spec, 2_000)).remove(0);
        let Received::Other(Inbound::ReassembleOpened(via)) = received else { panic!("{received:?}") };
        let id = link.b.dp.sas().find(|sa| sa.id.direction() == Direction::Inbound).unwrap().id;
        link.b.dp.remove_sa(id);
        let gone = link.b.admit_reassembled(via, &udp(&spec, 2_000));
        assert_eq!(gone, Received::Other(Inbound::Drop(DropReason::NoSa)));
    }
}

/// RFC 4301 section 7.3: an SA for some ports MUST NOT deliver fragments unless that was negotiated, not even
/// the first.
#[test]
fn sa_for_a_port_delivers_no_fragments() {
    let spec = tunnel(4);
    let mut link = spec.build();
    let id = link.b.dp.policies(Direction::Inbound).next().unwrap().0;
    let mut policy = link.b.dp.remove_policy(Direction::Inbound, id).unwrap();
    (policy.selector.proto, policy.selector.dst_port) = (Some(proto::UDP), PortRange::single(2_000));
    link.b.dp.add_policy(Direction::Inbound, policy).unwrap();
    for (_, received) in opened(&mut link, &udp(&spec, 2_000)) {
        assert_eq!(received, Received::Other(Inbound::Drop(DropReason::FragmentWithoutPorts)));
    }
    // The same with a selector of the SA itself.
    let mut link = spec.build();
    let mut params = spec.params(0, true);
    params.spi = Spi::new(0x7777).unwrap();
    params.selector = Some(to_port(&spec, 2_000, Action::Bypass).selector);
    link.b.dp.add_sa(&params, Direction::Inbound, &PROVIDERS, link.b.now).unwrap();
    let mut attacker = Host::new(casemate_datapath::Unmatched::Discard, 1_500);
    params.selector = None;
    attacker.dp.add_sa(&params, Direction::Outbound, &PROVIDERS, attacker.now).unwrap();
    attacker.dp.add_policy(Direction::Outbound, spec.policy(true)).unwrap();
    for piece in fragments(&udp(&spec, 2_000)) {
        let wire = attacker.send(&piece).wire();
        link.b.must_drop(&wire, DropReason::FragmentWithoutPorts);
    }
}

/// RFC 4301 section 7.4: stateful checks for BYPASS with ports.
#[test]
fn clear_text_fragments_for_port_policies_are_reassembled() {
    for version in [4, 6] {
        let spec = tunnel(version);
        let mut link = behind(&spec, Direction::Inbound, to_port(&spec, 500, Action::Bypass));
        for port in [500, 2_000] {
            for piece in fragments(&udp(&spec, port)) {
                assert_eq!(link.b.receive(&piece), Received::Other(Inbound::Reassemble), "IPv{version}");
            }
        }
        assert_eq!(link.b.receive(&udp(&spec, 500)), Received::Packet(udp(&spec, 500)));
        link.b.must_drop(&udp(&spec, 2_000), DropReason::Unprotected);
        // Also for TCP, which cannot contain ESP or AH.
        let mut policy = to_port(&spec, 22, Action::Bypass);
        policy.selector.proto = Some(proto::TCP);
        let mut link = behind(&spec, Direction::Inbound, policy);
        let (a, b) = spec.ends.inner;
        let tcp = packets::ip(a, b, proto::TCP, &[0, 1, 0, 22].repeat(750), false);
        for piece in fragments(&tcp) {
            assert_eq!(link.b.receive(&piece), Received::Other(Inbound::Reassemble), "IPv{version}");
        }
    }
}

/// A first fragment with a second, atomic fragment header. A parser that used the last header would take it
/// for a whole packet, and the receiving stack would wait for further fragments from any host.
#[test]
fn fragment_disguised_as_whole_packet_is_dropped() {
    let spec = tunnel(6);
    let mut link = spec.build();
    let mut posing = fragments(&udp(&spec, 2_000))[0].clone();
    assert!(matches!(link.a.send(&posing), Sent::Wire(..)), "tunnel mode carries fragments");
    let next_header = std::mem::replace(&mut posing[40], proto::FRAGMENT);
    posing.splice(48..48, [next_header, 0, 0, 0, 0, 0, 0, 1]);
    let len = (posing.len() - 40) as u16;
    posing[4..6].copy_from_slice(&len.to_be_bytes());
    assert_eq!(link.a.send(&posing), Sent::Drop(DropReason::MalformedHeader));
    link.b.must_drop(&posing, DropReason::MalformedHeader);
}
