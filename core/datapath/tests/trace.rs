//! The records of traced packets.
// Helpers outside #[test] functions: a broken expectation is meant to stop the test.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic)]

use casemate_datapath::spd::{Action, Bundle, Policy, Template};
use casemate_datapath::trace::{
    OuterPacket, PolicyFinding, TraceFilter, TraceIsRunning, TraceRecord, TraceStep, Transmission,
};
use casemate_datapath::{Datapath, Direction, DropReason, Unmatched};
use casemate_sa::{AddrRange, Instant, Mode};
use casemate_test_support::hosts::{Ends, Host, LinkSpec, Received, packets, suites};
use casemate_wire::ip::proto;

fn spec() -> LinkSpec {
    LinkSpec::single(Ends::tunnel(4, 4), Mode::Tunnel, suites::esp(suites::gcm(), 1))
}

fn steps(datapath: &mut Datapath) -> Vec<TraceStep> {
    records(datapath).into_iter().map(|record| record.step).collect()
}

fn records(datapath: &mut Datapath) -> Vec<TraceRecord> {
    std::iter::from_fn(|| datapath.next_trace_record()).collect()
}

fn trace_all(host: &mut Host) {
    host.dp.start_trace(TraceFilter::default(), 100).unwrap();
}

#[test]
fn a_packet_is_followed_through_both_hosts() {
    let mut link = spec().build();
    trace_all(&mut link.a);
    trace_all(&mut link.b);
    let (x, y) = link.ends.inner;
    let packet = packets::udp(x, y, (40_000, 53), b"12345", false);
    let wire = link.a.send(&packet).wire();
    let sent = steps(&mut link.a.dp);
    let (outer_src, outer_dst) = link.ends.outer;
    let [
        TraceStep::Outgoing(inner),
        TraceStep::Policy(_, PolicyFinding::Protect(..)),
        TraceStep::Sa(sa),
        TraceStep::Size(size),
        TraceStep::Number(1),
        TraceStep::Encapsulated(OuterPacket { src, dst, len, header: Some(header), udp: None, .. }),
        TraceStep::Sealed,
    ] = sent[..]
    else {
        panic!("{sent:?}")
    };
    assert_eq!((inner.len, inner.flow.unwrap().proto()), (packet.len(), Some(proto::UDP)));
    assert_eq!((sa, src, dst), (link.a_out[0], outer_src, outer_dst));
    assert_eq!((size.protected, len, header.seq), (wire.len(), wire.len(), 1));
    assert!(size.protected <= size.path_mtu && size.inner_mtu >= size.len);
    link.a.dp.trace_sent(Instant::ZERO, &wire, Transmission::NextHop);
    link.a.dp.trace_sent(Instant::ZERO, &wire, Transmission::NextHop);
    assert_eq!(steps(&mut link.a.dp), [TraceStep::Sent(Transmission::NextHop)], "reported once");

    assert!(matches!(link.b.receive(&wire), Received::Packet(_)));
    let received = steps(&mut link.b.dp);
    let [
        TraceStep::Incoming(outer),
        TraceStep::Sa(sa),
        TraceStep::NotReplayed(1),
        TraceStep::Opened(opener),
        TraceStep::Decapsulated { packet: inside, outer_ecn: 0 },
        TraceStep::Policy(_, PolicyFinding::Protect(..)),
        TraceStep::Delivered,
    ] = received[..]
    else {
        panic!("{received:?}")
    };
    assert_eq!((sa, sa.direction(), inside, outer.src), (opener, Direction::Inbound, inner, outer_src));
}

