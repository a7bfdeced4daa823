//! Deterministic random numbers.

use alloc::vec::Vec;
use casemate_crypto::Rng;
use core::time::Duration;

/// SplitMix64 generator. The same seed gives the same numbers on all machines.
///
/// It seeds the simulations of `verify/sim`: another algorithm changes every run and every recorded digest.
#[derive(Debug, Clone)]
pub struct TestRng(u64);

impl TestRng {
    /// Returns a generator with this seed. Streams of neighbouring seeds are unrelated.
    pub const fn new(seed: u64) -> Self {
        let mut rng = Self(seed ^ 0x005E_ED0F_CA5E_3A7E);
        rng.next_u64();
        rng
    }

    /// Returns an independent generator, for a component whose draws must not shift the draws of others.
    pub fn fork(&mut self) -> Self {
        Self::new(self.next_u64())
    }

    /// Returns 64 random bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a number below `limit`. Panics if `limit` is zero.
    pub const fn below(&mut self, limit: usize) -> usize {
        (self.next_u64() % limit as u64) as usize
    }

    /// Returns this many random bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next_u64() as u8).collect()
    }

    /// Returns an array of random bytes.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        [(); N].map(|()| self.next_u64() as u8)
    }

    /// Inverts a random bit. Panics if `bytes` is empty.
    #[expect(clippy::indexing_slicing, reason = "the index is below the length")]
    pub fn flip_bit(&mut self, bytes: &mut [u8]) {
        let bit = self.below(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
    }

    /// Returns a number above 0 and at most 1.
    pub fn fraction(&mut self) -> f64 {
        ((self.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// Returns true with a probability of `cases` / 1000.
    pub const fn per_mille(&mut self, cases: u32) -> bool {
        self.next_u64() % 1_000 < cases as u64
    }

    /// Returns true with a probability of one half.
    pub const fn coin(&mut self) -> bool {
        self.next_u64() & 1 == 1
    }

    /// Returns a random element. Panics if the slice is empty.
    #[expect(clippy::indexing_slicing, reason = "the index is below the length")]
    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    /// Returns a random duration from `from` to `to`, in whole milliseconds.
    pub fn time(&mut self, from: Duration, to: Duration) -> Duration {
        let spread = (to - from).as_millis() as u64 + 1;
        from + Duration::from_millis(self.next_u64() % spread)
    }
}

impl Rng for TestRng {
    fn public(&mut self, out: &mut [u8]) {
        self.secret(out);
    }

    #[expect(clippy::indexing_slicing, reason = "a chunk has at most eight bytes")]
    fn secret(&mut self, out: &mut [u8]) {
        for bytes in out.chunks_mut(8) {
            bytes.copy_from_slice(&self.next_u64().to_be_bytes()[..bytes.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded digests of the simulator depend on the sequence.
    #[test]
    fn sequence_of_a_seed_does_not_change() {
        let mut rng = TestRng::new(0);
        let mut bytes = [0; 8];
        rng.clone().secret(&mut bytes);
        let first = rng.next_u64();
        assert_eq!(bytes, first.to_be_bytes());
        assert_eq!(first, 0x51AD_BB23_522B_B411);
    }

    #[test]
    fn bounds_are_kept() {
        let mut rng = TestRng::new(1);
        for limit in 1..200 {
            assert!(rng.below(limit) < limit);
            assert!((0.0..=1.0).contains(&rng.fraction()));
            let time = rng.time(Duration::from_millis(3), Duration::from_millis(5));
            assert!((3..=5).contains(&time.as_millis()));
        }
    }
}
