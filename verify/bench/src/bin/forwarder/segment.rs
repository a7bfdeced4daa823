//! Segmentation of super-packets into the packets on the wire, one per datagram, and the UDP socket to one
//! peer that sends many datagrams in one call (UDP_SEGMENT) and receives many (UDP_GRO).

use crate::ipv4::{self, Layout, Upper};
use crate::tun::{Header, Kind, check, wait};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

/// TCP flags of the last segment only: FIN and PSH.
const ONLY_LAST: u8 = 0x09;
/// TCP flag of the first segment only: CWR.
const ONLY_FIRST: u8 = 0x80;

/// Packets to send, concatenated.
#[derive(Debug, Default)]
pub(crate) struct Segmenter {
    bytes: Vec<u8>,
    lengths: Vec<usize>,
}

impl Segmenter {
    /// Whether no packet is queued.
    pub(crate) fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// Bytes of the queued packets.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Queues a packet that was read from the TUN interface.
    pub(crate) fn push(&mut self, super_packet: &[u8]) {
        let (header, packet) = Header::split(super_packet);
        match (header.kind, Layout::of(packet)) {
            (Kind::Tcp(size) | Kind::Udp(size), Some(layout)) => self.cut(packet, layout, size),
            _ => self.complete(packet, header),
        }
    }

    /// Splits a super-packet into packets with `size` bytes of payload each.
    fn cut(&mut self, packet: &[u8], layout: Layout, size: usize) {
        let (headers, payload) = packet.split_at(layout.headers);
        let pieces = payload.chunks(size);
        let last = pieces.len().saturating_sub(1);
        for (number, piece) in pieces.enumerate() {
            let begin = self.bytes.len();
            self.bytes.extend_from_slice(headers);
            self.bytes.extend_from_slice(piece);
            let packet = &mut self.bytes[begin..];
            let identification = ipv4::word(packet, 4).unwrap_or_default();
            ipv4::put_word(packet, 4, identification.wrapping_add(number as u16));
            layout.write_ip_header(packet, headers.len() + piece.len());
            if layout.upper == Upper::Tcp {
                set_tcp_header(&mut packet[layout.ip..], number * size, number == 0, number == last);
            }
            layout.write_upper_checksum(packet);
            self.lengths.push(headers.len() + piece.len());
        }
    }

    /// Queues a single packet, and completes its checksum if necessary.
    fn complete(&mut self, packet: &[u8], header: Header) {
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(packet);
        self.lengths.push(packet.len());
        let Some((start, offset)) = header.checksum else { return };
        let covered = &mut self.bytes[begin + start..];
        let checksum = ipv4::nonzero(ipv4::complement(ipv4::add(0, covered)));
        ipv4::put_checksum(covered, offset, checksum);
    }

    /// Sends all packets. Packets of the same length, and a shorter one after them, go in one call.
    pub(crate) fn send(&mut self, udp: &Udp) -> io::Result<()> {
        let (mut bytes, mut lengths) = (self.bytes.as_slice(), self.lengths.as_slice());
        while let Some(&size) = lengths.first() {
            let count = call_count(lengths);
            let (these, others) = lengths.split_at(count);
            let (datagrams, rest) = bytes.split_at(these.iter().sum());
            udp.send(datagrams, size)?;
            (bytes, lengths) = (rest, others);
        }
        self.bytes.clear();
        self.lengths.clear();
        Ok(())
    }
}

/// Number of packets to send in one call.
fn call_count(lengths: &[usize]) -> usize {
    let size = lengths[0];
    let most = (MAX_BYTES / size).clamp(1, MAX_DATAGRAMS);
    let equal = lengths.iter().take(most).take_while(|len| **len == size).count();
    let shorter = lengths.get(equal).is_some_and(|len| *len < size);
    equal + usize::from(equal < most && shorter)
}

/// Sets sequence number and flags of a TCP segment.
fn set_tcp_header(tcp: &mut [u8], offset: usize, is_first: bool, is_last: bool) {
    let sequence = tcp[4..].first_chunk().map(|bytes| u32::from_be_bytes(*bytes)).unwrap_or_default();
    tcp[4..8].copy_from_slice(&sequence.wrapping_add(offset as u32).to_be_bytes());
    if !is_last {
        tcp[13] &= !ONLY_LAST;
    }
    if !is_first {
        tcp[13] &= !ONLY_FIRST;
    }
}

#[cfg(test)]
impl Segmenter {
    /// Queued packets.
    pub(crate) fn packets(&self) -> Vec<Vec<u8>> {
        let mut rest = self.bytes.as_slice();
        let mut take = |len: &usize| rest.split_off(..*len).unwrap().to_vec();
        self.lengths.iter().map(&mut take).collect()
    }
}

/// Datagrams per call: UDP_MAX_SEGMENTS of kernels before 6.9. For full-sized datagrams the limit of bytes
/// is reached first.
pub(crate) const MAX_DATAGRAMS: usize = 64;
/// Bytes per call over IPv4.
pub(crate) const MAX_BYTES: usize = 65_507;

