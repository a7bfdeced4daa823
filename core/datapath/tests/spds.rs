//! Several SPDs: a packet meets the policies of the SPD that it enters, and those of the SPD of its SA.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

use casemate_datapath::spd::{Action, Policy};
use casemate_datapath::{Config, Datapath, Direction, DropReason, Inbound, Outbound, Unmatched};
use casemate_sa::{AddrRange, Limits, Mode, PortRange, Selector, SpdId};
use casemate_test_support::TestRng;
use casemate_test_support::hosts::{Ends, Host, LinkSpec, Received, packets, suites};
use casemate_wire::packet::Packet;
use std::net::IpAddr;
use std::slice;

const SEVEN: SpdId = SpdId::new(7);

fn spec() -> LinkSpec {
    LinkSpec::single(Ends::tunnel(4, 4), Mode::Tunnel, suites::esp(suites::gcm(), 0))
}

fn datagram() -> Vec<u8> {
    let (a, b) = spec().ends.inner;
    packets::udp(a, b, (1_000, 2_000), b"datagram", false)
}

/// The verdict on the datagram when it enters this SPD.
fn verdict(host: &mut Host, spd: SpdId) -> Outbound {
    verdict_on(host, spd, &datagram())
}

fn verdict_on(host: &mut Host, spd: SpdId, bytes: &[u8]) -> Outbound {
    let mut storage = vec![0; 1_000];
    let mut packet = Packet::new(&mut storage, 256, bytes.len()).unwrap();
    packet.data_mut().copy_from_slice(bytes);
    let mut verdict = Outbound::Drop(DropReason::NoRoom);
    let verdicts = slice::from_mut(&mut verdict);
    host.dp.outbound_in(spd, host.now, &mut TestRng::new(1), slice::from_mut(&mut packet), verdicts);
    verdict
}

#[test]
fn an_outgoing_packet_meets_the_policies_of_the_spd_that_it_enters() {
    let mut link = spec().build();
    for _ in 0..2 {
        assert!(matches!(verdict(&mut link.a, SpdId::MAIN), Outbound::Send(_)));
        assert_eq!(verdict(&mut link.a, SEVEN), Outbound::Drop(DropReason::NoPolicy));
    }
    let discard = Policy { spd: SEVEN, action: Action::Discard, priority: 9, ..spec().policy(true) };
    link.a.dp.add_policy(Direction::Outbound, discard).unwrap();
    assert_eq!(verdict(&mut link.a, SEVEN), Outbound::Reply(DropReason::PolicyDiscard));
    let protect = Policy { spd: SEVEN, ..spec().policy(true) };
    let id = link.a.dp.add_policy(Direction::Outbound, protect).unwrap();
    assert!(matches!(verdict(&mut link.a, SEVEN), Outbound::Send(_)));
    assert_eq!(verdict(&mut link.a, SpdId::new(8)), Outbound::Drop(DropReason::NoPolicy));
    link.a.dp.remove_policy(Direction::Outbound, id).unwrap();
    assert_eq!(verdict(&mut link.a, SEVEN), Outbound::Reply(DropReason::PolicyDiscard));
    assert!(matches!(verdict(&mut link.a, SpdId::MAIN), Outbound::Send(_)));
}

/// Clear text passes only by the main SPD, whatever the default.
#[test]
fn nothing_passes_another_spd_in_clear() {
    for unmatched in [Unmatched::PassClear, Unmatched::PassAll] {
        let mut host = Host::new(unmatched, 1_500);
        assert_eq!(verdict(&mut host, SpdId::MAIN), Outbound::Bypass);
        assert_eq!(verdict(&mut host, SEVEN), Outbound::Drop(DropReason::NoPolicy));
    }
}

