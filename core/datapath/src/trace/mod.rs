//! Trace of single packets: which steps a packet passes, with the facts of each step, and its verdict.
//!
//! A trace begins with [`Datapath::start_trace`] and records the packets that match its [`TraceFilter`]. The
//! caller reads the records with [`Datapath::next_trace_record`]. The packet path itself records nothing: a
//! batch is looked at before and after its steps, under the exclusive access that these steps need anyway, so
//! a data path without a trace pays for one branch per batch and step. What happens between the steps
//! (sealing and opening) follows from their results.
//!
//! The module exists with the Cargo feature `trace` only; devices do without its code. Records contain
//! headers, and neither keys nor payload.

mod filter;
mod inbound;
mod outbound;
mod session;
mod step;

pub use filter::TraceFilter;
pub use session::{RECORD_LIMIT, TraceSummary};
pub use step::{InnerPacket, OuterPacket, PolicyFinding, SizeFacts, TraceRecord, TraceStep, Transmission};

pub(crate) use inbound::Arrivals;
pub(crate) use outbound::TracedPackets;
pub(crate) use session::Tracer;

use crate::{Datapath, DropReason};
use casemate_sa::Instant;
use session::{PacketKey, Session};

/// A trace is already running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceIsRunning;

impl core::fmt::Display for TraceIsRunning {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("a trace is already running")
    }
}

impl core::error::Error for TraceIsRunning {}

impl Datapath {
    /// Traces the next `packets` packets that match `filter`. Allocates room for [`RECORD_LIMIT`] records.
    pub fn start_trace(&mut self, filter: TraceFilter, packets: u32) -> Result<(), TraceIsRunning> {
        if self.tracer.is_on() {
            return Err(TraceIsRunning);
        }
        self.tracer = Tracer::on(Session::new(filter, packets));
        Ok(())
    }

    /// Ends the trace and frees its memory. Unread records are lost. Returns what it has seen; `None` if no
    /// trace is running.
    pub fn stop_trace(&mut self) -> Option<TraceSummary> {
        self.tracer.take().map(|session| session.summary())
    }

    /// What the running trace has seen so far; `None` if no trace is running.
    pub fn trace_summary(&self) -> Option<TraceSummary> {
        self.tracer.session().map(Session::summary)
    }

    /// Removes and returns the oldest unread record.
    pub fn next_trace_record(&mut self) -> Option<TraceRecord> {
        self.tracer.session_mut()?.pop()
    }

    /// Whether there are unread records.
    pub fn has_trace_records(&self) -> bool {
        self.tracer.session().is_some_and(Session::has_records)
    }

    /// Whether a trace is running.
    #[inline]
    pub fn is_tracing(&self) -> bool {
        self.tracer.is_on()
    }

    /// Reports that the caller has sent this packet, which begins with its outer IP header. For callers that
    /// want the way of each packet in the trace; a packet that was not traced is ignored.
    pub fn trace_sent(&mut self, now: Instant, packet: &[u8], by: Transmission) {
        if let Some(session) = self.tracer.session_mut()
            && let Some(id) = PacketKey::of(packet).and_then(|key| session.take_waiting(&key))
        {
            session.push(id, now, TraceStep::Sent(by));
        }
    }

    /// Records a drop outside of the steps of a batch: before them (scheduler, reassembly), or after them
    /// (sending).
    #[inline]
    pub(crate) fn trace_recorded_drop(&mut self, now: Instant, reason: DropReason, packet: &[u8]) {
        if let Some(session) = self.tracer.session_mut() {
            session.record_drop(now, reason, packet);
        }
    }
}
