//! Packets in the order of a scheduler.
//!
//! ```text
//!  queues of the TUN interface, one for each class      the kernel drops what finds no place there
//!     |  a few packets of each, uncut                   Line
//!     v
//!  scheduler: which of them goes next
//!     |  cut straight into the batch's buffers
//!     v
//!  a batch so short that what comes meanwhile waits little      Pace
//! ```
//!
//! No more is taken out of a queue than the scheduler needs to choose from, for what is taken and dropped was work for nothing.

use super::pace::Pace;
use super::source::Scheduling;
use crate::buffers::Buffers;
use crate::offload::Cutter;
use crate::tun::{Queue, Tun};
use crate::{BATCH, Error};
use arrayvec::ArrayVec;
use casemate_datapath::DropReason;
use casemate_sa::Instant;
use casemate_sched::{Class, Classifier, Counters, FlowHash, PerClass, Refusal, Scheduler};
use casemate_wire::flow::Overview;
use std::io;

/// Packets of one queue that wait here at most.
const PLACES: usize = 32;
/// And their bytes, before one more is taken out.
const WINDOW: usize = 128 << 10;
/// The packets of a TUN interface, put in order.
pub(super) struct Ordered {
    classifier: Classifier,
    flows: FlowHash,
    scheduler: Scheduler<Spot>,
    /// One for each queue of the interface.
    lines: Vec<Line>,
    /// Of which packets are still to be cut: one, and one that is urgent and goes before it.
    in_hand: ArrayVec<Spot, 2>,
    pace: Pace,
}

/// Which place in which line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Spot {
    line: u8,
    place: u8,
}

/// What waits here of one queue.
struct Line {
    places: Vec<Place>,
    free: ArrayVec<u8, PLACES>,
    /// How many bytes wait here.
    bytes: usize,
    /// Nothing came when this was asked last.
    is_dry: bool,
}

/// A packet, or room for one.
struct Place {
    cutter: Cutter,
    /// As the kernel wrote it.
    len: usize,
}

impl Ordered {
    /// For so many queues.
    pub(super) fn new(scheduling: Scheduling, queues: usize, seed: u64) -> Result<Self, Error> {
        let scheduler = Scheduler::new(scheduling.config)
            .map_err(|error| Error::other("scheduler", error.to_string()))?;
        Ok(Self {
            classifier: scheduling.classifier,
            flows: FlowHash::new(seed),
            scheduler,
            lines: (0..queues).map(|_| Line::new()).collect(),
            in_hand: ArrayVec::new(),
            pace: Pace::new(),
        })
    }

    /// As [`Source::fill`](super::source::Source::fill).
    pub(super) fn fill(
        &mut self,
        tun: &Tun,
        buffers: &mut Buffers,
        now: Instant,
        dropped: &mut dyn FnMut(DropReason, &[u8]),
    ) -> io::Result<()> {
        self.lines.iter_mut().for_each(|line| line.is_dry = false);
        let room = self.pace.room(now);
        let (mut lens, mut bytes): (ArrayVec<usize, BATCH>, usize) = (ArrayVec::new(), 0);
        self.take_in(tun, now, dropped)?;
        for buffer in buffers.slices() {
            if bytes >= room {
                break;
            }
            if self.in_hand.is_empty() {
                self.take_in(tun, now, dropped)?;
            }
            let Some(len) = self.next(buffer, now, dropped) else { break };
            bytes = bytes.saturating_add(len);
            lens.push(len);
        }
        buffers.hold(&lens);
        if self.has_more() {
            self.pace.leave_waiting(now);
        }
        Ok(())
    }

    pub(super) fn has_more(&self) -> bool {
        !self.in_hand.is_empty() || !self.scheduler.is_empty()
    }

    pub(super) fn counters(&self) -> PerClass<Counters> {
        PerClass::from_fn(|class| self.scheduler.counters(class))
    }

