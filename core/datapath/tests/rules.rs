//! Rules and limits of the RFCs: each violation has a drop reason and is counted.
// Helpers outside #[test] functions: a broken expectation is meant to stop the test.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic)]

use casemate_crypto::{MacAlg, MacKind};
use casemate_datapath::fragment::Fragments;
use casemate_datapath::spd::{Action, Policy};
use casemate_datapath::{Consumed, Direction, DropReason, Event, Inbound, SaId, Unmatched};
use casemate_sa::{
    AddrRange, Bounds, DfPolicy, DscpPolicy, Lifetime, Mode, OuterHeader, PortRange, Selector, SpdId,
};
use casemate_test_support::hosts::{Ends, Host, Link, LinkSpec, PROVIDERS, Received, Sent, packets, suites};
use casemate_wire::ip::v4::Ipv4;
use casemate_wire::ip::v6::Ipv6;
use core::time::Duration;

fn gcm_tunnel() -> LinkSpec {
    LinkSpec::single(Ends::tunnel(4, 4), Mode::Tunnel, suites::esp(suites::gcm(), 1))
}

fn datagram(spec: &LinkSpec, payload: &[u8]) -> Vec<u8> {
    packets::udp(spec.ends.inner.0, spec.ends.inner.1, (1000, 2000), payload, false)
}

#[test]
fn each_byte_of_a_protected_packet_matters() {
    let ah = LinkSpec::single(
        Ends::tunnel(4, 4),
        Mode::Tunnel,
        suites::ah(MacAlg::standard(MacKind::HmacSha256), 1),
    );
    for (spec, covered_from) in [(gcm_tunnel(), 28), (ah, 0)] {
        let mut link = spec.build();
        let wire = link.a.send(&datagram(&spec, b"every byte counts")).wire();
        for at in covered_from..wire.len() {
            // AH does not cover the mutable fields: TOS, flags and offset, TTL, header checksum.
            if covered_from == 0 && matches!(at, 1 | 6 | 7 | 8 | 10 | 11) {
                continue;
            }
            let mut forged = wire.clone();
            forged[at] ^= 1;
            assert!(
                matches!(link.b.receive(&forged), Received::Other(Inbound::Drop(_) | Inbound::Reassemble)),
                "byte {at} changed"
            );
        }
        assert!(matches!(link.b.receive(&wire), Received::Packet(_)), "the valid packet still passes");
    }
}

#[test]
fn replays_are_dropped_and_forgeries_do_not_move_the_window() {
    let spec = gcm_tunnel();
    let mut link = spec.build();
    let wires: Vec<_> = (0..100).map(|n| link.a.send(&datagram(&spec, &[n])).wire()).collect();
    // A forged high sequence number must not move the window.
    let mut forged = wires[99].clone();
    forged[24..28].copy_from_slice(&0x00ff_ffffu32.to_be_bytes());
    link.b.must_drop(&forged, DropReason::IcvMismatch);
    assert!(matches!(link.b.receive(&wires[0]), Received::Packet(_)));
    assert!(matches!(link.b.receive(&wires[99]), Received::Packet(_)));
    link.b.must_drop(&wires[99], DropReason::Replay);
    assert!(
        matches!(link.b.receive(&wires[36]), Received::Packet(_)),
        "oldest sequence number inside the window"
    );
    link.b.must_drop(&wires[35], DropReason::Replay);
    let status = link.b.dp.sas().find_map(|sa| sa.window).unwrap();
    assert_eq!((status.size, status.replays, status.icv_failures), (64, 2, 1));
}

#[test]
fn sequence_numbers_end_before_they_repeat() {
    let mut spec = gcm_tunnel();
    spec.last_seq = u64::from(u32::MAX) - 1;
    let mut link = spec.build();
    link.a.send(&datagram(&spec, b"the last")).wire();
    assert_eq!(link.a.send(&datagram(&spec, b"one more")), Sent::Drop(DropReason::SequenceExhausted));
    let event = link.a.dp.next_event();
    assert!(matches!(event, Some(Event::Audit(audit)) if audit.reason == DropReason::SequenceExhausted));
}

