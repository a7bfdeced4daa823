//! Has the kernel write the packets of a super-packet where they are wanted: each payload into a buffer of its own, so that it is not
//! copied once more. Where they are, has to be said before it is known how long they are; so it is said of the next what the last was like.
//!
//! ```text
//!  buffer 0    ... | header (VnetHeader) | headers | payload |
//!  buffer 1    ...                       |         | payload |     headers are written by us afterwards
//!  buffer 2    ...                       |         | payload |
//!  the cutter's space                                        | what did not fit |
//! ```
//!
//! What is not as it was foreseen is put together there, and cut.

use super::Cutter;
use super::header::{HEADER_LEN, VnetHeader};
use super::stamp::{Stamp, finish_alone};
use crate::BATCH;
use crate::buffers::{Buffers, MAX_PACKET};
use arrayvec::ArrayVec;
use casemate_datapath::HEAD_ROOM;
use std::io::{self, IoSliceMut};

/// Where the kernel's header begins.
const FRONT: usize = HEAD_ROOM - HEADER_LEN;
/// After so many packets in a row that stand for themselves alone, no others are foreseen.
const SINGLES: usize = 16;
/// Buffers for one super-packet at most: a batch has room for two.
const MOST: usize = BATCH / 2;

/// What the kernel writes with one read: a buffer each for its packets, and the cutter's space.
pub(crate) type Vectors<'b> = ArrayVec<IoSliceMut<'b>, { MOST + 1 }>;
/// The lengths of the packets in the first buffers of a batch.
pub(crate) type Lens = ArrayVec<usize, BATCH>;

/// Where packets land.
#[derive(Debug)]
pub(crate) struct Landing {
    cutter: Cutter,
    shape: Shape,
    /// How many stood for themselves alone since one stood for many.
    singles: usize,
}

/// What a super-packet is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    /// The length of its headers.
    head: usize,
    /// The payload of each packet.
    size: usize,
    /// How many packets there may be.
    count: usize,
}

impl Shape {
    /// One packet, of any length.
    const SINGLE: Self = Self { head: 0, size: MAX_PACKET, count: 1 };

    /// As a super-packet was. One of too many packets is better cut.
    fn of(Stamp { layout, size, .. }: &Stamp) -> Self {
        let count = MAX_PACKET.saturating_sub(layout.payload_at).div_ceil((*size).max(1));
        if count > MOST { Self::SINGLE } else { Self { head: layout.payload_at, size: *size, count } }
    }

    /// How many bytes land in the first buffer.
    fn first(&self) -> usize {
        self.head.saturating_add(self.size)
    }

    /// Where the bytes of a read land in its buffers: from where to where in which, counted from the first.
    fn places(&self) -> impl Iterator<Item = (usize, usize)> {
        let others = (HEAD_ROOM.saturating_add(self.head), HEAD_ROOM.saturating_add(self.first()));
        (0..self.count).map(move |at| (if at == 0 { FRONT } else { others.0 }, others.1))
    }
}

impl Landing {
    pub(crate) fn new() -> Self {
        Self { cutter: Cutter::new(), shape: Shape::SINGLE, singles: 0 }
    }

    /// Whether there is more of what was read last.
    pub(crate) fn has_more(&self) -> bool {
        self.cutter.has_more()
    }

    /// Whether what comes next may need more buffers than are left.
    pub(crate) fn is_short_of(&self, left: usize) -> bool {
        left == 0 || !self.has_more() && self.shape.count > left
    }

