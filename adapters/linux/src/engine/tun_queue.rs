//! Packets from the TUN interface, in the order in which they arrived or in the order of a scheduler.
//!
//! With a scheduler, packets take this path:
//!
//! ```text
//!  queues of the TUN interface, one for each class      the kernel drops packets that find their queue full
//!     |  a few packets of each, not segmented            ClassQueue
//!     v
//!  scheduler: selects the next packet
//!     |  segmented straight into the buffers of the batch
//!     v
//!  a batch so short that packets that arrive meanwhile wait a short time     BatchSizer
//! ```
//!
//! No more packets are read from a queue than the scheduler needs to choose from, because work for a packet
//! that is read and then dropped is wasted.

use super::rx::BatchSizer;
use crate::buffers::Buffers;
use crate::offload::SegmentSplitter;
use crate::tun::{Tun, TunQueue};
use crate::{BATCH, Error};
use arrayvec::ArrayVec;
use casemate_datapath::DropReason;
use casemate_sa::Instant;
use casemate_sched::{Class, Classifier, Config, Counters, FlowHash, PerClass, RejectReason, Scheduler};
use casemate_wire::flow::HeaderSummary;
use casemate_wire::invariant::OrBroken;
use std::io;

/// Packets of one queue that wait here, at most.
const SLOTS: usize = 32;
/// Bytes of one queue that wait here: at this many, no further packet is read.
const MAX_QUEUED_BYTES: usize = 128 << 10;

/// How packets are scheduled before they are protected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scheduling {
    /// Shares and bounds of the classes.
    pub config: Config,
    /// The class of each packet.
    pub classifier: Classifier,
}

/// Source of packets to protect.
pub(super) enum PacketSource {
    /// In the order of arrival.
    Direct(SegmentSplitter),
    /// In the order of a scheduler.
    Scheduled(Box<ScheduledSource>),
}

impl PacketSource {
    /// Source of packets from a TUN interface. With a scheduler, `seed` should be random.
    pub(super) fn new(scheduling: Option<Scheduling>, tun: &Tun, seed: u64) -> Result<Self, Error> {
        Ok(match scheduling {
            None => Self::Direct(SegmentSplitter::new()),
            Some(scheduling) => {
                Self::Scheduled(Box::new(ScheduledSource::new(scheduling, tun.queues().count(), seed)?))
            }
        })
    }

    /// Fills the buffers with the next packets. Calls `dropped` for each packet that the scheduler drops.
    pub(super) fn fill(
        &mut self,
        tun: &Tun,
        buffers: &mut Buffers,
        now: Instant,
        dropped: &mut dyn FnMut(DropReason, &[u8]),
    ) -> io::Result<()> {
        match self {
            Self::Direct(splitter) => fill_directly(splitter, tun.first_queue(), buffers),
            Self::Scheduled(source) => source.fill(tun, buffers, now, dropped),
        }
    }

    /// Whether [`fill`](Self::fill) has packets even if no descriptor is readable.
    pub(super) fn has_buffered(&self) -> bool {
        match self {
            Self::Direct(splitter) => splitter.has_more(),
            Self::Scheduled(source) => source.has_buffered(),
        }
    }

    /// Counters of each class, if there is a scheduler.
    pub(super) fn counters(&self) -> Option<PerClass<Counters>> {
        match self {
            Self::Direct(_) => None,
            Self::Scheduled(source) => Some(source.counters()),
        }
    }
}

/// Fills the buffers with the next packets of a queue, in their order.
pub(super) fn fill_directly(
    splitter: &mut SegmentSplitter,
    queue: &TunQueue,
    buffers: &mut Buffers,
) -> io::Result<()> {
    let mut lens: ArrayVec<usize, BATCH> = ArrayVec::new();
    for buffer in buffers.receive_slices() {
        if let Some(len) = splitter.split_next(buffer) {
            lens.push(len);
            continue;
        }
        let Some(len) = queue.read(splitter.buffer_mut())? else { break };
        // A packet that cannot be parsed becomes a packet of no bytes, which the data path counts.
        lens.push(splitter.split_first(len, buffer).unwrap_or(0));
    }
    buffers.set_lens(&lens);
    Ok(())
}