#[test]
fn numbers_wait_until_they_are_durable() {
    let spec = gcm_tunnel();
    let mut link = spec.build();
    assert!(link.a.dp.set_durable(link.a_out[0], 2));
    for _ in 0..2 {
        link.a.send(&datagram(&spec, b"x")).wire();
    }
    assert_eq!(link.a.send(&datagram(&spec, b"x")), Sent::Drop(DropReason::CounterNotReserved));
    assert!(link.a.dp.set_durable(link.a_out[0], 3));
    link.a.send(&datagram(&spec, b"x")).wire();
    assert_eq!(link.a.dp.last_seq(link.a_out[0]), Some(3));
}

#[test]
fn ivs_differ_even_if_both_directions_share_a_key() {
    let spec = gcm_tunnel();
    let mut link = spec.build();
    let forth = link.a.send(&datagram(&spec, b"x")).wire();
    let back = packets::udp(spec.ends.inner.1, spec.ends.inner.0, (1, 2), b"x", false);
    let back = link.b.send(&back).wire();
    assert_eq!(forth[24..28], back[24..28], "sequence numbers are equal");
    assert_ne!(forth[28..36], back[28..36], "IVs differ");
}

#[test]
fn lifetimes_raise_events_and_end_the_sa() {
    let mut spec = gcm_tunnel();
    let soft = Bounds { packets: Some(2), ..Bounds::NONE };
    let hard = Bounds { since_added: Some(Duration::from_secs(10)), packets: Some(3), ..Bounds::NONE };
    spec.lifetime = Lifetime { soft, hard };
    let mut link = spec.build();
    let id: SaId = link.a_out[0];
    link.a.send(&datagram(&spec, b"1")).wire();
    assert_eq!(link.a.dp.next_event(), None);
    link.a.send(&datagram(&spec, b"2")).wire();
    assert_eq!(link.a.dp.next_event(), Some(Event::SoftLifetime(id)));
    link.a.send(&datagram(&spec, b"3")).wire();
    assert_eq!(link.a.send(&datagram(&spec, b"4")), Sent::Drop(DropReason::SaExpired));
    assert_eq!(link.a.dp.next_event(), Some(Event::HardLifetime(id)));
    let mut link = spec.build();
    let wire = link.a.send(&datagram(&spec, b"1")).wire();
    link.b.now = link.b.now.after(Duration::from_secs(10));
    link.b.must_drop(&wire, DropReason::SaExpired);
}

#[test]
fn unknown_spi_and_missing_policy() {
    let spec = gcm_tunnel();
    let mut link = spec.build();
    let wire = link.a.send(&datagram(&spec, b"x")).wire();
    let mut unknown = wire.clone();
    unknown[20..24].copy_from_slice(&0xdead_beefu32.to_be_bytes());
    link.b.must_drop(&unknown, DropReason::NoSa);
    match link.b.dp.next_event() {
        Some(Event::Audit(audit)) => {
            assert_eq!(audit.header.map(|header| header.spi), Some(0xdead_beef));
            assert_eq!(audit.src, Some(spec.ends.outer.0));
        }
        other => panic!("{other:?}"),
    }
    link.b.must_drop(&datagram(&spec, b"in clear"), DropReason::Unprotected);
    let (a, b) = spec.ends.inner;
    link.b.must_drop(&packets::udp(b, a, (1, 2), b"?", false), DropReason::NoPolicy);
}

/// Adds a second tunnel between the same gateways for other hosts, with its own SAs.
fn link_with_two_tunnels() -> (Link, LinkSpec, LinkSpec) {
    let first = gcm_tunnel();
    let mut second = first.clone();
    second.ends.inner = ("10.1.0.2".parse().unwrap(), "10.2.0.2".parse().unwrap());
    (link_with(&first, &second), first, second)
}

/// A link with the tunnel of `first`, and that of `second` with its own SAs.
fn link_with(first: &LinkSpec, second: &LinkSpec) -> Link {
    let mut link = first.build();
    for (host, is_a) in [(&mut link.a, true), (&mut link.b, false)] {
        for (direction, forward) in [(Direction::Outbound, is_a), (Direction::Inbound, !is_a)] {
            let mut params = second.params(0, forward);
            params.spi = casemate_sa::Spi::new(params.spi.get() + 0x100).unwrap();
            params.reqid = 2;
            host.dp.add_sa(&params, direction, &PROVIDERS, host.now).unwrap();
            let mut policy = second.policy(forward);
            if let Action::Protect(bundle) = &policy.action {
                let mut template = bundle.templates()[0];
                template.reqid = 2;
                policy.action = Action::Protect(casemate_datapath::spd::Bundle::single(template));
            }
            host.dp.add_policy(direction, policy).unwrap();
        }
    }
    link
}

