//! Sends ICMP echo requests (RFC 792; RFC 4443 section 4.1), as `ping` does, and measures the round-trip
//! time.

use crate::{Error, sys};
use casemate_wire::checksum::Sum;
use casemate_wire::invariant::OrBroken;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

const ICMP_HEADER_LEN: usize = 8;

/// The reply to a request.
#[derive(Debug)]
pub struct EchoReply {
    /// Time from the request to its reply.
    pub round_trip: Duration,
    /// The payload of the reply.
    pub payload: Vec<u8>,
}

/// A raw ICMP socket, connected to one host.
#[derive(Debug)]
pub struct Ping {
    socket: Socket,
    v4: bool,
    seq: u16,
}

impl Ping {
    /// Opens a socket in the current network namespace.
    pub fn open(dst: IpAddr) -> Result<Self, Error> {
        let open = || {
            let (domain, protocol) = match dst {
                IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4),
                IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6),
            };
            let socket = Socket::new(domain, Type::RAW, Some(protocol))?;
            socket.set_nonblocking(true)?;
            socket.connect(&SockAddr::from(SocketAddr::new(dst, 0)))?;
            Ok(socket)
        };
        let socket = open().map_err(|error| Error::new(format!("ICMP socket to {dst}"), error))?;
        Ok(Self { socket, v4: dst.is_ipv4(), seq: 0 })
    }

    /// Sends a request with `payload`, and returns its reply. An error of kind `TimedOut` if no reply arrives
    /// within `timeout`.
    pub fn send(&mut self, payload: &[u8], timeout: Duration) -> io::Result<EchoReply> {
        self.seq = self.seq.wrapping_add(1);
        let request = self.request(payload);
        let mut buffer = vec![0; usize::from(u16::MAX)];
        let start = Instant::now();
        self.socket.send(&request)?;
        loop {
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            sys::poll_readable(&[self.socket.as_fd()], &mut [false], left)?;
            let len = match (&self.socket).read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                len => len?,
            };
            let round_trip = start.elapsed();
            let packet = buffer.get(..len).or_broken_default("the packet is inside the buffer");
            if let Some(payload) = self.reply(packet) {
                return Ok(EchoReply { round_trip, payload: payload.to_vec() });
            }
        }
    }

    fn request(&self, payload: &[u8]) -> Vec<u8> {
        let kind = if self.v4 { 8 } else { 128 };
        let mut request = vec![kind, 0, 0, 0];
        request.extend(IDENT.to_be_bytes());
        request.extend(self.seq.to_be_bytes());
        request.extend(payload);
        if self.v4 {
            // The kernel writes the checksum of ICMPv6 (RFC 3542 section 3.1).
            let sum = Sum::of(&request).finish().to_be_bytes();
            request.iter_mut().skip(2).zip(sum).for_each(|(out, byte)| *out = byte);
        }
        request
    }

    /// The payload, if the packet is the reply to the last request. An IPv4 socket returns the IP header,
    /// too.
    fn reply<'p>(&self, packet: &'p [u8]) -> Option<&'p [u8]> {
        let header_len = if self.v4 { usize::from(packet.first()? & 0xf).saturating_mul(4) } else { 0 };
        let (icmp, payload) = packet.get(header_len..)?.split_at_checked(ICMP_HEADER_LEN)?;
        let kind = if self.v4 { 0 } else { 129 };
        let expected = [IDENT.to_be_bytes(), self.seq.to_be_bytes()].concat();
        (icmp.first() == Some(&kind) && icmp.get(4..) == Some(&expected)).then_some(payload)
    }
}

/// Identifier of the requests. There is one requester in each namespace.
const IDENT: u16 = 0x4350;
