//! Layout of the shared memory.
//!
//! ```text
//!  word  0   request ring:  write position      8   read position     16   the writer waits for room
//!       24   response ring: write position     32   read position     40   the writer waits for room
//!       48   words of the request ring, followed by the words of the response ring
//! ```
//!
//! Each position has a cache line of its own.
//!
//! All accesses read or write a whole word once. The byte order within a word is the native one, because both
//! ends run on the same machine.

use crate::ring::Violation;
use core::sync::atomic::{AtomicU64, Ordering};

/// Bytes per word.
pub const WORD: usize = 8;

/// Words per cache line, at least on the supported processors.
const LINE_WORDS: usize = 8;
/// Cache lines of a ring's control block: write position, read position, waiting flag.
const RING_LINES: usize = 3;
const RING_CONTROL: usize = LINE_WORDS * RING_LINES;
const CONTROL_WORDS: usize = RING_CONTROL * 2;

/// Sizes of the two rings. Both ends get them from the session handshake; they are not stored in the
/// shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingSizes {
    request_bits: u8,
    response_bits: u8,
}

impl RingSizes {
    /// Smallest ring size, as a power of two of words: 512 bytes.
    pub const MIN_BITS: u8 = 6;
    /// Largest ring size, as a power of two of words: 128 MiB.
    pub const MAX_BITS: u8 = 24;

    /// Creates sizes of 2^`request_bits` and 2^`response_bits` words. Returns `None` unless both are in
    /// the range from [`MIN_BITS`](Self::MIN_BITS) to [`MAX_BITS`](Self::MAX_BITS).
    pub fn new(request_bits: u8, response_bits: u8) -> Option<Self> {
        let fits = |bits| (Self::MIN_BITS..=Self::MAX_BITS).contains(&bits);
        (fits(request_bits) && fits(response_bits)).then_some(Self { request_bits, response_bits })
    }

    /// Returns the sizes of the request ring and the response ring, as powers of two of words.
    pub const fn bits(self) -> (u8, u8) {
        (self.request_bits, self.response_bits)
    }

    /// Returns the size of the shared memory in words.
    pub const fn words(self) -> usize {
        let (requests, responses) = (self.requests(), self.responses());
        requests.len().saturating_add(responses.len()).saturating_add(CONTROL_WORDS)
    }

    /// Returns the size of the shared memory in bytes.
    pub const fn bytes(self) -> usize {
        self.words().saturating_mul(WORD)
    }

    /// Returns the maximum data length of one request in bytes. It is half of the ring, so that two
    /// requests fit.
    pub const fn max_request_data(self) -> usize {
        self.requests().max_data()
    }

    /// Returns the maximum data length of one response in bytes.
    pub const fn max_response_data(self) -> usize {
        self.responses().max_data()
    }

    pub(crate) const fn requests(self) -> RingLayout {
        RingLayout { control: 0, start: CONTROL_WORDS, bits: self.request_bits }
    }

    pub(crate) const fn responses(self) -> RingLayout {
        let start = self.requests().len().saturating_add(CONTROL_WORDS);
        RingLayout { control: RING_CONTROL, start, bits: self.response_bits }
    }
}

/// Location of a ring in the shared memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RingLayout {
    control: usize,
    /// Index of the first word.
    pub(crate) start: usize,
    bits: u8,
}

impl RingLayout {
    /// Returns the number of words in the ring.
    pub(crate) const fn len(self) -> usize {
        1 << self.bits
    }

    /// Returns the index of a position within the ring.
    #[expect(clippy::arithmetic_side_effects, reason = "the length is a power of two")]
    pub(crate) const fn index(self, position: u64) -> usize {
        (position & (self.len() as u64 - 1)) as usize
    }

    const fn max_data(self) -> usize {
        (self.len() / 2).saturating_sub(crate::codec::HEADER_WORDS).saturating_mul(WORD)
    }

    pub(crate) const fn write_position(self) -> usize {
        self.control
    }

    pub(crate) const fn read_position(self) -> usize {
        self.control.saturating_add(LINE_WORDS)
    }

    pub(crate) const fn waiting_flag(self) -> usize {
        self.control.saturating_add(LINE_WORDS * 2)
    }
}

/// Returns the words of a ring from `position` to the end of the ring, and the words before `position`.
///
/// The callers run a plain loop over each of the two slices: an iterator that chains them costs several
/// times as much per word.
fn split_ring(
    memory: &[AtomicU64],
    layout: RingLayout,
    position: u64,
) -> Result<[&[AtomicU64]; 2], Violation> {
    let ring = memory.get(layout.start..layout.start.saturating_add(layout.len()));
    let parts = ring.and_then(|ring| ring.split_at_checked(layout.index(position)));
    parts.map(|(front, back)| [back, front]).ok_or(Violation::Memory)
}

/// Returns the position `words` words after `position`.
const fn advance(position: u64, words: usize) -> u64 {
    position.wrapping_add(words as u64)
}

/// Returns the word at a position.
fn word(memory: &[AtomicU64], layout: RingLayout, position: u64) -> Result<&AtomicU64, Violation> {
    memory.get(layout.start.saturating_add(layout.index(position))).ok_or(Violation::Memory)
}

