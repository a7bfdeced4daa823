//! A TUN interface: the door between the host's own IP stack and the data path.
//!
//! Whole IP packets without any header in front (IFF_NO_PI), non-blocking. The interface belongs to the process: when the
//! process ends, however it ends, the kernel removes it with every route that leads into it.

use crate::netlink::Netlink;
use crate::{Error, sys};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

const CLONE_DEVICE: &str = "/dev/net/tun";

/// An open TUN interface.
#[derive(Debug)]
pub struct Tun {
    file: File,
    name: String,
    index: u32,
}

impl Tun {
    /// Makes the interface `name`, gives it this MTU and switches it on.
    pub fn create(name: &str, mtu: usize, netlink: &mut Netlink) -> Result<Self, Error> {
        let file = File::options()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open(CLONE_DEVICE)
            .map_err(|error| Error::new(CLONE_DEVICE, error))?;
        let failed = |error| Error::new(format!("TUN interface {name}"), error);
        sys::tun_set_iff(file.as_fd(), name, libc::IFF_TUN | libc::IFF_NO_PI).map_err(failed)?;
        let index = netlink.link(name)?.index;
        no_link_local(name);
        netlink.set_up(index, mtu)?;
        Ok(Self { file, name: name.into(), index })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its interface index.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Takes the next packet that the host sends; `None` if there is none.
    #[inline]
    pub fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match self.file.read(buffer) {
            Ok(len) => Ok(Some(len)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Hands the host a packet.
    #[inline]
    pub fn deliver(&mut self, packet: &[u8]) -> io::Result<()> {
        self.file.write(packet).map(drop)
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The interface needs no address of its own, and neighbour discovery on it would only meet the policies.
fn no_link_local(name: &str) {
    // Without IPv6 in the kernel there is no such file, and nothing to prevent.
    let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/addr_gen_mode"), "1");
}
