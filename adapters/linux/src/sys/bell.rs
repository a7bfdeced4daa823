//! Something that one thread rings and another one can wait for (eventfd(2)).

use super::check;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

/// Readable from the first ring on until it is silenced.
#[derive(Debug)]
pub(crate) struct Bell(File);

impl Bell {
    /// A silent one.
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: the call takes no pointers.
        let fd = check(unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) })?;
        // SAFETY: the descriptor is new and nobody else's.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }.into()))
    }

    /// Rings.
    pub(crate) fn ring(&self) {
        // It fails only if it has rung 2^64 times in a row, and then it rings.
        let _ = (&self.0).write(&1u64.to_ne_bytes());
    }

    /// Stops ringing.
    pub(crate) fn silence(&self) {
        // It fails only if there is silence.
        let _ = (&self.0).read(&mut [0; 8]);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::super::poll_readable;
    use super::*;
    use std::time::Duration;

    #[test]
    fn rings_until_it_is_silenced() {
        let bell = Bell::new().unwrap();
        let rings = || {
            let mut ready = [false];
            poll_readable(&[bell.as_fd()], &mut ready, Duration::ZERO).unwrap();
            ready[0]
        };
        assert!(!rings());
        bell.ring();
        bell.ring();
        assert!(rings());
        bell.silence();
        assert!(!rings());
        bell.silence();
    }
}
