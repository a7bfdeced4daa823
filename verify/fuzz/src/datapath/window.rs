//! The anti-replay window in its plainest form: the set of numbers received.

use std::collections::BTreeSet;

/// What a receiver of RFC 4303 section 3.4.3 remembers.
#[derive(Debug, Clone)]
pub(super) struct Window {
    size: u64,
    /// Everything up to here counts as received.
    base: u64,
    highest: u64,
    seen: BTreeSet<u64>,
}

impl Window {
    pub(super) fn new(size: u32, base: u64) -> Self {
        Self { size: size.into(), base, highest: base, seen: BTreeSet::new() }
    }

    pub(super) fn highest(&self) -> u64 {
        self.highest
    }

    /// Whether a true packet with this number is to be taken.
    pub(super) fn is_new(&self, seq: u64) -> bool {
        self.size == 0 || seq > self.highest || self.highest - seq < self.size && !self.is_marked(seq)
    }

    pub(super) fn commit(&mut self, seq: u64) {
        self.highest = self.highest.max(seq);
        self.seen.insert(seq);
    }

    /// The newest 64 numbers as a bitmap, bit 0 the highest.
    pub(super) fn recent(&self) -> u64 {
        (0..64.min(self.size))
            .filter(|back| self.highest.checked_sub(*back).is_some_and(|seq| seq > 0 && self.is_marked(seq)))
            .fold(0, |bits, back| bits | 1 << back)
    }

    fn is_marked(&self, seq: u64) -> bool {
        seq <= self.base || self.seen.contains(&seq)
    }
}