/// Lets the inbound policies of a host accept equal ones, or not.
fn set_accepting_equal(host: &mut Host, accepts_equal: bool) {
    let policies: Vec<_> = host.dp.policies(Direction::Inbound).map(|(id, p)| (id, p.clone())).collect();
    for (id, mut policy) in policies {
        if let Action::Protect(bundle) = policy.action {
            policy.action = Action::Protect(bundle.accepting_equal(accepts_equal));
        }
        host.dp.remove_policy(Direction::Inbound, id).unwrap();
        host.dp.add_policy(Direction::Inbound, policy).unwrap();
    }
}

/// Two tunnels for the same traffic: the receiver accepts either, also the one whose policy comes second, if
/// both policies accept that. A second policy of another priority or for other traffic does not count.
#[test]
fn either_of_two_tunnels_for_the_same_traffic_delivers() {
    let spec = gcm_tunnel();
    let mut link = link_with(&spec, &spec);
    let packet = datagram(&spec, b"either way");
    let wire = link.a.send(&packet).wire();
    assert_eq!(&wire[20..24], &[0, 0, 0x10, 1], "the first tunnel");
    set_accepting_equal(&mut link.b, true);
    // The policy of the first tunnel comes after that of the second now.
    let (id, policy) = link.b.dp.policies(Direction::Inbound).map(|(id, p)| (id, p.clone())).next().unwrap();
    link.b.dp.remove_policy(Direction::Inbound, id).unwrap();
    link.b.dp.add_policy(Direction::Inbound, policy.clone()).unwrap();
    assert_eq!(link.b.receive(&wire), Received::Packet(packet.clone()));
    set_accepting_equal(&mut link.b, false);
    let wire = link.a.send(&packet).wire();
    link.b.must_drop(&wire, DropReason::PolicyMismatch);
    set_accepting_equal(&mut link.b, true);
    let mut id = link.b.dp.policies(Direction::Inbound).map(|(id, _)| id).last().unwrap();
    let any = Selector::between(AddrRange::ANY_V4, AddrRange::ANY_V4);
    let later = Policy { priority: policy.priority + 1, ..policy.clone() };
    for other in [later, Policy { selector: any, ..policy }] {
        link.b.dp.remove_policy(Direction::Inbound, id).unwrap();
        id = link.b.dp.add_policy(Direction::Inbound, other).unwrap();
        let wire = link.a.send(&packet).wire();
        link.b.must_drop(&wire, DropReason::PolicyMismatch);
    }
}

#[test]
fn cve_2019_14899_a_packet_must_come_through_the_sa_of_its_policy() {
    let (mut link, first, second) = link_with_two_tunnels();
    let right = datagram(&second, b"through the second");
    let wire = link.a.send(&right).wire();
    assert_eq!(&wire[20..24], &[0, 0, 0x11, 1], "reqid chooses the SA");
    assert_eq!(link.b.receive(&wire), Received::Packet(right));
    // The sender puts the second hosts' packet into the first SA.
    let mut attacker = first.build();
    let any = Selector::between(AddrRange::ANY_V4, AddrRange::ANY_V4);
    let policy = Policy { selector: any, ..first.policy(true) };
    attacker.a.dp.add_policy(Direction::Outbound, policy).unwrap();
    let wire = attacker.a.send(&datagram(&second, b"through the first")).wire();
    link.b.must_drop(&wire, DropReason::PolicyMismatch);
    // A tunnel packet without a policy is dropped, whatever the default for clear text.
    let mut open = Host::new(Unmatched::PassClear, 1500);
    open.dp.add_sa(&first.params(0, true), Direction::Inbound, &PROVIDERS, open.now).unwrap();
    open.must_drop(&wire, DropReason::NoPolicy);
}

