//! A TUN interface that hands over one packet at a time, with nothing in front of it, as a device driver once did.
//!
//! What moves packets for a user is in `adapters/linux`, which takes many segments in one piece. Experiments that ask what a packet
//! costs must not.

use crate::sys;
use crate::{Error, Result};
use std::fs::File;
use std::io::{self, Read, Write};

const DEVICE: &str = "/dev/net/tun";

/// The interface; it is gone with the last copy. Reading waits for a packet.
#[derive(Debug)]
pub struct Tun(File);

impl Tun {
    /// Makes the interface `name` in this process's network namespace. It is not switched on yet.
    pub fn create(name: &str) -> Result<Self> {
        let file = File::options().read(true).write(true).open(DEVICE).map_err(Error::in_front(DEVICE))?;
        sys::make_tun(&file, name).map_err(Error::in_front(format!("TUN interface {name}")))?;
        Ok(Self(file))
    }

    /// The next packet that the host sends; its length.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        (&self.0).read(buffer)
    }

    /// Hands the host a packet.
    pub fn deliver(&self, packet: &[u8]) -> io::Result<()> {
        (&self.0).write(packet).map(drop)
    }

    /// The same interface, for another thread.
    pub fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }
}
