//! Anti-replay window of an inbound SA (RFC 4303 section 3.4.3 and appendix A2; bitmap laid out as RFC 6479 proposes).
//!
//! [`ReplayWindow::check`] has no side effect and runs before the packet is opened; [`ReplayWindow::commit`] takes the
//! [`Authenticated`] that only opening makes. Commit checks again, because packets of one batch are all checked before
//! the first is committed. Does not know about keys.

use alloc::boxed::Box;
use alloc::vec;

/// Proof that a packet's ICV verified under an SA. Made by `esp` and `ah` when they open, and nowhere else.
#[derive(Debug)]
pub(crate) struct Authenticated {
    seq: u64,
}

impl Authenticated {
    pub(crate) const fn new(seq: u64) -> Self {
        Self { seq }
    }
}

/// The number was seen before, or is older than the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Replayed;

/// The window: a ring of 64-bit words, one word longer than the window so that advancing clears whole words.
#[derive(Debug)]
pub(crate) struct ReplayWindow {
    highest: u64,
    size: u64,
    esn: bool,
    words: Box<[u64]>,
}

impl ReplayWindow {
    /// A window of `size` packets (0: no check) below and up to `highest`, which counts as seen.
    pub(crate) fn new(size: u32, esn: bool, highest: u64) -> Self {
        let words = (u64::from(size).div_ceil(64).saturating_add(1)).next_power_of_two();
        let words = if size == 0 { 0 } else { words as usize };
        let mut window =
            Self { highest, size: u64::from(size), esn, words: vec![0; words].into_boxed_slice() };
        // Everything at or below the start counts as received: with a start from a file we cannot know which were.
        if highest > 0 {
            window.words.fill(u64::MAX);
            window.clear_above_highest_in_its_word();
        }
        window
    }

    fn clear_above_highest_in_its_word(&mut self) {
        let keep = u64::MAX >> 63u64.saturating_sub(self.highest & 63);
        if let Some(word) = self.word(self.highest) {
            *word &= keep;
        }
    }

    /// The highest number committed so far.
    pub(crate) const fn highest(&self) -> u64 {
        self.highest
    }

    /// The window's size in packets; 0 if replays are not checked.
    pub(crate) const fn size(&self) -> u64 {
        self.size
    }

    /// The full number of a packet that carries `low`, if it may be new.
    ///
    /// With ESN the high half is guessed as RFC 4303 appendix A2.2 says: the packet belongs to the lap that puts it
    /// inside the window or ahead of it.
    #[inline]
    pub(crate) fn check(&self, low: u32) -> Result<u64, Replayed> {
        let seq = self.number_of(low);
        if self.size == 0 {
            return Ok(seq);
        }
        if seq == 0 || self.is_old(seq) { Err(Replayed) } else { Ok(seq) }
    }

    /// Marks an authenticated number as received.
    #[inline]
    pub(crate) fn commit(&mut self, packet: &Authenticated) -> Result<(), Replayed> {
        let seq = packet.seq;
        if self.size == 0 {
            self.highest = self.highest.max(seq);
            return Ok(());
        }
        if self.is_old(seq) {
            return Err(Replayed);
        }
        self.advance_to(seq);
        if let Some(word) = self.word(seq) {
            *word |= 1 << (seq & 63);
        }
        Ok(())
    }

    /// The lowest 64 places of the window, newest first, for people: bit 0 is the highest number.
    pub(crate) fn recent(&self) -> u64 {
        (0..64u64.min(self.size)).fold(0, |bits, back| match self.highest.checked_sub(back) {
            Some(seq) if seq > 0 && self.is_marked(seq) => bits | 1 << back,
            _ => bits,
        })
    }

    #[inline]
    fn number_of(&self, low: u32) -> u64 {
        if !self.esn {
            return u64::from(low);
        }
        // Where replays are not checked any earlier number may come, so the guess is the nearest one: half a lap each way.
        let size = if self.size == 0 { 1 << 31 } else { self.size };
        let (high, last_low) = ((self.highest >> 32) as u32, self.highest as u32);
        // Appendix A2.1: the window's lower end, in the subspace of the highest number.
        let bottom = last_low.wrapping_sub(size.saturating_sub(1) as u32);
        let spans_two_laps = u64::from(last_low) < size.saturating_sub(1);
        let high = match (spans_two_laps, low >= bottom) {
            (false, true) | (true, false) => high,
            (false, false) => high.wrapping_add(1),
            // In the very first lap there is none before it: the sender jumped ahead.
            (true, true) => high.saturating_sub(1),
        };
        u64::from(high) << 32 | u64::from(low)
    }

    #[inline]
    fn is_old(&self, seq: u64) -> bool {
        match self.highest.checked_sub(seq) {
            None => false,
            Some(age) => age >= self.size || self.is_marked(seq),
        }
    }

    #[inline]
    fn is_marked(&self, seq: u64) -> bool {
        self.words.get(self.index(seq)).is_some_and(|word| word >> (seq & 63) & 1 == 1)
    }

    #[inline]
    fn advance_to(&mut self, seq: u64) {
        if seq <= self.highest {
            return;
        }
        let fresh_words = (seq >> 6).saturating_sub(self.highest >> 6);
        if fresh_words >= self.words.len() as u64 {
            self.words.fill(0);
        } else {
            for ahead in 1..=fresh_words {
                if let Some(word) = self.word(self.highest.saturating_add(ahead << 6)) {
                    *word = 0;
                }
            }
        }
        self.highest = seq;
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
mod tests;
