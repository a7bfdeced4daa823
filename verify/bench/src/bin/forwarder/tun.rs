//! TUN interface with super-packets: IFF_VNET_HDR, and offload of checksums and segmentation.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

/// `TUN_F_CSUM`, `TUN_F_TSO4`, `TUN_F_USO4` and `TUN_F_USO6` of linux/if_tun.h. The kernel accepts the last
/// two only together.
const OFFLOADS: libc::c_uint = 0x01 | 0x02 | 0x20 | 0x40;

/// Receiver of packets from the wire.
pub(crate) trait Sink {
    /// Writes a packet with its virtio header.
    fn write(&self, super_packet: &[u8]) -> io::Result<()>;
}

/// Open TUN interface.
#[derive(Debug)]
pub(crate) struct Tun(File);

impl Tun {
    /// Creates the interface. The caller sets its addresses and brings it up.
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
        // SAFETY: TUNSETIFF reads and writes one ifreq, which lives until the call returns.
        check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &mut request) })?;
        // SAFETY: TUNSETOFFLOAD takes a number.
        check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(OFFLOADS)) })?;
        Ok(Self(file))
    }

    /// Reads the next packet of the host with its virtio header; `None` if there is none.
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
            // The interface is still down, and drops packets like any interface.
            Err(error) if error.raw_os_error() == Some(libc::EIO) => Ok(()),
            result => result.map(|_| ()),
        }
    }
}

/// Waits until the descriptor is readable.
pub(crate) fn wait(descriptor: RawFd) -> io::Result<()> {
    let mut descriptors = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
    // SAFETY: the count is 1, and the one descriptor lives until the call returns.
    check(unsafe { libc::poll(&mut descriptors, 1, -1) })
}

/// Error of a system call that returned -1.
pub(crate) fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Length of the header.
pub(crate) const VIRTIO_LEN: usize = 10;

/// Flag: the checksum field contains only the sum over the pseudo header.
const NEEDS_CSUM: u8 = 1;

/// Type of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Single packet.
    Single,
    /// TCP segments over IPv4, with this payload length each.
    Tcp(usize),
    /// UDP datagrams over IPv4 or IPv6, with this payload length each.
    Udp(usize),
}

/// Fields of the header that do not follow from the packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    /// Offset at which the covered bytes of an incomplete checksum start, and the offset of the checksum
    /// behind it.
    pub(crate) checksum: Option<(usize, usize)>,
}

impl Header {
    /// Single packet with a complete checksum.
    pub(crate) const PLAIN: Self = Self { kind: Kind::Single, checksum: None };

    /// Splits the buffer into the header and the packet.
    pub(crate) fn split(bytes: &[u8]) -> (Self, &[u8]) {
        let (header, packet) = bytes.split_at(VIRTIO_LEN);
        let word = |at: usize| usize::from(u16::from_ne_bytes([header[at], header[at + 1]]));
        // The upper bit reports an ECN mark of the first segment.
        let kind = match header[1] & 0x7f {
            1 => Kind::Tcp(word(4)),
            5 => Kind::Udp(word(4)),
            _ => Kind::Single,
        };
        let checksum = (header[0] & NEEDS_CSUM != 0).then(|| (word(6), word(8)));
        (Self { kind, checksum }, packet)
    }

    /// Encoded header of a packet whose headers are `headers` bytes long.
    pub(crate) fn bytes(self, headers: usize) -> [u8; VIRTIO_LEN] {
        let (kind, size) = match self.kind {
            Kind::Single => (0, 0),
            Kind::Tcp(size) => (1, size),
            Kind::Udp(size) => (5, size),
        };
        let (start, offset) = self.checksum.unwrap_or_default();
        let mut bytes = [0; VIRTIO_LEN];
        bytes[0] = if self.checksum.is_some() { NEEDS_CSUM } else { 0 };
        bytes[1] = kind;
        for (at, value) in [(2, headers), (4, size), (6, start), (8, offset)] {
            bytes[at..at + 2].copy_from_slice(
                &u16::try_from(value).expect("lengths of packets fit in 16 bits").to_ne_bytes(),
            );
        }
        bytes
    }
}
