//! A running trace: its filter, how many packets it still takes, and its unread records.

use super::filter::TraceFilter;
use super::step::{InnerPacket, OuterPacket, TraceRecord, TraceStep};
use crate::DropReason;
use crate::esp::MAX_BATCH;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use arrayvec::ArrayVec;
use casemate_sa::{Instant, Protocol};
use casemate_wire::flow::FlowKey;

/// Largest number of unread records. A packet has about ten.
pub const RECORD_LIMIT: usize = 1_024;

/// Number of unread records up to which further packets are traced. The rest is for the later steps of
/// packets that are on their way, so that the records of a packet are complete.
const BEGIN_LIMIT: usize = RECORD_LIMIT / 2;

/// Largest number of traced packets whose sending or delivery may still be reported. A further packet
/// replaces the oldest.
const WAITING_LIMIT: usize = 256;

/// The running trace, if there is one.
pub(crate) struct Tracer(Option<Box<Session>>);

impl Tracer {
    pub(crate) const OFF: Self = Self(None);

    pub(super) fn on(session: Session) -> Self {
        Self(Some(Box::new(session)))
    }

    #[inline]
    pub(crate) const fn is_on(&self) -> bool {
        self.0.is_some()
    }

    pub(super) fn take(&mut self) -> Option<Box<Session>> {
        self.0.take()
    }

    /// Continues a trace that was taken out for a moment.
    pub(super) fn put_back(&mut self, session: Box<Session>) {
        self.0 = Some(session);
    }

    pub(super) fn session(&self) -> Option<&Session> {
        self.0.as_deref()
    }

    #[inline]
    pub(super) fn session_mut(&mut self) -> Option<&mut Session> {
        self.0.as_deref_mut()
    }
}

/// What the trace keeps about the packets of a batch until the batch has passed; nothing while no trace runs.
pub(crate) struct BatchList<T>(Option<Box<ArrayVec<T, MAX_BATCH>>>);

impl<T> BatchList<T> {
    pub(crate) const NONE: Self = Self(None);

    /// The first of these items, as many as a batch has packets.
    pub(super) fn of(items: impl IntoIterator<Item = T>) -> Self {
        Self(Some(Box::new(items.into_iter().take(MAX_BATCH).collect())))
    }

    #[inline]
    pub(super) fn get(&self) -> Option<&[T]> {
        self.0.as_deref().map(ArrayVec::as_slice)
    }

    /// Forgets the packets.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.0 = None;
    }
}

/// What a trace has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TraceSummary {
    /// Traced packets.
    pub packets: u32,
    /// Packets that the trace still takes.
    pub left: u32,
    /// Packets that match and were not traced, because too many records were unread.
    pub missed: u64,
    /// Records that were lost because too many were unread.
    pub lost_records: u64,
    /// Incoming packets that were dropped before decryption, so that it is unknown whether they match.
    pub undecided: u64,
}

/// A running trace.
pub(super) struct Session {
    pub(super) filter: TraceFilter,
    summary: TraceSummary,
    records: VecDeque<TraceRecord>,
    /// Packets that are on their way to the network or to the host.
    waiting: VecDeque<(PacketKey, u32)>,
}

/// Recognizes a packet after its last step in the data path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PacketKey {
    /// Protocol, SPI and sequence number.
    Protected(Protocol, u32, u32),
    Clear(FlowKey),
}

impl PacketKey {
    /// The key of a packet; `None` if its headers do not parse.
    pub(super) fn of(packet: &[u8]) -> Option<Self> {
        match OuterPacket::of(packet).and_then(|outer| outer.header) {
            Some(header) => Some(Self::Protected(header.protocol, header.spi, header.seq)),
            None => FlowKey::parse(packet).ok().map(Self::Clear),
        }
    }
}

impl Session {
    pub(super) fn new(filter: TraceFilter, packets: u32) -> Self {
        Self {
            filter,
            summary: TraceSummary { left: packets, ..TraceSummary::default() },
            records: VecDeque::with_capacity(RECORD_LIMIT),
            waiting: VecDeque::with_capacity(WAITING_LIMIT),
        }
    }

