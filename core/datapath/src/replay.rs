//! Anti-replay window of an inbound SA (RFC 4303 section 3.4.3 and appendix A2; bitmap layout of RFC 6479).
//!
//! [`ReplayWindow::check`] has no side effects and runs before the packet is opened. [`ReplayWindow::commit`]
//! needs the [`Authenticated`] that only opening creates. It repeats the check, because all packets of a
//! batch are checked before the first is committed. This module does not depend on keys.

use alloc::boxed::Box;
use alloc::vec;
use casemate_wire::invariant::OrBroken;

/// Proof that the ICV of a packet was correct. Only `esp` and `ah` create it, when they open a packet. The
/// commit to the replay window consumes it: it is not `Clone`, so no packet is committed twice.
#[derive(Debug)]
pub(crate) struct Authenticated {
    seq: u64,
}

impl Authenticated {
    pub(crate) const fn new(seq: u64) -> Self {
        Self { seq }
    }

    /// The number.
    #[cfg(feature = "records")]
    pub(crate) const fn seq(&self) -> u64 {
        self.seq
    }
}

/// The sequence number was already received, or is below the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Replayed;

/// The index of a word is masked with the number of words.
const WORD_EXISTS: &str = "the replay window has a word for each number";

/// The window: a ring of 64-bit words, one word longer than the window, so that advancing clears whole words.
#[derive(Debug)]
pub(crate) struct ReplayWindow {
    highest: u64,
    /// 32 bits, so that an inbound SA fits into four cache lines.
    size: u32,
    esn: bool,
    words: Box<[u64]>,
}

impl ReplayWindow {
    /// A window of `size` packets (0: no check) that ends at `highest`, which counts as received.
    pub(crate) fn new(size: u32, esn: bool, highest: u64) -> Self {
        let words = (u64::from(size).div_ceil(64).saturating_add(1)).next_power_of_two();
        let words = if size == 0 { 0 } else { words as usize };
        let mut window = Self { highest, size, esn, words: vec![0; words].into_boxed_slice() };
        // Everything up to `highest` counts as received: if it comes from a file, the received numbers below
        // it are unknown.
        if highest > 0 && size > 0 {
            window.words.fill(u64::MAX);
            window.clear_above_highest_in_its_word();
        }
        window
    }

    /// A window of the same kind that ends at `highest`, which counts as received.
    #[cfg(feature = "records")]
    pub(crate) fn ending_at(&self, highest: u64) -> Self {
        Self::new(self.size, self.esn, highest)
    }

    fn clear_above_highest_in_its_word(&mut self) {
        let keep = u64::MAX >> 63u64.saturating_sub(self.highest & 63);
        if let Some(word) = self.word(self.highest).or_report(WORD_EXISTS) {
            *word &= keep;
        }
    }

    /// The highest committed sequence number.
    pub(crate) const fn highest(&self) -> u64 {
        self.highest
    }

    /// Size of the window in packets; 0 if replays are not checked.
    pub(crate) fn size(&self) -> u64 {
        self.size.into()
    }

    /// The full sequence number of a packet that carries `low`, unless it is a replay.
    ///
    /// With ESN, the upper half is inferred as in RFC 4303 appendix A2.2: the packet belongs to the
    /// sequence subspace (2^32 numbers with the same upper half) that places it inside or above the window.
    #[inline]
    pub(crate) fn check(&self, low: u32) -> Result<u64, Replayed> {
        let seq = self.number_of(low);
        if self.size == 0 {
            return Ok(seq);
        }
        if seq == 0 || self.is_old(seq) { Err(Replayed) } else { Ok(seq) }
    }

    /// Marks an authenticated sequence number as received.
    #[cfg_attr(target_pointer_width = "64", inline(always))]
    pub(crate) fn commit(&mut self, packet: Authenticated) -> Result<(), Replayed> {
        let seq = packet.seq;
        if self.size == 0 {
            self.highest = self.highest.max(seq);
            return Ok(());
        }
        if self.is_old(seq) {
            return Err(Replayed);
        }
        self.advance_to(seq);
        let word = self.word(seq).or_report(WORD_EXISTS).ok_or(Replayed)?;
        *word |= 1 << (seq & 63);
        Ok(())
    }

