//! Deterministic random numbers, and random sources with known values.

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

/// Random source whose values are known: each value consists of one byte. It counts the values.
#[derive(Debug, Clone)]
pub struct FixedRng {
    byte: u8,
    step: u8,
    public_draws: usize,
    secret_draws: usize,
}

impl FixedRng {
    /// Returns a source whose values all consist of `byte`.
    pub const fn new(byte: u8) -> Self {
        Self { byte, step: 0, public_draws: 0, secret_draws: 0 }
    }

    /// Returns a source whose first value consists of the byte `first`, and each later value of a byte that
    /// is larger by one.
    pub const fn increasing(first: u8) -> Self {
        Self { step: 1, ..Self::new(first) }
    }

    /// Number of values drawn so far that are visible on the wire.
    pub const fn public_draws(&self) -> usize {
        self.public_draws
    }

    /// Number of secret values drawn so far.
    pub const fn secret_draws(&self) -> usize {
        self.secret_draws
    }

    fn fill(&mut self, out: &mut [u8]) {
        out.fill(self.byte);
        self.byte = self.byte.wrapping_add(self.step);
    }
}

impl Rng for FixedRng {
    fn public(&mut self, out: &mut [u8]) {
        self.public_draws += 1;
        self.fill(out);
    }

    fn secret(&mut self, out: &mut [u8]) {
        self.secret_draws += 1;
        self.fill(out);
    }
}

/// Random source whose bytes count up, from the given one. After 255 comes 0.
#[derive(Debug, Clone)]
pub struct CountingRng(pub u8);

impl Rng for CountingRng {
    fn public(&mut self, out: &mut [u8]) {
        self.secret(out);
    }

    fn secret(&mut self, out: &mut [u8]) {
        for byte in out {
            *byte = self.0;
            self.0 = self.0.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values_and_their_numbers() {
        let mut out = [0; 3];
        let mut fixed = FixedRng::new(7);
        fixed.public(&mut out);
        fixed.secret(&mut out);
        assert_eq!((out, fixed.public_draws(), fixed.secret_draws()), ([7; 3], 1, 1));
        let mut increasing = FixedRng::increasing(255);
        increasing.secret(&mut out);
        assert_eq!(out, [255; 3]);
        increasing.secret(&mut out);
        assert_eq!((out, increasing.secret_draws()), ([0; 3], 2));
        CountingRng(254).public(&mut out);
        assert_eq!(out, [254, 255, 0]);
    }

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
