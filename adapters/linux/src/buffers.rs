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
        self.places.clear();
        self.places.extend(lens.iter().take(BATCH).enumerate().map(place));
    }

    /// Forgets all packets but those whose bytes are wanted.
    pub(crate) fn retain(&mut self, wanted: impl Fn(&[u8]) -> bool) {
        let mut keep = ArrayVec::<_, BATCH>::new();
        self.with_packets(|packets| keep.extend(packets.iter().map(|packet| wanted(packet.data()))));
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

    /// Has something done with the packets; they stay where that leaves them.
    // They are written where they are used: to hand a batch of them over moves all the room that there is for one, and for a lone packet
    // into a cache that has gone cold.
    #[inline]
    pub(crate) fn with_packets<T>(&mut self, act: impl FnOnce(&mut [Packet<'_>]) -> T) -> T {
        let (mut chunks, mut passed) = (self.bytes.chunks_exact_mut(STRIDE), 0);
        let packet = |place: &Place| {
            let chunk = chunks.nth(place.buffer.checked_sub(passed)?)?;
            passed = place.buffer.saturating_add(1);
            Packet::new(chunk, place.start, place.len)
        };
        let mut packets = ArrayVec::<_, BATCH>::new();
        packets.extend(self.places.iter().filter_map(packet));
        let answer = act(&mut packets);
        for (place, packet) in self.places.iter_mut().zip(&packets) {
            (place.start, place.len) = (packet.head_room(), packet.len());
        }
        answer
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
    fn packets_stay_where_they_were_left() {
        let mut buffers = Buffers::new();
        buffers.slices().zip(1..=4).for_each(|(slice, mark)| slice[..10].fill(mark));
        buffers.hold(&[10, 9, 8, 7]);
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
