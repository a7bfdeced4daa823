//! The signals that end the program, as something to poll.

use crate::{Error, sys};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Readable once SIGINT, SIGTERM or SIGHUP has come.
#[derive(Debug)]
pub struct Signals(OwnedFd);

impl Signals {
    /// Takes the signals over. To be called before the program starts threads, which inherit this.
    pub fn block() -> Result<Self, Error> {
        sys::signal_fd(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP])
            .map(Self)
            .map_err(|error| Error::new("signals", error))
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