#[test]
fn sa_selector_is_checked() {
    let spec = gcm_tunnel();
    let mut link = spec.build();
    let mut params = spec.params(0, true);
    params.spi = casemate_sa::Spi::new(0x7777).unwrap();
    let (a, b) = spec.ends.inner;
    let mut selector = Selector::between(AddrRange::single(a), AddrRange::single(b));
    (selector.proto, selector.dst_port) = (Some(17), PortRange::single(53));
    params.selector = Some(selector);
    link.b.dp.add_sa(&params, Direction::Inbound, &PROVIDERS, link.b.now).unwrap();
    // A sender without the selector puts other traffic into the SA.
    let mut attacker = Host::new(Unmatched::Discard, 1500);
    params.selector = None;
    attacker.dp.add_sa(&params, Direction::Outbound, &PROVIDERS, attacker.now).unwrap();
    attacker.dp.add_policy(Direction::Outbound, spec.policy(true)).unwrap();
    let dns = packets::udp(a, b, (1000, 53), b"?", false);
    assert_eq!(link.b.receive(&attacker.send(&dns).wire()), Received::Packet(dns));
    let wire = attacker.send(&datagram(&spec, b"not dns")).wire();
    link.b.must_drop(&wire, DropReason::SelectorMismatch);
}

#[test]
fn cached_decisions_follow_policy_and_sa_changes() {
    let spec = gcm_tunnel();
    let mut link = spec.build();
    let packet = datagram(&spec, b"x");
    let wire = link.a.send(&packet).wire();
    assert!(matches!(link.b.receive(&wire), Received::Packet(_)));
    let discard = Policy { action: Action::Discard, priority: 0, ..spec.policy(true) };
    let (id, _) = link.a.dp.policies(Direction::Outbound).next().unwrap();
    let removed = link.a.dp.remove_policy(Direction::Outbound, id).unwrap();
    assert_eq!(link.a.send(&packet), Sent::Drop(DropReason::NoPolicy));
    let discard = link.a.dp.add_policy(Direction::Outbound, discard).unwrap();
    assert!(matches!(link.a.send(&packet), Sent::Reply(DropReason::PolicyDiscard, _)));
    link.a.dp.remove_policy(Direction::Outbound, discard);
    link.a.dp.add_policy(Direction::Outbound, removed).unwrap();
    link.a.send(&packet).wire();
    assert!(link.a.dp.remove_sa(link.a_out[0]));
    assert_eq!(link.a.send(&packet), Sent::Drop(DropReason::NoOutboundSa));
    let acquired = core::iter::from_fn(|| link.a.dp.next_event()).any(|e| matches!(e, Event::Acquire { .. }));
    assert!(acquired);
    assert!(!link.a.dp.remove_sa(link.a_out[0]), "removed already");
    // Inbound: the same SA must not deliver what a new policy forbids.
    let wire = link_again(&spec);
    let first = link.b.dp.policies(Direction::Inbound).next().unwrap().0;
    link.b.dp.remove_policy(Direction::Inbound, first);
    link.b.must_drop(&wire, DropReason::NoPolicy);
}

fn link_again(spec: &LinkSpec) -> Vec<u8> {
    let mut link = spec.build();
    link.a.send(&datagram(spec, b"1")).wire();
    link.a.send(&datagram(spec, b"2")).wire()
}

#[test]
fn outer_headers_of_tunnels() {
    for (choice, tos, df_of_fragmentable) in [
        (OuterHeader::default(), 0xb8 | 1, false),
        (OuterHeader { dscp: DscpPolicy::Set(10), ..OuterHeader::default() }, 10 << 2 | 1, false),
        (OuterHeader { ecn: false, df: DfPolicy::Set, ttl: 9, ..OuterHeader::default() }, 0xb8, true),
    ] {
        let mut spec = gcm_tunnel();
        spec.outer = choice;
        let mut link = spec.build();
        let mut packet = datagram(&spec, b"marked");
        Ipv4::parse(&mut packet[..]).unwrap().set_ecn(1);
        Ipv4::parse(&mut packet[..]).unwrap().fill_checksum();
        let wire = link.a.send(&packet).wire();
        let outer = Ipv4::parse(&wire[..]).unwrap();
        assert!(outer.verify_checksum());
        assert_eq!((outer.tos(), outer.df(), outer.ttl()), (tos, df_of_fragmentable, choice.ttl));
    }
}

#[test]
fn congestion_marks_cross_the_tunnel() {
    for (inner, outer, arrives) in [(1, 3, Some(3)), (2, 1, Some(1)), (0, 3, None), (0, 2, Some(0))] {
        let spec = gcm_tunnel();
        let mut link = spec.build();
        let mut packet = datagram(&spec, b"marked");
        Ipv4::parse(&mut packet[..]).unwrap().set_ecn(inner);
        Ipv4::parse(&mut packet[..]).unwrap().fill_checksum();
        let mut wire = link.a.send(&packet).wire();
        Ipv4::parse(&mut wire[..]).unwrap().set_ecn(outer);
        match (link.b.receive(&wire), arrives) {
            (Received::Packet(got), Some(ecn)) => {
                let ip = Ipv4::parse(&got[..]).unwrap();
                assert_eq!(ip.ecn(), ecn, "inner {inner} outer {outer}");
                assert!(ip.verify_checksum());
            }
            (Received::Other(Inbound::Drop(reason)), None) => assert_eq!(reason, DropReason::EcnInvalid),
            (got, _) => panic!("inner {inner} outer {outer}: {got:?}"),
        }
    }
}

