//! Packets under way, with what is still to be done with them: whoever has a batch can carry on with it.

use super::door::Ticket;
use crate::BATCH;
use crate::buffers::Buffers;
use arrayvec::ArrayVec;
use casemate_datapath::{Opening, RUN, Sealing};
use casemate_sa::Instant;

/// How many calls of the data path a batch takes.
const RUNS: usize = BATCH.div_ceil(RUN);

/// A batch. Reused, because it is large.
pub(super) struct Batch {
    pub(super) buffers: Buffers,
    /// When it was read.
    pub(super) now: Instant,
    pub(super) task: Task,
    /// Outbound packets that have their numbers, [`RUN`] each.
    pub(super) sealing: ArrayVec<Sealing, RUNS>,
    /// Inbound packets whose SAs are known, [`RUN`] each.
    pub(super) opening: ArrayVec<Opening, RUNS>,
}

/// What is still to be done with a batch.
#[derive(Default)]
pub(super) enum Task {
    #[default]
    Nothing,
    /// Its packets are to be sealed, and sent at the ticket's turn.
    Send(Ticket),
    /// Its packets are to be opened, and delivered at the ticket's turn.
    Deliver(Ticket),
}

impl Batch {
    pub(super) fn new() -> Box<Self> {
        Box::new(Self {
            buffers: Buffers::new(),
            now: Instant::ZERO,
            task: Task::Nothing,
            sealing: ArrayVec::new(),
            opening: ArrayVec::new(),
        })
    }
}
