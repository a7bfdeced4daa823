//! The system calls that no safe crate at hand offers, each behind one safe function.
//!
//! Together with `netns` (which changes the calling thread's namespaces) the only unsafe code outside the AWS-LC provider.

use crate::BATCH;
use arrayvec::ArrayVec;
use libc::{c_int, c_void, iovec, mmsghdr, msghdr, sockaddr_storage};
use std::io;
use std::mem;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::Duration;

/// Turns the C way of saying "failed" into an error.
pub(crate) fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Waits until one of `fds` can be read, or `timeout` is over; `ready` says which. A signal ends the wait early.
pub(crate) fn poll_readable(fds: &[BorrowedFd<'_>], ready: &mut [bool], timeout: Duration) -> io::Result<()> {
    let mut polled: ArrayVec<libc::pollfd, 32> = ArrayVec::new();
    for fd in fds.iter().take(polled.capacity()) {
        polled.push(libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 });
    }
    // Rounded up, so that a wait of less than a millisecond does not become a busy loop.
    let millis = timeout.as_micros().div_ceil(1_000);
    let millis = c_int::try_from(millis).unwrap_or(c_int::MAX);
    // SAFETY: `polled` is a valid array of that many pollfd for the whole call.
    let result = check(unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, millis) });
    match result {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
        _ => {}
    }
    for (ready, polled) in ready.iter_mut().zip(&polled) {
        *ready = polled.revents != 0;
    }
    Ok(())
}

/// Room for the ancillary data of one datagram: packet info and TOS, of either IP version.
const CONTROL_LEN: usize = 128;

/// Where a received datagram came from and went to, as the kernel tells it.
#[derive(Clone, Copy)]
pub(crate) struct Meta {
    name: sockaddr_storage,
    control: Control,
    control_len: usize,
}

/// Aligned as `cmsghdr` has to be.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; CONTROL_LEN]);

impl Meta {
    pub(crate) fn new() -> Self {
        // SAFETY: sockaddr_storage is plain old data, for which all zeros is a valid value.
        let name = unsafe { mem::zeroed() };
        Self { name, control: Control([0; CONTROL_LEN]), control_len: 0 }
    }

    /// Source address and port.
    pub(crate) fn source(&self) -> Option<(IpAddr, u16)> {
        let name: *const sockaddr_storage = &self.name;
        match c_int::from(self.name.ss_family) {
            libc::AF_INET => {
                // SAFETY: sockaddr_storage is large enough and aligned for every address, and the family says which it is.
                let name = unsafe { &*name.cast::<libc::sockaddr_in>() };
                Some((IpAddr::from(name.sin_addr.s_addr.to_ne_bytes()), u16::from_be(name.sin_port)))
            }
            libc::AF_INET6 => {
                // SAFETY: as above.
                let name = unsafe { &*name.cast::<libc::sockaddr_in6>() };
                Some((IpAddr::from(name.sin6_addr.s6_addr), u16::from_be(name.sin6_port)))
            }
            _ => None,
        }
    }

    /// Destination address, and TOS or traffic class.
    pub(crate) fn destination(&self) -> (Option<IpAddr>, u8) {
        let (mut dst, mut tos) = (None, 0);
        let mut at = 0usize;
        // What CMSG_NXTHDR does, with checked slices: length (native word), level, type, data, padding to a word.
        let control = self.control.0.get(..self.control_len).unwrap_or_default();
        while let Some((len, level, kind, data)) = control.get(at..).and_then(parse_control) {
            match (level, kind) {
                // in_pktinfo: interface, the local address, then the header's destination.
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    let addr = data.get(8..12).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
                    dst = addr.map(IpAddr::from).or(dst);
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    dst = data.first_chunk::<16>().map(|addr| IpAddr::from(*addr)).or(dst);
                }
                (libc::IPPROTO_IP, libc::IP_TOS) => tos = data.first().copied().unwrap_or(0),
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    tos = data.first_chunk().map_or(0, |value| i32::from_ne_bytes(*value) as u8);
                }
                _ => {}
            }
            at = at.saturating_add(len.next_multiple_of(mem::size_of::<usize>()));
        }
        (dst, tos)
    }
}

/// Length, level, type and data of the ancillary message at the start of `bytes`.
fn parse_control(bytes: &[u8]) -> Option<(usize, c_int, c_int, &[u8])> {
    const WORD: usize = mem::size_of::<usize>();
    let len = usize::from_ne_bytes(*bytes.first_chunk::<WORD>()?);
    let level = c_int::from_ne_bytes(*bytes.get(WORD..)?.first_chunk()?);
    let kind = c_int::from_ne_bytes(*bytes.get(WORD.checked_add(4)?..)?.first_chunk()?);
    let data = bytes.get(WORD.checked_add(8)?..len)?;
    Some((len, level, kind, data))
}

