//! ICMP echo (RFC 792): round-trip times of single requests.

use casemate_testbed::{Error, Result};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

/// Time limit for a reply.
const TIMEOUT: Duration = Duration::from_millis(300);
/// Maximum number of consecutive lost requests.
const MAX_LOSSES: u32 = 10;
const ECHO: u8 = 8;
const ECHO_REPLY: u8 = 0;

/// Sends pings from the network namespace of this thread.
pub(super) struct Pinger {
    socket: Socket,
    to: Ipv4Addr,
    id: u16,
    sequence: u16,
}

impl Pinger {
    pub(super) fn new(to: Ipv4Addr, id: u16) -> Result<Self> {
        let open = || -> std::io::Result<Socket> {
            let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4))?;
            socket.connect(&SocketAddrV4::new(to, 0).into())?;
            socket.set_read_timeout(Some(TIMEOUT))?;
            Ok(socket)
        };
        Ok(Self { socket: open().map_err(Error::context("ICMP socket"))?, to, id, sequence: 0 })
    }

    /// Returns the round-trip times of `count` requests with this payload. The first request is not measured,
    /// and lost requests are repeated.
    pub(super) fn ping(&mut self, payload: usize, count: usize) -> Result<Vec<Duration>> {
        let (mut times, mut losses) = (Vec::with_capacity(count + 1), 0);
        while times.len() <= count {
            match self.ping_once(payload).map_err(Error::context(self.to))? {
                Some(time) => {
                    times.push(time);
                    losses = 0;
                }
                None if losses == MAX_LOSSES => {
                    return Err(Error::new(format!("{} does not reply to {payload} bytes", self.to)));
                }
                None => losses += 1,
            }
        }
        times.remove(0);
        Ok(times)
    }

    fn ping_once(&mut self, payload: usize) -> std::io::Result<Option<Duration>> {
        self.sequence = self.sequence.wrapping_add(1);
        let (request, mut answer) = (request(self.id, self.sequence, payload), [0; 2_048]);
        let start = Instant::now();
        self.socket.send(&request)?;
        while start.elapsed() < TIMEOUT {
            let len = match self.socket.read(&mut answer) {
                Ok(len) => len,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Ok(None);
                }
                Err(error) => return Err(error),
            };
            if is_reply(answer.get(..len).unwrap_or_default(), &request) {
                return Ok(Some(start.elapsed()));
            }
        }
        Ok(None)
    }
}

/// Whether an IPv4 packet is the complete reply to this request.
fn is_reply(packet: &[u8], request: &[u8]) -> bool {
    let header = packet.first().map_or(0, |first| usize::from(first & 15) * 4);
    let icmp = packet.get(header..).unwrap_or_default();
    icmp.first() == Some(&ECHO_REPLY) && icmp.get(4..) == request.get(4..)
}

fn request(id: u16, sequence: u16, payload: usize) -> Vec<u8> {
    let mut message = vec![ECHO, 0, 0, 0];
    message.extend(id.to_be_bytes().into_iter().chain(sequence.to_be_bytes()));
    message.extend((0..payload).map(|index| index as u8));
    let checksum = checksum(&message).to_be_bytes();
    message.splice(2..4, checksum);
    message
}

/// Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let words =
        bytes.chunks(2).map(|pair| pair.iter().fold(0, |word: u32, byte| word << 8 | u32::from(*byte)));
    let mut sum: u32 = words.sum();
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_must_match_completely() {
        let request = request(7, 9, 64);
        assert_eq!(checksum(&request), 0);
        let mut answer = request.clone();
        answer[0] = ECHO_REPLY;
        let header = [0x45].into_iter().chain([0; 19]);
        let packet: Vec<u8> = header.chain(answer.iter().copied()).collect();
        assert!(is_reply(&packet, &request));
        let mut other = packet.clone();
        other[80] ^= 1;
        assert!(!is_reply(&other, &request) && !is_reply(&packet, &super::request(7, 10, 64)));
        assert!(!is_reply(&[], &request));
    }
}