/// After the removal of a policy, packets that only it has matched do not leave before the routes follow:
/// another policy may protect them elsewhere.
#[test]
fn packets_of_a_removed_policy_wait_for_the_routes_to_follow() {
    let mut host = Host::new(Unmatched::PassClear, 1_500);
    let discard = Policy { action: Action::Discard, ..spec().policy(true) };
    let remove = |host: &mut Host, policy: &Policy| {
        let id = host.dp.add_policy(Direction::Outbound, policy.clone()).unwrap();
        host.dp.remove_policy(Direction::Outbound, id).unwrap();
        verdict(host, SpdId::MAIN)
    };
    assert_eq!(remove(&mut host, &discard), Outbound::Bypass, "no routes depend on policies");
    host.dp.expect_routes_to_follow();
    assert_eq!(verdict(&mut host, SpdId::MAIN), Outbound::Bypass);
    let bypass = Policy { action: Action::Bypass, ..discard.clone() };
    assert_eq!(remove(&mut host, &bypass), Outbound::Bypass);
    assert_eq!(remove(&mut host, &Policy { spd: SEVEN, ..discard.clone() }), Outbound::Bypass);
    assert_eq!(remove(&mut host, &discard), Outbound::Drop(DropReason::NoPolicy));
    assert!(!host.dp.passes_everything());
    let first = host.dp.removals();
    assert_eq!(remove(&mut host, &discard), Outbound::Drop(DropReason::NoPolicy));
    host.dp.removals_followed(first);
    assert_eq!(verdict(&mut host, SpdId::MAIN), Outbound::Drop(DropReason::NoPolicy), "one is missing");
    let all = host.dp.removals();
    host.dp.removals_followed(all);
    assert_eq!(verdict(&mut host, SpdId::MAIN), Outbound::Bypass);
}

/// Clear traffic beside a policy with ports flows, however often clients come and go.
#[test]
fn packets_that_a_removed_policy_has_not_matched_pass() {
    let mut host = Host::new(Unmatched::PassClear, 1_500);
    host.dp.expect_routes_to_follow();
    let selector =
        Selector { proto: Some(17), dst_port: PortRange::single(2_001), ..spec().policy(true).selector };
    let policy = Policy { selector, action: Action::Discard, ..spec().policy(true) };
    let id = host.dp.add_policy(Direction::Outbound, policy).unwrap();
    host.dp.remove_policy(Direction::Outbound, id).unwrap();
    assert_eq!(verdict(&mut host, SpdId::MAIN), Outbound::Bypass);
    assert!(!host.dp.passes_everything());
    let removed = packets::udp(spec().ends.inner.0, spec().ends.inner.1, (1_000, 2_001), b"x", false);
    assert_eq!(verdict_on(&mut host, SpdId::MAIN, &removed), Outbound::Drop(DropReason::NoPolicy));
    let removals = host.dp.removals();
    host.dp.removals_followed(removals);
    assert_eq!(verdict_on(&mut host, SpdId::MAIN, &removed), Outbound::Bypass);
    assert!(host.dp.passes_everything());
}

/// If there are more removals than policies at a time, all packets without a policy wait.
#[test]
fn without_room_for_a_removed_policy_all_packets_wait() {
    let limits = Limits { policies: 2, ..Limits::SERVER };
    let config = Config { limits, unmatched: Unmatched::PassClear, ..Config::server(1) };
    let mut host = Host::new(Unmatched::PassClear, 1_500);
    host.dp = Datapath::new(config);
    host.dp.expect_routes_to_follow();
    let remove = |host: &mut Host, port| {
        let selector = Selector { dst_port: PortRange::single(port), ..spec().policy(true).selector };
        let policy = Policy { selector, action: Action::Discard, ..spec().policy(true) };
        let id = host.dp.add_policy(Direction::Outbound, policy).unwrap();
        host.dp.remove_policy(Direction::Outbound, id).unwrap();
        (host.dp.removals(), verdict(host, SpdId::MAIN))
    };
    assert_eq!(remove(&mut host, 1), (1, Outbound::Bypass));
    assert_eq!(remove(&mut host, 2), (2, Outbound::Bypass));
    assert_eq!(remove(&mut host, 3), (3, Outbound::Drop(DropReason::NoPolicy)));
    host.dp.removals_followed(2);
    assert_eq!(verdict(&mut host, SpdId::MAIN), Outbound::Drop(DropReason::NoPolicy));
    host.dp.removals_followed(3);
    assert_eq!(verdict(&mut host, SpdId::MAIN), Outbound::Bypass);
    assert_eq!(remove(&mut host, 4), (4, Outbound::Bypass), "there is room again");
}

