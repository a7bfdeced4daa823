//! Packet sockets for whole Ethernet frames: one that captures them and one that sends them.

use crate::{Error, sys};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, Read};
use std::mem;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::time::Duration;

/// Bytes that may wait to be read.
const RECEIVE_BUFFER: usize = 8 << 20;

/// Captures every frame on one interface.
#[derive(Debug)]
pub struct FrameCapture(Socket);

impl FrameCapture {
    /// Captures in both directions on the interface with this index of the current network namespace.
    pub fn open(index: u32) -> Result<Self, Error> {
        Self::open_with(index, true)
    }

    /// Captures only the frames that the interface receives. On a port of a bridge, these are the frames of
    /// the host behind the port, each of them once.
    pub fn open_received(index: u32) -> Result<Self, Error> {
        Self::open_with(index, false)
    }

    fn open_with(index: u32, with_sent: bool) -> Result<Self, Error> {
        let open = || {
            // A socket of protocol 0 receives nothing until it is bound, so no frame of another interface is
            // captured.
            let socket = Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(0)))?;
            let bytes = RECEIVE_BUFFER as i32;
            if sys::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes).is_err() {
                socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
            }
            if !with_sent {
                sys::set_option(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
            }
            socket.set_nonblocking(true)?;
            sys::bind_packet(socket.as_fd(), libc::ETH_P_ALL as u16, index)?;
            Ok(socket)
        };
        open().map(Self).map_err(|error| Error::new("capture", error))
    }

    /// Returns the length of the next frame, or `None` if none arrives within `timeout`. A frame that does
    /// not fit into `buffer` is truncated.
    pub fn next(&self, buffer: &mut [u8], timeout: Duration) -> io::Result<Option<usize>> {
        sys::poll_readable(&[self.0.as_fd()], &mut [false], timeout)?;
        match (&self.0).read(buffer) {
            Ok(len) => Ok(Some(len)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Number of frames lost since the last call, because the buffer was full.
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

/// Sends frames unchanged, past the routes and packet filters of its namespace.
#[derive(Debug)]
pub struct FrameInjector(Socket);

impl FrameInjector {
    /// Sends on the interface with this index of the current network namespace.
    pub fn open(index: u32) -> Result<Self, Error> {
        let open = || {
            // Bound to EtherType 0, the socket receives nothing.
            let socket = Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(0)))?;
            sys::bind_packet(socket.as_fd(), 0, index)?;
            Ok(socket)
        };
        open().map(Self).map_err(|error| Error::new("packet socket to send", error))
    }

    /// Sends a frame, including its Ethernet header.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        self.0.send(frame).map(drop)
    }
}
