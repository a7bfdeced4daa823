//! Half-open IKE SAs: requests of IKE_SA_INIT that nobody follows up (RFC 7296 section 2.6).

use casemate_interop::{Error, Result};
use std::net::{IpAddr, UdpSocket};

const IKE_PORT: u16 = 500;

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
