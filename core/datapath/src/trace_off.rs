//! What the packet path sees of the trace without the Cargo feature `trace`: nothing. The types have no
//! fields and the functions no code, so that devices do not pay for it.

use crate::opening::InboundBatch;
use crate::sealing::OutboundBatch;
use crate::{Datapath, DropReason, Inbound, Outbound};
use casemate_sa::Instant;
use casemate_wire::packet::Packet;

/// No trace.
pub(crate) struct Tracer;

impl Tracer {
    pub(crate) const OFF: Self = Self;
}

/// No outgoing packets.
pub(crate) struct TracedPackets;

impl TracedPackets {
    pub(crate) const NONE: Self = Self;

    #[inline(always)]
    pub(crate) fn clear(&mut self) {}
}

/// No incoming packets.
pub(crate) struct Arrivals;

impl Arrivals {
    pub(crate) const NONE: Self = Self;

    #[inline(always)]
    pub(crate) fn clear(&mut self) {}
}

impl Datapath {
    #[inline(always)]
    pub(crate) fn trace_unframed(&mut self, _: Instant, _: &[Packet<'_>], _: &mut OutboundBatch) {}

    #[inline(always)]
    pub(crate) fn trace_framed(&mut self, _: Instant, _: &[Packet<'_>], _: &OutboundBatch) {}

    #[inline(always)]
    pub(crate) fn trace_outbound_verdicts(
        &mut self,
        _: Instant,
        _: &[Packet<'_>],
        _: &OutboundBatch,
        _: &[Outbound],
    ) {
    }

    #[inline(always)]
    pub(crate) fn trace_arrivals(&self, _: &[Packet<'_>], _: &mut InboundBatch) {}

    #[inline(always)]
    pub(crate) fn trace_inbound_verdicts(
        &mut self,
        _: Instant,
        _: &[Packet<'_>],
        _: &InboundBatch,
        _: &[Inbound],
    ) {
    }

    #[inline(always)]
    pub(crate) fn trace_reassembled(&mut self, _: Instant, _: &[u8], _: &Inbound) {}

    #[inline(always)]
    pub(crate) fn trace_recorded_drop(&mut self, _: Instant, _: DropReason, _: &[u8]) {
        // The only use of the field, which has no size.
        let Tracer = &self.tracer;
    }
}
