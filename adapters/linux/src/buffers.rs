//! Buffers for one batch of packets, allocated once.

use crate::BATCH;
use arrayvec::ArrayVec;
use casemate_datapath::{HEAD_ROOM, TAIL_ROOM};
use casemate_wire::invariant::OrBroken;
use casemate_wire::packet::Packet;

/// Longest IP packet, in bytes.
pub(crate) const MAX_PACKET: usize = 65_535;
/// Room for traffic-flow confidentiality padding, beyond the usual tail room.
const PADDING_ROOM: usize = 1_536;
/// Distance of two packets in bytes. Not a multiple of the page size, so that packets do not compete for the
/// same cache lines.
const STRIDE: usize = HEAD_ROOM + MAX_PACKET + TAIL_ROOM + PADDING_ROOM + 1;

/// Buffers for [`BATCH`] packets of any length, with head room and tail room, and the packets in them.
#[derive(Debug)]
pub struct Buffers {
    bytes: Box<[u8]>,
    slots: PacketSlots,
}

/// Positions of the packets of a batch.
pub(crate) type PacketSlots = ArrayVec<PacketSlot, BATCH>;

/// Position of one packet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PacketSlot {
    /// Index of its buffer. The indices increase.
    buffer: usize,
    start: usize,
    len: usize,
}

impl Buffers {
    /// Allocates the buffers. The operating system provides memory only for the pages in use.
    pub fn new() -> Self {
        Self { bytes: vec![0; STRIDE * BATCH].into_boxed_slice(), slots: PacketSlots::new() }
    }

    /// Buffers for received packets, each behind its head room.
    #[inline]
    pub(crate) fn receive_slices(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let chunks = self.bytes.chunks_exact_mut(STRIDE).take(BATCH);
        chunks.filter_map(|chunk| chunk.get_mut(HEAD_ROOM..HEAD_ROOM + MAX_PACKET))
    }

    /// Sets the packets: the first of the [`receive_slices`](Self::receive_slices) hold packets of these
    /// lengths.
    #[inline]
    pub(crate) fn set_lens(&mut self, lens: &[usize]) {
        let slot = |(buffer, len): (usize, &usize)| PacketSlot { buffer, start: HEAD_ROOM, len: *len };
        self.slots.clear();
        self.slots.extend(lens.iter().take(BATCH).enumerate().map(slot));
    }

    /// Keeps only packets for which `wanted` returns `true`.
    pub(crate) fn retain(&mut self, wanted: impl Fn(&[u8]) -> bool) {
        let mut keep = ArrayVec::<_, BATCH>::new();
        self.with_packets(|packets| keep.extend(packets.iter().map(|packet| wanted(packet.data()))));
        let mut keep = keep.into_iter();
        self.slots.retain(|_| keep.next().or_broken("each packet has its decision", false));
    }

    /// Whether there is no packet.
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Whether every buffer has a packet.
    pub(crate) fn is_full(&self) -> bool {
        self.slots.is_full()
    }

    /// Calls `f` with the packets. Changes to their position and length are kept.
    // The packets are built where they are used: returning them would move the room for a whole batch, and
    // for a single packet that goes into a cold cache.
    #[inline]
    pub(crate) fn with_packets<T>(&mut self, f: impl FnOnce(&mut [Packet<'_>]) -> T) -> T {
        let (mut chunks, mut passed) = (self.bytes.chunks_exact_mut(STRIDE), 0);
        let mut place = |slot: &PacketSlot| {
            let chunk = chunks.nth(slot.buffer.checked_sub(passed)?)?;
            passed = slot.buffer.saturating_add(1);
            Packet::new(chunk, slot.start, slot.len)
        };
        let packet = |slot| place(slot).or_report("the buffer has room for the packet");
        let mut packets = ArrayVec::<_, BATCH>::new();
        packets.extend(self.slots.iter().filter_map(packet));
        let result = f(&mut packets);
        for (slot, packet) in self.slots.iter_mut().zip(&packets) {
            (slot.start, slot.len) = (packet.head_room(), packet.len());
        }
        result
    }
}

#[cfg(test)]
impl Buffers {
    /// The bytes of the packets.
    pub(crate) fn contents(&mut self) -> Vec<Vec<u8>> {
        self.with_packets(|packets| packets.iter().map(|packet| packet.data().to_vec()).collect())
    }
}

impl Default for Buffers {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_to_packet_positions_are_kept() {
        let mut buffers = Buffers::new();
        buffers.receive_slices().zip(1..=4).for_each(|(slice, mark)| slice[..10].fill(mark));
        buffers.set_lens(&[10, 9, 8, 7]);
        buffers.retain(|data| data[0] != 2);
        buffers.with_packets(|packets| {
            assert_eq!(packets.len(), 3);
            packets[1].shrink_front(2).unwrap();
            *packets[2].prepend().unwrap() = [9; 4];
        });
        assert_eq!(buffers.contents(), [vec![1; 10], vec![3; 6], vec![9, 9, 9, 9, 4, 4, 4, 4, 4, 4, 4]]);
        buffers.retain(|_| false);
        assert!(buffers.is_empty() && buffers.contents().is_empty());
    }
}
