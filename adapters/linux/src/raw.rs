//! Raw sockets: protected packets leave through them exactly as the data path made them, IP header included.
//!
//! The kernel looks up the way by the destination in the packet's header, among the packets that carry our mark, so that
//! they do not go round through the TUN interface again. It fills in two fields of an IPv4 header, checksum and length,
//! and a third, the identification, if that is 0: [`Sender`]'s callers see to it that it never is.

use crate::{BATCH, Error, sys};
use socket2::{Domain, Protocol, SockFilter, Socket, Type};
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::Duration;

/// How much may wait in a socket until the link takes it.
pub(crate) const SEND_BUFFER: usize = 4 << 20;
/// How long a full socket may hold us up before the packet is given up. The wait throttles the senders behind the TUN
/// interface, which is better than losing what was sealed already.
pub(crate) const PATIENCE: Duration = Duration::from_millis(20);

/// Sends whole IP packets.
#[derive(Debug)]
pub struct Sender {
    v4: Socket,
    v6: Option<Socket>,
}

impl Sender {
    /// Opens the sockets; what they send carries `mark`.
    pub fn open(mark: u32) -> Result<Self, Error> {
        let v4 = open(Domain::IPV4, mark).map_err(|error| Error::new("raw IPv4 socket", error))?;
        let v6 = match open(Domain::IPV6, mark) {
            Ok(socket) => Some(socket),
            // A kernel without IPv6.
            Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => None,
            Err(error) => return Err(Error::new("raw IPv6 socket", error)),
        };
        Ok(Self { v4, v6 })
    }

    /// Sends packets of one IP version. Answers how many went; an error is about the first.
    pub fn send(&self, packets: &[(&[u8], IpAddr)]) -> io::Result<usize> {
        let Some((_, dst)) = packets.first() else { return Ok(0) };
        let socket = match (dst, &self.v6) {
            (IpAddr::V4(_), _) => &self.v4,
            (IpAddr::V6(_), Some(socket)) => socket,
            (IpAddr::V6(_), None) => return Err(io::Error::from_raw_os_error(libc::EAFNOSUPPORT)),
        };
        debug_assert!(packets.len() <= BATCH);
        sys::send_batch(socket.as_fd(), packets)
    }
}

fn open(domain: Domain, mark: u32) -> io::Result<Socket> {
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
    sys::enlarge_send_buffer(&socket, SEND_BUFFER)?;
    socket.set_write_timeout(Some(PATIENCE))?;
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