/// Socket buffers: enough for the bursts of a fast sender.
const BUFFER: usize = 8 << 20;

/// Buffer for one control message with a number, with the alignment of its header.
#[repr(align(8))]
struct Control([u8; 64]);

/// Connected socket.
#[derive(Debug)]
pub(crate) struct Udp(Socket);

impl Udp {
    /// Socket from `local` to `peer`.
    pub(crate) fn connect(local: SocketAddr, peer: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(peer), Type::DGRAM, Some(Protocol::UDP))?;
        socket.bind(&local.into())?;
        socket.connect(&peer.into())?;
        let (one, buffer): (libc::c_int, _) = (1, BUFFER as libc::c_int);
        for (level, name, value) in [
            (libc::SOL_UDP, libc::UDP_GRO, one),
            (libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, buffer),
            (libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, buffer),
        ] {
            let len = size_of_val(&value) as libc::socklen_t;
            // SAFETY: the value of the option is one c_int, which lives until the call returns.
            check(unsafe {
                libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), len)
            })?;
        }
        Ok(Self(socket))
    }

    /// Sends datagrams of `size` bytes each; the last may be shorter. A peer that does not listen yet is
    /// not an error.
    pub(crate) fn send(&self, datagrams: &[u8], size: usize) -> io::Result<()> {
        let mut part =
            libc::iovec { iov_base: datagrams.as_ptr().cast_mut().cast(), iov_len: datagrams.len() };
        let mut control = Control([0; 64]);
        let mut message = message(&mut part);
        if size < datagrams.len() {
            message.msg_control = control.0.as_mut_ptr().cast();
            // SAFETY: CMSG_SPACE only computes; the control message fits into `control`, which is zeroed
            // and aligned, so CMSG_FIRSTHDR and CMSG_DATA point into it.
            unsafe {
                message.msg_controllen = libc::CMSG_SPACE(2) as usize;
                let header = libc::CMSG_FIRSTHDR(&message);
                (*header).cmsg_level = libc::SOL_UDP;
                (*header).cmsg_type = libc::UDP_SEGMENT;
                (*header).cmsg_len = libc::CMSG_LEN(2) as usize;
                libc::CMSG_DATA(header).cast::<u16>().write_unaligned(size as u16);
            }
        }
        // SAFETY: everything that `message` points to lives until the call returns, and sendmsg does not
        // write to it.
        let sent = unsafe { libc::sendmsg(self.0.as_raw_fd(), &message, 0) };
        match check(sent.min(0) as libc::c_int) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
            result => result,
        }
    }

    /// Receives datagrams of one length; the last may be shorter. Returns `None` if there are none.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<Received>> {
        let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        let mut control = Control([0; 64]);
        let mut message = message(&mut part);
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = control.0.len();
        // SAFETY: recvmsg writes to `buffer` and `control`, at most the given lengths.
        let len = unsafe { libc::recvmsg(self.0.as_raw_fd(), &mut message, libc::MSG_DONTWAIT) };
        match usize::try_from(len) {
            Ok(0) => Ok(None),
            Ok(len) => Ok(Some(Received { len, datagram_len: size(&message).unwrap_or(len) })),
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
                error if error.kind() == io::ErrorKind::ConnectionRefused => Ok(None),
                error => Err(error),
            },
        }
    }

    /// Waits for datagrams.
    pub(crate) fn wait(&self) -> io::Result<()> {
        wait(self.0.as_raw_fd())
    }
}

/// Coalesced datagrams in a buffer.
pub(crate) struct Received {
    /// Length of all datagrams.
    pub(crate) len: usize,
    /// Length of each datagram; the last may be shorter.
    pub(crate) datagram_len: usize,
}

/// Message with one buffer and without control messages.
fn message(part: &mut libc::iovec) -> libc::msghdr {
    // SAFETY: msghdr is plain data, for which all zeros are valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = part;
    message.msg_iovlen = 1;
    message
}

/// Datagram length from the control message, if the kernel coalesced datagrams.
fn size(message: &libc::msghdr) -> Option<usize> {
    // SAFETY: the kernel has set the control messages and their length; the header is either null or within
    // them, and an int follows a header of UDP_GRO.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(message).as_ref()?;
        let is_size = header.cmsg_level == libc::SOL_UDP && header.cmsg_type == libc::UDP_GRO;
        let size = is_size.then(|| libc::CMSG_DATA(header).cast::<libc::c_int>().read_unaligned())?;
        usize::try_from(size).ok().filter(|size| *size > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_call_sends_equal_lengths_and_a_shorter_last_packet() {
        assert_eq!(call_count(&[100, 100, 40, 100]), 3);
        assert_eq!(call_count(&[100, 100, 101]), 2);
        assert_eq!(call_count(&[100]), 1);
        assert_eq!(call_count(&[1400; 100]), 46);
        assert_eq!(call_count(&[64; 100]), MAX_DATAGRAMS);
    }
}
