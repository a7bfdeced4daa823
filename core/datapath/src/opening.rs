//! Incoming packets between the replay check and the commit, when ESP verifies and decrypts them.
//!
//! Nothing here knows the data path: an [`Opening`] goes to whatever thread has time for it. Neighbours with the same SA make
//! a run and reach the provider in one call.

use crate::arrival::Arriving;
use crate::esp::{self, EspKey, RUN, SPARE};
use crate::places::Places;
use crate::replay::Authenticated;
use crate::shared::{Engine, Shared};
use crate::{DropReason, SaId};
use alloc::sync::Arc;
use arrayvec::ArrayVec;
use casemate_wire::packet::Packet;
use core::ops::Range;

/// Room for a batch of incoming packets whose SAs are known and that are to be decrypted; see
/// [`Datapath::begin_inbound`](crate::Datapath::begin_inbound). Made once and used again and again, like
/// [`Sealing`](crate::Sealing).
pub struct Opening {
    pub(crate) batch: Batch,
    pub(crate) places: Places,
}

impl Opening {
    /// Without packets.
    #[inline]
    pub fn new() -> Self {
        Self { batch: Batch::new(), places: Places::new() }
    }

    /// Forgets the packets, and lets go of their keys.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.batch.arriving.clear();
        self.batch.answers.clear();
        self.batch.runs.clear();
        self.places.clear();
    }

    /// Verifies and decrypts the packets, on any thread. `packets` are those that the batch began with, where they were
    /// then; others are left untouched.
    pub fn open(&mut self, packets: &mut [Packet<'_>]) {
        if self.places.are_of(packets) {
            self.batch.open(packets);
        }
    }
}

impl Default for Opening {
    fn default() -> Self {
        Self::new()
    }
}

/// Packets on their way, and the keys that some of them wait for.
pub(crate) struct Batch {
    pub(crate) arriving: ArrayVec<Arriving, RUN>,
    /// What opening said of each packet.
    pub(crate) answers: ArrayVec<Answer, RUN>,
    /// No more than packets, because each has at least one.
    pub(crate) runs: ArrayVec<Run, RUN>,
}

/// Neighbours in a batch to be opened with one SA.
pub(crate) struct Run {
    pub(crate) id: SaId,
    pub(crate) shared: Arc<Shared>,
    pub(crate) range: Range<usize>,
}

/// Whether a packet is what its peer sent.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Nobody has asked yet.
    Pending,
    Forged,
    Proved(Authenticated),
}

impl Batch {
    /// Empty.
    #[inline]
    pub(crate) fn new() -> Self {
        Self { arriving: ArrayVec::new(), answers: ArrayVec::new(), runs: ArrayVec::new() }
    }

    /// Makes room for so many packets, at most [`RUN`].
    #[inline]
    pub(crate) fn expect(&mut self, packets: usize) {
        for _ in 0..packets.min(RUN) {
            self.arriving.push(Arriving::NEW);
            self.answers.push(Answer::Pending);
        }
    }

    #[inline]
    pub(crate) fn open(&mut self, packets: &mut [Packet<'_>]) {
        let Self { arriving, answers, runs } = self;
        for Run { shared, range, .. } in runs {
            // AH is verified when the batch is finished.
            let Engine::Esp(key) = &shared.engine else { continue };
            let packets = packets.get_mut(range.clone()).unwrap_or_default();
            let arriving = arriving.get_mut(range.clone()).unwrap_or_default();
            let answers = answers.get_mut(range.clone()).unwrap_or_default();
            open_esp(key, shared.esn, packets, arriving, answers);
        }
    }
}

/// Opens a run of ESP packets in one call.
#[inline]
fn open_esp(
    key: &EspKey,
    esn: bool,
    packets: &mut [Packet<'_>],
    run: &mut [Arriving],
    answers: &mut [Answer],
) {
    let regions = packets.iter_mut().zip(&mut *run).filter_map(|(packet, arriving)| {
        let region = packet.data_mut().get_mut(arriving.at().saturating_sub(SPARE)..);
        if region.is_none() {
            arriving.stop(DropReason::Truncated);
        }
        Some((region?, arriving.seq()))
    });
    let mut proofs = esp::open(key, esn, regions).into_iter();
    for (_, answer) in run.iter().zip(answers).filter(|(arriving, _)| arriving.slot().is_some()) {
        *answer = proofs.next().flatten().map_or(Answer::Forged, Answer::Proved);
    }
}
