//! A TCP echo service (RFC 862) and its client: whole segments, MSS and path MTU through the tunnel.

use crate::tcp::{LIMIT, connect};
use casemate_interop::{Error, Result};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv6Addr, Shutdown, TcpListener, TcpStream};

const PORT: u16 = 7;

/// Answers connections of both IP versions, each in a thread, forever.
pub(crate) fn serve() -> Result<()> {
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, PORT)).map_err(Error::in_front("TCP port 7"))?;
    for stream in listener.incoming().flatten() {
        std::thread::spawn(move || echo(stream));
    }
    Ok(())
}

/// A peer that goes away in the middle is the client's finding, not ours.
fn echo(mut stream: TcpStream) {
    if stream.set_read_timeout(Some(LIMIT)).is_ok()
        && let Ok(mut reader) = stream.try_clone()
    {
        let _ = std::io::copy(&mut reader, &mut stream);
    }
}

/// Sends `bytes` bytes from one address to the service at the other, reads as many and compares.
pub(crate) fn exchange(from: IpAddr, to: IpAddr, bytes: usize) -> Result<String> {
    let stream = connect(from, to, PORT).map_err(Error::in_front("connect"))?;
    let sent: Vec<u8> = (0..bytes).map(|index| (index.wrapping_mul(31) >> 3) as u8).collect();
    let mut writer = stream.try_clone().map_err(Error::in_front("connect"))?;
    let copy = sent.clone();
    let sender =
        std::thread::spawn(move || writer.write_all(&copy).and_then(|()| writer.shutdown(Shutdown::Write)));
    let mut received = Vec::new();
    let end = (&stream).read_to_end(&mut received);
    let _ = sender.join();
    match end {
        Ok(_) if received == sent => Ok(format!("{bytes} bytes there and back")),
        Ok(_) => Err(Error::new(format!("{} of {bytes} bytes came back, or not the same", received.len()))),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            Err(Error::new(format!("silence after {} of {bytes} bytes", received.len())))
        }
        Err(error) => Err(Error::in_front(format!("after {} of {bytes} bytes", received.len()))(error)),
    }
}