#[test]
fn traffic_flow_padding_hides_lengths() {
    let mut spec = gcm_tunnel();
    spec.tfc_pad_to = 64;
    let mut link = spec.build();
    let lengths: Vec<usize> = [1usize, 20, 36]
        .into_iter()
        .map(|len| {
            let packet = datagram(&spec, &vec![7; len]);
            let wire = link.a.send(&packet).wire();
            assert_eq!(link.b.receive(&wire), Received::Packet(packet));
            wire.len()
        })
        .collect();
    assert!(lengths.windows(2).all(|pair| pair[0] == pair[1]), "{lengths:?}");
}

#[test]
fn packets_longer_than_the_path_mtu() {
    let mut spec = gcm_tunnel();
    spec.link_mtu = 1500;
    let mut link = spec.build();
    let (a, b) = spec.ends.inner;
    // Without DF the packet is protected whole and fragmented afterwards.
    match link.a.send(&packets::udp(a, b, (1, 2), &[0; 3000], false)) {
        Sent::Wire(wire, sealed) => {
            assert_eq!(sealed.fragment_to, Some(1500));
            assert!(!Ipv4::parse(&wire[..]).unwrap().df());
            assert!(matches!(link.b.receive(&wire), Received::Packet(_)));
        }
        other => panic!("{other:?}"),
    }
    // With DF the source gets the MTU that fits exactly.
    let mtu = match link.a.send(&packets::udp(a, b, (1, 2), &[0; 1472], true)) {
        Sent::Reply(DropReason::TooBig, icmp) => {
            assert_eq!((icmp[20], icmp[21]), (3, 4));
            assert_eq!(
                Ipv4::parse(&icmp[..]).unwrap().dst(),
                "10.1.0.1".parse::<core::net::Ipv4Addr>().unwrap()
            );
            usize::from(u16::from_be_bytes([icmp[26], icmp[27]]))
        }
        other => panic!("{other:?}"),
    };
    match link.a.send(&packets::udp(a, b, (1, 2), &vec![0; mtu - 28], true)) {
        Sent::Wire(wire, sealed) => {
            assert_eq!(sealed.fragment_to, None);
            assert!(wire.len() <= 1500 && wire.len() > 1496, "{}", wire.len());
        }
        other => panic!("{other:?}"),
    }
    // The source of a reassembled packet allows fragmentation, whatever the DF bit.
    assert!(matches!(
        link.a.send_reassembled(&packets::udp(a, b, (1, 2), &[0; 3000], true)),
        Sent::Wire(_, sealed) if sealed.fragment_to == Some(1500)
    ));
    // The path MTU decreases.
    assert!(link.a.dp.set_path_mtu(link.a_out[0], 1000, link.a.now));
    assert!(matches!(
        link.a.send(&packets::udp(a, b, (1, 2), &[0; 1000], true)),
        Sent::Reply(DropReason::TooBig, _)
    ));
}

#[test]
fn headers_in_front_are_not_padded() {
    let ends = Ends::transport(4);
    let mut spec = LinkSpec::single(ends, Mode::Transport, suites::esp(suites::cbc_sha1(), 1));
    spec.link_mtu = 1500;
    let mut link = spec.build();
    for options in [0, 4, 8, 12, 40] {
        let mut send = |len: usize| {
            let plain = packets::udp(ends.inner.0, ends.inner.1, (1, 2), &vec![0; len - options - 28], true);
            link.a.send(&packets::with_v4_options(&plain, &vec![1; options]))
        };
        // The reported MTU fits exactly.
        let Sent::Reply(DropReason::TooBig, icmp) = send(1500) else { panic!("{options}") };
        let mtu = usize::from(u16::from_be_bytes([icmp[26], icmp[27]]));
        let wire = send(mtu).wire();
        assert!(wire.len() <= 1500 && wire.len() + 16 > 1500, "{options}: {}", wire.len());
        assert!(matches!(send(mtu + 1), Sent::Reply(DropReason::TooBig, _)), "{options}");
    }
}