const SLOT_EXISTS: &str = "the scheduler and the free list contain existing slots";

/// Packets of a TUN interface in the order of a scheduler.
pub(super) struct ScheduledSource {
    classifier: Classifier,
    flows: FlowHash,
    scheduler: Scheduler<SlotRef>,
    /// One for each queue of the interface.
    queues: Vec<ClassQueue>,
    /// Packets that are partly segmented: one, and an urgent one that goes before it.
    current: ArrayVec<SlotRef, 2>,
    sizer: BatchSizer,
}

/// Identifies a slot of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SlotRef {
    queue: u8,
    slot: u8,
}

/// Packets of one queue that wait here.
struct ClassQueue {
    slots: Vec<Slot>,
    free: ArrayVec<u8, SLOTS>,
    /// Bytes that wait here.
    bytes: usize,
    /// The queue was empty when it was read last.
    is_drained: bool,
}

/// Room for a packet.
struct Slot {
    splitter: SegmentSplitter,
    /// Length as the kernel wrote the packet.
    len: usize,
}

impl ScheduledSource {
    fn new(scheduling: Scheduling, queues: usize, seed: u64) -> Result<Self, Error> {
        let scheduler = Scheduler::new(scheduling.config)
            .map_err(|error| Error::other("scheduler", error.to_string()))?;
        Ok(Self {
            classifier: scheduling.classifier,
            flows: FlowHash::new(seed),
            scheduler,
            queues: (0..queues).map(|_| ClassQueue::new()).collect(),
            current: ArrayVec::new(),
            sizer: BatchSizer::new(),
        })
    }

    fn fill(
        &mut self,
        tun: &Tun,
        buffers: &mut Buffers,
        now: Instant,
        dropped: &mut dyn FnMut(DropReason, &[u8]),
    ) -> io::Result<()> {
        self.queues.iter_mut().for_each(|queue| queue.is_drained = false);
        let max_bytes = self.sizer.max_bytes(now);
        let (mut lens, mut bytes): (ArrayVec<usize, BATCH>, usize) = (ArrayVec::new(), 0);
        self.read_queues(tun, now, dropped)?;
        for buffer in buffers.receive_slices() {
            if bytes >= max_bytes {
                break;
            }
            if self.current.is_empty() {
                self.read_queues(tun, now, dropped)?;
            }
            let Some(len) = self.next(buffer, now, dropped) else { break };
            bytes = bytes.saturating_add(len);
            lens.push(len);
        }
        buffers.set_lens(&lens);
        if self.has_buffered() {
            self.sizer.note_backlog(now);
        }
        Ok(())
    }

    fn has_buffered(&self) -> bool {
        !self.current.is_empty() || !self.scheduler.is_empty()
    }

    fn counters(&self) -> PerClass<Counters> {
        PerClass::from_fn(|class| self.scheduler.counters(class))
    }

    /// Reads as many packets as there is room for, the most urgent class first.
    fn read_queues(
        &mut self,
        tun: &Tun,
        now: Instant,
        dropped: &mut dyn FnMut(DropReason, &[u8]),
    ) -> io::Result<()> {
        let Self { classifier, flows, scheduler, queues, .. } = self;
        for ((index, queue), tun_queue) in (0u8..).zip(queues).zip(tun.queues()) {
            while let Some(slot) = queue.read_from(tun_queue)? {
                let packet = queue.packet(slot);
                // Classified again, because the kernel may have chosen another queue, or has only one.
                let (class, flow) = HeaderSummary::parse(packet).map_or((Class::Standard, 0), |summary| {
                    (classifier.classify(&summary), flows.hash(&summary.key, None))
                });
                let slot_ref = SlotRef { queue: index, slot };
                if let Err(rejected) = scheduler.enqueue(now, class, flow, packet.len(), slot_ref) {
                    dropped(drop_reason(rejected.reason), packet);
                    queue.release(slot);
                }
            }
        }
        Ok(())
    }

