//! Randomness that comes again with its seed.

use casemate_crypto::Rng;
use std::time::Duration;

/// A stream of random numbers: splitmix64.
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    /// The stream of a seed. Neighbouring seeds have nothing in common.
    pub(crate) fn new(seed: u64) -> Self {
        let mut dice = Self(seed ^ 0x005E_ED0F_CA5E_3A7E);
        dice.next();
        dice
    }

    /// A stream of its own, for a part whose draws must not move those of others.
    pub(crate) fn fork(&mut self) -> Self {
        Self::new(self.next())
    }

    /// 64 random bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `limit`, which is not zero.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// Yes, in so many of a thousand cases.
    pub(crate) fn per_mille(&mut self, cases: u32) -> bool {
        self.next() % 1_000 < u64::from(cases)
    }

    /// Yes in half of all cases.
    pub(crate) fn coin(&mut self) -> bool {
        self.next() & 1 == 1
    }

    /// One of several.
    pub(crate) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    /// A time between two, in whole milliseconds; `from` is the shorter.
    pub(crate) fn time(&mut self, from: Duration, to: Duration) -> Duration {
        let spread = (to - from).as_millis() as u64 + 1;
        from + Duration::from_millis(self.next() % spread)
    }
}

impl Rng for Dice {
    fn public(&mut self, out: &mut [u8]) {
        self.secret(out);
    }

    fn secret(&mut self, out: &mut [u8]) {
        for bytes in out.chunks_mut(8) {
            bytes.copy_from_slice(&self.next().to_be_bytes()[..bytes.len()]);
        }
    }
}
