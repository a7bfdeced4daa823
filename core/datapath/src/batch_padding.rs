//! Padding of packets that wait together to one length, so that the caller can send them as one batch.
//!
//! Segmentation offload of UDP (GSO) takes many packets in one call, if all have the same length. Packets of
//! many flows rarely have. ESP allows 255 bytes of padding in each packet (RFC 4303 section 2.4), and every
//! receiver removes it.
//!
//! Packets are padded if at least [`MIN_PACKETS`] for one SA are sealed together, with UDP encapsulation and
//! the same fields in the outer header. A single packet is never padded, and no packet becomes longer than
//! the longest one that passed the path of the SA. The order of the packets does not change.

use crate::encapsulation::{Encapsulation, Overhead};
use crate::esp::MAX_BATCH;
use crate::sealing::OutboundPacket;
use arrayvec::ArrayVec;
use casemate_wire::esp::MAX_PAD_LEN;
use casemate_wire::packet::Packet;

/// Fewest neighbouring packets that are padded.
const MIN_PACKETS: usize = 8;
/// Padding in bytes that an SA may save up for later packets.
const MAX_CREDIT: usize = 64 << 10;

/// How much packets may be padded to one length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchPadding {
    /// Padding in percent of the bytes that the packets of an SA have without it, at most, on average.
    pub max_percent: u8,
    /// TTL of the outer headers that the caller's batches have. SAs with another one are not padded.
    pub ttl: u8,
}

/// Number of packets that were padded to the length of others, and bytes of that padding. A packet whose
/// buffer had no room for it is counted, too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PaddingCounters {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

impl PaddingCounters {
    pub(crate) fn add(&mut self, more: Self) {
        self.packets = self.packets.saturating_add(more.packets);
        self.bytes = self.bytes.saturating_add(more.bytes);
    }
}

/// State of an outbound SA.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PaddingState {
    /// Length of the packets that were padded last. Later packets get the same length if they can, so that
    /// they fit the same batch.
    target: usize,
    /// Bytes of padding that are still allowed.
    credit: usize,
}

/// The settings and the function that applies them. Devices that never set them do not link the function.
#[derive(Clone, Copy)]
pub(crate) struct BatchPlanner {
    padding: BatchPadding,
    plan: PlanFn,
}

type PlanFn = fn(
    BatchPadding,
    &mut PaddingState,
    &Encapsulation,
    usize,
    &[Packet<'_>],
    &mut [OutboundPacket],
) -> PaddingCounters;

impl BatchPlanner {
    pub(crate) fn new(padding: BatchPadding) -> Self {
        Self { padding, plan: BatchPadding::plan }
    }

    /// Decides how much the packets of a run are padded. Packets must not become longer than `mtu`.
    #[inline]
    pub(crate) fn plan(
        self,
        state: &mut PaddingState,
        encapsulation: &Encapsulation,
        mtu: usize,
        packets: &[Packet<'_>],
        records: &mut [OutboundPacket],
    ) -> PaddingCounters {
        (self.plan)(self.padding, state, encapsulation, mtu, packets, records)
    }
}

/// Neighbouring packets that one length would fit.
#[derive(Clone, Copy)]
struct Group {
    count: usize,
    min: usize,
    max: usize,
    sum: usize,
}

impl BatchPadding {
    fn plan(
        self,
        state: &mut PaddingState,
        encapsulation: &Encapsulation,
        mtu: usize,
        packets: &[Packet<'_>],
        records: &mut [OutboundPacket],
    ) -> PaddingCounters {
        let mut counters = PaddingCounters::default();
        if records.len() < MIN_PACKETS || !encapsulation.may_pad_batches(self.ttl) {
            return counters;
        }
        let overhead = &encapsulation.overhead;
        let mut lens: ArrayVec<usize, MAX_BATCH> = ArrayVec::new();
        lens.extend(packets.iter().take(MAX_BATCH).map(|packet| overhead.sealed_len(packet.len())));
        let (mut lens, mut records) = (lens.as_slice(), records);
        while let Some(group) = Group::leading(lens, records, encapsulation) {
            let Some((group_lens, other_lens)) = lens.split_at_checked(group.count) else { break };
            let Some((group_records, others)) = records.split_at_mut_checked(group.count) else { break };
            if let Some(target) = self.target(state, group, mtu) {
                for (len, record) in group_lens.iter().zip(group_records) {
                    let padding = target.saturating_sub(*len);
                    record.batch_padding = u8::try_from(padding).unwrap_or(0);
                    counters.packets = counters.packets.saturating_add(u64::from(padding > 0));
                    counters.bytes = counters.bytes.saturating_add(padding as u64);
                }
            }
            (lens, records) = (other_lens, others);
        }
        counters
    }

    /// The common length for a group, if it is to be padded.
    fn target(self, state: &mut PaddingState, group: Group, mtu: usize) -> Option<usize> {
        let Group { count, min, max, sum } = group;
        let earned = sum.saturating_mul(self.max_percent.into()) / 100;
        state.credit = state.credit.saturating_add(earned).min(MAX_CREDIT);
        if count < MIN_PACKETS || min == max {
            return None;
        }
        let padding = |target: usize| target.saturating_mul(count).saturating_sub(sum);
        let is_possible = |target: &usize| {
            *target >= max && *target <= mtu && group.fits(*target) && padding(*target) <= state.credit
        };
        let target = [state.target, max].into_iter().find(is_possible)?;
        state.target = target;
        state.credit = state.credit.saturating_sub(padding(target));
        Some(target)
    }
}

impl Group {
    /// The leading packets that one length would fit; `None` if there are no packets.
    fn leading(lens: &[usize], records: &[OutboundPacket], encapsulation: &Encapsulation) -> Option<Self> {
        let (first, &len) = (records.first()?, lens.first()?);
        let mut group = Self { count: 1, min: len, max: len, sum: len };
        if !first.may_be_padded() {
            return Some(group);
        }
        let fields = |record: &OutboundPacket| {
            (encapsulation.outer.tos(&record.header), encapsulation.outer.df(&record.header))
        };
        let first_fields = fields(first);
        for (&len, record) in lens.iter().zip(records).skip(1) {
            let wider = group.with(len);
            let joins = record.may_be_padded() && fields(record) == first_fields && wider.fits(wider.max);
            if !joins {
                break;
            }
            group = wider;
        }
        Some(group)
    }

    fn with(self, len: usize) -> Self {
        let Self { count, min, max, sum } = self;
        let (count, sum) = (count.saturating_add(1), sum.saturating_add(len));
        Self { count, min: min.min(len), max: max.max(len), sum }
    }

    /// Whether the shortest packet can be padded to `target`.
    fn fits(self, target: usize) -> bool {
        target.saturating_sub(self.min) <= Overhead::MAX_BATCH_PADDING
    }
}

impl Overhead {
    /// Most padding in bytes besides what the alignment needs, which is less than 16 bytes.
    pub(crate) const MAX_BATCH_PADDING: usize = MAX_PAD_LEN - 15;
}

impl OutboundPacket {
    /// Whether the packet leaves in one piece, with a header that depends on its SA and on `header` only.
    #[inline]
    fn may_be_padded(&self) -> bool {
        self.chain.is_some() && self.fragment_to.is_none()
    }
}
