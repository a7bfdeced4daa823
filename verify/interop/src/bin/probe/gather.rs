//! Counts datagrams that arrive.

use casemate_interop::{Error, Result};
use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

/// Where `burst` sends.
const PORT: u16 = 9;
/// After so long without one, no more are expected.
const SILENCE: Duration = Duration::from_secs(20);

/// Receives up to so many, and says how many came.
pub(crate) fn receive(at: IpAddr, count: usize) -> Result<String> {
    let socket = UdpSocket::bind((at, PORT)).map_err(Error::in_front(at))?;
    socket.set_read_timeout(Some(SILENCE)).map_err(Error::in_front(at))?;
    let came = (0..count).take_while(|_| socket.recv(&mut [0; 64]).is_ok()).count();
    Ok(format!("{came} of {count} came"))
}
