//! One process's end of a session: memory, and the socket that is its doorbell.

use crate::Memory;
use casemate_rings::Transport;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicU64;

/// An end of a session.
#[derive(Debug)]
pub struct Link {
    memory: Memory,
    bell: UnixStream,
}

/// What the doorbell says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rung {
    /// The other process is there. What it has rung for before is to be looked at now.
    Alive,
    /// It has ended.
    Ended,
}

/// Rings that are taken at once; more are taken the next time.
const RINGS: usize = 256;

impl Link {
    pub(crate) const fn new(memory: Memory, bell: UnixStream) -> Self {
        Self { memory, bell }
    }

    /// Silences the doorbell, and says whether somebody is there at all. Look at the memory afterwards, not before.
    pub fn hush(&self) -> Rung {
        hush(&self.bell)
    }

    /// The doorbell a second time, to wait for it while somebody else has the link.
    pub(crate) fn bell(&self) -> std::io::Result<UnixStream> {
        self.bell.try_clone()
    }
}

pub(crate) fn hush(bell: &UnixStream) -> Rung {
    let mut rings = [0; RINGS];
    // Descriptors that come along are closed by the kernel: nobody asks for them.
    match recv(bell, &mut rings, RecvFlags::DONTWAIT) {
        Ok((_, 0)) => Rung::Ended,
        Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Rung::Alive,
        Err(_) => Rung::Ended,
    }
}

impl AsFd for Link {
    /// The doorbell: readable when the other side has rung or ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl Transport for Link {
    fn memory(&self) -> &[AtomicU64] {
        self.memory.words()
    }

    fn ring(&self) {
        // A full socket is rung enough, and the end of the other process is found out by `hush`.
        let _ = send(&self.bell, b"!", SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}
