//! UDP sockets on which IKE and encapsulated ESP arrive (RFC 3948).
//!
//! The sockets keep the port ours and let the kernel reassemble and check what arrives. The data path takes whole IP
//! packets, so the headers that the socket strips are written in front of the payload again, from what the kernel tells.
//! Datagrams in a row from one peer come as one piece (UDP_GRO, udp(7)) and are parted here. Packets are sent through `train` or
//! `raw`, with the headers that the data path made.

use crate::buffers::{Buffers, MAX_PACKET};
use crate::filter::{self, Urgent};
use crate::sys::{self, Meta};
use crate::{BATCH, Error};
use arrayvec::ArrayVec;
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
/// Datagrams that one system call brings, each of which may be many that the kernel joined.
const PLACES: usize = 32;
/// Any will do: nothing looks at it.
const TTL: u8 = 64;

/// One port, of one IP version.
pub struct UdpPort {
    socket: Socket,
    port: u16,
    inbox: Inbox,
}

/// Sends from a port, whoever receives there.
pub(crate) struct UdpSender {
    socket: Socket,
    port: u16,
}

/// What one system call brought.
struct Inbox {
    bytes: Box<[u8]>,
    metas: Box<[Meta; PLACES]>,
    lens: [usize; PLACES],
    /// How many came, and the first that was not taken out whole.
    count: usize,
    index: usize,
    /// How much was taken out of that one.
    at: usize,
    /// How many places the next system call fills at most: about a batch, so that whoever reads it takes it all.
    most: usize,
}

impl UdpPort {
    /// Opens `port` of the IP version of `any`, an unspecified address.
    pub fn open(any: IpAddr, port: u16) -> Result<Self, Error> {
        let socket = open(SocketAddr::new(any, port), false).map_err(|error| {
            Error::new(format!("UDP port {port} of {any}, for IKE and encapsulated ESP"), error)
        })?;
        Ok(Self { socket, port, inbox: Inbox::new() })
    }

    /// Opens `port` for both IP versions, as far as the kernel has them.
    pub fn open_both(port: u16) -> Result<Vec<Self>, Error> {
        both(|any| Self::open(any, port).map(|port| vec![port]))
    }

    /// The same with two sockets for each version: the first of the two gets IKE and what is urgent.
    pub(crate) fn open_shared(port: u16, urgent: &Urgent) -> Result<Vec<Self>, Error> {
        both(|any| {
            let failed = |error| Error::new(format!("two sockets at UDP port {port} of {any}"), error);
            // The kernel numbers them in the order in which they come to the port.
            let [rest, express] = [0; 2].map(|_| open(SocketAddr::new(any, port), true));
            let (rest, express) = (rest.map_err(failed)?, express.map_err(failed)?);
            let version = if any.is_ipv4() { IpVersion::V4 } else { IpVersion::V6 };
            sys::set_chooser(rest.as_fd(), &filter::port(version, urgent)).map_err(failed)?;
            Ok([express, rest].map(|socket| Self { socket, port, inbox: Inbox::new() }).into())
        })
    }

    /// What is sent from here carries `mark`, so that it does not go round through the TUN interface.
    pub(crate) fn set_mark(&self, mark: u32) -> Result<(), Error> {
        self.socket
            .set_mark(mark)
            .map_err(|error| Error::new(format!("mark of UDP port {}", self.port), error))
    }

    /// The port.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// For whoever sends from here.
    pub(crate) fn sender(&self) -> Result<UdpSender, Error> {
        let socket = self.socket().map_err(|error| Error::new(format!("UDP port {}", self.port), error))?;
        Ok(UdpSender { socket, port: self.port })
    }

    /// The socket, for somebody else to send from.
    pub(crate) fn socket(&self) -> io::Result<Socket> {
        self.socket.try_clone()
    }

    /// Whether [`receive`](Self::receive) has something, whatever the descriptor says.
    pub(crate) fn has_more(&self) -> bool {
        self.inbox.index < self.inbox.count
    }

    /// Receives up to a batch of datagrams into `buffers`, as IP packets; answers whether more may wait. From `room` bytes on no further one is taken.
    pub fn receive(&mut self, buffers: &mut Buffers, room: usize) -> io::Result<bool> {
        buffers.hold(&[]);
        let fills_up = !self.has_more() && self.inbox.fill(&self.socket)?;
        let mut lens: ArrayVec<usize, BATCH> = ArrayVec::new();
        let mut places: ArrayVec<usize, BATCH> = ArrayVec::new();
        let mut bytes = 0usize;
        for buffer in buffers.slices() {
            if bytes >= room {
                break;
            }
            let Some((datagram, place)) = self.inbox.next() else { break };
            let Some(slot) = buffer.get_mut(..datagram.len()) else { continue };
            slot.copy_from_slice(datagram);
            bytes = bytes.saturating_add(slot.len());
            lens.push(slot.len());
            places.push(place);
        }
        buffers.hold(&lens);
        let mut packets = buffers.packets();
        for (packet, place) in packets.iter_mut().zip(places) {
            let meta = self.inbox.metas.get(place);
            if meta.and_then(|meta| restore(packet, meta, self.port)).is_none() {
                // Neither address nor room: an empty packet is a malformed one.
                let _ = packet.set_len(0);
            }
        }
        let moved = Buffers::places_of(packets);
        buffers.settle(&moved);
        Ok(fills_up || self.has_more())
    }
}

