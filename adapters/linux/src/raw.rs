//! Raw sockets: protected packets leave through them exactly as the data path made them, IP header included.
//!
//! The kernel looks up the way by the destination in the packet's header, among the packets that carry our mark, so that
//! they do not go round through the TUN interface again. It fills in two fields of an IPv4 header, checksum and length,
//! and a third, the identification, if that is 0: [`Sender`]'s callers see to it that it never is.
//!
//! Nothing waits here until a link takes packets. A socket that all peers share is full when one slow link has filled it; then each peer
//! gets a socket of its own for a while (`lane`), and only packets to a peer whose own socket is full are dropped.

mod lane;

use crate::{BATCH, Error, sys};
use casemate_sa::Instant;
use lane::Lanes;
use socket2::{Domain, Protocol, SockFilter, Socket, Type};
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;

/// How much may wait in a socket that all peers share until the links take it.
pub(crate) const SEND_BUFFER: usize = 4 << 20;

/// Sends whole IP packets.
#[derive(Debug)]
pub struct Sender {
    v4: Socket,
    v6: Option<Socket>,
    lanes: Lanes,
}

impl Sender {
    /// Opens the sockets; what they send carries `mark`.
    pub fn open(mark: u32) -> Result<Self, Error> {
        let open = |domain| open(domain, mark, SEND_BUFFER);
        let v4 = open(Domain::IPV4).map_err(|error| Error::new("raw IPv4 socket", error))?;
        let v6 = match open(Domain::IPV6) {
            Ok(socket) => Some(socket),
            // A kernel without IPv6.
            Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => None,
            Err(error) => return Err(Error::new("raw IPv6 socket", error)),
        };
        Ok(Self { v4, v6, lanes: Lanes::new(mark) })
    }

    /// Sends packets of one IP version, without waiting. Returns how many went; an error is about the first one.
    /// `is_full` tells whether the error is that the link takes no more for now.
    pub fn send(&self, now: Instant, packets: &[(&[u8], IpAddr)]) -> io::Result<usize> {
        debug_assert!(packets.len() <= BATCH);
        let Some((_, dst)) = packets.first() else { return Ok(0) };
        let shared = match (dst, &self.v6) {
            (IpAddr::V4(_), _) => &self.v4,
            (IpAddr::V6(_), Some(socket)) => socket,
            (IpAddr::V6(_), None) => return Err(io::Error::from_raw_os_error(libc::EAFNOSUPPORT)),
        };
        if !self.lanes.are_in_use() {
            match sys::send_batch(shared.as_fd(), packets) {
                Err(error) if is_full(&error) => self.lanes.separate(now),
                done => return done,
            }
        }
        self.lanes.send(now, shared, packets)
    }

    /// A socket that peers share is full: for a while, each peer gets a socket of its own here.
    pub(crate) fn separate(&self, now: Instant) {
        self.lanes.separate(now);
    }

    /// Whether packets to `dst` go through a socket of their own now.
    #[inline]
    pub(crate) fn separates(&self, now: Instant, dst: IpAddr) -> bool {
        self.lanes.are_in_use() && self.lanes.separates(now, dst)
    }

    /// Closes the sockets of peers whose links take packets again. Returns messages for the log: which peer's link was full for
    /// the first time since the last call, and which one takes packets again.
    pub(crate) fn review(&self, now: Instant) -> Vec<String> {
        self.lanes.review(now)
    }
}

/// Whether the error says that a socket takes no more until a link has taken what waits there.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS))
}

fn open(domain: Domain, mark: u32, buffer: usize) -> io::Result<Socket> {
    let socket = Socket::new(domain, Type::RAW, Some(Protocol::from(libc::IPPROTO_RAW)))?;
    if domain == Domain::IPV4 {
        socket.set_header_included_v4(true)?;
        // The DF bit is what the header says; and what routers say of the path is for the data path to remember.
        let off = libc::IP_PMTUDISC_DONT;
        sys::set_option(socket.as_fd(), libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, off)?;
    } else {
        socket.set_header_included_v6(true)?;
    }
    socket.set_mark(mark)?;
    sys::enlarge_send_buffer(&socket, buffer)?;
    discard_all(&socket)?;
    Ok(socket)
}

/// Sockets that take what the packet sockets have seen already. Without them the kernel would answer each ESP and AH packet
/// that "protocol 50 is unreachable".
#[derive(Debug)]
pub struct Sinks(#[expect(dead_code, reason = "being open is all they do")] Vec<Socket>);

impl Sinks {
    /// Opens one for each protocol and IP version.
    pub fn open() -> Result<Self, Error> {
        let mut sockets = Vec::new();
        for domain in [Domain::IPV4, Domain::IPV6] {
            for protocol in [libc::IPPROTO_ESP, libc::IPPROTO_AH] {
                match Socket::new(domain, Type::RAW, Some(Protocol::from(protocol))) {
                    Ok(socket) => {
                        discard_all(&socket).map_err(|error| Error::new("filter of a raw socket", error))?;
                        sockets.push(socket);
                    }
                    Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => {}
                    Err(error) => return Err(Error::new(format!("raw socket for {protocol}"), error)),
                }
            }
        }
        Ok(Self(sockets))
    }
}

/// Lets nothing into the socket's receive queue.
fn discard_all(socket: &Socket) -> io::Result<()> {
    const RETURN_CONSTANT: u16 = 0x06;
    socket.attach_filter(&[SockFilter::new(RETURN_CONSTANT, 0, 0, 0)])
}