    /// The newest 64 sequence numbers for status output: bit 0 is the highest.
    pub(crate) fn recent(&self) -> u64 {
        (0..self.size().min(64)).fold(0, |bits, back| match self.highest.checked_sub(back) {
            Some(seq) if seq > 0 && self.is_marked(seq) => bits | 1 << back,
            _ => bits,
        })
    }

    #[inline]
    fn number_of(&self, low: u32) -> u64 {
        if !self.esn {
            return u64::from(low);
        }
        // Without a replay check any earlier number may arrive, so take the nearest one: 2^31 numbers in each
        // direction.
        let size = if self.size == 0 { 1 << 31 } else { self.size() };
        let (high, last_low) = ((self.highest >> 32) as u32, self.highest as u32);
        // Appendix A2.1: the lower end of the window, in the subspace of the highest number.
        let bottom = last_low.wrapping_sub(size.saturating_sub(1) as u32);
        let spans_two_subspaces = u64::from(last_low) < size.saturating_sub(1);
        let high = match (spans_two_subspaces, low >= bottom) {
            (false, true) | (true, false) => high,
            (false, false) => high.wrapping_add(1),
            // The first subspace has no predecessor: the sender skipped numbers.
            (true, true) => high.saturating_sub(1),
        };
        u64::from(high) << 32 | u64::from(low)
    }

    #[inline]
    fn is_old(&self, seq: u64) -> bool {
        match self.highest.checked_sub(seq) {
            None => false,
            Some(age) => age >= self.size() || self.is_marked(seq),
        }
    }

    #[inline]
    fn is_marked(&self, seq: u64) -> bool {
        let word = self.words.get(self.index(seq)).copied();
        // Without the word, the packet counts as received and is dropped.
        word.or_broken(WORD_EXISTS, u64::MAX) >> (seq & 63) & 1 == 1
    }

    #[inline]
    fn advance_to(&mut self, seq: u64) {
        if seq <= self.highest {
            return;
        }
        // In the common case both are in the same word.
        if seq >> 6 != self.highest >> 6 {
            self.clear_words_up_to(seq);
        }
        self.highest = seq;
    }

    /// Clears the words after that of the highest number, up to that of `seq`.
    #[inline(never)]
    fn clear_words_up_to(&mut self, seq: u64) {
        let fresh_words = (seq >> 6).saturating_sub(self.highest >> 6);
        if fresh_words >= self.words.len() as u64 {
            self.words.fill(0);
        } else {
            for ahead in 1..=fresh_words {
                let word = self.word(self.highest.saturating_add(ahead << 6));
                if let Some(word) = word.or_report(WORD_EXISTS) {
                    *word = 0;
                }
            }
        }
    }

    #[inline]
    fn index(&self, seq: u64) -> usize {
        (seq >> 6) as usize & self.words.len().saturating_sub(1)
    }

    #[inline]
    fn word(&mut self, seq: u64) -> Option<&mut u64> {
        let index = self.index(seq);
        self.words.get_mut(index)
    }
}

#[cfg(test)]
mod tests {
    //! The window compared with a naive model, and the corner cases of RFC 4303 appendix A2.

    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn receive(window: &mut ReplayWindow, low: u32) -> Result<u64, Replayed> {
        let seq = window.check(low)?;
        window.commit(Authenticated::new(seq)).map(|()| seq)
    }

    /// The definition of the window: a set of all received numbers.
    struct Model {
        size: u64,
        highest: u64,
        seen: BTreeSet<u64>,
    }

    impl Model {
        fn receive(&mut self, seq: u64) -> bool {
            let fresh = seq != 0 && seq + self.size > self.highest && self.seen.insert(seq);
            if fresh {
                self.highest = self.highest.max(seq);
            }
            fresh
        }
    }

    fn steps() -> impl Strategy<Value = Vec<i64>> {
        let step = prop_oneof![8 => 1..3i64, 4 => -70..70i64, 2 => -700..700i64, 1 => -100_000..100_000i64];
        proptest::collection::vec(step, 1..300)
    }

