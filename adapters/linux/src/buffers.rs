//! Memory for one batch of packets, made once.

use crate::BATCH;
use arrayvec::ArrayVec;
use casemate_datapath::{HEAD_ROOM, TAIL_ROOM};
use casemate_wire::packet::Packet;

/// The longest IP packet.
pub(crate) const MAX_PACKET: usize = 65_535;
/// Traffic-flow padding grows packets beyond the usual room behind them.
const PADDING_ROOM: usize = 1_536;
/// Space of one packet. Not a multiple of the page, so that packets do not fight for the same cache lines.
const STRIDE: usize = HEAD_ROOM + MAX_PACKET + TAIL_ROOM + PADDING_ROOM + 1;

/// Buffers for [`BATCH`] packets of any length, with head room and tail room.
#[derive(Debug)]
pub struct Buffers(Box<[u8]>);

impl Buffers {
    /// Allocates them.
    pub fn new() -> Self {
        Self(vec![0; STRIDE * BATCH].into_boxed_slice())
    }

    /// Where received packets go, each with head room in front.
    #[inline]
    pub(crate) fn slices(&mut self) -> ArrayVec<&mut [u8], BATCH> {
        let chunks = self.0.chunks_exact_mut(STRIDE).take(BATCH);
        chunks.filter_map(|chunk| chunk.get_mut(HEAD_ROOM..HEAD_ROOM + MAX_PACKET)).collect()
    }

    /// The first `lens.len()` buffers as packets of these lengths.
    #[inline]
    pub(crate) fn packets(&mut self, lens: &[usize]) -> ArrayVec<Packet<'_>, BATCH> {
        let chunks = self.0.chunks_exact_mut(STRIDE).zip(lens).take(BATCH);
        chunks.filter_map(|(chunk, &len)| Packet::new(chunk, HEAD_ROOM, len)).collect()
    }
}

impl Default for Buffers {
    fn default() -> Self {
        Self::new()
    }
}
