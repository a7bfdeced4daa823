//! Batches in three steps: begun in order, sealed or opened on any thread, finished in order.
// Helpers outside #[test] functions: a broken expectation is meant to stop the test.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic)]

use casemate_crypto::{MacAlg, MacKind};
use casemate_datapath::{
    Datapath, Direction, DropReason, HEAD_ROOM, Inbound, MAX_BATCH, OpenBatch, Outbound, SaPath, SaStatus,
    SealBatch, TAIL_ROOM,
};
use casemate_sa::{Bounds, Instant, Lifetime, Mode, SpdId, UdpEncap};
use casemate_test_support::TestRng;
use casemate_test_support::hosts::{Ends, Link, LinkSpec, PROVIDERS, packets, suites};
use casemate_wire::packet::Packet;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::thread;

const NOW: Instant = Instant::from_secs(1);

/// Packets of a batch in buffers that do not move.
struct Buffers(Vec<Buffer>);

struct Buffer {
    bytes: Vec<u8>,
    /// Offset of the packet.
    start: usize,
    /// Length of the packet.
    len: usize,
}

impl Buffers {
    fn new(packets: &[Vec<u8>]) -> Self {
        let buffer = |packet: &Vec<u8>| {
            let mut bytes = vec![0xEE; HEAD_ROOM + packet.len() + TAIL_ROOM];
            bytes[HEAD_ROOM..HEAD_ROOM + packet.len()].copy_from_slice(packet);
            Buffer { bytes, start: HEAD_ROOM, len: packet.len() }
        };
        Self(packets.iter().map(buffer).collect())
    }

