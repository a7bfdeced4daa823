//! TAP interface, for a network stack other than the kernel's: it connects the stack with this host.
//!
//! It carries Ethernet frames without a header in front (IFF_NO_PI) and is non-blocking. If an interface
//! exists for this user, or for root, it is used; otherwise one is created, which ends with the process.

use crate::netlink::Netlink;
use crate::{Error, sys};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

const CLONE_DEVICE: &str = "/dev/net/tun";

/// An open TAP interface.
#[derive(Debug)]
pub struct Tap {
    file: File,
    mtu: usize,
}

impl Tap {
    /// Opens the interface `name` and switches it on.
    pub fn open(name: &str, netlink: &mut Netlink) -> Result<Self, Error> {
        let file = File::options()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open(CLONE_DEVICE)
            .map_err(|error| Error::new(CLONE_DEVICE, error))?;
        let failed = |error| Error::new(format!("TAP interface {name}"), error);
        sys::tun_set_iff(file.as_fd(), name, libc::IFF_TAP | libc::IFF_NO_PI).map_err(failed)?;
        let link = netlink.link(name)?;
        match netlink.set_up(link.index, link.mtu) {
            // The user who created the interface for us switches it on.
            Err(error) if error.raw_os_error() != Some(libc::EPERM) => return Err(error),
            _ => {}
        }
        Ok(Self { file, mtu: link.mtu })
    }

    /// MTU of the interface when it was opened, in bytes.
    pub const fn mtu(&self) -> usize {
        self.mtu
    }

    /// Receives a frame and returns its length; `None` if no frame waits.
    #[inline]
    pub fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match self.file.read(buffer) {
            Ok(len) => Ok(Some(len)),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Sends a frame.
    #[inline]
    pub fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        self.file.write(frame).map(drop)
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
