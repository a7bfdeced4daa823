//! Transport of a session: shared memory and a Unix socket for notifications.

use crate::SharedMemory;
use casemate_socketd_protocol::Transport;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// One end of a session.
#[derive(Debug)]
pub struct ShmTransport {
    memory: SharedMemory,
    socket: UnixStream,
}

/// State of the process at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerState {
    /// The process is connected. It may have sent notifications: check the rings.
    Alive,
    /// The process has closed the connection or ended.
    Closed,
}

/// Maximum number of notifications that one call reads. The next call reads the rest.
const MAX_NOTIFICATIONS: usize = 256;

impl ShmTransport {
    pub(crate) const fn new(memory: SharedMemory, socket: UnixStream) -> Self {
        Self { memory, socket }
    }

    /// Reads pending notifications, and returns whether the peer is still connected. Check the rings
    /// after this call, not before.
    pub fn clear_notifications(&self) -> PeerState {
        drain_notifications(&self.socket)
    }

    /// Duplicates the notification socket, for a thread that waits for it while another thread uses the
    /// transport.
    pub(crate) fn try_clone_socket(&self) -> std::io::Result<UnixStream> {
        self.socket.try_clone()
    }
}

pub(crate) fn drain_notifications(socket: &UnixStream) -> PeerState {
    let mut notifications = [0; MAX_NOTIFICATIONS];
    // The kernel closes file descriptors that arrive with the bytes, because no control buffer is given.
    match recv(socket, &mut notifications, RecvFlags::DONTWAIT) {
        Ok((_, 0)) => PeerState::Closed,
        Ok(_) | Err(Errno::AGAIN | Errno::INTR) => PeerState::Alive,
        Err(_) => PeerState::Closed,
    }
}

impl AsFd for ShmTransport {
    /// Returns the notification socket. It is readable when the peer has sent a notification or closed
    /// the connection.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Transport for ShmTransport {
    fn memory(&self) -> &[AtomicU64] {
        self.memory.words()
    }

    fn notify(&self) {
        // A full socket is notification enough. `clear_notifications` detects that the peer has ended.
        let _ = send(&self.socket, b"!", SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}

/// Waits until one of the descriptors is readable or has an error, or until `limit` is over. A limit beyond
/// the range of the system's time is no limit. Returns for each descriptor whether it is ready. May return
/// early because of a signal.
pub fn poll_readable(descriptors: &[BorrowedFd<'_>], limit: Duration) -> Vec<bool> {
    let mut polled: Vec<PollFd<'_>> =
        descriptors.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    let limit = Timespec::try_from(limit).ok();
    // On an error no descriptor is ready, and the caller tries again.
    let _ = poll(&mut polled, limit.as_ref());
    polled.iter().map(|polled| !polled.revents().is_empty()).collect()
}
