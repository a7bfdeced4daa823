//! Random numbers: two ChaCha20 generators, each with its own seed from RDRAND.
//!
//! The generators share no state, so public output such as IVs reveals nothing about keys. A processor
//! without RDRAND is refused, because the machine has no other source of entropy.

use crate::BootError;
use crate::cpu;
use casemate_crypto::Rng;
use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng as _, SeedableRng};
use core::arch::x86_64::_rdrand64_step;
use zeroize::Zeroizing;

/// Number of attempts to read RDRAND (Intel's software implementation guide, section 5.2.1).
const ATTEMPTS: u32 = 10;

/// Generators seeded by the processor.
pub(crate) struct HardwareRng {
    public: ChaCha20Rng,
    secret: ChaCha20Rng,
}

impl HardwareRng {
    /// Seeds both generators. Returns an error if RDRAND is missing or broken.
    pub(crate) fn new() -> Result<Self, BootError> {
        if !cpu::has_rdrand() {
            return Err("the processor has no RDRAND, which is needed to generate keys");
        }
        Ok(Self { public: stream()?, secret: stream()? })
    }

    /// Returns a secret random number.
    pub(crate) fn secret_u64(&mut self) -> u64 {
        self.secret.next_u64()
    }
}

impl Rng for HardwareRng {
    fn public(&mut self, out: &mut [u8]) {
        self.public.fill_bytes(out);
    }

    fn secret(&mut self, out: &mut [u8]) {
        self.secret.fill_bytes(out);
    }
}

fn stream() -> Result<ChaCha20Rng, BootError> {
    let mut seed = Zeroizing::new([0; 32]);
    let mut before = 0;
    for part in seed.chunks_exact_mut(8) {
        let word = random().ok_or("RDRAND returns no data")?;
        // Some processors have returned the same number repeatedly after certain events.
        if word == before || word == u64::MAX {
            return Err("RDRAND does not return random numbers");
        }
        before = word;
        part.copy_from_slice(&word.to_ne_bytes());
    }
    Ok(ChaCha20Rng::from_seed(*seed))
}

fn random() -> Option<u64> {
    let mut word = 0;
    // SAFETY: the caller has checked that the processor has RDRAND.
    (0..ATTEMPTS).any(|_| unsafe { _rdrand64_step(&mut word) } == 1).then_some(word)
}