    /// Reads what the lines have room for, the most urgent class first.
    fn take_in(
        &mut self,
        tun: &Tun,
        now: Instant,
        dropped: &mut dyn FnMut(DropReason, &[u8]),
    ) -> io::Result<()> {
        let Self { classifier, flows, scheduler, lines, .. } = self;
        for ((at, line), queue) in (0u8..).zip(lines).zip(tun.queues()) {
            while let Some(place) = line.take_from(queue)? {
                let packet = line.packet(place);
                // Once more, for the kernel may have been wrong, or have one queue only.
                let (class, flow) = Overview::of(packet).map_or((Class::Standard, 0), |overview| {
                    (classifier.classify(&overview), flows.of(&overview.key, None))
                });
                let spot = Spot { line: at, place };
                if let Err(refused) = scheduler.offer(now, class, flow, packet.len(), spot) {
                    dropped(reason(refused.refusal), packet);
                    line.release(place);
                }
            }
        }
        Ok(())
    }

    /// Cuts the next packet; answers its length.
    fn next(
        &mut self,
        out: &mut [u8],
        now: Instant,
        dropped: &mut dyn FnMut(DropReason, &[u8]),
    ) -> Option<usize> {
        let Self { scheduler, lines, in_hand, .. } = self;
        let late = |_, spot: Spot| {
            if let Some(line) = lines.get_mut(usize::from(spot.line)) {
                dropped(DropReason::QueueLate, line.packet(spot.place));
                line.release(spot.place);
            }
        };
        let takes = in_hand.is_empty() || !in_hand.is_full() && scheduler.has_urgent(now);
        let taken = if takes { scheduler.take(now, late).map(|(_, spot)| spot) } else { None };
        in_hand.extend(taken);
        let spot = *in_hand.last()?;
        let line = lines.get_mut(usize::from(spot.line))?;
        let place = line.places.get_mut(usize::from(spot.place))?;
        let is_new = taken.is_some();
        let len = if is_new { place.cutter.first(place.len, out) } else { place.cutter.next(out) };
        if !place.cutter.has_more() {
            in_hand.pop();
            line.release(spot.place);
        }
        // What is not understood is a packet of no bytes, which the data path counts.
        Some(len.unwrap_or(0))
    }
}

impl Line {
    fn new() -> Self {
        Self {
            places: (0..PLACES).map(|_| Place { cutter: Cutter::new(), len: 0 }).collect(),
            free: (0..PLACES as u8).rev().collect(),
            bytes: 0,
            is_dry: false,
        }
    }

    /// Takes a packet out of the queue, if there is one and room for it; answers where it is.
    fn take_from(&mut self, queue: &Queue) -> io::Result<Option<u8>> {
        if self.is_dry || self.bytes >= WINDOW {
            return Ok(None);
        }
        let Some(at) = self.free.last().copied() else { return Ok(None) };
        let Some(place) = self.places.get_mut(usize::from(at)) else { return Ok(None) };
        let Some(len) = queue.take(place.cutter.space())? else {
            self.is_dry = true;
            return Ok(None);
        };
        place.len = len;
        self.bytes = self.bytes.saturating_add(len);
        self.free.pop();
        Ok(Some(at))
    }

    /// The packet in a place, uncut.
    fn packet(&self, place: u8) -> &[u8] {
        self.places
            .get(usize::from(place))
            .and_then(|place| place.cutter.whole(place.len))
            .unwrap_or_default()
    }

    fn release(&mut self, place: u8) {
        let len = self.places.get(usize::from(place)).map_or(0, |place| place.len);
        self.bytes = self.bytes.saturating_sub(len);
        self.free.push(place);
    }
}

fn reason(refusal: Refusal) -> DropReason {
    match refusal {
        Refusal::Full => DropReason::QueueFull,
        Refusal::TooLong => DropReason::QueueTooLong,
    }
}

#[cfg(test)]
mod tests;
