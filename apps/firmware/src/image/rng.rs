//! Randomness: two ChaCha20 streams, each with a seed of its own from the processor's RDRAND.
//!
//! The streams share nothing, so what is visible of one (IVs) says nothing about the other (keys). A machine without RDRAND is
//! refused: it has nothing else that an observer could not guess.

use crate::Trouble;
use crate::cpu;
use casemate_crypto::Rng;
use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng as _, SeedableRng};
use core::arch::x86_64::_rdrand64_step;
use zeroize::Zeroizing;

/// How often RDRAND is asked again when it has nothing (Intel's software implementation guide, section 5.2.1).
const ATTEMPTS: u32 = 10;

/// The processor's random source, stretched.
pub(crate) struct HardwareRng {
    public: ChaCha20Rng,
    secret: ChaCha20Rng,
}

impl HardwareRng {
    /// Seeds both streams.
    pub(crate) fn new() -> Result<Self, Trouble> {
        if !cpu::has_rdrand() {
            return Err("the processor has no RDRAND, and without random numbers there is no security");
        }
        Ok(Self { public: stream()?, secret: stream()? })
    }

    /// A random number that nobody outside may learn.
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

fn stream() -> Result<ChaCha20Rng, Trouble> {
    let mut seed = Zeroizing::new([0; 32]);
    let mut before = 0;
    for part in seed.chunks_exact_mut(8) {
        let word = random().ok_or("RDRAND gives nothing")?;
        // Processors are known whose RDRAND gives the same number again and again after some events.
        if word == before || word == u64::MAX {
            return Err("RDRAND does not give random numbers");
        }
        before = word;
        part.copy_from_slice(&word.to_ne_bytes());
    }
    Ok(ChaCha20Rng::from_seed(*seed))
}

fn random() -> Option<u64> {
    let mut word = 0;
    // SAFETY: the caller has asked the processor whether it has RDRAND.
    (0..ATTEMPTS).any(|_| unsafe { _rdrand64_step(&mut word) } == 1).then_some(word)
}
