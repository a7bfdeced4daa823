//! The runs of senders that a receiver knows, and the counters that it has received of them.

use super::RunId;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use casemate_crypto::AeadKey;
use core::iter::successors;

/// Maximum number of runs whose counters a receiver remembers. The run that was silent for longest is
/// forgotten first.
pub const MAX_RUNS: usize = 32;

/// A power of two.
const WORDS: usize = 32;
const WORD_BITS: u64 = 64;
/// Number of counters that may arrive late.
const WINDOW: u64 = (WORDS as u64 - 1) * WORD_BITS;

/// The run of a sender.
pub(super) struct SenderRun {
    pub(super) key: Box<dyn AeadKey>,
    pub(super) window: ReplayWindow,
    /// Number of its last frame, among those of all runs.
    used_at: u64,
}

/// Up to [`MAX_RUNS`] runs of senders.
#[derive(Default)]
pub(super) struct SenderRuns {
    runs: BTreeMap<RunId, SenderRun>,
    /// Number of authentic frames so far.
    noted: u64,
}

impl SenderRuns {
    pub(super) fn get(&self, run: &RunId) -> Option<&SenderRun> {
        self.runs.get(run)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.runs.len()
    }

    /// Notes the counter of an authentic frame. `new_key` is the key of a run that is not known yet.
    pub(super) fn note(&mut self, run: RunId, number: u64, new_key: Option<Box<dyn AeadKey>>) {
        self.noted = self.noted.saturating_add(1);
        if let Some(key) = new_key {
            self.make_room();
            self.runs.insert(run, SenderRun { key, window: ReplayWindow::default(), used_at: 0 });
        }
        if let Some(sender) = self.runs.get_mut(&run) {
            sender.window.add(number);
            sender.used_at = self.noted;
        }
    }

    fn make_room(&mut self) {
        if self.runs.len() < MAX_RUNS {
            return;
        }
        let oldest = self.runs.iter().min_by_key(|(_, sender)| sender.used_at).map(|(run, _)| *run);
        oldest.map(|run| self.runs.remove(&run));
    }
}

/// The counters that were received, as in RFC 6479: a ring of words, one more than the window is long. The
/// first counter is 1.
#[derive(Debug, Default)]
pub(super) struct ReplayWindow {
    highest: u64,
    words: [u64; WORDS],
}

impl ReplayWindow {
    /// Whether a counter was not received yet. One below the window counts as received.
    pub(super) fn is_new(&self, number: u64) -> bool {
        match self.highest.checked_sub(number) {
            None => true,
            Some(age) => number > 0 && age < WINDOW && self.word(number) & bit(number) == 0,
        }
    }

    /// Notes a counter that [`is_new`](Self::is_new).
    fn add(&mut self, number: u64) {
        if number > self.highest {
            let (from, to) = (self.highest / WORD_BITS, number / WORD_BITS);
            let after = |word: &u64| word.checked_add(1).filter(|word| *word <= to);
            for word in successors(after(&from), after).take(WORDS) {
                self.set_word(word, |_| 0);
            }
            self.highest = number;
        }
        self.set_word(number / WORD_BITS, |word| word | bit(number));
    }

    fn set_word(&mut self, number: u64, change: impl FnOnce(u64) -> u64) {
        if let Some(word) = self.words.get_mut(index(number)) {
            *word = change(*word);
        }
    }

    fn word(&self, number: u64) -> u64 {
        self.words.get(index(number / WORD_BITS)).copied().unwrap_or(u64::MAX)
    }
}

/// Index of a word in the ring.
const fn index(word: u64) -> usize {
    (word & (WORDS as u64).wrapping_sub(1)) as usize
}

const fn bit(number: u64) -> u64 {
    1 << (number % WORD_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;
    use casemate_test_support::TestRng;

    /// Compares the window with a set of all counters so far.
    fn check(numbers: impl IntoIterator<Item = u64>) {
        let (mut window, mut received, mut highest) = (ReplayWindow::default(), BTreeSet::new(), 0_u64);
        for number in numbers {
            let is_recent = number > highest || highest - number < WINDOW;
            let expected = number > 0 && is_recent && !received.contains(&number);
            assert_eq!(window.is_new(number), expected, "{number} after {highest}");
            if expected {
                window.add(number);
                received.insert(number);
                highest = highest.max(number);
            }
        }
    }

    #[test]
    fn each_counter_is_new_once() {
        check((0..5_000).chain(0..5_000));
        check((0..WINDOW).rev());
        check([1, 2, WINDOW + 1, 1, 2, 3, WINDOW + 2, 3]);
        check([u64::MAX, u64::MAX, u64::MAX - 1, 1, u64::MAX - WINDOW, u64::MAX - WINDOW + 1]);
        for seed in 0..20 {
            let mut rng = TestRng::new(seed);
            let random: Vec<u64> = (0..20_000).map(|at| at + rng.below(3_000) as u64).collect();
            check(random);
            let jumps = (0..2_000).scan(0_u64, |last, _| {
                *last = last.saturating_add(rng.below(5_000) as u64).saturating_sub(2_000);
                Some(*last)
            });
            check(jumps);
        }
    }
}
