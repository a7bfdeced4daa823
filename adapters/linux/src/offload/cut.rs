//! Cuts what the kernel hands over in one piece into packets.

use super::header::{HEADER_LEN, VnetHeader};
use super::stamp::{Stamp, finish_alone};
use crate::buffers::MAX_PACKET;

/// A place for what the kernel hands over, and what of it was not asked for yet.
#[derive(Debug)]
pub(crate) struct Cutter {
    bytes: Box<[u8]>,
    rest: Option<Rest>,
}

/// What is left of a packet that stands for many.
#[derive(Debug, Clone, Copy)]
struct Rest {
    stamp: Stamp,
    /// How many packets went before.
    index: usize,
}

impl Cutter {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; HEADER_LEN + MAX_PACKET].into_boxed_slice(), rest: None }
    }

    /// Where the kernel's bytes go. What was left is gone.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        self.rest = None;
        &mut self.bytes
    }

    /// The packet of the `len` bytes that the kernel wrote into [`space`](Self::space), uncut and without the header in front.
    pub(crate) fn whole(&self, len: usize) -> Option<&[u8]> {
        self.bytes.get(HEADER_LEN..len)
    }

    /// Whether there is more of the last packet.
    pub(crate) fn has_more(&self) -> bool {
        self.rest.is_some()
    }

    /// What there is more of.
    pub(super) fn stamp(&self) -> Option<&Stamp> {
        self.rest.as_ref().map(|rest| &rest.stamp)
    }

    /// Writes the first packet of the `len` bytes that the kernel wrote into [`space`](Self::space); answers its length. `None` if they
    /// are no packet that can be understood.
    pub(crate) fn first(&mut self, len: usize, out: &mut [u8]) -> Option<usize> {
        let (header, packet) = self.bytes.get_mut(..len)?.split_first_chunk_mut::<HEADER_LEN>()?;
        let header = VnetHeader::parse(header)?;
        if header.segments.is_none() {
            finish_alone(&header, packet)?;
            let out = out.get_mut(..packet.len())?;
            out.copy_from_slice(packet);
            return Some(out.len());
        }
        self.rest = Some(Rest { stamp: Stamp::of(&header, packet, packet.len())?, index: 0 });
        self.next(out)
    }

    /// Writes the next packet; answers its length, or `None` if there is none.
    pub(crate) fn next(&mut self, out: &mut [u8]) -> Option<usize> {
        let Rest { stamp, index } = self.rest.take()?;
        let packet = self.bytes.get(HEADER_LEN..)?;
        let (head, payload) = (packet.get(..stamp.layout.payload_at)?, packet.get(stamp.payload(index))?);
        let out = out.get_mut(..stamp.len(index))?;
        let (out_head, out_payload) = out.split_at_mut_checked(head.len())?;
        out_head.copy_from_slice(head);
        out_payload.copy_from_slice(payload);
        stamp.finish(index, out)?;
        let index = index.checked_add(1)?;
        self.rest = (index < stamp.count()).then_some(Rest { stamp, index });
        Some(out.len())
    }
}
