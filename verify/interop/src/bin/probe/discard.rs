//! Bytes for a discard service (RFC 863), at the port of iperf 2.

use crate::tcp::connect;
use casemate_interop::{Error, Result};
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown};
use std::time::Instant;

const PORT: u16 = 5_001;

/// Sends `bytes` bytes and waits until the service has closed the connection: then it has taken all.
pub(crate) fn send(from: IpAddr, to: IpAddr, bytes: usize) -> Result<String> {
    let start = Instant::now();
    let mut stream = connect(from, to, PORT).map_err(Error::in_front("connect"))?;
    let sent = stream.write_all(&vec![0xA5; bytes]).and_then(|()| stream.shutdown(Shutdown::Write));
    sent.map_err(Error::in_front("send"))?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).map_err(Error::in_front("end"))?;
    if !answer.is_empty() {
        return Err(Error::new(format!("{} bytes came from a service that has none to say", answer.len())));
    }
    Ok(format!("{bytes} bytes taken in {:.1} ms", start.elapsed().as_secs_f64() * 1e3))
}
