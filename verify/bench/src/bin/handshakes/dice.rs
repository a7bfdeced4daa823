//! Numbers that look random and cost nothing.

use casemate_crypto::Rng;

/// splitmix64. Not for secrets, except those of a benchmark.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new() -> Self {
        Self(std::process::id().into())
    }
}

impl Rng for Dice {
    fn public(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            chunk.copy_from_slice(&(z ^ (z >> 31)).to_le_bytes()[..chunk.len()]);
        }
    }

    fn secret(&mut self, out: &mut [u8]) {
        self.public(out);
    }
}
