//! Sends Ethernet frames as they are, past routes and packet filters of the namespace that it is opened in.

use crate::{Error, sys};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::os::fd::AsFd;

/// A packet socket that only sends.
#[derive(Debug)]
pub struct Inject(Socket);

impl Inject {
    /// Sends on the interface with this index of the present network namespace.
    pub fn open(index: u32) -> Result<Self, Error> {
        let open = || {
            // Bound to EtherType 0 it receives nothing.
            let socket = Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(0)))?;
            sys::bind_packet(socket.as_fd(), 0, index)?;
            Ok(socket)
        };
        open().map(Self).map_err(|error| Error::new("packet socket to send", error))
    }

    /// Sends a frame, its Ethernet header included.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        self.0.send(frame).map(drop)
    }
}
