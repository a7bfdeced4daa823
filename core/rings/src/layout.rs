//! Where what stands in the shared memory.
//!
//! ```text
//!  word  0   ring of calls:   how far it is written      8   how far it is read    16   its writer waits for room
//!       24   ring of answers: how far it is written     32   how far it is read    40   its writer waits for room
//!       48   the words of the ring of calls, then those of the ring of answers
//! ```
//!
//! Each position is alone in a cache line.

/// Bytes in a word.
pub const WORD: usize = 8;

/// Words of a cache line, at least on the processors that we know.
const LINE: usize = 8;
/// Lines that a ring has in front: written, read, wanting.
const RING_LINES: usize = 3;
const RING_HEAD: usize = LINE * RING_LINES;
const HEAD: usize = RING_HEAD * 2;

/// Sizes of the two rings. Both sides know them from elsewhere; they do not stand in the shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    call_bits: u8,
    answer_bits: u8,
}

impl Geometry {
    /// The least that a ring may have, as a power of two of words: 512 bytes.
    pub const MIN_BITS: u8 = 6;
    /// The most: 128 MiB.
    pub const MAX_BITS: u8 = 24;

    /// Rings of 2^`call_bits` and 2^`answer_bits` words; `None` unless both are from [`MIN_BITS`](Self::MIN_BITS) to
    /// [`MAX_BITS`](Self::MAX_BITS).
    pub fn new(call_bits: u8, answer_bits: u8) -> Option<Self> {
        let fits = |bits| (Self::MIN_BITS..=Self::MAX_BITS).contains(&bits);
        (fits(call_bits) && fits(answer_bits)).then_some(Self { call_bits, answer_bits })
    }

    /// The rings' sizes, as powers of two of words: of calls, of answers.
    pub const fn bits(self) -> (u8, u8) {
        (self.call_bits, self.answer_bits)
    }

    /// Words of the whole memory.
    pub const fn words(self) -> usize {
        let (calls, answers) = (self.calls(), self.answers());
        calls.len().saturating_add(answers.len()).saturating_add(HEAD)
    }

    /// Bytes of the whole memory.
    pub const fn bytes(self) -> usize {
        self.words().saturating_mul(WORD)
    }

    /// The most data that one call can hold, in bytes: half of the ring, so that two find room.
    pub const fn most_sent(self) -> usize {
        self.calls().most_data()
    }

    /// The most data that one answer can hold, in bytes.
    pub const fn most_received(self) -> usize {
        self.answers().most_data()
    }

    pub(crate) const fn calls(self) -> Place {
        Place { head: 0, at: HEAD, bits: self.call_bits }
    }

    pub(crate) const fn answers(self) -> Place {
        let at = self.calls().len().saturating_add(HEAD);
        Place { head: RING_HEAD, at, bits: self.answer_bits }
    }
}

/// Where a ring is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    head: usize,
    /// Its first word.
    pub(crate) at: usize,
    bits: u8,
}

impl Place {
    /// Words of the ring.
    pub(crate) const fn len(self) -> usize {
        1 << self.bits
    }

    /// The word of the ring that a position is at.
    #[expect(clippy::arithmetic_side_effects, reason = "the length is a power of two")]
    pub(crate) const fn index(self, position: u64) -> usize {
        (position & (self.len() as u64 - 1)) as usize
    }

    const fn most_data(self) -> usize {
        (self.len() / 2).saturating_sub(crate::codec::HEAD_WORDS).saturating_mul(WORD)
    }

    pub(crate) const fn written(self) -> usize {
        self.head
    }

    pub(crate) const fn read(self) -> usize {
        self.head.saturating_add(LINE)
    }

    pub(crate) const fn wanting(self) -> usize {
        self.head.saturating_add(LINE * 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn nothing_overlaps_and_everything_is_inside() {
        for (calls, answers) in [(6, 6), (6, 9), (9, 6), (13, 15)] {
            let geometry = Geometry::new(calls, answers).unwrap();
            let mut taken = BTreeSet::new();
            for place in [geometry.calls(), geometry.answers()] {
                for line in [place.written(), place.read(), place.wanting()] {
                    assert!((line..line + LINE).all(|word| taken.insert(word)));
                }
                assert!((0..place.len() as u64).all(|n| taken.insert(place.at + place.index(n))));
                assert_eq!(place.index(u64::MAX), place.len() - 1);
            }
            assert_eq!(taken.len(), geometry.words());
            assert_eq!(taken.last(), Some(&(geometry.words() - 1)));
        }
    }

    #[test]
    fn sizes_have_limits() {
        assert!(Geometry::new(5, 10).is_none() && Geometry::new(10, 25).is_none());
        let geometry = Geometry::new(6, 24).unwrap();
        assert_eq!((geometry.bits(), geometry.most_sent()), ((6, 24), (32 - 5) * 8));
    }
}
