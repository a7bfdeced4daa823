//! The signals that the program handles, as a descriptor.

use crate::{Error, sys};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd, BorrowedFd};

/// Readable once SIGINT, SIGTERM or SIGHUP has arrived.
#[derive(Debug)]
pub struct Signals(File);

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// SIGINT or SIGTERM: end the run.
    End,
    /// SIGHUP: read the configuration again.
    Hangup,
}

impl Signals {
    /// Blocks the signals and opens the descriptor. Must be called before the program starts threads, which
    /// inherit the signal mask.
    pub fn block() -> Result<Self, Error> {
        sys::signal_fd(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP])
            .map(|fd| Self(fd.into()))
            .map_err(|error| Error::new("signals", error))
    }

    /// Takes a signal that has arrived.
    pub(crate) fn take(&mut self) -> Option<Signal> {
        // signalfd_siginfo has 128 bytes; the first four are the signal number.
        let mut info = [0; 128];
        let len = self.0.read(&mut info).ok()?;
        let number = u32::from_ne_bytes(*info.get(..len)?.first_chunk()?);
        let is_hangup = i32::try_from(number).is_ok_and(|number| number == libc::SIGHUP);
        Some(if is_hangup { Signal::Hangup } else { Signal::End })
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