/// Of two tunnels for the same traffic, a packet is admitted by the policy of its own tunnel.
#[test]
fn the_second_of_two_equal_policies_is_named() {
    let mut link = spec().build();
    let (first, policy) =
        link.b.dp.policies(Direction::Inbound).map(|(id, policy)| (id, policy.clone())).next().unwrap();
    let Action::Protect(bundle) = &policy.action else { panic!("{policy:?}") };
    let other = Template { reqid: bundle.templates()[0].reqid + 1, ..bundle.templates()[0] };
    let accepting = |bundle: Bundle| Action::Protect(bundle.accepting_equal(true));
    link.b.dp.remove_policy(Direction::Inbound, first).unwrap();
    let mut add =
        |action| link.b.dp.add_policy(Direction::Inbound, Policy { action, ..policy.clone() }).unwrap();
    let of_other = add(accepting(Bundle::single(other)));
    let own = add(accepting(bundle.clone()));
    assert_ne!(of_other, own);
    let (x, y) = link.ends.inner;
    trace_all(&mut link.b);
    let wire = link.a.send(&packets::udp(x, y, (40_000, 53), b"12345", false)).wire();
    assert!(matches!(link.b.receive(&wire), Received::Packet(_)));
    let found = steps(&mut link.b.dp).into_iter().find_map(|step| match step {
        TraceStep::Policy(_, PolicyFinding::Protect(id, _)) => Some(id),
        _ => None,
    });
    assert_eq!(found, Some(own));
}

#[test]
fn a_drop_is_traced_with_the_steps_before_it() {
    let mut link = spec().build();
    let (x, y) = link.ends.inner;
    let packet = packets::udp(x, y, (1, 2), b"", false);
    let wire = link.a.send(&packet).wire();
    trace_all(&mut link.b);
    let mut damaged = wire.clone();
    *damaged.last_mut().unwrap() ^= 1;
    link.b.must_drop(&damaged, DropReason::IcvMismatch);
    let found = steps(&mut link.b.dp);
    let [TraceStep::Incoming(_), TraceStep::Sa(_), TraceStep::NotReplayed(1), last] = found[..] else {
        panic!("{found:?}")
    };
    assert_eq!(last, TraceStep::Dropped(DropReason::IcvMismatch));
    assert!(matches!(link.b.receive(&wire), Received::Packet(_)));
    steps(&mut link.b.dp);
    link.b.must_drop(&wire, DropReason::Replay);
    let found = steps(&mut link.b.dp);
    let [TraceStep::Incoming(_), TraceStep::Sa(_), last] = found[..] else { panic!("{found:?}") };
    assert_eq!(last, TraceStep::Dropped(DropReason::Replay));
    let mut unknown = wire;
    unknown[20] ^= 1;
    link.b.must_drop(&unknown, DropReason::NoSa);
    let found = steps(&mut link.b.dp);
    let [TraceStep::Incoming(outer), last] = found[..] else { panic!("{found:?}") };
    assert_eq!(last, TraceStep::Dropped(DropReason::NoSa));
    assert!(outer.header.is_some());
}

#[test]
fn packets_without_policy_and_too_long_ones() {
    let mut link = LinkSpec { link_mtu: 1_500, ..spec() }.build();
    trace_all(&mut link.a);
    let (x, y) = link.ends.inner;
    link.a.send(&packets::udp(x, y, (1, 2), &[0; 1_472], true));
    let found = steps(&mut link.a.dp);
    let [TraceStep::Outgoing(_), TraceStep::Policy(..), TraceStep::Sa(_), TraceStep::Size(size), last] =
        found[..]
    else {
        panic!("{found:?}")
    };
    assert!(size.protected > size.path_mtu && size.inner_mtu < size.len);
    assert_eq!(last, TraceStep::Rejected(DropReason::TooBig));
    let mut host = Host::new(Unmatched::Discard, 1_500);
    trace_all(&mut host);
    host.send(&packets::udp(x, y, (1, 2), b"", false));
    let found = steps(&mut host.dp);
    let [TraceStep::Outgoing(_), TraceStep::Policy(_, PolicyFinding::NoMatch), last] = found[..] else {
        panic!("{found:?}")
    };
    assert_eq!(last, TraceStep::Dropped(DropReason::NoPolicy));
}