/// Writes `data` at a position. The last word is padded with zeros. Returns [`Violation::Memory`] if the
/// memory does not contain the ring.
pub(crate) fn write(
    memory: &[AtomicU64],
    layout: RingLayout,
    position: u64,
    data: &[u8],
) -> Result<(), Violation> {
    let (chunks, rest) = data.as_chunks::<WORD>();
    let [first, second] = split_ring(memory, layout, position)?;
    let (front, back) = chunks.split_at_checked(first.len()).unwrap_or((chunks, &[]));
    for (words, chunks) in [(first, front), (second, back)] {
        for (word, chunk) in words.iter().zip(chunks) {
            word.store(u64::from_ne_bytes(*chunk), Ordering::Relaxed);
        }
    }
    if !rest.is_empty() {
        let mut last = [0; WORD];
        last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        let word = word(memory, layout, advance(position, chunks.len()))?;
        word.store(u64::from_ne_bytes(last), Ordering::Relaxed);
    }
    Ok(())
}

/// Reads `out.len()` bytes that start `skip` bytes after a position. Returns [`Violation::Memory`] if the
/// memory does not contain the ring.
pub(crate) fn read(
    memory: &[AtomicU64],
    layout: RingLayout,
    position: u64,
    skip: usize,
    out: &mut [u8],
) -> Result<(), Violation> {
    let load =
        |position| word(memory, layout, position).map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
    let (mut position, skip) = (advance(position, skip / WORD), skip % WORD);
    let lead = if skip == 0 { 0 } else { WORD.saturating_sub(skip) };
    let (lead, out) = out.split_at_mut(lead.min(out.len()));
    if !lead.is_empty() {
        let word = load(position)?;
        lead.iter_mut().zip(word.iter().skip(skip)).for_each(|(to, from)| *to = *from);
        position = advance(position, 1);
    }
    let (chunks, rest) = out.as_chunks_mut::<WORD>();
    let end = advance(position, chunks.len());
    let [first, second] = split_ring(memory, layout, position)?;
    let (front, back) = chunks.split_at_mut(first.len().min(chunks.len()));
    for (words, chunks) in [(first, front), (second, back)] {
        for (word, chunk) in words.iter().zip(chunks) {
            *chunk = word.load(Ordering::Relaxed).to_ne_bytes();
        }
    }
    if !rest.is_empty() {
        let word = load(end)?;
        rest.iter_mut().zip(word).for_each(|(to, from)| *to = from);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    #[test]
    fn the_parts_do_not_overlap_and_fill_the_memory() {
        for (requests, responses) in [(6, 6), (6, 9), (9, 6), (13, 15)] {
            let sizes = RingSizes::new(requests, responses).unwrap();
            let mut taken = BTreeSet::new();
            for layout in [sizes.requests(), sizes.responses()] {
                for line in [layout.write_position(), layout.read_position(), layout.waiting_flag()] {
                    assert!((line..line + LINE_WORDS).all(|word| taken.insert(word)));
                }
                assert!((0..layout.len() as u64).all(|n| taken.insert(layout.start + layout.index(n))));
                assert_eq!(layout.index(u64::MAX), layout.len() - 1);
            }
            assert_eq!(taken.len(), sizes.words());
            assert_eq!(taken.last(), Some(&(sizes.words() - 1)));
        }
    }

    #[test]
    fn sizes_have_limits() {
        assert!(RingSizes::new(5, 10).is_none() && RingSizes::new(10, 25).is_none());
        let sizes = RingSizes::new(6, 24).unwrap();
        assert_eq!((sizes.bits(), sizes.max_request_data()), ((6, 24), (32 - 5) * 8));
    }

    #[test]
    fn memory_without_the_ring_is_a_violation() {
        let sizes = RingSizes::new(6, 6).unwrap();
        let (memory, layout) = (memory(sizes), sizes.responses());
        let short = &memory[..memory.len() - 1];
        for len in [1, 8, 64] {
            let mut bytes = std::vec![0; len];
            assert_eq!(write(short, layout, 63, &bytes), Err(Violation::Memory));
            assert_eq!(read(short, layout, 63, 0, &mut bytes), Err(Violation::Memory));
        }
    }

    fn memory(sizes: RingSizes) -> Vec<AtomicU64> {
        (0..sizes.words()).map(|_| AtomicU64::new(u64::MAX)).collect()
    }

    proptest! {
        #[test]
        fn written_bytes_are_read_back(
            position: u64,
            data in proptest::collection::vec(any::<u8>(), 0..=512),
            (from, to) in (0usize..600, 0usize..600),
        ) {
            let sizes = RingSizes::new(6, 6).unwrap();
            let (memory, layout) = (memory(sizes), sizes.responses());
            write(&memory, layout, position, &data).unwrap();
            let (from, to) = (from.min(data.len()), to.min(data.len()));
            let (from, to) = (from.min(to), from.max(to));
            let mut out = std::vec![0xAA; to - from];
            read(&memory, layout, position, from, &mut out).unwrap();
            prop_assert_eq!(&out, &data[from..to]);
            // The words outside of the data are unchanged.
            let changed = memory.iter().filter(|word| word.load(Ordering::Relaxed) != u64::MAX).count();
            prop_assert!(changed <= data.len().div_ceil(WORD));
            let outside = memory[..layout.start].iter();
            prop_assert!(outside.into_iter().all(|word| word.load(Ordering::Relaxed) == u64::MAX));
        }
    }
}