    /// Writes the next packet into `out` and returns its length.
    fn next(
        &mut self,
        out: &mut [u8],
        now: Instant,
        dropped: &mut dyn FnMut(DropReason, &[u8]),
    ) -> Option<usize> {
        let Self { scheduler, queues, current, .. } = self;
        let drop_late = |_, late: SlotRef| {
            if let Some(queue) = queues.get_mut(usize::from(late.queue)).or_report(SLOT_EXISTS) {
                dropped(DropReason::QueueLate, queue.packet(late.slot));
                queue.release(late.slot);
            }
        };
        let dequeues = current.is_empty() || !current.is_full() && scheduler.has_low_latency(now);
        let dequeued = if dequeues { scheduler.dequeue(now, drop_late).map(|(_, slot)| slot) } else { None };
        current.extend(dequeued);
        let slot_ref = *current.last()?;
        let queue = queues.get_mut(usize::from(slot_ref.queue)).or_report(SLOT_EXISTS)?;
        let slot = queue.slots.get_mut(usize::from(slot_ref.slot)).or_report(SLOT_EXISTS)?;
        let Slot { splitter, len } = slot;
        let is_new = dequeued.is_some();
        let written = if is_new { splitter.split_first(*len, out) } else { splitter.split_next(out) };
        if !splitter.has_more() {
            current.pop();
            queue.release(slot_ref.slot);
        }
        // A packet that cannot be parsed becomes a packet of no bytes, which the data path counts.
        Some(written.unwrap_or(0))
    }
}

impl ClassQueue {
    fn new() -> Self {
        Self {
            slots: (0..SLOTS).map(|_| Slot { splitter: SegmentSplitter::new(), len: 0 }).collect(),
            free: (0..SLOTS as u8).rev().collect(),
            bytes: 0,
            is_drained: false,
        }
    }

    /// Reads a packet from the queue, if there is one and room for it. Returns its slot.
    fn read_from(&mut self, queue: &TunQueue) -> io::Result<Option<u8>> {
        if self.is_drained || self.bytes >= MAX_QUEUED_BYTES {
            return Ok(None);
        }
        let Some(index) = self.free.last().copied() else { return Ok(None) };
        let slot = self.slots.get_mut(usize::from(index)).or_report(SLOT_EXISTS);
        let Some(slot) = slot else { return Ok(None) };
        let Some(len) = queue.read(slot.splitter.buffer_mut())? else {
            self.is_drained = true;
            return Ok(None);
        };
        slot.len = len;
        self.bytes = self.bytes.saturating_add(len);
        self.free.pop();
        Ok(Some(index))
    }

    /// The packet in a slot, not segmented.
    fn packet(&self, slot: u8) -> &[u8] {
        let slot = self.slots.get(usize::from(slot)).or_report(SLOT_EXISTS);
        slot.and_then(|slot| slot.splitter.unsplit(slot.len)).unwrap_or_default()
    }

    fn release(&mut self, slot: u8) {
        let len = self.slots.get(usize::from(slot)).map(|slot| slot.len).or_broken(SLOT_EXISTS, 0);
        self.bytes = self.bytes.checked_sub(len).or_broken("the queue counts the bytes of its packets", 0);
        self.free.push(slot);
    }
}

