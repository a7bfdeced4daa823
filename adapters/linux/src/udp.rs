//! UDP sockets that receive IKE and UDP-encapsulated ESP (RFC 3948).
//!
//! The sockets reserve the port and let the kernel reassemble datagrams and verify checksums. The data path
//! takes whole IP packets, so the headers that the socket strips are written in front of the payload again,
//! from the metadata that the kernel returns. The kernel coalesces consecutive datagrams from one peer
//! (UDP_GRO, udp(7)); they are split here. `engine::gso` and `raw_socket` send packets, with the headers that
//! the data path made.

use crate::buffers::{Buffers, MAX_PACKET};
use crate::port_holder;
use crate::socket_filter::{self, UrgentDscps};
use crate::sys::{self, DatagramMeta};
use crate::{BATCH, Error};
use arrayvec::ArrayVec;
use casemate_wire::invariant::OrBroken;
use casemate_wire::ip::v4::{self, Ipv4Header};
use casemate_wire::ip::v6::{self, Ipv6Header};
use casemate_wire::ip::{IpVersion, proto};
use casemate_wire::packet::Packet;
use casemate_wire::udp::{self, UdpHeader};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

const RECEIVE_BUFFER: usize = 8 << 20;
/// Slots for one system call. Each slot takes one datagram, or many that the kernel has coalesced.
const MAX_SLOTS: usize = 32;
/// Slots for a system call when few datagrams arrive.
const MIN_SLOTS: usize = 4;

/// A UDP port of one IP version.
pub struct UdpPort {
    socket: Socket,
    port: u16,
    received: Received,
}

/// Sends from a port that another thread receives from.
pub(crate) struct UdpSender {
    socket: Socket,
    port: u16,
}

/// The datagrams of one system call.
struct Received {
    bytes: Box<[u8]>,
    metas: Box<[DatagramMeta; MAX_SLOTS]>,
    lens: [usize; MAX_SLOTS],
    /// Number of filled slots, and index of the first one that was not returned completely.
    count: usize,
    index: usize,
    /// Bytes of that slot that were returned.
    offset: usize,
    /// Slots to offer to the next system call, at most: about one batch of datagrams, so that one reader
    /// takes them all; and about as many as were filled last, because each slot has to be prepared.
    slot_limit: usize,
}

/// A received datagram.
struct Datagram<'r> {
    payload: &'r [u8],
    /// Index of the slot in [`Received`] that has its metadata.
    slot: usize,
}

impl UdpPort {
    /// Opens `port` for the IP version of `any`, an unspecified address.
    pub fn open(any: IpAddr, port: u16) -> Result<Self, Error> {
        let socket = open(SocketAddr::new(any, port), false).map_err(|error| {
            open_failed(format!("UDP port {port} of {any}, for IKE and encapsulated ESP"), port, error)
        })?;
        Ok(Self { socket, port, received: Received::new() })
    }

    /// Opens `port` for all IP versions that the kernel has.
    pub fn open_both(port: u16) -> Result<Vec<Self>, Error> {
        open_both_versions(|any| Self::open(any, port).map(|port| vec![port]))
    }

    /// Opens two sockets for each IP version. The first of the two receives IKE and urgent packets.
    pub(crate) fn open_with_urgent(port: u16, urgent: &UrgentDscps) -> Result<Vec<Self>, Error> {
        open_both_versions(|any| {
            let failed = |error| open_failed(format!("two sockets at UDP port {port} of {any}"), port, error);
            // The kernel numbers the sockets of a port in the order in which they are bound.
            let [rest, urgent_socket] = [0; 2].map(|_| open(SocketAddr::new(any, port), true));
            let (rest, urgent_socket) = (rest.map_err(failed)?, urgent_socket.map_err(failed)?);
            let version = if any.is_ipv4() { IpVersion::V4 } else { IpVersion::V6 };
            sys::set_reuseport_program(rest.as_fd(), &socket_filter::reuseport_selector(version, urgent))
                .map_err(failed)?;
            Ok([urgent_socket, rest].map(|socket| Self { socket, port, received: Received::new() }).into())
        })
    }