/// Receives up to [`BATCH`] datagrams, one into each buffer, without waiting; `lens` gets their lengths. Answers how many
/// came. A datagram longer than its buffer is cut.
pub(crate) fn receive_batch(
    fd: BorrowedFd<'_>,
    buffers: &mut ArrayVec<&mut [u8], BATCH>,
    mut metas: Option<&mut [Meta; BATCH]>,
    lens: &mut [usize; BATCH],
) -> io::Result<usize> {
    let mut vectors: ArrayVec<iovec, BATCH> = ArrayVec::new();
    for buffer in buffers.iter_mut() {
        vectors.push(iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() });
    }
    let mut headers: ArrayVec<mmsghdr, BATCH> = ArrayVec::new();
    for (index, vector) in vectors.iter_mut().enumerate() {
        let mut header = empty_header();
        header.msg_iov = vector;
        header.msg_iovlen = 1;
        if let Some(meta) = metas.as_deref_mut().and_then(|metas| metas.get_mut(index)) {
            header.msg_name = ptr::from_mut(&mut meta.name).cast();
            header.msg_namelen = mem::size_of::<sockaddr_storage>() as u32;
            header.msg_control = meta.control.0.as_mut_ptr().cast();
            header.msg_controllen = CONTROL_LEN as _;
        }
        headers.push(mmsghdr { msg_hdr: header, msg_len: 0 });
    }
    // SAFETY: each header points to a vector, a name and a control buffer that live, unmoved and borrowed for writing, until
    // the end of this function, and gives their true sizes.
    let count = check(unsafe {
        libc::recvmmsg(
            fd.as_raw_fd(),
            headers.as_mut_ptr(),
            headers.len() as _,
            libc::MSG_DONTWAIT,
            ptr::null_mut(),
        )
    })?;
    let count = usize::try_from(count).unwrap_or(0);
    for (index, (header, len)) in headers.iter().zip(lens).take(count).enumerate() {
        *len = header.msg_len as usize;
        if let Some(meta) = metas.as_deref_mut().and_then(|metas| metas.get_mut(index)) {
            meta.control_len = header.msg_hdr.msg_controllen.min(CONTROL_LEN);
        }
    }
    Ok(count)
}

/// Sends whole IP packets, each to the address beside it. Answers how many went before the first that did not; an error is
/// about the first.
pub(crate) fn send_batch(fd: BorrowedFd<'_>, packets: &[(&[u8], IpAddr)]) -> io::Result<usize> {
    let mut vectors: ArrayVec<iovec, BATCH> = ArrayVec::new();
    let mut names: ArrayVec<RawName, BATCH> = ArrayVec::new();
    for (packet, dst) in packets.iter().take(BATCH) {
        // The kernel reads only; iovec has no const variant.
        vectors.push(iovec { iov_base: packet.as_ptr().cast_mut().cast::<c_void>(), iov_len: packet.len() });
        names.push(RawName::new(*dst));
    }
    let mut headers: ArrayVec<mmsghdr, BATCH> = ArrayVec::new();
    for (vector, name) in vectors.iter_mut().zip(&mut names) {
        let mut header = empty_header();
        header.msg_iov = vector;
        header.msg_iovlen = 1;
        let (pointer, len) = name.as_ptr();
        header.msg_name = pointer;
        header.msg_namelen = len;
        headers.push(mmsghdr { msg_hdr: header, msg_len: 0 });
    }
    // SAFETY: each header points to a vector and a name that live unmoved until the end of this function, with their true
    // sizes; the packets are borrowed as long and are only read.
    let sent = check(unsafe { libc::sendmmsg(fd.as_raw_fd(), headers.as_mut_ptr(), headers.len() as _, 0) })?;
    Ok(usize::try_from(sent).unwrap_or(0))
}

