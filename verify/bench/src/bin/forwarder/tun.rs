//! A TUN interface with super-packets: IFF_VNET_HDR, and offload of checksums and segmentation.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

/// `TUN_F_CSUM`, `TUN_F_TSO4`, `TUN_F_USO4` and `TUN_F_USO6` of linux/if_tun.h. The kernel takes both of the latter or none.
const OFFLOADS: libc::c_uint = 0x01 | 0x02 | 0x20 | 0x40;

/// Where packets go that have come over the wire.
pub(crate) trait Sink {
    /// Takes a packet with its header in front.
    fn write(&self, super_packet: &[u8]) -> io::Result<()>;
}

/// An open TUN interface.
#[derive(Debug)]
pub(crate) struct Tun(File);

impl Tun {
    /// Makes the interface; its addresses and its being up are the caller's.
    pub(crate) fn create(name: &str) -> io::Result<Self> {
        let file = File::options()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open("/dev/net/tun")?;
        // SAFETY: ifreq is plain data, for which all zeros are valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(libc::IFNAMSIZ - 1)) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
        // SAFETY: TUNSETIFF reads and writes one ifreq, which lives until the call is over.
        check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &mut request) })?;
        // SAFETY: TUNSETOFFLOAD takes a number.
        check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(OFFLOADS)) })?;
        Ok(Self(file))
    }

    /// The next packet of the host, with its header; `None` if there is none.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match (&self.0).read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            result => result.map(Some),
        }
    }

    /// Waits for a packet of the host.
    pub(crate) fn wait(&self) -> io::Result<()> {
        wait(self.0.as_raw_fd())
    }
}

impl Sink for Tun {
    fn write(&self, super_packet: &[u8]) -> io::Result<()> {
        match (&self.0).write(super_packet) {
            // The interface is not up yet: it loses what it gets, like any other.
            Err(error) if error.raw_os_error() == Some(libc::EIO) => Ok(()),
            result => result.map(|_| ()),
        }
    }
}

/// Waits until something can be read.
pub(crate) fn wait(descriptor: RawFd) -> io::Result<()> {
    let mut descriptors = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
    // SAFETY: one descriptor is passed, as is said, and it lives until the call is over.
    check(unsafe { libc::poll(&mut descriptors, 1, -1) })
}

/// The error of a system call that returned -1.
pub(crate) fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