/// A virtual address belongs to the network behind the peer, also without a policy.
#[test]
fn packets_from_a_virtual_address_never_leave_in_clear() {
    let mut host = Host::new(Unmatched::PassClear, 1_500);
    assert_eq!(verdict(&mut host, SpdId::MAIN), Outbound::Bypass);
    let (own, peer) = spec().ends.inner;
    host.dp.set_virtual_addrs([IpAddr::from([10, 200, 0, 1]), own]);
    assert_eq!(verdict(&mut host, SpdId::MAIN), Outbound::Drop(DropReason::NoPolicy));
    assert!(!host.dp.passes_everything());
    let other = packets::udp(peer, own, (1_000, 2_000), b"from another address", false);
    assert_eq!(verdict_on(&mut host, SpdId::MAIN, &other), Outbound::Bypass);
    let bypass = Policy { action: Action::Bypass, ..spec().policy(true) };
    let id = host.dp.add_policy(Direction::Outbound, bypass).unwrap();
    assert_eq!(verdict(&mut host, SpdId::MAIN), Outbound::Bypass, "an exception of the configuration");
    host.dp.remove_policy(Direction::Outbound, id).unwrap();
    host.dp.set_virtual_addrs([]);
    assert_eq!(verdict(&mut host, SpdId::MAIN), Outbound::Bypass);
}

/// Programs stay bound to an address that a trap has protected. Other addresses are not affected.
#[test]
fn packets_from_the_former_address_of_a_trap_never_leave_in_clear() {
    let mut host = Host::new(Unmatched::PassClear, 1_500);
    let (own, peer) = spec().ends.inner;
    host.dp.note_former_addr(own);
    assert_eq!(verdict(&mut host, SpdId::MAIN), Outbound::Drop(DropReason::NoPolicy));
    assert!(!host.dp.passes_everything());
    let other = packets::udp(peer, own, (1_000, 2_000), b"from another address", false);
    assert_eq!(verdict_on(&mut host, SpdId::MAIN, &other), Outbound::Bypass);
    (0..63).for_each(|n| host.dp.note_former_addr(IpAddr::from([10, 200, 0, n])));
    host.dp.note_former_addr(IpAddr::from([10, 200, 0, 0]));
    assert_eq!(verdict(&mut host, SpdId::MAIN), Outbound::Drop(DropReason::NoPolicy));
    host.dp.note_former_addr(IpAddr::from([10, 200, 0, 63]));
    assert_eq!(verdict(&mut host, SpdId::MAIN), Outbound::Bypass, "only the last ones are known");
}

#[test]
fn an_incoming_packet_meets_the_policies_of_the_spd_of_its_sa() {
    let mut link = spec().build();
    let mut wire = || link.a.send(&datagram()).wire();
    let [first, second, third] = [wire(), wire(), wire()];
    let (id, policy) = link.b.dp.policies(Direction::Inbound).map(|(id, p)| (id, p.clone())).next().unwrap();
    link.b.dp.remove_policy(Direction::Inbound, id).unwrap();
    link.b.dp.add_policy(Direction::Inbound, Policy { spd: SEVEN, ..policy }).unwrap();
    link.b.must_drop(&first, DropReason::NoPolicy);
    let sa = link.b.dp.sas().find(|sa| sa.id.direction() == Direction::Inbound).unwrap().id;
    assert!(link.b.dp.set_sa_spd(sa, SEVEN));
    assert_eq!(link.b.receive(&second), Received::Packet(datagram()));
    let mut storage = third;
    let len = storage.len();
    let mut packet = Packet::new(&mut storage, 0, len).unwrap();
    let mut verdict = Inbound::Drop(DropReason::NoRoom);
    link.b.dp.inbound(link.b.now, slice::from_mut(&mut packet), slice::from_mut(&mut verdict));
    assert!(
        matches!(verdict, Inbound::Deliver(admitted) if admitted.spd == SEVEN && admitted.sa == Some(sa))
    );
}

/// A route leads protected packets into the interface of their own tunnel.
#[test]
fn a_packet_does_not_enter_the_tunnel_that_it_comes_from() {
    for encap in [false, true] {
        let spec = LinkSpec { encap, ..spec() };
        let mut link = spec.build();
        let any = Selector::between(AddrRange::ANY_V4, AddrRange::ANY_V4);
        let all = Policy { spd: SEVEN, selector: any, ..spec.policy(true) };
        link.a.dp.add_policy(Direction::Outbound, all).unwrap();
        let wire = link.a.send(&datagram()).wire();
        assert_eq!(verdict_on(&mut link.a, SEVEN, &wire), Outbound::Drop(DropReason::NestedTooDeep));
        let (a, b) = spec.ends.outer;
        let other = packets::udp(a, b, (1_000, 2_000), b"other traffic", false);
        assert!(matches!(verdict_on(&mut link.a, SEVEN, &other), Outbound::Send(_)));
    }
}