fn drop_reason(rejected: RejectReason) -> DropReason {
    match rejected {
        RejectReason::Full => DropReason::QueueFull,
        RejectReason::TooLong => DropReason::QueueTooLong,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::Netlink;
    use crate::netns::Netns;
    use casemate_sched::Config;
    use socket2::SockRef;
    use std::net::{Ipv4Addr, UdpSocket};
    use std::os::fd::AsFd;

    const EF: u32 = 0xb8;
    const BEST_EFFORT: u32 = 0;

    /// A datagram without its headers.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct Datagram {
        /// Type of service.
        tos: u32,
        /// The first byte.
        number: u8,
        len: usize,
    }

    fn numbers(datagrams: &[Datagram]) -> impl Iterator<Item = u8> {
        datagrams.iter().map(|datagram| datagram.number)
    }

    /// A host with a TUN interface and the scheduled source behind it.
    struct Host {
        netns: Netns,
        tun: Tun,
        source: ScheduledSource,
        buffers: Buffers,
        dropped: Vec<DropReason>,
    }

    impl Host {
        /// `None` where tests may not make namespaces, or may not load BPF programs that `has_queues` needs.
        fn new(config: Config, has_queues: bool) -> Option<Self> {
            let netns = Netns::new().map_err(casemate_test_support::skip).ok()?;
            let classifier = Classifier::default();
            let open = || {
                let mut netlink = Netlink::open()?;
                let tun = match has_queues {
                    true => Tun::create_with_class_queues("scheduled", &classifier, &mut netlink)?,
                    false => Tun::create("scheduled", &mut netlink)?,
                };
                tun.set_up(1_400, &mut netlink)?;
                netlink.add_address(tun.index(), Ipv4Addr::new(10, 9, 0, 1).into(), 24)?;
                Ok::<_, Error>(tun)
            };
            let tun = match netns.run(open).unwrap() {
                Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                    casemate_test_support::skip(error);
                    return None;
                }
                tun => tun.unwrap(),
            };
            let scheduling = Scheduling { config, classifier };
            let source = ScheduledSource::new(scheduling, tun.queues().count(), 7).unwrap();
            let mut host = Self { netns, tun, source, buffers: Buffers::new(), dropped: Vec::new() };
            // Reads the router solicitations of the kernel.
            while !host.batch(0).is_empty() {}
            Some(host)
        }

        /// Whether every slot is free and no bytes are counted as waiting.
        fn has_all_slots_free(&self) -> bool {
            self.source.queues.iter().all(|queue| queue.free.len() == SLOTS && queue.bytes == 0)
        }

        /// Sends datagrams of this length, each with the next number of `numbers` in its first byte.
        fn send(&self, tos: u32, len: usize, numbers: std::ops::Range<u8>) {
            let send = || {
                let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
                SockRef::from(&socket).set_tos_v4(tos).unwrap();
                for number in numbers {
                    let mut payload = vec![0; len];
                    payload[0] = number;
                    socket.send_to(&payload, "10.9.0.2:9").unwrap();
                }
            };
            self.netns.run(send).unwrap();
        }

        /// Reads a batch and returns its datagrams.
        fn batch(&mut self, millis: u64) -> Vec<Datagram> {
            let Self { tun, source, buffers, dropped, .. } = self;
            let mut note = |reason, packet: &[u8]| {
                assert_eq!(packet[0], 0x45);
                dropped.push(reason);
            };
            source.fill(tun, buffers, Instant::from_millis(millis), &mut note).unwrap();
            let packets = buffers.contents();
            let v4 = packets.iter().filter(|packet| packet[0] == 0x45);
            let datagram = |packet: &Vec<u8>| Datagram {
                tos: packet[1].into(),
                number: packet[28],
                len: packet.len() - 28,
            };
            v4.map(datagram).collect()
        }

        /// Reads all batches that wait.
        fn all(&mut self, millis: u64) -> Vec<Datagram> {
            let mut all = self.batch(millis);
            while self.source.has_buffered() {
                all.extend(self.batch(millis));
            }
            all
        }
    }

    #[test]
    fn voice_overtakes_packets_that_arrived_earlier() {
        for has_queues in [true, false] {
            let Some(mut host) = Host::new(Config::SERVER, has_queues) else { continue };
            host.send(BEST_EFFORT, 1_300, 0..20);
            host.send(EF, 160, 20..23);
            let order: Vec<u8> = numbers(&host.all(1)).collect();
            assert_eq!(order, (20..23).chain(0..20).collect::<Vec<_>>(), "with queues: {has_queues}");
            assert!(!host.source.has_buffered());
            let counters = host.source.counters();
            assert_eq!((counters.low_latency.taken, counters.standard.taken), (3, 20));
        }
    }

    #[test]
    fn voice_waits_for_one_batch_at_most() {
        let Some(mut host) = Host::new(Config::SERVER, true) else { return };
        host.send(BEST_EFFORT, 1_300, 0..200);
        let first = host.batch(1);
        assert_eq!(first.len(), 2, "the first batch is short");
        assert!(host.source.has_buffered());
        host.send(EF, 160, 200..201);
        let second = host.batch(1);
        assert_eq!(second[0], Datagram { tos: EF, number: 200, len: 160 });
        // The other packets keep their order, and none is lost.
        let mut order: Vec<u8> = numbers(&first).chain(numbers(&second[1..])).collect();
        while host.source.has_buffered() {
            order.extend(numbers(&host.batch(1)));
        }
        assert_eq!(order, (0..200).collect::<Vec<_>>());
        assert_eq!(host.dropped, []);
    }

    #[test]
    fn voice_overtakes_a_large_packet_that_is_partly_segmented() {
        let Some(mut host) = Host::new(Config::SERVER, true) else { return };
        let send = || {
            let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
            // UDP_SEGMENT (udp(7)).
            crate::sys::set_option(socket.as_fd(), libc::IPPROTO_UDP, 103, 400).unwrap();
            for number in 0..4 {
                let payload: Vec<u8> = (0..40u8).flat_map(|n| [[number * 40 + n; 1]; 400].concat()).collect();
                socket.send_to(&payload, "10.9.0.2:9").unwrap();
            }
        };
        host.netns.run(send).unwrap();
        let first = host.batch(1);
        assert!(first.len() < 10, "{first:?}");
        host.send(EF, 160, 200..202);
        let rest = host.all(1);
        assert_eq!(rest[..2], [200, 201].map(|number| Datagram { tos: EF, number, len: 160 }));
        let all: Vec<_> = first.iter().chain(&rest[2..]).copied().collect();
        assert_eq!(
            all,
            (0..160).map(|number| Datagram { tos: BEST_EFFORT, number, len: 400 }).collect::<Vec<_>>()
        );
        assert!(host.has_all_slots_free());
    }

    #[test]
    fn packets_beyond_the_limit_of_a_flow_are_dropped_and_counted() {
        let mut config = Config::SERVER;
        // One flow may use half of it: 25 packets of 1,328 bytes.
        config.shares.standard.limit = 66_400;
        let Some(mut host) = Host::new(config, true) else { return };
        host.send(BEST_EFFORT, 1_300, 0..32);
        let batch = host.batch(1);
        let dropped = host.dropped.len();
        assert!(dropped > 0 && host.dropped.iter().all(|reason| *reason == DropReason::QueueFull));
        assert!(!batch.is_empty());
        let mut received = batch.len();
        while host.source.has_buffered() {
            received += host.batch(1).len();
        }
        assert_eq!(received + host.dropped.len(), 32);
        assert_eq!(host.source.counters().standard.full, host.dropped.len() as u64);
        assert!(host.has_all_slots_free());
    }

    #[test]
    fn late_packets_are_dropped_and_counted() {
        let Some(mut host) = Host::new(Config::SERVER, true) else { return };
        for round in 0..20u64 {
            host.send(BEST_EFFORT, 1_300, 0..60);
            host.batch(round * 100);
        }
        assert!(host.dropped.contains(&DropReason::QueueLate), "{:?}", host.source.counters().standard);
        assert_eq!(host.source.counters().standard.late, host.dropped.len() as u64);
        // All slots become free again.
        while host.source.has_buffered() {
            host.batch(2_000);
        }
        assert!(host.has_all_slots_free());
    }
}