impl UdpSender {
    /// Whether it is at this port, of this address's IP version.
    pub(crate) fn serves(&self, port: u16, addr: IpAddr) -> bool {
        let domain = self.socket.domain();
        self.port == port
            && domain.is_ok_and(|domain| domain == Domain::for_address(SocketAddr::new(addr, 0)))
    }

    /// Sends a datagram made of two parts.
    pub(crate) fn send(&self, src: IpAddr, dst: SocketAddr, parts: [&[u8]; 2]) -> io::Result<()> {
        sys::send_from(self.socket.as_fd(), src, dst, parts)
    }
}

impl Inbox {
    fn new() -> Self {
        Self {
            bytes: vec![0; MAX_PACKET * PLACES].into_boxed_slice(),
            metas: Box::new([Meta::new(); PLACES]),
            lens: [0; PLACES],
            count: 0,
            index: 0,
            at: 0,
            most: PLACES,
        }
    }

    /// Answers whether more may wait in the socket.
    fn fill(&mut self, socket: &Socket) -> io::Result<bool> {
        (self.count, self.index, self.at) = (0, 0, 0);
        let places = self.bytes.chunks_exact_mut(MAX_PACKET).take(self.most);
        let mut places: ArrayVec<&mut [u8], PLACES> = places.collect();
        let room = places.len();
        self.count = sys::receive_batch(socket.as_fd(), &mut places, Some(&mut *self.metas), &mut self.lens)?;
        let came = self.lens.iter().zip(self.metas.iter()).take(self.count);
        let datagrams: usize =
            came.map(|(len, meta)| len.div_ceil(meta.train_size().unwrap_or(*len).max(1))).sum();
        self.most =
            BATCH.saturating_mul(self.count).checked_div(datagrams).unwrap_or(PLACES).clamp(1, PLACES);
        // A few small ones do not mean that there are more, wherever they were expected to be trains.
        Ok(self.count == room && datagrams >= PLACES)
    }

    /// Takes out the next datagram; answers it and its place.
    fn next(&mut self) -> Option<(&[u8], usize)> {
        if self.index >= self.count {
            return None;
        }
        let place = self.index;
        let (len, meta) = (*self.lens.get(place)?, self.metas.get(place)?);
        let came = self.bytes.chunks_exact(MAX_PACKET).nth(place)?.get(..len)?;
        let (from, size) = (self.at, meta.train_size().unwrap_or(len).max(1));
        let end = from.saturating_add(size).min(len);
        (self.index, self.at) = if end < len { (self.index, end) } else { (self.index.saturating_add(1), 0) };
        Some((came.get(from..end)?, place))
    }
}

impl AsFd for UdpPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// What `open` opens for both IP versions, as far as the kernel has them.
fn both(open: impl Fn(IpAddr) -> Result<Vec<UdpPort>, Error>) -> Result<Vec<UdpPort>, Error> {
    let mut ports = open(Ipv4Addr::UNSPECIFIED.into())?;
    match open(Ipv6Addr::UNSPECIFIED.into()) {
        Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => {}
        opened => ports.extend(opened?),
    }
    Ok(ports)
}

/// Opens a socket; another one may be at the same port, if that one says so, too.
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
    // A kernel before 5.0 does not know it, and brings them one by one.
    let _ = sys::set_option(fd, libc::SOL_UDP, libc::UDP_GRO, 1);
    if sys::set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, RECEIVE_BUFFER as i32).is_err() {
        socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    }
    socket.bind(&local.into())?;
    Ok(socket)
}

/// Writes UDP and IP headers in front of the payload.
fn restore(packet: &mut Packet<'_>, meta: &Meta, port: u16) -> Option<()> {
    let (src, src_port) = meta.source()?;
    let (dst, tos) = meta.destination();
    let payload_len = u16::try_from(packet.len()).ok()?;
    packet.grow_front(udp::HEADER_LEN).ok()?;
    let header = UdpHeader { src_port, dst_port: port, payload_len };
    header.emit(packet.data_mut().first_chunk_mut()?).ok()?;
    push_ip(packet, src, dst?, tos)
}

/// Writes an IP header in front of a UDP datagram.
fn push_ip(packet: &mut Packet<'_>, src: IpAddr, dst: IpAddr, tos: u8) -> Option<()> {
    let payload_len = u16::try_from(packet.len()).ok()?;
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            packet.grow_front(v4::HEADER_LEN).ok()?;
            let protocol = proto::UDP;
            let header = Ipv4Header { tos, ident: 1, df: false, ttl: TTL, protocol, src, dst, payload_len };
            header.emit(packet.data_mut().first_chunk_mut()?).ok()
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            packet.grow_front(v6::HEADER_LEN).ok()?;
            let header = Ipv6Header {
                traffic_class: tos,
                flow_label: 0,
                payload_len,
                next_header: proto::UDP,
                hop_limit: TTL,
                src,
                dst,
            };
            header.emit(packet.data_mut().first_chunk_mut()?);
            Some(())
        }
        _ => None,
    }
}

