//! Socket messages: many in one system call, and their ancillary data (cmsg(3)).

use super::check_count;
use crate::BATCH;
use crate::raw_socket::AddressedPacket;
use arrayvec::ArrayVec;
use casemate_wire::invariant::OrBroken;
use libc::{c_int, c_void, iovec, mmsghdr, msghdr, sockaddr_storage};
use socket2::Socket;
use std::io;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// Bytes for the ancillary data of one datagram: packet info and TOS, of either IP version.
const CONTROL_LEN: usize = 128;

/// Source and destination of a received datagram, from its ancillary data.
#[derive(Clone, Copy)]
pub(crate) struct DatagramMeta {
    name: sockaddr_storage,
    control: Control,
    control_len: usize,
}

/// Ancillary data, aligned as `cmsghdr` requires.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; CONTROL_LEN]);

impl DatagramMeta {
    pub(crate) fn new() -> Self {
        // SAFETY: sockaddr_storage is plain old data, for which all zeros is a valid value.
        let name = unsafe { mem::zeroed() };
        Self { name, control: Control([0; CONTROL_LEN]), control_len: 0 }
    }

    /// Source address and port.
    pub(crate) fn source(&self) -> Option<SocketAddr> {
        let name: *const sockaddr_storage = &self.name;
        match c_int::from(self.name.ss_family) {
            libc::AF_INET => {
                // SAFETY: sockaddr_storage is large enough and aligned for every address, and the family says
                // which it is.
                let name = unsafe { &*name.cast::<libc::sockaddr_in>() };
                let addr = IpAddr::from(name.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddr::new(addr, u16::from_be(name.sin_port)))
            }
            libc::AF_INET6 => {
                // SAFETY: as above.
                let name = unsafe { &*name.cast::<libc::sockaddr_in6>() };
                let addr = IpAddr::from(name.sin6_addr.s6_addr);
                Some(SocketAddr::new(addr, u16::from_be(name.sin6_port)))
            }
            _ => None,
        }
    }

    /// Length of each datagram but the last, if the kernel has coalesced several (UDP_GRO).
    pub(crate) fn gro_segment_size(&self) -> Option<usize> {
        let is_size =
            |message: &ControlMessage<'_>| (message.level, message.kind) == (libc::SOL_UDP, libc::UDP_GRO);
        let size = self.control_messages().find(is_size)?;
        let size = i32::from_ne_bytes(*size.data.first_chunk()?);
        usize::try_from(size).ok().filter(|size| *size > 0)
    }

    fn control_messages(&self) -> impl Iterator<Item = ControlMessage<'_>> {
        control_messages(
            self.control.0.get(..self.control_len).or_broken_default("the length fits the buffer"),
        )
    }

    /// Destination address, and TOS or traffic class. Returns `None` without a destination address.
    pub(crate) fn destination(&self) -> Option<DatagramDestination> {
        let (mut dst, mut tos) = (None, 0);
        for ControlMessage { level, kind, data } in self.control_messages() {
            match (level, kind) {
                // in_pktinfo: interface, local address, destination of the header.
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    let addr = data.get(8..).and_then(|rest| rest.first_chunk::<4>());
                    dst = addr.map(|addr| IpAddr::from(*addr)).or(dst);
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
        }
        dst.map(|addr| DatagramDestination { addr, tos })
    }
}

/// Where a received datagram was sent to, and how.
pub(crate) struct DatagramDestination {
    pub(crate) addr: IpAddr,
    /// TOS or traffic class; 0 if the kernel did not return it.
    pub(crate) tos: u8,
}

/// An ancillary message.
struct ControlMessage<'c> {
    level: c_int,
    kind: c_int,
    data: &'c [u8],
}

/// Ancillary messages, as CMSG_NXTHDR iterates, with checked slices.
fn control_messages(control: &[u8]) -> impl Iterator<Item = ControlMessage<'_>> {
    let mut rest = control;
    std::iter::from_fn(move || {
        let message = ControlMessage::parse(rest)?;
        let len = control_space(message.data.len());
        rest = rest.get(len..).unwrap_or_default();
        Some(message)
    })
}