#[test]
fn icmp_error_lowers_the_path_mtu() {
    for (version, encap) in [(4, false), (6, false), (4, true)] {
        let mut spec =
            LinkSpec::single(Ends::tunnel(version, 4), Mode::Tunnel, suites::esp(suites::gcm(), 1));
        (spec.link_mtu, spec.encap) = (1500, encap);
        let mut link = spec.build();
        let (a, b) = spec.ends.inner;
        let big = packets::udp(a, b, (1, 2), &[0; 1372], true);
        let mut quoted = link.a.send(&big).wire();
        // A router on the path sends the error.
        let mut room = vec![0u8; 64];
        room.append(&mut quoted);
        let len = room.len() - 64;
        let mut error = casemate_wire::packet::Packet::new(&mut room, 64, len).unwrap();
        casemate_datapath::icmp::too_big(&mut error, 1300, None).unwrap();
        assert_eq!(link.a.receive(error.data()), Received::Other(Inbound::Consumed(Consumed::PathMtu)));
        assert!(matches!(link.a.send(&big), Sent::Reply(DropReason::TooBig, _)));
        // After ten minutes the path is probed again.
        link.a.now = link.a.now.after(Duration::from_secs(601));
        link.a.send(&big).wire();
        // An error about packets of another host is ignored.
        let mut unknown =
            LinkSpec::single(Ends::tunnel(version, 4), Mode::Tunnel, suites::esp(suites::gcm(), 1)).build();
        unknown.a.dp.remove_sa(unknown.a_out[0]);
        assert!(matches!(unknown.a.receive(error.data()), Received::Other(Inbound::Drop(_))));
    }
}

#[test]
fn icmp_errors_are_rate_limited() {
    let spec = gcm_tunnel();
    let mut link = spec.build();
    let discard = Policy { action: Action::Discard, ..spec.policy(true) };
    let first = link.a.dp.policies(Direction::Outbound).next().unwrap().0;
    link.a.dp.remove_policy(Direction::Outbound, first);
    link.a.dp.add_policy(Direction::Outbound, discard).unwrap();
    let replies = (0..1000).filter(|_| match link.a.send(&datagram(&spec, b"?")) {
        Sent::Reply(DropReason::PolicyDiscard, icmp) => {
            assert_eq!((icmp[20], icmp[21]), (3, 13));
            true
        }
        Sent::Drop(DropReason::PolicyDiscard) => false,
        other => panic!("{other:?}"),
    });
    assert_eq!(replies.count(), 100, "burst of replies");
    assert_eq!(link.a.dp.drops().get(DropReason::PolicyDiscard), 1000);
}

