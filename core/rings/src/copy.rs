//! Bytes to words of shared memory and back.
//!
//! Whole words, each read or written once. Their order within a word is the machine's: both sides run on it.

use crate::WORD;
use crate::layout::Place;
use core::sync::atomic::{AtomicU64, Ordering};

/// The words of a ring from `position` on: those up to its end, and those from its start.
///
/// Two slices, and a plain loop over each: an iterator that chains them costs several times as much for each word.
fn halves(memory: &[AtomicU64], place: Place, position: u64) -> [&[AtomicU64]; 2] {
    let ring = memory.get(place.at..place.at.saturating_add(place.len())).unwrap_or_default();
    let (front, back) = ring.split_at_checked(place.index(position)).unwrap_or_default();
    [back, front]
}

/// The position that is so many words further.
const fn further(position: u64, words: usize) -> u64 {
    position.wrapping_add(words as u64)
}

/// The word at a position.
fn word(memory: &[AtomicU64], place: Place, position: u64) -> Option<&AtomicU64> {
    memory.get(place.at.saturating_add(place.index(position)))
}

/// Writes bytes from a position on; the last word is filled up with zeros.
pub(crate) fn write(memory: &[AtomicU64], place: Place, position: u64, data: &[u8]) {
    let (chunks, rest) = data.as_chunks::<WORD>();
    let [first, second] = halves(memory, place, position);
    let (front, back) = chunks.split_at_checked(first.len()).unwrap_or((chunks, &[]));
    for (words, chunks) in [(first, front), (second, back)] {
        for (word, chunk) in words.iter().zip(chunks) {
            word.store(u64::from_ne_bytes(*chunk), Ordering::Relaxed);
        }
    }
    if !rest.is_empty()
        && let Some(word) = word(memory, place, further(position, chunks.len()))
    {
        let mut last = [0; WORD];
        last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        word.store(u64::from_ne_bytes(last), Ordering::Relaxed);
    }
}

/// Reads the bytes that begin `skip` bytes behind a position.
pub(crate) fn read(memory: &[AtomicU64], place: Place, position: u64, skip: usize, out: &mut [u8]) {
    let load =
        |position| word(memory, place, position).map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
    let (mut position, skip) = (further(position, skip / WORD), skip % WORD);
    let lead = if skip == 0 { 0 } else { WORD.saturating_sub(skip).min(out.len()) };
    let (lead, out) = out.split_at_mut_checked(lead).unwrap_or_default();
    if !lead.is_empty() {
        let word = load(position).unwrap_or_default();
        lead.iter_mut().zip(word.iter().skip(skip)).for_each(|(to, from)| *to = *from);
        position = further(position, 1);
    }
    let (chunks, rest) = out.as_chunks_mut::<WORD>();
    let end = further(position, chunks.len());
    let [first, second] = halves(memory, place, position);
    let (front, back) = chunks.split_at_mut(first.len().min(chunks.len()));
    for (words, chunks) in [(first, front), (second, back)] {
        for (word, chunk) in words.iter().zip(chunks) {
            *chunk = word.load(Ordering::Relaxed).to_ne_bytes();
        }
    }
    if !rest.is_empty() {
        let word = load(end).unwrap_or_default();
        rest.iter_mut().zip(word).for_each(|(to, from)| *to = from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Geometry;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn memory(geometry: Geometry) -> Vec<AtomicU64> {
        (0..geometry.words()).map(|_| AtomicU64::new(u64::MAX)).collect()
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            position: u64,
            data in proptest::collection::vec(any::<u8>(), 0..=512),
            (from, to) in (0usize..600, 0usize..600),
        ) {
            let geometry = Geometry::new(6, 6).unwrap();
            let (memory, place) = (memory(geometry), geometry.answers());
            write(&memory, place, position, &data);
            let (from, to) = (from.min(data.len()), to.min(data.len()));
            let (from, to) = (from.min(to), from.max(to));
            let mut out = std::vec![0xAA; to - from];
            read(&memory, place, position, from, &mut out);
            prop_assert_eq!(&out, &data[from..to]);
            // Nothing outside of the words that the data needs has changed.
            let changed = memory.iter().filter(|word| word.load(Ordering::Relaxed) != u64::MAX).count();
            prop_assert!(changed <= data.len().div_ceil(WORD));
            let outside = memory[..place.at].iter();
            prop_assert!(outside.into_iter().all(|word| word.load(Ordering::Relaxed) == u64::MAX));
        }
    }
}