    proptest! {
        #[test]
        fn agrees_with_the_model(
            size in prop_oneof![Just(32u32), Just(64), Just(65), Just(1000), Just(65_536)],
            esn in any::<bool>(),
            // Starts shortly before the lower half wraps, so that the upper half changes.
            start in prop_oneof![Just(0u64), Just(u64::from(u32::MAX) - 50), Just((7 << 32) - 50)],
            steps in steps(),
        ) {
            let start = if esn { start } else { start & 0xffff_0000 };
            let mut window = ReplayWindow::new(size, esn, start);
            let seen = (start.saturating_sub(200_000)..=start).collect();
            let mut model = Model { size: u64::from(size), highest: start, seen };
            let mut at = start as i64;
            for step in steps {
                at = (at + step).max(0);
                let seq = at as u64;
                if !esn && seq > u64::from(u32::MAX) {
                    break;
                }
                // A packet with a wrong upper half never verifies, so it is never committed.
                let guessed = window.check(seq as u32).is_ok_and(|guess| guess == seq);
                let fresh = guessed && window.commit(Authenticated::new(seq)).is_ok();
                prop_assert_eq!(fresh, model.receive(seq), "seq {}", seq);
                prop_assert_eq!(window.highest(), model.highest);
            }
        }
    }

    #[test]
    fn zero_is_never_accepted_on_a_new_sa() {
        for esn in [false, true] {
            let window = ReplayWindow::new(64, esn, 0);
            assert_eq!(window.check(0), Err(Replayed));
            assert_eq!(window.check(1), Ok(1));
        }
    }

    #[test]
    fn duplicate_in_a_batch_is_committed_once() {
        let mut window = ReplayWindow::new(64, false, 0);
        let (a, b) = (window.check(5).unwrap(), window.check(5).unwrap());
        assert_eq!(window.commit(Authenticated::new(a)), Ok(()));
        assert_eq!(window.commit(Authenticated::new(b)), Err(Replayed));
    }

    #[test]
    fn without_window_all_numbers_pass() {
        let mut window = ReplayWindow::new(0, false, 0);
        assert_eq!(receive(&mut window, 9), Ok(9));
        assert_eq!(receive(&mut window, 9), Ok(9));
        assert_eq!(receive(&mut window, 3), Ok(3));
        assert_eq!(window.highest(), 9);
    }

    #[test]
    fn without_window_numbers_pass_after_a_restart() {
        let mut window = ReplayWindow::new(0, false, 5);
        assert_eq!(receive(&mut window, 3), Ok(3));
        assert_eq!(receive(&mut window, 6), Ok(6));
        assert_eq!((window.highest(), window.recent()), (6, 0));
    }

    #[test]
    fn esn_infers_the_upper_half() {
        let mut window = ReplayWindow::new(64, true, (3 << 32) + 10);
        assert_eq!(window.check(11), Ok((3 << 32) + 11));
        // The window includes the end of subspace 2, but everything up to the start counts as received.
        assert_eq!(window.check(u32::MAX), Err(Replayed));
        assert_eq!(receive(&mut window, 0x8000_0000), Ok((3 << 32) + 0x8000_0000));
        assert_eq!(receive(&mut window, 5), Ok((4 << 32) + 5));
        assert_eq!(receive(&mut window, u32::MAX), Ok((3 << 32) + u64::from(u32::MAX)));
    }

    #[test]
    fn recent_lists_the_newest_first() {
        let mut window = ReplayWindow::new(64, false, 0);
        for seq in [1, 2, 4] {
            receive(&mut window, seq).unwrap();
        }
        assert_eq!(window.recent(), 0b1101);
    }

    #[test]
    fn without_window_the_nearest_lap_is_inferred() {
        let mut window = ReplayWindow::new(0, true, 0);
        for seq in [5u64, 5, 2, 1 << 31, (1 << 32) - 3, (1 << 32) + 7, (1 << 32) - 3, 3 << 31, 2 << 32] {
            assert_eq!(receive(&mut window, seq as u32), Ok(seq));
        }
    }
}