impl<'c> ControlMessage<'c> {
    /// Parses the message at the start of `bytes`: length (a machine word), level, type and data.
    fn parse(bytes: &'c [u8]) -> Option<Self> {
        const WORD: usize = mem::size_of::<usize>();
        let len = usize::from_ne_bytes(*bytes.first_chunk::<WORD>()?);
        let level = c_int::from_ne_bytes(*bytes.get(WORD..)?.first_chunk()?);
        let kind = c_int::from_ne_bytes(*bytes.get(WORD + 4..)?.first_chunk()?);
        Some(Self { level, kind, data: bytes.get(control_message_len(0)..len)? })
    }
}

/// Receives up to `N` datagrams, one into each buffer, without waiting. Writes their lengths to `lens` and
/// returns their number. A datagram longer than its buffer is truncated.
pub(crate) fn receive_batch<const N: usize>(
    fd: BorrowedFd<'_>,
    buffers: &mut ArrayVec<&mut [u8], N>,
    mut metas: Option<&mut [DatagramMeta; N]>,
    lens: &mut [usize; N],
) -> io::Result<usize> {
    let mut vectors: ArrayVec<iovec, N> = ArrayVec::new();
    for buffer in buffers.iter_mut() {
        vectors.push(iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() });
    }
    let mut headers: ArrayVec<mmsghdr, N> = ArrayVec::new();
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
    // SAFETY: each header points to a vector, a name and a control buffer that live, unmoved and borrowed for
    // writing, until the end of this function, and gives their true sizes.
    let count = check_count(unsafe {
        libc::recvmmsg(
            fd.as_raw_fd(),
            headers.as_mut_ptr(),
            headers.len() as _,
            libc::MSG_DONTWAIT,
            ptr::null_mut(),
        )
    })?;
    for (index, (header, len)) in headers.iter().zip(lens).take(count).enumerate() {
        *len = header.msg_len as usize;
        if let Some(meta) = metas.as_deref_mut().and_then(|metas| metas.get_mut(index)) {
            meta.control_len = header.msg_hdr.msg_controllen.min(CONTROL_LEN);
        }
    }
    Ok(count)
}

/// Sends whole IP packets, each to its address, without waiting for room. Returns how many were sent before
/// the first failure; an error is about the first packet.
pub(crate) fn send_batch(fd: BorrowedFd<'_>, packets: &[AddressedPacket<'_>]) -> io::Result<usize> {
    let mut vectors: ArrayVec<iovec, BATCH> = ArrayVec::new();
    let mut names: ArrayVec<RawName, BATCH> = ArrayVec::new();
    for AddressedPacket { bytes, dst } in packets.iter().take(BATCH) {
        // The kernel reads only; iovec has no const variant.
        vectors.push(iovec { iov_base: bytes.as_ptr().cast_mut().cast::<c_void>(), iov_len: bytes.len() });
        names.push(RawName::new(*dst));
    }
    let mut headers: ArrayVec<mmsghdr, BATCH> = ArrayVec::new();
    for (vector, name) in vectors.iter_mut().zip(&mut names) {
        let mut header = empty_header();
        header.msg_iov = vector;
        header.msg_iovlen = 1;
        name.set_in(&mut header);
        headers.push(mmsghdr { msg_hdr: header, msg_len: 0 });
    }
    // SAFETY: each header points to a vector and a name that live unmoved until the end of this function,
    // with their true sizes; the packets are borrowed as long and are only read.
    check_count(unsafe {
        libc::sendmmsg(fd.as_raw_fd(), headers.as_mut_ptr(), headers.len() as _, libc::MSG_DONTWAIT)
    })
}

