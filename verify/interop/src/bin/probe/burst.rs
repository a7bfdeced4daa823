//! Datagrams that nobody wants, as fast as they go: each is answered by ICMP (RFC 1122 section 3.2.2.1).

use casemate_interop::{Error, Result};
use std::net::{IpAddr, UdpSocket};

/// Discard over UDP (RFC 863), which the devices do not have.
const PORT: u16 = 9;
const SIZE: usize = 16;

/// Sends so many, and waits for nothing.
pub(crate) fn send(from: IpAddr, to: IpAddr, count: usize) -> Result<String> {
    let socket = UdpSocket::bind((from, 0)).map_err(Error::in_front(from))?;
    for _ in 0..count {
        socket.send_to(&[0; SIZE], (to, PORT)).map_err(Error::in_front(to))?;
    }
    Ok(format!("{count} sent"))
}
