//! Hears every frame on one interface, of either direction.

use crate::{Error, sys};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, Read};
use std::mem;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::time::Duration;

/// So much may wait until it is read.
const RECEIVE_BUFFER: usize = 8 << 20;

/// A packet socket for Ethernet frames.
#[derive(Debug)]
pub struct Capture(Socket);

impl Capture {
    /// Listens on the interface with this index of the present network namespace.
    pub fn open(index: u32) -> Result<Self, Error> {
        let open = || {
            // A socket of protocol 0 hears nothing until it is bound, so nothing of another interface slips in.
            let socket = Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(0)))?;
            let bytes = RECEIVE_BUFFER as i32;
            if sys::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes).is_err() {
                socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
            }
            socket.set_nonblocking(true)?;
            sys::bind_packet(socket.as_fd(), libc::ETH_P_ALL as u16, index)?;
            Ok(socket)
        };
        open().map(Self).map_err(|error| Error::new("capture", error))
    }

    /// The next frame's length, or `None` if none comes in `patience`. What does not fit into `buffer` is cut off.
    pub fn next(&self, buffer: &mut [u8], patience: Duration) -> io::Result<Option<usize>> {
        sys::poll_readable(&[self.0.as_fd()], &mut [false], patience)?;
        match (&self.0).read(buffer) {
            Ok(len) => Ok(Some(len)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// How many frames passed unheard since this was last asked, for lack of room.
    pub fn lost(&self) -> io::Result<u32> {
        // SAFETY: tpacket_stats is two numbers, for which zero is a valid value.
        let mut stats: libc::tpacket_stats = unsafe { mem::zeroed() };
        let mut len = mem::size_of_val(&stats) as u32;
        // SAFETY: the pointers are to one tpacket_stats and to its size, which live for the whole call.
        sys::check(unsafe {
            libc::getsockopt(
                self.0.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                ptr::from_mut(&mut stats).cast(),
                &mut len,
            )
        })?;
        Ok(stats.tp_drops)
    }
}
