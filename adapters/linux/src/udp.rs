//! UDP sockets on which IKE and encapsulated ESP arrive (RFC 3948).
//!
//! The sockets keep the port ours and let the kernel reassemble and check what arrives. The data path takes whole IP
//! packets, so the headers that the socket strips are written in front of the payload again, from what the kernel tells
//! (`headers`). Datagrams in a row from one peer come as one piece (UDP_GRO, udp(7)), a train, whose datagrams the kernel writes
//! apart, or which is parted (`inbox`). Packets are sent through `train` or `raw`, with the headers that the data path made.

mod headers;
mod inbox;
#[cfg(test)]
mod tests;

use crate::Error;
use crate::buffers::Buffers;
use crate::filter::{self, Urgent};
use crate::sys;
use casemate_wire::ip::IpVersion;
pub(crate) use headers::keepalive;
use inbox::{Inbox, Spots};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

const RECEIVE_BUFFER: usize = 8 << 20;

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
        self.inbox.has_more()
    }

    /// Receives up to a batch of datagrams into `buffers`, as IP packets; answers whether more may wait. From `room` bytes on, if that is
    /// bounded, no further one is taken.
    pub fn receive(&mut self, buffers: &mut Buffers, room: Option<usize>) -> io::Result<bool> {
        let Self { socket, port, inbox } = self;
        buffers.hold(&[]);
        let (mut spots, mut fills_up) = (Spots::new(), false);
        if !inbox.has_more() {
            fills_up = match room {
                None => inbox.land(socket, buffers, &mut spots)?,
                Some(_) => inbox.fill(socket)?,
            };
        }
        inbox.hand_out(buffers, room.unwrap_or(usize::MAX), &mut spots);
        buffers.hold_in(spots.iter().map(|spot| (spot.buffer, spot.len)));
        let mut packets = buffers.packets();
        for (packet, spot) in packets.iter_mut().zip(&spots) {
            let meta = inbox.meta(spot.place);
            if meta.and_then(|meta| headers::restore(packet, meta, *port)).is_none() {
                // Neither address nor room: an empty packet is a malformed one.
                let _ = packet.set_len(0);
            }
        }
        let moved = Buffers::places_of(packets);
        buffers.settle(&moved);
        Ok(fills_up || inbox.has_more())
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

/// What `open` makes of a port that nobody has. One that was free a moment ago may be another test's by now: then it tries others.
#[cfg(test)]
pub(crate) fn at_a_free_port<T>(any: IpAddr, open: impl Fn(u16) -> Result<T, Error>) -> T {
    let free = || std::net::UdpSocket::bind((any, 0)).unwrap().local_addr().unwrap().port();
    (0..20).find_map(|_| open(free()).ok()).expect("none of 20 ports was free for long")
}