    /// Calls one step with the packets.
    fn with_packets<T>(&mut self, step: impl FnOnce(&mut [Packet<'_>]) -> T) -> T {
        let lent = self.0.iter_mut().map(|buffer| {
            let Buffer { bytes, start, len } = buffer;
            Packet::new(bytes, *start, *len).unwrap()
        });
        let mut packets: Vec<Packet<'_>> = lent.collect();
        let result = step(&mut packets);
        let kept: Vec<_> = packets.iter().map(|packet| (packet.head_room(), packet.len())).collect();
        for (buffer, kept) in self.0.iter_mut().zip(kept) {
            (buffer.start, buffer.len) = kept;
        }
        result
    }

    fn bytes(&self) -> Vec<Vec<u8>> {
        let packet = |buffer: &Buffer| buffer.bytes[buffer.start..buffer.start + buffer.len].to_vec();
        self.0.iter().map(packet).collect()
    }
}

/// An outbound batch.
struct OutboundBatch(Buffers, SealBatch);

impl OutboundBatch {
    fn begin(dp: &mut Datapath, rng: &mut TestRng, packets: &[Vec<u8>]) -> Self {
        let mut buffers = Buffers::new(packets);
        let mut sealing = SealBatch::new();
        buffers.with_packets(|packets| dp.begin_outbound(SpdId::MAIN, NOW, rng, packets, &mut sealing));
        Self(buffers, sealing)
    }

    fn seal(&mut self) {
        let Self(buffers, sealing) = self;
        buffers.with_packets(|packets| sealing.seal(packets));
    }

    fn finish(self, dp: &mut Datapath) -> Vec<(Outbound, Vec<u8>)> {
        let Self(mut buffers, mut sealing) = self;
        let mut verdicts = vec![Outbound::Bypass; buffers.0.len()];
        buffers.with_packets(|packets| dp.finish_outbound(NOW, packets, &mut sealing, &mut verdicts));
        verdicts.into_iter().zip(buffers.bytes()).collect()
    }
}

/// An inbound batch.
struct InboundBatch(Buffers, OpenBatch);

impl InboundBatch {
    fn begin(dp: &mut Datapath, packets: &[Vec<u8>]) -> Self {
        let mut buffers = Buffers::new(packets);
        let mut opening = OpenBatch::new();
        buffers.with_packets(|packets| dp.begin_inbound(NOW, packets, &mut opening));
        Self(buffers, opening)
    }

    fn open(&mut self) {
        let Self(buffers, opening) = self;
        buffers.with_packets(|packets| opening.open(packets));
    }

    fn finish(self, dp: &mut Datapath) -> Vec<(Inbound, Vec<u8>)> {
        let Self(mut buffers, mut opening) = self;
        let mut verdicts = Vec::from_iter(buffers.0.iter().map(|_| Inbound::Reassemble));
        buffers.with_packets(|packets| dp.finish_inbound(NOW, packets, &mut opening, &mut verdicts));
        verdicts.into_iter().zip(buffers.bytes()).collect()
    }
}

fn gcm_tunnel() -> LinkSpec {
    LinkSpec::single(Ends::tunnel(4, 4), Mode::Tunnel, suites::esp(suites::gcm(), 1))
}

/// Suites, modes, encapsulation and bundles.
fn kinds() -> Vec<LinkSpec> {
    let ah = suites::ah(MacAlg::standard(MacKind::HmacSha256), 9);
    let cbc = suites::esp(suites::cbc_sha1(), 1);
    let mut extended = LinkSpec::single(Ends::tunnel(6, 4), Mode::Tunnel, cbc.clone());
    (extended.esn, extended.encap, extended.last_seq) = (true, true, u64::from(u32::MAX) - 20);
    let transport = LinkSpec::single(Ends::transport(6), Mode::Transport, cbc);
    let signed = LinkSpec::single(Ends::transport(4), Mode::Transport, ah.clone());
    let mut bundle = gcm_tunnel();
    bundle.layers.push((Mode::Transport, ah.clone()));
    let mut twice = LinkSpec::single(Ends::transport(4), Mode::Transport, ah);
    twice.layers.push((Mode::Transport, suites::esp(suites::gcm(), 3)));
    vec![gcm_tunnel(), extended, transport, signed, bundle, twice]
}

/// `count` different packets from `a` to `b`. Every seventh is not for the tunnel, and every eleventh is not
/// a packet.
fn traffic(spec: &LinkSpec, first: usize, count: usize) -> Vec<Vec<u8>> {
    let (a, b) = spec.ends.inner;
    let packet = |n: usize| {
        let payload: Vec<u8> = (0..n % 90).map(|i| (i + n) as u8).collect();
        match n {
            n if n % 11 == 10 => vec![0xF0; 30],
            n if n % 7 == 6 => packets::udp(b, a, (1, n as u16), &payload, false),
            n => packets::udp(a, b, (n as u16, 2), &payload, false),
        }
    };
    (first..first + count).map(packet).collect()
}

/// `count` packets from `a` to `b` for the tunnel.
fn plain(spec: &LinkSpec, count: usize) -> Vec<Vec<u8>> {
    let (a, b) = spec.ends.inner;
    (0..count).map(|n| packets::udp(a, b, (n as u16, 2), &[n as u8; 40], false)).collect()
}

/// `count` packets as they arrive at `b`.
fn wire(link: &mut Link, spec: &LinkSpec, count: usize) -> Vec<Vec<u8>> {
    plain(spec, count).iter().map(|packet| link.a.send(packet).wire()).collect()
}

fn delivered(results: &[(Inbound, Vec<u8>)]) -> usize {
    results.iter().filter(|(verdict, _)| matches!(verdict, Inbound::Deliver(_))).count()
}

fn sent(results: &[(Outbound, Vec<u8>)]) -> usize {
    results.iter().filter(|(verdict, _)| matches!(verdict, Outbound::Send(_))).count()
}

fn all_dropped<V: PartialEq + std::fmt::Debug>(results: &[(V, Vec<u8>)], verdict: V) {
    assert!(!results.is_empty());
    results.iter().for_each(|(got, _)| assert_eq!(*got, verdict));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Verdicts, bytes and counters are those of the single call, whatever the number of batches and the
    /// order of sealing and opening.
    #[test]
    fn split_steps_equal_the_single_call(
        kind in 0..6usize,
        sizes in prop::collection::vec(1..=MAX_BATCH, 1..12),
        depth in 1..5usize,
        backwards in any::<bool>(),
    ) {
        let spec = &kinds()[kind];
        let (mut whole, mut parts) = (spec.build(), spec.build());
        let (mut rng, mut rng_parts) = (TestRng::new(1), TestRng::new(1));
        let mut first = 0;
        let batches: Vec<Vec<Vec<u8>>> = sizes.iter().map(|&size| {
            first += size;
            traffic(spec, first - size, size)
        }).collect();
        for batches in batches.chunks(depth) {
            let mut expected = VecDeque::new();
            for batch in batches {
                let mut buffers = Buffers::new(batch);
                let mut verdicts = vec![Outbound::Bypass; batch.len()];
                buffers.with_packets(|packets| whole.a.dp.outbound(NOW, &mut rng, packets, &mut verdicts));
                expected.push_back(verdicts.into_iter().zip(buffers.bytes()).collect::<Vec<_>>());
            }
            let begin = |batch: &Vec<Vec<u8>>| OutboundBatch::begin(&mut parts.a.dp, &mut rng_parts, batch);
            let mut in_flight: Vec<_> = batches.iter().map(begin).collect();
            for_each_batch(&mut in_flight, backwards, OutboundBatch::seal);
            let mut arriving = Vec::new();
            for batch in in_flight {
                let results = batch.finish(&mut parts.a.dp);
                prop_assert_eq!(&results, &expected.pop_front().unwrap());
                arriving.push(results.into_iter().map(|(_, bytes)| bytes).collect::<Vec<_>>());
            }
            let mut expected = VecDeque::new();
            for batch in &arriving {
                let mut buffers = Buffers::new(batch);
                let mut verdicts = Vec::from_iter(batch.iter().map(|_| Inbound::Reassemble));
                buffers.with_packets(|packets| whole.b.dp.inbound(NOW, packets, &mut verdicts));
                expected.push_back(verdicts.into_iter().zip(buffers.bytes()).collect::<Vec<_>>());
            }
            let mut in_flight: Vec<InboundBatch> =
                arriving.iter().map(|batch| InboundBatch::begin(&mut parts.b.dp, batch)).collect();
            for_each_batch(&mut in_flight, backwards, InboundBatch::open);
            for batch in in_flight {
                let results = batch.finish(&mut parts.b.dp);
                prop_assert_eq!(results, expected.pop_front().unwrap());
            }
        }
        for (whole, parts) in [(&whole.a.dp, &parts.a.dp), (&whole.b.dp, &parts.b.dp)] {
            for &reason in DropReason::ALL {
                prop_assert_eq!(whole.drops().get(reason), parts.drops().get(reason), "{}", reason);
            }
            let state = |sa: SaStatus| (sa.seq, sa.meter.packets, sa.window);
            let states = |dp: &Datapath| dp.sas().map(state).collect::<Vec<_>>();
            prop_assert_eq!(states(whole), states(parts));
        }
    }
}

fn for_each_batch<T>(all: &mut [T], backwards: bool, work: fn(&mut T)) {
    match backwards {
        true => all.iter_mut().rev().for_each(work),
        false => all.iter_mut().for_each(work),
    }
}

#[test]
fn two_threads_share_one_sa() {
    let spec = gcm_tunnel();
    let mut link = spec.build();
    let mut rng = TestRng::new(1);
    let traffic = plain(&spec, MAX_BATCH);
    for _ in 0..20 {
        let mut in_flight = [(); 2].map(|()| OutboundBatch::begin(&mut link.a.dp, &mut rng, &traffic));
        thread::scope(|scope| {
            in_flight.iter_mut().for_each(|batch| drop(scope.spawn(|| batch.seal())));
        });
        let sealed = in_flight.map(|batch| batch.finish(&mut link.a.dp));
        let arriving = sealed.map(|batch| batch.into_iter().map(|(_, bytes)| bytes).collect::<Vec<_>>());
        let mut in_flight = arriving.map(|batch| InboundBatch::begin(&mut link.b.dp, &batch));
        thread::scope(|scope| {
            in_flight.iter_mut().for_each(|batch| drop(scope.spawn(|| batch.open())));
        });
        for batch in in_flight {
            let results = batch.finish(&mut link.b.dp);
            assert_eq!(delivered(&results), MAX_BATCH);
            assert!(results.into_iter().map(|(_, bytes)| bytes).eq(traffic.iter().cloned()));
        }
    }
    assert_eq!(link.b.dp.drops().get(DropReason::Replay), 0);
}

#[test]
fn number_in_two_batches_is_accepted_once() {
    let spec = gcm_tunnel();
    let mut link = spec.build();
    let wire = wire(&mut link, &spec, 8);
    let mut in_flight = [(); 2].map(|()| InboundBatch::begin(&mut link.b.dp, &wire));
    in_flight.iter_mut().rev().for_each(InboundBatch::open);
    let [one, two] = in_flight.map(|batch| batch.finish(&mut link.b.dp));
    assert_eq!(delivered(&one), 8);
    all_dropped(&two, Inbound::Drop(DropReason::Replay));
}

#[test]
fn only_the_forged_packet_is_dropped() {
    let spec = gcm_tunnel();
    let mut link = spec.build();
    let mut batches = [wire(&mut link, &spec, 8), wire(&mut link, &spec, 8)];
    *batches[0][3].last_mut().unwrap() ^= 1;
    let mut in_flight = batches.map(|batch| InboundBatch::begin(&mut link.b.dp, &batch));
    in_flight.iter_mut().for_each(InboundBatch::open);
    let [one, two] = in_flight.map(|batch| batch.finish(&mut link.b.dp));
    assert_eq!(one[3].0, Inbound::Drop(DropReason::IcvMismatch));
    assert_eq!((delivered(&one), delivered(&two)), (7, 8));
}

#[test]
fn unsealed_and_unopened_packets_are_dropped() {
    let spec = gcm_tunnel();
    let mut link = spec.build();
    let unsealed = OutboundBatch::begin(&mut link.a.dp, &mut TestRng::new(1), &plain(&spec, 3));
    all_dropped(&unsealed.finish(&mut link.a.dp), Outbound::Drop(DropReason::CryptoFailed));
    let wire = wire(&mut link, &spec, 3);
    let unopened = InboundBatch::begin(&mut link.b.dp, &wire);
    all_dropped(&unopened.finish(&mut link.b.dp), Inbound::Drop(DropReason::CryptoFailed));
    // The packets were not authenticated, so their sequence numbers are still unused.
    let mut again = InboundBatch::begin(&mut link.b.dp, &wire);
    again.open();
    assert_eq!(delivered(&again.finish(&mut link.b.dp)), 3);
    assert_eq!(link.a.dp.drops().get(DropReason::CryptoFailed), 3);
    assert_eq!(link.b.dp.drops().get(DropReason::CryptoFailed), 3);
}

#[test]
fn packets_of_another_batch_are_dropped() {
    let spec = gcm_tunnel();
    let mut link = spec.build();
    let mut rng = TestRng::new(1);
    let dropped = Outbound::Drop(DropReason::CryptoFailed);
    let mut begin = || [(); 2].map(|()| OutboundBatch::begin(&mut link.a.dp, &mut rng, &plain(&spec, 3)));
    let ([one, mut two], [mut three, mut four], mut five) = (begin(), begin(), begin());
    // Sealing with the packets of another batch changes nothing.
    let (mut swapped, clear) = (OutboundBatch(two.0, one.1), one.0);
    swapped.seal();
    two = OutboundBatch(swapped.0, two.1);
    all_dropped(&two.finish(&mut link.a.dp), dropped);
    all_dropped(&OutboundBatch(clear, swapped.1).finish(&mut link.a.dp), dropped);
    // Finishing with the packets of another batch, and with packets in another order.
    three.seal();
    four.seal();
    all_dropped(&OutboundBatch(three.0, four.1).finish(&mut link.a.dp), dropped);
    five[0].seal();
    five[0].0.0.reverse();
    let [five, mut six] = five;
    all_dropped(&five.finish(&mut link.a.dp), dropped);
    // One packet is missing.
    six.seal();
    six.0.0.pop();
    all_dropped(&six.finish(&mut link.a.dp), dropped);

    let wire = [(); 2].map(|()| wire(&mut link, &spec, 3));
    let mut inbound = wire.map(|wire| InboundBatch::begin(&mut link.b.dp, &wire));
    inbound.iter_mut().for_each(InboundBatch::open);
    let [mut one, mut two] = inbound;
    std::mem::swap(&mut one.0.0[1], &mut two.0.0[1]);
    all_dropped(&one.finish(&mut link.b.dp), Inbound::Drop(DropReason::CryptoFailed));
    all_dropped(&two.finish(&mut link.b.dp), Inbound::Drop(DropReason::CryptoFailed));
}

#[test]
fn batch_is_finished_once() {
    let spec = gcm_tunnel();
    let mut link = spec.build();
    let (mut rng, mut buffers) = (TestRng::new(1), Buffers::new(&plain(&spec, 3)));
    let (mut sealing, mut verdicts) = (SealBatch::new(), [Outbound::Bypass; 3]);
    let (dp, dropped) = (&mut link.a.dp, [Outbound::Drop(DropReason::CryptoFailed); 3]);
    buffers.with_packets(|packets| {
        dp.begin_outbound(SpdId::MAIN, NOW, &mut rng, packets, &mut sealing);
        sealing.seal(packets);
        dp.finish_outbound(NOW, packets, &mut sealing, &mut verdicts);
        assert!(verdicts.iter().all(|verdict| matches!(verdict, Outbound::Send(_))));
        dp.finish_outbound(NOW, packets, &mut sealing, &mut verdicts);
        assert_eq!(verdicts, dropped);
    });
    // An unfinished batch is discarded.
    let mut others = Buffers::new(&plain(&spec, 3));
    buffers.with_packets(|packets| dp.begin_outbound(SpdId::MAIN, NOW, &mut rng, packets, &mut sealing));
    others.with_packets(|packets| {
        dp.begin_outbound(SpdId::MAIN, NOW, &mut rng, packets, &mut sealing);
        sealing.seal(packets);
    });
    buffers.with_packets(|packets| {
        sealing.seal(packets);
        dp.finish_outbound(NOW, packets, &mut sealing, &mut verdicts);
    });
    assert_eq!(verdicts, dropped);
}

#[test]
fn sa_may_be_removed_between_the_steps() {
    let spec = gcm_tunnel();
    let mut link = spec.build();
    let mut outbound = OutboundBatch::begin(&mut link.a.dp, &mut TestRng::new(1), &plain(&spec, 3));
    assert!(link.a.dp.remove_sa(link.a_out[0]));
    outbound.seal();
    let sealed = outbound.finish(&mut link.a.dp);
    assert_eq!(sent(&sealed), 3, "batches in flight keep the old SA");

    let wire: Vec<Vec<u8>> = sealed.into_iter().map(|(_, bytes)| bytes).collect();
    let mut inbound = InboundBatch::begin(&mut link.b.dp, &wire);
    let inbound_id = |dp: &Datapath| dp.sas().find(|sa| sa.id.direction() == Direction::Inbound).unwrap().id;
    let old = inbound_id(&link.b.dp);
    assert!(link.b.dp.remove_sa(old));
    // A new SA in the same slot must not be used for the batch.
    link.b.dp.add_sa(&spec.params(0, true), Direction::Inbound, &PROVIDERS, NOW).unwrap();
    inbound.open();
    all_dropped(&inbound.finish(&mut link.b.dp), Inbound::Drop(DropReason::NoSa));
    let state = link.b.dp.sas().find(|sa| sa.id == inbound_id(&link.b.dp)).unwrap();
    assert_ne!(state.id, old);
    assert_eq!((state.seq, state.meter.packets), (0, 0), "batches in flight do not count for the new SA");
}

#[test]
fn sa_may_be_moved_between_the_steps() {
    let mut spec = gcm_tunnel();
    spec.encap = true;
    let mut link = spec.build();
    let mut rng = TestRng::new(1);
    let mut outbound = OutboundBatch::begin(&mut link.a.dp, &mut rng, &plain(&spec, 1));
    let encap = Some(UdpEncap { src_port: 4500, dst_port: 777 });
    let path = SaPath { src: spec.ends.outer.0, dst: [203, 0, 113, 9].into(), encap };
    assert!(link.a.dp.move_sa(link.a_out[0], path));
    outbound.seal();
    let before = outbound.finish(&mut link.a.dp);
    assert_eq!((&before[0].1[16..20], &before[0].1[22..24]), (&[192, 0, 2, 2][..], &[0x11, 0x94][..]));
}

#[test]
fn lifetime_holds_across_batches() {
    let mut spec = gcm_tunnel();
    spec.lifetime = Lifetime { hard: Bounds { packets: Some(5), ..Bounds::NONE }, ..Lifetime::UNBOUNDED };
    let mut link = spec.build();
    let mut rng = TestRng::new(1);
    let mut in_flight = [(); 2].map(|()| OutboundBatch::begin(&mut link.a.dp, &mut rng, &plain(&spec, 4)));
    in_flight.iter_mut().for_each(OutboundBatch::seal);
    let [one, two] = in_flight.map(|batch| batch.finish(&mut link.a.dp));
    assert_eq!((sent(&one), sent(&two)), (4, 1));
}
