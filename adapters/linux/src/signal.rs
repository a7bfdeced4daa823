//! The signals that the program obeys, as something to poll.

use crate::{Error, sys};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd, BorrowedFd};

/// Readable once SIGINT, SIGTERM or SIGHUP has come.
#[derive(Debug)]
pub struct Signals(File);

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// SIGINT or SIGTERM: the end.
    End,
    /// SIGHUP: the configuration is to be read again.
    Hangup,
}

impl Signals {
    /// Takes the signals over. To be called before the program starts threads, which inherit this.
    pub fn block() -> Result<Self, Error> {
        sys::signal_fd(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP])
            .map(|fd| Self(fd.into()))
            .map_err(|error| Error::new("signals", error))
    }

    /// The signal that has come.
    pub(crate) fn take(&mut self) -> Option<Signal> {
        // signalfd_siginfo: 128 bytes, of which the first four are the signal's number.
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