    /// Sets the mark of sent packets, so that they do not return to the TUN interface.
    pub(crate) fn set_mark(&self, mark: u32) -> Result<(), Error> {
        self.socket
            .set_mark(mark)
            .map_err(|error| Error::new(format!("mark of UDP port {}", self.port), error))
    }

    /// The port number.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Returns a sender for this port.
    pub(crate) fn sender(&self) -> Result<UdpSender, Error> {
        let socket = self.socket().map_err(|error| Error::new(format!("UDP port {}", self.port), error))?;
        Ok(UdpSender { socket, port: self.port })
    }

    /// Returns a copy of the socket, for sending.
    pub(crate) fn socket(&self) -> io::Result<Socket> {
        self.socket.try_clone()
    }

    /// Whether [`receive`](Self::receive) has datagrams even if the descriptor is not readable.
    pub(crate) fn has_buffered(&self) -> bool {
        self.received.index < self.received.count
    }

    /// Receives up to one batch of datagrams into `buffers`, as IP packets. Takes no further datagram once it
    /// has `max_bytes` bytes. Returns whether more datagrams may wait.
    pub fn receive(&mut self, buffers: &mut Buffers, max_bytes: usize) -> io::Result<bool> {
        buffers.set_lens(&[]);
        let is_full = !self.has_buffered() && self.received.fill(&self.socket)?;
        let mut lens: ArrayVec<usize, BATCH> = ArrayVec::new();
        let mut slots: ArrayVec<usize, BATCH> = ArrayVec::new();
        let mut bytes = 0usize;
        for buffer in buffers.receive_slices() {
            if bytes >= max_bytes {
                break;
            }
            let Some(Datagram { payload, slot }) = self.received.next() else { break };
            let out = buffer.get_mut(..payload.len()).or_report("a buffer has room for any datagram");
            let Some(out) = out else { break };
            out.copy_from_slice(payload);
            bytes = bytes.saturating_add(out.len());
            lens.push(out.len());
            slots.push(slot);
        }
        buffers.set_lens(&lens);
        buffers.with_packets(|packets| {
            for (packet, slot) in packets.iter_mut().zip(&slots) {
                let meta = self.received.metas.get(*slot);
                if meta.and_then(|meta| restore_headers(packet, meta, self.port)).is_none() {
                    // Without address or room, the packet becomes empty, which the data path counts as
                    // malformed.
                    packet.set_len(0).or_report("a packet can be empty");
                }
            }
        });
        Ok(is_full || self.has_buffered())
    }
}

impl UdpSender {
    /// Whether this sender is for this port and the IP version of `addr`.
    pub(crate) fn matches(&self, port: u16, addr: IpAddr) -> bool {
        let domain = self.socket.domain();
        self.port == port
            && domain.is_ok_and(|domain| domain == Domain::for_address(SocketAddr::new(addr, 0)))
    }

    /// Sends a datagram whose payload is given in two parts.
    pub(crate) fn send(&self, src: IpAddr, dst: SocketAddr, parts: [&[u8]; 2]) -> io::Result<()> {
        sys::send_from(self.socket.as_fd(), src, dst, parts)
    }
}

impl Received {
    fn new() -> Self {
        Self {
            bytes: vec![0; MAX_PACKET * MAX_SLOTS].into_boxed_slice(),
            metas: Box::new([DatagramMeta::new(); MAX_SLOTS]),
            lens: [0; MAX_SLOTS],
            count: 0,
            index: 0,
            offset: 0,
            slot_limit: MIN_SLOTS,
        }
    }