/// Writes a NAT keepalive (RFC 3948 section 2.3) to the start of `out`; answers its length.
pub(crate) fn keepalive(
    out: &mut [u8],
    (src, src_port): (IpAddr, u16),
    (dst, dst_port): (IpAddr, u16),
) -> Option<usize> {
    const ROOM: usize = v6::HEADER_LEN + udp::HEADER_LEN;
    *out.get_mut(ROOM)? = casemate_wire::natt::KEEPALIVE;
    let mut packet = Packet::new(out, ROOM, 1)?;
    packet.grow_front(udp::HEADER_LEN).ok()?;
    UdpHeader { src_port, dst_port, payload_len: 1 }.emit(packet.data_mut().first_chunk_mut()?).ok()?;
    // RFC 8200 section 8.1: over IPv6 the checksum is not optional.
    if let (IpAddr::V6(src), IpAddr::V6(dst)) = (src, dst) {
        udp::Udp::parse(packet.data_mut()).ok()?.fill_checksum_v6(src, dst);
    }
    push_ip(&mut packet, src, dst, 0)?;
    let (start, len) = (packet.head_room(), packet.len());
    out.copy_within(start..start.checked_add(len)?, 0);
    Some(len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eventually::eventually;
    use casemate_wire::ip::{Ipv4, Ipv6};
    use casemate_wire::udp::Udp;
    use std::net::UdpSocket;

    impl UdpPort {
        /// One that nobody has. Port 0 would be unknown to the reader.
        pub(crate) fn open_free(any: IpAddr) -> Self {
            eventually("a free port", || {
                let free = UdpSocket::bind((any, 0)).unwrap().local_addr().unwrap().port();
                Self::open(any, free).ok()
            })
        }
    }

    fn receive_one(any: IpAddr, from: &str, tos: u32) -> Vec<u8> {
        let mut port = UdpPort::open_free(any);
        let free = port.port();
        let sender = UdpSocket::bind((from, 0)).unwrap();
        let options = socket2::SockRef::from(&sender);
        if any.is_ipv4() {
            options.set_tos_v4(tos).unwrap()
        } else {
            options.set_tclass_v6(tos).unwrap()
        }
        sender.send_to(b"hello", (from, free)).unwrap();
        let mut ready = [false];
        sys::poll_readable(&[port.as_fd()], &mut ready, std::time::Duration::from_secs(20)).unwrap();
        assert_eq!(ready, [true]);
        let mut buffers = Buffers::new();
        assert!(!port.receive(&mut buffers, usize::MAX).unwrap());
        assert_eq!(buffers.packets().len(), 1);
        let packet = buffers.packets()[0].data().to_vec();
        let udp = Udp::parse(&packet[packet.len() - 13..]).unwrap();
        assert_eq!((udp.src_port(), udp.dst_port()), (sender.local_addr().unwrap().port(), free));
        packet
    }

    #[test]
    fn headers_are_written_again() {
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

    /// The first byte behind the headers of what waits at a port.
    fn waiting(port: &mut UdpPort) -> Vec<u8> {
        let mut buffers = Buffers::new();
        let mut found = Vec::new();
        while port.receive(&mut buffers, usize::MAX).is_ok() {
            found.extend(buffers.packets().iter().map(|packet| packet.data()[packet.len() - 1]));
        }
        found
    }

    #[test]
    fn ike_and_what_is_urgent_come_to_the_first_of_two_sockets() {
        let free = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap().local_addr().unwrap().port();
        let urgent = Urgent::of(&casemate_sched::DscpTable::default()).unwrap();
        let mut ports = UdpPort::open_shared(free, &urgent).unwrap();
        for (from, ports) in ["127.0.0.1", "::1"].into_iter().zip(ports.chunks_mut(2)) {
            let [express, rest] = ports else { unreachable!() };
            // Another sender each time, for the kernel would spread them by their ports.
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
        let mut out = [0; 64];
        let (src, dst) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        assert_eq!(keepalive(&mut out, (src, 4500), (dst, 4501)), Some(29));
        let ip = Ipv4::parse(&out[..29]).unwrap();
        assert!(ip.verify_checksum());
        let udp = Udp::parse(ip.payload()).unwrap();
        assert_eq!((udp.src_port(), udp.dst_port(), udp.payload()), (4500, 4501, &[0xff][..]));

        let (src, dst): (Ipv6Addr, Ipv6Addr) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
        assert_eq!(keepalive(&mut out, (src.into(), 4500), (dst.into(), 4500)), Some(49));
        assert!(Udp::parse(&out[40..49]).unwrap().verify_checksum_v6(src, dst));
    }
}
