//! Memory for one batch of packets, made once, and where in it the packets stand.

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

/// Buffers for [`BATCH`] packets of any length, with head room and tail room, and the packets in them.
#[derive(Debug)]
pub struct Buffers {
    bytes: Box<[u8]>,
    places: Places,
}

/// Where the packets of a batch stand.
pub(crate) type Places = ArrayVec<Place, BATCH>;

/// Where one packet stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// The number of its buffer. Later packets have higher ones.
    buffer: usize,
    start: usize,
    len: usize,
}

impl Buffers {
    /// Allocates them. The system gives memory for what is used.
    pub fn new() -> Self {
        Self { bytes: vec![0; STRIDE * BATCH].into_boxed_slice(), places: Places::new() }
    }

    /// Where received packets go, each with head room in front.
    #[inline]
    pub(crate) fn slices(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let chunks = self.bytes.chunks_exact_mut(STRIDE).take(BATCH);
        chunks.filter_map(|chunk| chunk.get_mut(HEAD_ROOM..HEAD_ROOM + MAX_PACKET))
    }

    /// The first of [`slices`](Self::slices) hold packets of these lengths now.
    #[inline]
    pub(crate) fn hold(&mut self, lens: &[usize]) {
        let place = |(buffer, len): (usize, &usize)| Place { buffer, start: HEAD_ROOM, len: *len };
        self.places = lens.iter().take(BATCH).enumerate().map(place).collect();
    }

    /// Forgets all packets but those whose bytes are wanted.
    pub(crate) fn retain(&mut self, wanted: impl Fn(&[u8]) -> bool) {
        let keep: ArrayVec<bool, BATCH> = self.packets().iter().map(|packet| wanted(packet.data())).collect();
        let mut keep = keep.into_iter();
        self.places.retain(|_| keep.next().unwrap_or(false));
    }

    /// Whether there is no packet.
    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Whether there is no room for another one.
    pub(crate) fn is_full(&self) -> bool {
        self.places.is_full()
    }

    /// The packets, where they stood when they were held or [settled](Self::settle) last.
    #[inline]
    pub(crate) fn packets(&mut self) -> ArrayVec<Packet<'_>, BATCH> {
        let (mut chunks, mut passed) = (self.bytes.chunks_exact_mut(STRIDE), 0);
        let packet = |place: &Place| {
            let chunk = chunks.nth(place.buffer.checked_sub(passed)?)?;
            passed = place.buffer.saturating_add(1);
            Packet::new(chunk, place.start, place.len)
        };
        self.places.iter().filter_map(packet).collect()
    }

    /// Where `packets`, which came from [`packets`](Self::packets), stand by now: for [`settle`](Self::settle).
    pub(crate) fn places_of(packets: ArrayVec<Packet<'_>, BATCH>) -> ArrayVec<(usize, usize), BATCH> {
        packets.iter().take(BATCH).map(|packet| (packet.head_room(), packet.len())).collect()
    }

    /// The packets stand here from now on.
    pub(crate) fn settle(&mut self, moved: &[(usize, usize)]) {
        for (place, (start, len)) in self.places.iter_mut().zip(moved) {
            (place.start, place.len) = (*start, *len);
        }
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
    fn packets_stay_where_they_were_left() {
        let mut buffers = Buffers::new();
        buffers.slices().zip(1..=4).for_each(|(slice, mark)| slice[..10].fill(mark));
        buffers.hold(&[10, 9, 8, 7]);
        buffers.retain(|data| data[0] != 2);
        let mut packets = buffers.packets();
        assert_eq!(packets.len(), 3);
        packets[1].shrink_front(2).unwrap();
        *packets[2].prepend().unwrap() = [9; 4];
        let places = Buffers::places_of(packets);
        buffers.settle(&places);
        let found: Vec<Vec<u8>> = buffers.packets().iter().map(|packet| packet.data().to_vec()).collect();
        assert_eq!(found, [vec![1; 10], vec![3; 6], vec![9, 9, 9, 9, 4, 4, 4, 4, 4, 4, 4]]);
        buffers.retain(|_| false);
        assert!(buffers.is_empty() && buffers.packets().is_empty());
    }
}
