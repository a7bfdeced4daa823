//! Random numbers for the data path: two ChaCha20 streams, each with its own seed from the kernel.
//!
//! A system call for each 16-byte IV would cost more than sealing the packet. The streams share no state, so
//! the visible one (IVs) reveals nothing about the secret one (keys).

use crate::Error;
use casemate_crypto::Rng;
use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng as _, SeedableRng};
use std::io;
use zeroize::Zeroizing;

/// Two streams, seeded from the random source of the operating system.
pub struct SystemRng {
    public: ChaCha20Rng,
    secret: ChaCha20Rng,
}

impl SystemRng {
    /// Seeds both streams.
    pub fn new() -> Result<Self, Error> {
        Ok(Self { public: stream()?, secret: stream()? })
    }

    /// A secret random number.
    pub fn secret_u64(&mut self) -> u64 {
        self.secret.next_u64()
    }
}

impl Rng for SystemRng {
    #[inline]
    fn public(&mut self, out: &mut [u8]) {
        self.public.fill_bytes(out);
    }

    #[inline]
    fn secret(&mut self, out: &mut [u8]) {
        self.secret.fill_bytes(out);
    }
}

fn stream() -> Result<ChaCha20Rng, Error> {
    let mut seed = Zeroizing::new([0; 32]);
    getrandom::fill(&mut *seed).map_err(|error| Error::new("random numbers", io::Error::other(error)))?;
    Ok(ChaCha20Rng::from_seed(*seed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_from_each_other_and_between_runs() {
        let take = |rng: &mut SystemRng| {
            let (mut public, mut secret) = ([0; 32], [0; 32]);
            rng.public(&mut public);
            rng.secret(&mut secret);
            [public, secret]
        };
        let (mut a, mut b) = (SystemRng::new().unwrap(), SystemRng::new().unwrap());
        let mut all = [take(&mut a), take(&mut a), take(&mut b)].concat();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 6);
    }
}
