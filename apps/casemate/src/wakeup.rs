//! Wakes a thread that waits in poll(2) or epoll(7): a pair of sockets, of which one end becomes readable.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

/// Wakes a thread when dropped.
pub(crate) struct Waker(pub(crate) UnixStream);

impl Drop for Waker {
    fn drop(&mut self) {
        signal(&self.0);
    }
}

/// Makes the other end readable. A full buffer means that it is already.
pub(crate) fn signal(mut waker: &UnixStream) {
    let _ = waker.write(b"!");
}

/// Clears the wake-up; bytes that are left over cause only a spurious wake-up.
pub(crate) fn clear(mut wake: &UnixStream) {
    let _ = wake.read(&mut [0; 64]);
}

/// A pair of sockets that never block.
pub(crate) fn pair() -> io::Result<(UnixStream, UnixStream)> {
    let (here, there) = UnixStream::pair()?;
    here.set_nonblocking(true)?;
    there.set_nonblocking(true)?;
    Ok((here, there))
}