    /// Puts packets into the buffers behind those that are taken: more of what was read last, or else what `read` answers that it has
    /// written into the vectors. Answers whether there were any.
    pub(crate) fn take(
        &mut self,
        buffers: &mut Buffers,
        lens: &mut Lens,
        read: impl FnOnce(&mut [IoSliceMut<'_>]) -> io::Result<Option<usize>>,
    ) -> io::Result<bool> {
        let is_new = !self.has_more();
        let mut len = 0;
        if is_new {
            let Some(came) = read(&mut self.vectors(buffers, lens.len()))? else { return Ok(false) };
            if self.land(buffers, lens, came).is_some() {
                return Ok(true);
            }
            self.gather(buffers, lens.len(), came);
            len = came;
        }
        let out = buffers
            .chunks(lens.len())
            .next()
            .and_then(|chunk| chunk.get_mut(HEAD_ROOM..))
            .unwrap_or_default();
        let cut = if is_new { self.cutter.first(len, out) } else { self.cutter.next(out) };
        // What is not understood is a packet of no bytes, which the data path counts.
        lens.push(cut.unwrap_or(0));
        if let Some(stamp) = self.cutter.stamp().filter(|_| is_new) {
            (self.shape, self.singles) = (Shape::of(stamp), 0);
        }
        Ok(true)
    }

    fn vectors<'b>(&'b mut self, buffers: &'b mut Buffers, at: usize) -> Vectors<'b> {
        let chunks = buffers.chunks(at).zip(self.shape.places());
        let chunks = chunks.filter_map(|(chunk, (from, to))| chunk.get_mut(from..to));
        chunks.chain([self.cutter.space()]).map(IoSliceMut::new).collect()
    }

    /// Makes packets of what has landed as it was foreseen.
    fn land(&mut self, buffers: &mut Buffers, lens: &mut Lens, len: usize) -> Option<()> {
        let Shape { head, size, count } = self.shape;
        let (at, len) = (lens.len(), len.checked_sub(HEADER_LEN)?);
        let mut chunks = buffers.chunks(at);
        let (header, packet) = chunks.next()?.get_mut(FRONT..)?.split_first_chunk_mut::<HEADER_LEN>()?;
        let packet = packet.get_mut(..len.min(self.shape.first()))?;
        let header = VnetHeader::parse(header)?;
        if header.segments.is_none() {
            if packet.len() < len {
                return None;
            }
            self.note_single();
            lens.push(if finish_alone(&header, packet).is_some() { len } else { 0 });
            return Some(());
        }
        let stamp = Stamp::of(&header, packet, len)?;
        let is_foreseen = (stamp.layout.payload_at, stamp.size) == (head, size)
            && stamp.count() <= count.min(BATCH.saturating_sub(at));
        if !is_foreseen {
            return None;
        }
        self.singles = 0;
        let original: ArrayVec<u8, { HEAD_ROOM }> = packet.get(..head)?.iter().copied().collect();
        lens.push(stamp.finish(0, packet).map_or(0, |()| packet.len()));
        for (index, chunk) in (1..stamp.count()).zip(chunks) {
            let len = stamp.len(index);
            let Some(out) = chunk.get_mut(HEAD_ROOM..).and_then(|out| out.get_mut(..len)) else { break };
            out.iter_mut().zip(&original).for_each(|(out, byte)| *out = *byte);
            lens.push(stamp.finish(index, out).map_or(0, |()| len));
        }
        Some(())
    }

    fn note_single(&mut self) {
        self.singles = self.singles.saturating_add(1);
        if self.singles >= SINGLES {
            self.shape = Shape::SINGLE;
        }
    }

    /// Puts together in the cutter's space what has landed in pieces.
    fn gather(&mut self, buffers: &mut Buffers, at: usize, len: usize) {
        let space = self.cutter.space();
        let fits =
            self.shape.places().fold(0usize, |sum, (from, to)| sum.saturating_add(to.saturating_sub(from)));
        space.copy_within(..len.saturating_sub(fits), fits.min(len));
        let mut rest = space.get_mut(..len).unwrap_or_default();
        for (chunk, (from, to)) in buffers.chunks(at).zip(self.shape.places()) {
            let piece = chunk.get(from..to).unwrap_or_default();
            let (out, behind) = rest.split_at_mut(piece.len().min(rest.len()));
            out.copy_from_slice(piece.get(..out.len()).unwrap_or_default());
            rest = behind;
        }
    }
}