    /// Receives datagrams. Returns whether more may wait in the socket.
    fn fill(&mut self, socket: &Socket) -> io::Result<bool> {
        (self.count, self.index, self.offset) = (0, 0, 0);
        let mut slots = ArrayVec::<&mut [u8], MAX_SLOTS>::new();
        slots.extend(self.bytes.chunks_exact_mut(MAX_PACKET).take(self.slot_limit));
        let offered = slots.len();
        self.count = sys::receive_batch(socket.as_fd(), &mut slots, Some(&mut *self.metas), &mut self.lens)?;
        let filled = self.lens.iter().zip(self.metas.iter()).take(self.count);
        let datagrams: usize =
            filled.map(|(len, meta)| len.div_ceil(meta.gro_segment_size().unwrap_or(*len).max(1))).sum();
        let wanted = BATCH.saturating_mul(self.count).checked_div(datagrams).unwrap_or(MIN_SLOTS);
        self.slot_limit = wanted.min(self.count.saturating_mul(2).max(MIN_SLOTS)).clamp(1, MAX_SLOTS);
        // A low limit, for coalesced datagrams, can be reached by a few small ones. That does not mean that
        // more datagrams wait.
        Ok(self.count == offered && (offered >= MIN_SLOTS || datagrams >= MAX_SLOTS))
    }

    /// Returns the next datagram.
    fn next(&mut self) -> Option<Datagram<'_>> {
        if self.index >= self.count {
            return None;
        }
        let slot = self.index;
        let (len, meta) = (*self.lens.get(slot)?, self.metas.get(slot)?);
        let received = self.bytes.chunks_exact(MAX_PACKET).nth(slot)?.get(..len)?;
        let (from, size) = (self.offset, meta.gro_segment_size().unwrap_or(len).max(1));
        let end = from.saturating_add(size).min(len);
        (self.index, self.offset) =
            if end < len { (self.index, end) } else { (self.index.saturating_add(1), 0) };
        Some(Datagram { payload: received.get(from..end)?, slot })
    }
}

impl AsFd for UdpPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Calls `open` for each IP version that the kernel has.
fn open_both_versions(open: impl Fn(IpAddr) -> Result<Vec<UdpPort>, Error>) -> Result<Vec<UdpPort>, Error> {
    let mut ports = open(Ipv4Addr::UNSPECIFIED.into())?;
    match open(Ipv6Addr::UNSPECIFIED.into()) {
        Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => {}
        opened => ports.extend(opened?),
    }
    Ok(ports)
}

/// The error of a port that could not be opened. Names the program that already has it.
pub(crate) fn open_failed(what: String, port: u16, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::AddrInUse => Error::other(what, format!("{error}: {}", port_holder::describe(port))),
        _ => Error::new(what, error),
    }
}

/// Opens a socket. With `is_shared`, another socket may bind the same port if it also sets this option.
fn open(local: SocketAddr, is_shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(local), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_port(is_shared)?;
    let fd = socket.as_fd();
    if local.is_ipv6() {
        socket.set_only_v6(true)?;
        socket.set_recv_tclass_v6(true)?;
        sys::set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
    } else {
        socket.set_recv_tos_v4(true)?;
        sys::set_option(fd, libc::IPPROTO_IP, libc::IP_PKTINFO, 1)?;
    }
    // Kernels before 5.0 do not have this option and return datagrams one by one.
    let _ = sys::set_option(fd, libc::SOL_UDP, libc::UDP_GRO, 1);
    if sys::set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, RECEIVE_BUFFER as i32).is_err() {
        socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    }
    socket.bind(&local.into())?;
    Ok(socket)
}

/// Any value will do: no code uses it.
const PLACEHOLDER_TTL: u8 = 64;

/// Writes UDP and IP headers in front of the payload.
fn restore_headers(packet: &mut Packet<'_>, meta: &DatagramMeta, port: u16) -> Option<()> {
    let (src, dst) = (meta.source()?, meta.destination()?);
    let payload_len = u16::try_from(packet.len()).ok()?;
    packet.grow_front(udp::HEADER_LEN).ok()?;
    let header = UdpHeader { src_port: src.port(), dst_port: port, payload_len };
    header.emit(packet.data_mut().first_chunk_mut()?).ok()?;
    push_ip(packet, src.ip(), dst.addr, dst.tos)
}