/// Sends one datagram that is made of two parts, from `src` to `dst`. The socket has the port, and is of their IP version.
pub(crate) fn send_from(
    fd: BorrowedFd<'_>,
    src: IpAddr,
    dst: std::net::SocketAddr,
    parts: [&[u8]; 2],
) -> io::Result<()> {
    // The kernel reads only; iovec has no const variant.
    let mut vectors =
        parts.map(|part| iovec { iov_base: part.as_ptr().cast_mut().cast::<c_void>(), iov_len: part.len() });
    let mut name = RawName::new(dst.ip());
    name.set_port(dst.port());
    let mut control = Control([0; CONTROL_LEN]);
    let mut header = empty_header();
    header.msg_iov = vectors.as_mut_ptr();
    header.msg_iovlen = vectors.len() as _;
    (header.msg_name, header.msg_namelen) = name.as_ptr();
    if !src.is_unspecified() {
        header.msg_controllen = write_source(&mut control, src) as _;
        header.msg_control = control.0.as_mut_ptr().cast();
    }
    // SAFETY: the header points to vectors, a name and a control buffer that live unmoved until the end of this function, with
    // their true sizes; the parts are borrowed as long and are only read.
    let sent = unsafe { libc::sendmsg(fd.as_raw_fd(), &header, libc::MSG_DONTWAIT) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Writes packet info with this source address as the only ancillary message; answers how long the buffer is then.
fn write_source(control: &mut Control, src: IpAddr) -> usize {
    const WORD: usize = mem::size_of::<usize>();
    // in_pktinfo: interface, the local address, then the header's destination. in6_pktinfo: address, interface.
    let mut data: ArrayVec<u8, 20> = ArrayVec::new();
    let (level, kind) = match src {
        IpAddr::V4(src) => {
            data.extend([0; 4].into_iter().chain(src.octets()).chain([0; 4]));
            (libc::IPPROTO_IP, libc::IP_PKTINFO)
        }
        IpAddr::V6(src) => {
            data.extend(src.octets().into_iter().chain([0; 4]));
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO)
        }
    };
    let total = data.len().saturating_add(WORD + 8);
    let head = total.to_ne_bytes().into_iter().chain(level.to_ne_bytes()).chain(kind.to_ne_bytes());
    let bytes = head.chain(data);
    control.0.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
    total.next_multiple_of(WORD)
}

/// An address without scope; raw sockets want no port either.
enum RawName {
    V4(libc::sockaddr_in),
    V6(libc::sockaddr_in6),
}

impl RawName {
    fn new(dst: IpAddr) -> Self {
        match dst {
            IpAddr::V4(dst) => Self::V4(libc::sockaddr_in {
                sin_family: libc::AF_INET as u16,
                sin_port: 0,
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(dst.octets()) },
                sin_zero: [0; 8],
            }),
            IpAddr::V6(dst) => Self::V6(libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as u16,
                sin6_port: 0,
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: dst.octets() },
                sin6_scope_id: 0,
            }),
        }
    }

    fn set_port(&mut self, port: u16) {
        match self {
            Self::V4(name) => name.sin_port = port.to_be(),
            Self::V6(name) => name.sin6_port = port.to_be(),
        }
    }

    fn as_ptr(&mut self) -> (*mut c_void, u32) {
        match self {
            Self::V4(name) => (ptr::from_mut(name).cast(), mem::size_of::<libc::sockaddr_in>() as u32),
            Self::V6(name) => (ptr::from_mut(name).cast(), mem::size_of::<libc::sockaddr_in6>() as u32),
        }
    }
}

fn empty_header() -> msghdr {
    // SAFETY: msghdr is plain old data; all zeros means "nothing" in each of its fields.
    unsafe { mem::zeroed() }
}

/// Makes a clone-device file descriptor a TUN interface of this name.
pub(crate) fn tun_set_iff(fd: BorrowedFd<'_>, name: &str, flags: c_int) -> io::Result<()> {
    // SAFETY: ifreq is plain old data, for which all zeros is a valid value.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    // The last byte stays zero and ends the string.
    let room = request.ifr_name.len().saturating_sub(1);
    if name.is_empty() || name.len() > room {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "an interface's name has 1 to 15 characters",
        ));
    }
    for (place, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *place = byte as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = flags as i16;
    // SAFETY: TUNSETIFF reads and writes one ifreq, which lives for the whole call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF as _, &mut request) }).map(drop)
}

/// Sets an option that is an `int`.
pub(crate) fn set_option(fd: BorrowedFd<'_>, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    // SAFETY: the pointer is to one int, and the size says so.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            ptr::from_ref(&value).cast(),
            mem::size_of::<c_int>() as u32,
        )
    })
    .map(drop)
}

/// Binds a packet socket to an EtherType on every interface, or on one.
pub(crate) fn bind_packet(fd: BorrowedFd<'_>, ethertype: u16, ifindex: u32) -> io::Result<()> {
    // SAFETY: sockaddr_ll is plain old data, for which all zeros is a valid value.
    let mut name: libc::sockaddr_ll = unsafe { mem::zeroed() };
    name.sll_family = libc::AF_PACKET as u16;
    name.sll_protocol = ethertype.to_be();
    name.sll_ifindex = c_int::try_from(ifindex).unwrap_or(0);
    let len = mem::size_of::<libc::sockaddr_ll>() as u32;
    // SAFETY: the pointer is to one sockaddr_ll, and the size says so.
    check(unsafe { libc::bind(fd.as_raw_fd(), ptr::from_ref(&name).cast(), len) }).map(drop)
}

/// Blocks these signals in the calling thread (and threads it starts) and opens a descriptor that is readable when one of
/// them has come.
pub(crate) fn signal_fd(signals: &[c_int]) -> io::Result<OwnedFd> {
    // SAFETY: sigset_t is plain old data, and sigemptyset makes it a valid empty set before it is used.
    let mut set: libc::sigset_t = unsafe { mem::zeroed() };
    // SAFETY: `set` is a valid object for the calls.
    unsafe {
        libc::sigemptyset(&mut set);
        for signal in signals {
            libc::sigaddset(&mut set, *signal);
        }
    }
    // SAFETY: `set` is initialised; the old mask is not asked for.
    let blocked = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, ptr::null_mut()) };
    if blocked != 0 {
        return Err(io::Error::from_raw_os_error(blocked));
    }
    // SAFETY: `set` is initialised, and -1 asks for a new descriptor.
    let fd = check(unsafe { libc::signalfd(-1, &set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC) })?;
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
