//! UDP sockets on which IKE and encapsulated ESP arrive (RFC 3948).
//!
//! The sockets keep the port ours and let the kernel reassemble and check what arrives. The data path takes whole IP
//! packets, so the headers that the socket strips are written in front of the payload again, from what the kernel tells.
//! (`headers`). Datagrams in a row from one peer come as one piece (UDP_GRO, udp(7)) and are parted here. Packets are sent through
//! `train` or `raw`, with the headers that the data path made.

mod headers;
#[cfg(test)]
mod tests;

use crate::buffers::{Buffers, MAX_PACKET};
use crate::filter::{self, Urgent};
use crate::sys::{self, Meta};
use crate::{BATCH, Error};
use arrayvec::ArrayVec;
use casemate_wire::ip::IpVersion;
pub(crate) use headers::{datagram, keepalive};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

const RECEIVE_BUFFER: usize = 8 << 20;
/// Datagrams that one system call brings, each of which may be many that the kernel joined.
const PLACES: usize = 32;
/// As many as there may be when little comes.
const FEW: usize = 4;

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
    /// How many places the next system call fills at most: about a batch, so that whoever reads it takes it all; and about as many as came
    /// last, for each has to be made ready.
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
        buffers.with_packets(|packets| {
            for (packet, place) in packets.iter_mut().zip(&places) {
                let meta = self.inbox.metas.get(*place);
                if meta.and_then(|meta| headers::restore(packet, meta, self.port)).is_none() {
                    // Neither address nor room: an empty packet is a malformed one.
                    let _ = packet.set_len(0);
                }
            }
        });
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
            most: FEW,
        }
    }

    /// Answers whether more may wait in the socket.
    fn fill(&mut self, socket: &Socket) -> io::Result<bool> {
        (self.count, self.index, self.at) = (0, 0, 0);
        let mut places = ArrayVec::<&mut [u8], PLACES>::new();
        places.extend(self.bytes.chunks_exact_mut(MAX_PACKET).take(self.most));
        let room = places.len();
        self.count = sys::receive_batch(socket.as_fd(), &mut places, Some(&mut *self.metas), &mut self.lens)?;
        let came = self.lens.iter().zip(self.metas.iter()).take(self.count);
        let datagrams: usize =
            came.map(|(len, meta)| len.div_ceil(meta.train_size().unwrap_or(*len).max(1))).sum();
        let wanted = BATCH.saturating_mul(self.count).checked_div(datagrams).unwrap_or(FEW);
        self.most = wanted.min(self.count.saturating_mul(2).max(FEW)).clamp(1, PLACES);
        // A few small ones do not mean that there are more where they were expected to be trains.
        Ok(self.count == room && (room >= FEW || datagrams >= PLACES))
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

/// What `open` makes of a port that nobody has. One that was free a moment ago may be another test's by now.
#[cfg(test)]
pub(crate) fn at_a_free_port<T>(any: IpAddr, open: impl Fn(u16) -> Result<T, Error>) -> T {
    crate::eventually::eventually("a free port", || {
        let free = std::net::UdpSocket::bind((any, 0)).unwrap().local_addr().unwrap().port();
        open(free).ok()
    })
}