/// Writes an IP header in front of a UDP datagram.
fn push_ip(packet: &mut Packet<'_>, src: IpAddr, dst: IpAddr, tos: u8) -> Option<()> {
    let payload_len = u16::try_from(packet.len()).ok()?;
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            packet.grow_front(v4::HEADER_LEN).ok()?;
            let protocol = proto::UDP;
            let header = Ipv4Header {
                tos,
                ident: 1,
                df: false,
                ttl: PLACEHOLDER_TTL,
                protocol,
                src,
                dst,
                payload_len,
            };
            header.emit(packet.data_mut().first_chunk_mut()?).ok()
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            packet.grow_front(v6::HEADER_LEN).ok()?;
            let header = Ipv6Header {
                traffic_class: tos,
                flow_label: 0,
                payload_len,
                next_header: proto::UDP,
                hop_limit: PLACEHOLDER_TTL,
                src,
                dst,
            };
            header.emit(packet.data_mut().first_chunk_mut()?);
            Some(())
        }
        _ => None,
    }
}

/// Returns a NAT keepalive (RFC 3948 section 2.3) as an IP packet.
pub(crate) fn keepalive(src: SocketAddr, dst: SocketAddr) -> Option<Vec<u8>> {
    datagram(src, dst, [&[udp::KEEPALIVE], &[]])
}

/// Returns a datagram, whose payload is given in two parts, as an IP packet. Returns `None` if the addresses
/// have different IP versions or the datagram is too long.
pub(crate) fn datagram(src: SocketAddr, dst: SocketAddr, parts: [&[u8]; 2]) -> Option<Vec<u8>> {
    const ROOM: usize = v6::HEADER_LEN + udp::HEADER_LEN;
    let mut bytes = [&[0; ROOM], parts[0], parts[1]].concat();
    let len = bytes.len().checked_sub(ROOM)?;
    let mut packet = Packet::new(&mut bytes, ROOM, len)?;
    packet.grow_front(udp::HEADER_LEN).ok()?;
    let payload_len = u16::try_from(len).ok()?;
    let header = UdpHeader { src_port: src.port(), dst_port: dst.port(), payload_len };
    header.emit(packet.data_mut().first_chunk_mut()?).ok()?;
    // RFC 8200 section 8.1: over IPv6 the checksum is mandatory.
    if let (IpAddr::V6(src), IpAddr::V6(dst)) = (src.ip(), dst.ip()) {
        udp::Udp::parse(packet.data_mut()).ok()?.fill_checksum_v6(src, dst);
    }
    push_ip(&mut packet, src.ip(), dst.ip(), 0)?;
    let start = packet.head_room();
    bytes.drain(..start);
    Some(bytes)
}

