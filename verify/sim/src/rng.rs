//! Repeatable pseudo-random numbers.

use casemate_crypto::Rng;
use std::time::Duration;

/// Splitmix64 generator.
#[derive(Debug, Clone)]
pub(crate) struct TestRng(u64);

impl TestRng {
    /// Generator with this seed. Streams of neighbouring seeds are unrelated.
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Self(seed ^ 0x005E_ED0F_CA5E_3A7E);
        rng.next();
        rng
    }

    /// Independent generator, for a component whose draws must not shift the draws of other components.
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

    /// Number below `limit`. `limit` must not be zero.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// True with a probability of `cases` / 1000.
    pub(crate) fn per_mille(&mut self, cases: u32) -> bool {
        self.next() % 1_000 < u64::from(cases)
    }

    /// True with a probability of one half.
    pub(crate) fn coin(&mut self) -> bool {
        self.next() & 1 == 1
    }

    /// Random element of a slice that is not empty.
    pub(crate) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    /// Random duration from `from` to `to`, in whole milliseconds.
    pub(crate) fn time(&mut self, from: Duration, to: Duration) -> Duration {
        let spread = (to - from).as_millis() as u64 + 1;
        from + Duration::from_millis(self.next() % spread)
    }
}

impl Rng for TestRng {
    fn public(&mut self, out: &mut [u8]) {
        self.secret(out);
    }

    fn secret(&mut self, out: &mut [u8]) {
        for bytes in out.chunks_mut(8) {
            bytes.copy_from_slice(&self.next().to_be_bytes()[..bytes.len()]);
        }
    }
}
