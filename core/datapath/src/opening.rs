//! Inbound batches between the replay check and the commit, while ESP verifies and decrypts them.
//!
//! This module does not use the data path: any thread may process an [`OpenBatch`]. Neighbours with the same
//! SA form a run, and one call to the provider opens a run.

use crate::demux::InboundPacket;
use crate::esp::{self, EspKey, MAX_BATCH, OpenOutcome, RUN_IN_BATCH, SPARE, ToOpen};
use crate::sa::{ProtocolKey, SaKeys};
use crate::sealing::BatchPackets;
use crate::trace::Arrivals;
use crate::{DropReason, SaId};
use alloc::sync::Arc;
use arrayvec::ArrayVec;
use casemate_wire::invariant::OrBroken;
use casemate_wire::packet::Packet;
use core::ops::Range;

/// A batch of incoming packets whose SAs are known and that are ready for decryption; see
/// [`Datapath::begin_inbound`](crate::Datapath::begin_inbound). Keep and reuse it, as with
/// [`SealBatch`](crate::SealBatch).
pub struct OpenBatch {
    pub(crate) batch: InboundBatch,
    pub(crate) packets: BatchPackets,
}

impl OpenBatch {
    /// An empty batch.
    #[inline]
    pub fn new() -> Self {
        Self { batch: InboundBatch::new(), packets: BatchPackets::new() }
    }

    /// Removes the packets and releases their keys.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.batch.records.clear();
        self.batch.outcomes.clear();
        self.batch.runs.clear();
        self.batch.arrivals.clear();
        self.packets.clear();
    }

    /// Verifies and decrypts the packets, on any thread. `packets` must be the packets that the batch began
    /// with, in the same buffers; other packets stay untouched.
    pub fn open(&mut self, packets: &mut [Packet<'_>]) {
        if self.packets.matches(packets) {
            self.batch.open(packets);
        }
    }
}

impl Default for OpenBatch {
    fn default() -> Self {
        Self::new()
    }
}

/// States of the packets, and the keys of those that wait for decryption.
pub(crate) struct InboundBatch {
    pub(crate) records: ArrayVec<InboundPacket, MAX_BATCH>,
    /// Result of opening each packet.
    pub(crate) outcomes: ArrayVec<OpenOutcome, MAX_BATCH>,
    /// At most one run for each packet.
    pub(crate) runs: ArrayVec<InboundRun, MAX_BATCH>,
    pub(crate) arrivals: Arrivals,
}

/// Neighbours in a batch that are opened with one SA.
pub(crate) struct InboundRun {
    pub(crate) id: SaId,
    pub(crate) keys: Arc<SaKeys>,
    pub(crate) range: Range<usize>,
}

impl InboundBatch {
    /// An empty batch.
    #[inline]
    pub(crate) fn new() -> Self {
        Self {
            records: ArrayVec::new(),
            outcomes: ArrayVec::new(),
            runs: ArrayVec::new(),
            arrivals: Arrivals::NONE,
        }
    }

    /// Adds states for `packets` packets, at most [`MAX_BATCH`].
    #[inline]
    pub(crate) fn prepare(&mut self, packets: usize) {
        let packets = packets.min(MAX_BATCH);
        self.records.extend((0..packets).map(|_| InboundPacket::NEW));
        self.outcomes.extend((0..packets).map(|_| OpenOutcome::Pending));
    }

    #[inline]
    pub(crate) fn open(&mut self, packets: &mut [Packet<'_>]) {
        let Self { records, outcomes, runs, .. } = self;
        for InboundRun { keys, range, .. } in runs {
            // AH is verified when the batch is finished.
            let ProtocolKey::Esp(key) = &keys.key else { continue };
            let packets = packets.get_mut(range.clone()).or_broken_default(RUN_IN_BATCH);
            let records = records.get_mut(range.clone()).or_broken_default(RUN_IN_BATCH);
            let outcomes = outcomes.get_mut(range.clone()).or_broken_default(RUN_IN_BATCH);
            open_esp(key, keys.esn, packets, records, outcomes);
        }
    }
}

/// Opens a run of ESP packets in one call.
#[inline]
fn open_esp(
    key: &EspKey,
    esn: bool,
    packets: &mut [Packet<'_>],
    run: &mut [InboundPacket],
    outcomes: &mut [OpenOutcome],
) {
    let run = packets.iter_mut().zip(run).zip(outcomes).filter_map(|((packet, record), outcome)| {
        record.slot()?; // The replay check may have dropped the packet.
        let region = packet.data_mut_from(record.header_at().saturating_sub(SPARE));
        if region.is_none() {
            record.set_drop(DropReason::Truncated);
        }
        Some(ToOpen { region: region?, seq: record.seq(), outcome })
    });
    esp::open(key, esn, run);
}
