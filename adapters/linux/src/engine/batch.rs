//! Packets under way. Each thread has room for one batch.

use crate::BATCH;
use crate::buffers::Buffers;
use casemate_datapath::{Opening, RUN, Sealing};
use casemate_sa::Instant;
use std::array;

/// How many calls of the data path a batch takes.
const RUNS: usize = BATCH.div_ceil(RUN);

/// A batch. Reused, because it is large.
pub(super) struct Batch {
    pub(super) buffers: Buffers,
    /// When it was read.
    pub(super) now: Instant,
    /// Outbound packets that have their numbers, [`RUN`] each.
    pub(super) sealing: [Sealing; RUNS],
    /// Inbound packets whose SAs are known, [`RUN`] each.
    pub(super) opening: [Opening; RUNS],
}

impl Batch {
    pub(super) fn new() -> Box<Self> {
        Box::new(Self {
            buffers: Buffers::new(),
            now: Instant::ZERO,
            sealing: array::from_fn(|_| Sealing::new()),
            opening: array::from_fn(|_| Opening::new()),
        })
    }
}