#[test]
fn the_filter_selects_and_the_count_ends() {
    let mut link = spec().build();
    let (x, y) = link.ends.inner;
    let filter = TraceFilter { src: Some(AddrRange::single(y)), dst_port: Some(7), ..TraceFilter::default() };
    link.b.dp.start_trace(filter, 1).unwrap();
    assert_eq!(link.b.dp.start_trace(filter, 1), Err(TraceIsRunning));
    // A reply of the flow: the selector is that of the other direction.
    let mut transfer = |ports| {
        let wire = link.a.send(&packets::udp(x, y, ports, b"", false)).wire();
        assert!(matches!(link.b.receive(&wire), Received::Packet(_)));
        link.b.dp.trace_summary().unwrap().packets
    };
    assert_eq!([transfer((8, 7)), transfer((7, 8)), transfer((7, 8))], [0, 1, 1]);
    assert!(records(&mut link.b.dp).iter().all(|record| record.packet == 1));
    let mut wire = link.a.send(&packets::udp(x, y, (7, 8), b"", false)).wire();
    *wire.last_mut().unwrap() ^= 1;
    assert_eq!(link.b.dp.stop_trace().unwrap().undecided, 0);
    link.b.dp.start_trace(filter, 1).unwrap();
    link.b.must_drop(&wire, DropReason::IcvMismatch);
    assert_eq!(link.b.dp.stop_trace().unwrap().undecided, 1, "it is unknown what the packet contains");
    assert!(link.b.dp.stop_trace().is_none() && !link.b.dp.is_tracing());
    let filter = TraceFilter { peer: Some(link.ends.outer.0), ..TraceFilter::default() };
    link.b.dp.start_trace(filter, 1).unwrap();
    link.b.must_drop(&wire, DropReason::IcvMismatch);
    assert_eq!(link.b.dp.stop_trace().unwrap().packets, 1, "the peer is known");
}

#[test]
fn drops_outside_of_the_data_path_are_traced() {
    let mut link = spec().build();
    trace_all(&mut link.a);
    let (x, y) = link.ends.inner;
    let packet = packets::udp(x, y, (1, 2), b"", false);
    link.a.dp.record_drop(Instant::ZERO, DropReason::QueueFull, &packet);
    let found = steps(&mut link.a.dp);
    let [TraceStep::Elsewhere(_), TraceStep::Dropped(DropReason::QueueFull)] = found[..] else {
        panic!("{found:?}")
    };
    let wire = link.a.send(&packet).wire();
    steps(&mut link.a.dp);
    link.a.dp.record_drop(Instant::ZERO, DropReason::SendFailed, &wire);
    let found = records(&mut link.a.dp);
    assert_eq!((found.len(), found[0].packet), (1, 2), "the packet is recognized");
    assert_eq!(found[0].step, TraceStep::Dropped(DropReason::SendFailed));
}

#[test]
fn each_protocol_and_mode_is_recognized_when_it_is_sent() {
    let esp = || suites::esp(suites::gcm(), 1);
    let ah = || suites::ah(suites::all_ah()[0], 1);
    for (ends, mode, transform, encap) in [
        (Ends::tunnel(6, 4), Mode::Tunnel, esp(), true),
        (Ends::tunnel(4, 6), Mode::Tunnel, esp(), true),
        (Ends::transport(4), Mode::Transport, esp(), false),
        (Ends::tunnel(4, 4), Mode::Tunnel, ah(), false),
        (Ends::transport(6), Mode::Transport, ah(), false),
    ] {
        let mut link = LinkSpec { encap, ..LinkSpec::single(ends, mode, transform) }.build();
        trace_all(&mut link.a);
        trace_all(&mut link.b);
        let (x, y) = ends.inner;
        let wire = link.a.send(&packets::udp(x, y, (1, 2), b"abc", false)).wire();
        link.a.dp.trace_sent(Instant::ZERO, &wire, Transmission::UdpSocket);
        let sent = steps(&mut link.a.dp);
        assert!(sent.contains(&TraceStep::Number(1)), "{sent:?}");
        assert_eq!(sent.last(), Some(&TraceStep::Sent(Transmission::UdpSocket)), "{sent:?}");
        assert!(matches!(link.b.receive(&wire), Received::Packet(_)));
        let received = steps(&mut link.b.dp);
        assert!(received.contains(&TraceStep::NotReplayed(1)), "{received:?}");
        assert_eq!(received.last(), Some(&TraceStep::Delivered), "{received:?}");
    }
}