    pub(super) const fn summary(&self) -> TraceSummary {
        self.summary
    }

    /// The number of one more traced packet; `None` if the trace takes no more, or too many records are
    /// unread.
    pub(super) fn next_packet(&mut self) -> Option<u32> {
        let left = self.summary.left.checked_sub(1)?;
        if self.records.len() >= BEGIN_LIMIT {
            self.summary.missed = self.summary.missed.saturating_add(1);
            return None;
        }
        self.summary.left = left;
        self.summary.packets = self.summary.packets.saturating_add(1);
        Some(self.summary.packets)
    }

    /// Whether the trace takes more packets.
    pub(super) const fn takes_more(&self) -> bool {
        self.summary.left > 0
    }

    pub(super) fn count_undecided(&mut self) {
        self.summary.undecided = self.summary.undecided.saturating_add(1);
    }

    pub(super) fn push(&mut self, packet: u32, at: Instant, step: TraceStep) {
        if self.records.len() < RECORD_LIMIT {
            self.records.push_back(TraceRecord { packet, at, step });
        } else {
            self.summary.lost_records = self.summary.lost_records.saturating_add(1);
        }
    }

    pub(super) fn pop(&mut self) -> Option<TraceRecord> {
        self.records.pop_front()
    }

    pub(super) fn has_records(&self) -> bool {
        !self.records.is_empty()
    }

    /// Expects a report about this packet.
    pub(super) fn wait_for(&mut self, packet: &[u8], id: u32) {
        let Some(key) = PacketKey::of(packet) else { return };
        if self.waiting.len() >= WAITING_LIMIT {
            self.waiting.pop_front();
        }
        self.waiting.push_back((key, id));
    }

    /// The number of the packet with this key, if a report about it is expected.
    pub(super) fn take_waiting(&mut self, key: &PacketKey) -> Option<u32> {
        let at = self.waiting.iter().position(|(known, _)| known == key)?;
        self.waiting.remove(at).map(|(_, id)| id)
    }

    /// Records a drop outside of a batch.
    #[cold]
    pub(super) fn record_drop(&mut self, now: Instant, reason: DropReason, packet: &[u8]) {
        let known = PacketKey::of(packet).and_then(|key| self.take_waiting(&key));
        if let Some(id) = known {
            return self.push(id, now, TraceStep::Dropped(reason));
        }
        let inner = InnerPacket::of(packet);
        let is_wanted = self.filter.direction.is_none()
            && !self.filter.needs_outer()
            && self.filter.matches_flow(inner.flow.as_ref());
        if is_wanted && let Some(id) = self.next_packet() {
            self.push(id, now, TraceStep::Elsewhere(inner));
            self.push(id, now, TraceStep::Dropped(reason));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_bounded_and_lost_ones_counted() {
        let mut session = Session::new(TraceFilter::default(), 1);
        let id = session.next_packet().unwrap();
        assert_eq!(session.next_packet(), None, "the trace takes one packet");
        for _ in 0..RECORD_LIMIT + 3 {
            session.push(id, Instant::ZERO, TraceStep::Sealed);
        }
        assert_eq!(core::iter::from_fn(|| session.pop()).count(), RECORD_LIMIT);
        let summary = TraceSummary { packets: 1, lost_records: 3, ..TraceSummary::default() };
        assert_eq!(session.summary(), summary);
    }

    #[test]
    fn no_packet_begins_while_many_records_are_unread() {
        let mut session = Session::new(TraceFilter::default(), 9);
        let id = session.next_packet().unwrap();
        for _ in 0..BEGIN_LIMIT {
            session.push(id, Instant::ZERO, TraceStep::Sealed);
        }
        assert_eq!(session.next_packet(), None);
        session.pop();
        assert_eq!(session.next_packet(), Some(2));
        let summary = TraceSummary { packets: 2, left: 7, missed: 1, ..TraceSummary::default() };
        assert_eq!(session.summary(), summary);
    }
}
