//! What the engine needs from its process: time, random numbers, and signals as a descriptor.

use crate::{Error, sys};
use casemate_crypto::Rng;
use casemate_sa::Instant;
use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng as _, SeedableRng};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd};
use zeroize::Zeroizing;

/// A monotonic clock: microseconds since its start.
#[derive(Debug, Clone, Copy)]
pub struct Clock(std::time::Instant);

impl Clock {
    /// Starts a clock at zero.
    pub fn start() -> Self {
        Self(std::time::Instant::now())
    }

    /// The current time.
    #[inline]
    pub fn now(&self) -> Instant {
        Instant::from_micros(u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX))
    }
}

/// Random numbers: two ChaCha20 streams, each with its own seed from the operating system.
///
/// A system call for each 16-byte IV would cost more than sealing the packet. The streams share no state, so
/// the visible one (IVs) reveals nothing about the secret one (keys).
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

/// Readable once SIGINT, SIGTERM, SIGUSR1 or SIGHUP has arrived.
#[derive(Debug)]
pub struct Signals(File);

/// How a run ends that a signal has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnd {
    /// SIGINT or SIGTERM: all changes to the system are undone.
    Stop,
    /// SIGUSR1: another run follows. The guard stays, so that protected traffic does not leave in clear in
    /// between.
    Restart,
}

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// End the run.
    End(RunEnd),
    /// SIGHUP: read the configuration again.
    Hangup,
}

impl Signals {
    /// Blocks the signals and opens the descriptor. Must be called before the program starts threads, which
    /// inherit the signal mask.
    pub fn block() -> Result<Self, Error> {
        sys::signal_fd(&[libc::SIGINT, libc::SIGTERM, libc::SIGUSR1, libc::SIGHUP])
            .map(|fd| Self(fd.into()))
            .map_err(|error| Error::new("signals", error))
    }

    /// Takes a signal that has arrived.
    pub(crate) fn take(&mut self) -> Option<Signal> {
        // signalfd_siginfo has 128 bytes; the first four are the signal number.
        let mut info = [0; 128];
        let len = self.0.read(&mut info).ok()?;
        let number = u32::from_ne_bytes(*info.get(..len)?.first_chunk()?);
        Some(match i32::try_from(number).ok()? {
            libc::SIGHUP => Signal::Hangup,
            libc::SIGUSR1 => Signal::End(RunEnd::Restart),
            _ => Signal::End(RunEnd::Stop),
        })
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
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