/// Calls `open` with a free port. Another test may take the port in the meantime, so it tries again.
#[cfg(test)]
pub(crate) fn at_a_free_port<T>(any: IpAddr, open: impl Fn(u16) -> Result<T, Error>) -> T {
    casemate_test_support::eventually("a free port", || {
        let free = std::net::UdpSocket::bind((any, 0)).unwrap().local_addr().unwrap().port();
        open(free).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_wire::ip::{Ipv4, Ipv6};
    use casemate_wire::udp::Udp;
    use std::net::UdpSocket;

    fn receive_one(any: IpAddr, from: &str, tos: u32) -> Vec<u8> {
        let mut port = at_a_free_port(any, |free| UdpPort::open(any, free));
        let sender = UdpSocket::bind((from, 0)).unwrap();
        let options = socket2::SockRef::from(&sender);
        if any.is_ipv4() {
            options.set_tos_v4(tos).unwrap()
        } else {
            options.set_tclass_v6(tos).unwrap()
        }
        sender.send_to(b"hello", (from, port.port())).unwrap();
        let mut ready = [false];
        sys::poll_readable(&[port.as_fd()], &mut ready, std::time::Duration::from_secs(20)).unwrap();
        assert_eq!(ready, [true]);
        let mut buffers = Buffers::new();
        assert!(!port.receive(&mut buffers, usize::MAX).unwrap());
        let packets = buffers.contents();
        let [packet] = &packets[..] else { panic!("one packet, not {}", packets.len()) };
        let udp = Udp::parse(&packet[packet.len() - 13..]).unwrap();
        assert_eq!((udp.src_port(), udp.dst_port()), (sender.local_addr().unwrap().port(), port.port()));
        packet.clone()
    }

    #[test]
    fn headers_are_restored() {
        let packet = receive_one(Ipv4Addr::UNSPECIFIED.into(), "127.0.0.1", 0xb8);
        let ip = Ipv4::parse(&packet[..]).unwrap();
        assert!(ip.verify_checksum());
        assert_eq!((ip.src(), ip.dst(), ip.tos()), (Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, 0xb8));
        assert_eq!(Udp::parse(ip.payload()).unwrap().payload(), b"hello");

        let packet = receive_one(Ipv6Addr::UNSPECIFIED.into(), "::1", 0x2e);
        let ip = Ipv6::parse(&packet[..]).unwrap();
        assert_eq!((ip.src(), ip.dst()), (Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST));
        assert_eq!(ip.traffic_class(), 0x2e);
        assert_eq!(Udp::parse(&packet[40..]).unwrap().payload(), b"hello");
    }

    /// Reads all waiting datagrams. Returns the last byte of each.
    fn waiting(port: &mut UdpPort) -> Vec<u8> {
        let mut buffers = Buffers::new();
        let mut found = Vec::new();
        while port.receive(&mut buffers, usize::MAX).is_ok() {
            found.extend(buffers.contents().iter().map(|packet| packet[packet.len() - 1]));
        }
        found
    }

    #[test]
    fn the_first_of_two_sockets_receives_ike_and_urgent_packets() {
        let urgent = UrgentDscps::of(&casemate_sched::DscpTable::default()).unwrap();
        let any = Ipv4Addr::UNSPECIFIED.into();
        let mut ports = at_a_free_port(any, |free| UdpPort::open_with_urgent(free, &urgent));
        let free = ports[0].port();
        for (from, ports) in ["127.0.0.1", "::1"].into_iter().zip(ports.chunks_mut(2)) {
            let [express, rest] = ports else { unreachable!() };
            // A new sender for each round, because without the program the kernel would select the socket by
            // the source port.
            for round in 0..8u8 {
                let send = |tos: u8, payload: &[u8]| {
                    let sender = UdpSocket::bind((from, 0)).unwrap();
                    let options = socket2::SockRef::from(&sender);
                    if from == "::1" {
                        options.set_tclass_v6(tos.into())
                    } else {
                        options.set_tos_v4(tos.into())
                    }
                    .unwrap();
                    sender.send_to(payload, (from, free)).unwrap();
                };
                send(0xb8, &[0, 0, 16, 1, round]);
                send(0, &[0, 0, 16, 1, round + 100]);
                send(0, &[0, 0, 0, 0, round + 200]);
                send(0, &[255]);
            }
            let came = waiting(express);
            assert_eq!(came, (0..8).flat_map(|round| [round, round + 200]).collect::<Vec<_>>(), "{from}");
            assert_eq!(
                waiting(rest),
                (0..8).flat_map(|round| [round + 100, 255]).collect::<Vec<_>>(),
                "{from}"
            );
        }
    }

    #[test]
    fn a_keepalive_is_one_byte_in_udp() {
        let out = keepalive("192.0.2.1:4500".parse().unwrap(), "192.0.2.2:4501".parse().unwrap()).unwrap();
        assert_eq!(out.len(), 29);
        let ip = Ipv4::parse(&out[..]).unwrap();
        assert!(ip.verify_checksum());
        let udp = Udp::parse(ip.payload()).unwrap();
        assert_eq!((udp.src_port(), udp.dst_port(), udp.payload()), (4500, 4501, &[0xff][..]));

        let (src, dst): (Ipv6Addr, Ipv6Addr) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
        let out = keepalive((src, 4500).into(), (dst, 4500).into()).unwrap();
        assert_eq!(out.len(), 49);
        assert!(Udp::parse(&out[40..49]).unwrap().verify_checksum_v6(src, dst));
    }
}