#[test]
fn ipv6_in_a_narrow_tunnel() {
    let mut spec = LinkSpec::single(Ends::tunnel(6, 6), Mode::Tunnel, suites::esp(suites::gcm(), 1));
    spec.link_mtu = 1280;
    let mut link = spec.build();
    let (a, b) = spec.ends.inner;
    // RFC 2473 section 7.1: the tunnel must carry what every IPv6 link carries, with fragmentation if
    // necessary.
    match link.a.send(&packets::udp(a, b, (1, 2), &[0; 1280 - 48], true)) {
        Sent::Wire(wire, sealed) => {
            assert_eq!(sealed.fragment_to, Some(1280));
            assert!(Ipv6::parse(&wire[..]).is_ok());
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn transport_mode_needs_whole_datagrams() {
    let ends = Ends::transport(4);
    let spec = LinkSpec::single(ends, Mode::Transport, suites::esp(suites::gcm(), 1));
    let mut link = spec.build();
    let mut fragment = packets::udp(ends.inner.0, ends.inner.1, (1, 2), &[0; 64], false);
    let mut ip = Ipv4::parse(&mut fragment[..]).unwrap();
    ip.set_fragment(0, true);
    ip.fill_checksum();
    assert_eq!(link.a.send(&fragment), Sent::Reassemble);
    // Inbound: a fragment of ESP is to be reassembled, not opened.
    let mut wire = link.a.send(&packets::udp(ends.inner.0, ends.inner.1, (1, 2), b"x", false)).wire();
    Ipv4::parse(&mut wire[..]).unwrap().set_fragment(8, false);
    assert_eq!(link.b.receive(&wire), Received::Other(Inbound::Reassemble));
}

#[test]
fn policy_with_ports_needs_whole_datagrams() {
    let spec = gcm_tunnel();
    let mut link = spec.build();
    let mut policy = spec.policy(true);
    policy.selector.proto = Some(17);
    policy.selector.dst_port = PortRange::single(2000);
    let first = link.a.dp.policies(Direction::Outbound).next().unwrap().0;
    link.a.dp.remove_policy(Direction::Outbound, first);
    link.a.dp.add_policy(Direction::Outbound, policy).unwrap();
    link.a.send(&datagram(&spec, b"whole")).wire();
    let mut later = datagram(&spec, &[0; 64]);
    let mut ip = Ipv4::parse(&mut later[..]).unwrap();
    ip.set_fragment(8, false);
    ip.fill_checksum();
    assert_eq!(link.a.send(&later), Sent::Reassemble);
}

/// A policy before that of the tunnel needs ports, which later fragments do not have (RFC 4301 section 7). A
/// BYPASS policy never admits packets from a tunnel, so it does not stop fragments of other flows.
#[test]
fn fragments_pass_a_tunnel_after_port_policies() {
    let spec = gcm_tunnel();
    let (any, whole) = (AddrRange::ANY_V4, datagram(&spec, &[7; 3_000]));
    let ike = |action| {
        let selector =
            Selector { proto: Some(17), dst_port: PortRange::single(500), ..Selector::between(any, any) };
        Policy { spd: SpdId::MAIN, selector, action, priority: 0 }
    };
    let fragments = |packet: &[u8]| {
        let mut cut = Fragments::new(packet, 1_200, 1).unwrap();
        let mut piece = [0; 1_200];
        std::iter::from_fn(|| cut.next(&mut piece).map(|len| piece[..len].to_vec())).collect::<Vec<_>>()
    };
    let with_port_policy = |action| {
        let mut link = spec.build();
        let tunnel = link.b.dp.policies(Direction::Inbound).next().unwrap().0;
        let policy = link.b.dp.remove_policy(Direction::Inbound, tunnel).unwrap();
        link.b.dp.add_policy(Direction::Inbound, ike(action)).unwrap();
        link.b.dp.add_policy(Direction::Inbound, Policy { priority: 9, ..policy }).unwrap();
        link
    };
    let mut link = with_port_policy(Action::Bypass);
    for fragment in fragments(&whole) {
        let wire = link.a.send(&fragment).wire();
        assert_eq!(link.b.receive(&wire), Received::Packet(fragment));
    }
    // Packets of its own flow are not admitted from the tunnel: neither whole ones nor first fragments, so
    // they are never reassembled.
    let own = packets::udp(spec.ends.inner.0, spec.ends.inner.1, (9, 500), &[7; 3_000], false);
    for packet in [own.clone(), fragments(&own).remove(0)] {
        let wire = link.a.send(&packet).wire();
        link.b.must_drop(&wire, DropReason::PolicyMismatch);
    }
    // A clear-text fragment may belong to its flow, or to that of the tunnel's policy.
    assert_eq!(link.b.receive(&fragments(&whole)[1]), Received::Other(Inbound::Reassemble));
    // A DISCARD policy may apply to the fragment, so the whole datagram decides.
    let mut link = with_port_policy(Action::Discard);
    let wire = link.a.send(&fragments(&whole)[1]).wire();
    assert!(matches!(link.b.receive(&wire), Received::Other(Inbound::ReassembleOpened(_))));
}

#[test]
fn nat_traversal() {
    let mut spec = gcm_tunnel();
    spec.encap = true;
    let mut link = spec.build();
    let (a, b) = spec.ends.outer;
    let wire = link.a.send(&datagram(&spec, b"x")).wire();
    assert_eq!(&wire[20..28], &[0x11, 0x94, 0x11, 0x94, 0, wire.len() as u8 - 20, 0, 0]);
    let keepalive = packets::udp(a, b, (4500, 4500), &[0xff], false);
    assert_eq!(link.b.receive(&keepalive), Received::Other(Inbound::Consumed(Consumed::Keepalive)));
    let ike = packets::udp(a, b, (4500, 4500), &[0, 0, 0, 0, 1, 2, 3], false);
    assert_eq!(link.b.receive(&ike), Received::Other(Inbound::Ike(32)));
    // The SA uses UDP encapsulation: the same packet without UDP is rejected.
    let bare = packets::ip(a, b, 50, &wire[28..], false);
    link.b.must_drop(&bare, DropReason::EncapsulationMismatch);
    assert!(matches!(link.b.receive(&wire), Received::Packet(_)));
    // Over IPv6 the UDP checksum is present and correct.
    spec.ends = Ends::tunnel(6, 4);
    let wire = spec.build().a.send(&datagram(&spec, b"x")).wire();
    let ip = Ipv6::parse(&wire[..]).unwrap();
    let udp = casemate_wire::udp::Udp::parse(ip.payload()).unwrap();
    assert!(udp.checksum() != 0 && udp.verify_checksum_v6(ip.src(), ip.dst()));
}

#[test]
fn vpp_8cdb1a0_buffers_with_exact_room() {
    // VPP 8cdb1a0, 217ba5a: trailers and ICVs were written past the buffer. Here too little room is a counted
    // drop.
    use casemate_datapath::Outbound;
    use casemate_wire::packet::Packet;
    let spec = LinkSpec::single(Ends::tunnel(6, 4), Mode::Tunnel, suites::esp(suites::cbc_sha1(), 1));
    for len in 0..200usize {
        let packet = datagram(&spec, &vec![9; len]);
        for (head, tail) in [(0, 64), (71, 64), (72, 0), (72, 64), (72, 13)] {
            let mut host = spec.build().a;
            let mut storage = vec![0u8; head + packet.len() + tail];
            storage[head..head + packet.len()].copy_from_slice(&packet);
            let mut batch = [Packet::new(&mut storage, head, packet.len()).unwrap()];
            let mut verdict = [Outbound::Bypass];
            host.dp.outbound(host.now, &mut casemate_test_support::TestRng::new(1), &mut batch, &mut verdict);
            match verdict[0] {
                Outbound::Send(_) => assert!(head >= 64 && tail > 12, "{len} {head} {tail}"),
                Outbound::Drop(DropReason::NoRoom) => assert!(head < 72 || tail < 64, "{len} {head} {tail}"),
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn dummies_look_like_packets_and_are_consumed() {
    for (mode, ends) in [(Mode::Tunnel, Ends::tunnel(4, 4)), (Mode::Transport, Ends::transport(6))] {
        let mut spec = LinkSpec::single(ends, mode, suites::esp(suites::gcm(), 1));
        spec.encap = mode == Mode::Tunnel;
        let mut link = spec.build();
        let true_one = link.a.send(&datagram(&spec, &[0; 52])).wire();
        let dummy = link.a.dummy(link.a_out[0], 80).wire();
        // Protocol, addresses and SPI are those of other packets of the SA.
        match mode {
            Mode::Tunnel => assert_eq!(
                (dummy.len(), &dummy[9], &dummy[12..32]),
                (true_one.len(), &true_one[9], &true_one[12..32])
            ),
            Mode::Transport => assert_eq!((dummy[6], &dummy[8..44]), (true_one[6], &true_one[8..44])),
        }
        assert_eq!(link.b.receive(&dummy), Received::Other(Inbound::Consumed(Consumed::Dummy)));
        link.b.must_drop(&dummy, DropReason::Replay);
        assert!(matches!(link.b.receive(&true_one), Received::Packet(_)));
    }
    let ah = suites::ah(MacAlg::standard(MacKind::HmacSha1), 1);
    let mut link = LinkSpec::single(Ends::tunnel(4, 4), Mode::Tunnel, ah).build();
    assert_eq!(link.a.dummy(link.a_out[0], 80), Sent::Drop(DropReason::BadNextHeader));
    link.a.dp.remove_sa(link.a_out[0]);
    assert_eq!(link.a.dummy(link.a_out[0], 80), Sent::Drop(DropReason::NoOutboundSa));
    assert_eq!(link.a.dp.drops().get(DropReason::NoOutboundSa), 1);
}

#[test]
fn next_header_59_is_consumed() {
    // RFC 4303 section 2.6: next header 59.
    let ends = Ends::transport(4);
    let spec = LinkSpec::single(ends, Mode::Transport, suites::esp(suites::gcm(), 1));
    let mut link = spec.build();
    let dummy = packets::ip(ends.inner.0, ends.inner.1, 59, b"nothing", false);
    let wire = link.a.send(&dummy).wire();
    assert_eq!(link.b.receive(&wire), Received::Other(Inbound::Consumed(Consumed::Dummy)));
}