/// Sends a datagram, given in two parts, from `src` to `dst`. The socket determines the source port and must
/// be of the same IP version.
pub(crate) fn send_from(
    fd: BorrowedFd<'_>,
    src: IpAddr,
    dst: SocketAddr,
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
    name.set_in(&mut header);
    if !src.is_unspecified() {
        header.msg_controllen = write_source(&mut control, src) as _;
        header.msg_control = control.0.as_mut_ptr().cast();
    }
    // SAFETY: the header points to vectors, a name and a control buffer that live unmoved until the end of
    // this function, with their true sizes; the parts are borrowed as long and are only read.
    let sent = unsafe { libc::sendmsg(fd.as_raw_fd(), &header, libc::MSG_DONTWAIT) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sends datagrams from `src` to `dst` by one system call. All have the length of the first; only the last
/// may be shorter. Does not wait for room.
pub(crate) fn send_gso<const N: usize>(
    socket: &Socket,
    src: IpAddr,
    dst: SocketAddr,
    tos: u8,
    payloads: &ArrayVec<&[u8], N>,
) -> io::Result<()> {
    let size = payloads.first().map_or(0, |payload| payload.len());
    let size = u16::try_from(size).map_err(io::Error::other)?;
    let mut vectors: ArrayVec<iovec, N> = ArrayVec::new();
    for payload in payloads {
        // The kernel reads only; iovec has no const variant.
        vectors
            .push(iovec { iov_base: payload.as_ptr().cast_mut().cast::<c_void>(), iov_len: payload.len() });
    }
    let mut name = RawName::new(dst.ip());
    name.set_port(dst.port());
    let mut control = Control([0; CONTROL_LEN]);
    let mut len = write_source(&mut control, src);
    let (level, kind) = match src {
        IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TOS),
        IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
    };
    len = write_control(&mut control, len, level, kind, &c_int::from(tos).to_ne_bytes());
    len = write_control(&mut control, len, libc::SOL_UDP, libc::UDP_SEGMENT, &size.to_ne_bytes());
    let mut header = empty_header();
    header.msg_iov = vectors.as_mut_ptr();
    header.msg_iovlen = vectors.len() as _;
    name.set_in(&mut header);
    header.msg_controllen = len as _;
    header.msg_control = control.0.as_mut_ptr().cast();
    // SAFETY: the header points to vectors, a name and a control buffer that live unmoved until the end of
    // this function, with their true sizes; the payloads are borrowed as long and are only read.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &header, libc::MSG_DONTWAIT) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Length of `in6_pktinfo`, the longer one of the two packet infos.
const PACKET_INFO_LEN: usize = 20;

// Sent datagrams have a source, a TOS (an int) and a segment size at most.
const _: () = assert!(
    control_space(PACKET_INFO_LEN) + control_space(mem::size_of::<c_int>()) + control_space(2) <= CONTROL_LEN
);

/// Bytes of an ancillary message with this much data, without padding.
const fn control_message_len(data: usize) -> usize {
    mem::size_of::<usize>() + 8 + data
}

/// Bytes that an ancillary message with this much data takes. Messages are padded to a machine word.
const fn control_space(data: usize) -> usize {
    control_message_len(data).next_multiple_of(mem::size_of::<usize>())
}

/// Writes packet info with this source address as the first ancillary message. Returns the length of the
/// ancillary data.
fn write_source(control: &mut Control, src: IpAddr) -> usize {
    // in_pktinfo: interface, local address, destination of the header. in6_pktinfo: address, interface.
    let mut data: ArrayVec<u8, PACKET_INFO_LEN> = ArrayVec::new();
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
    write_control(control, 0, level, kind, &data)
}

/// Writes an ancillary message behind the first `at` bytes. Returns the length of the ancillary data.
fn write_control(control: &mut Control, at: usize, level: c_int, kind: c_int, data: &[u8]) -> usize {
    let total = control_message_len(data.len());
    let head = total.to_ne_bytes().into_iter().chain(level.to_ne_bytes()).chain(kind.to_ne_bytes());
    let bytes = head.chain(data.iter().copied());
    control.0.iter_mut().skip(at).zip(bytes).for_each(|(to, from)| *to = from);
    at + control_space(data.len())
}

/// A socket address without scope. For raw sockets the port must be 0.
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

    /// Sets the address of a message. The header points to this name.
    fn set_in(&mut self, header: &mut msghdr) {
        (header.msg_name, header.msg_namelen) = match self {
            Self::V4(name) => (ptr::from_mut(name).cast(), mem::size_of::<libc::sockaddr_in>() as u32),
            Self::V6(name) => (ptr::from_mut(name).cast(), mem::size_of::<libc::sockaddr_in6>() as u32),
        };
    }
}

fn empty_header() -> msghdr {
    // SAFETY: msghdr is plain old data; all zeros means "nothing" in each of its fields.
    unsafe { mem::zeroed() }
}
