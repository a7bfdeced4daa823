//! TCP clients and the TCP echo service (RFC 862), which test full segments, MSS and path MTU through a
//! tunnel.

use casemate_interop::{Error, Result};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Timeout of the peer.
pub(crate) const LIMIT: Duration = Duration::from_secs(5);

/// Connects to a port, with timeouts.
pub(crate) fn connect(from: IpAddr, to: IpAddr, port: u16) -> std::io::Result<TcpStream> {
    connect_from((from, 0).into(), (to, port).into())
}

/// Connects from a given port.
pub(crate) fn connect_from(from: SocketAddr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    socket.bind(&from.into())?;
    socket.connect_timeout(&to.into(), LIMIT)?;
    socket.set_read_timeout(Some(LIMIT))?;
    socket.set_write_timeout(Some(LIMIT))?;
    Ok(socket.into())
}

const ECHO_PORT: u16 = 7;

/// Serves connections of both IP versions forever, each in a thread.
pub(crate) fn serve_echo() -> Result<()> {
    let listener =
        TcpListener::bind((Ipv6Addr::UNSPECIFIED, ECHO_PORT)).map_err(Error::context("TCP port 7"))?;
    for stream in listener.incoming().flatten() {
        std::thread::spawn(move || serve_connection(stream));
    }
    Ok(())
}

/// The client reports connections that the peer aborts, so the service ignores them.
fn serve_connection(mut stream: TcpStream) {
    if stream.set_read_timeout(Some(LIMIT)).is_ok()
        && let Ok(mut reader) = stream.try_clone()
    {
        let _ = std::io::copy(&mut reader, &mut stream);
    }
}

/// Sends `bytes` bytes to the service, reads as many back and compares them.
pub(crate) fn exchange_echo(from: IpAddr, to: IpAddr, bytes: usize) -> Result<String> {
    let stream = connect(from, to, ECHO_PORT).map_err(Error::context("connect"))?;
    let sent: Vec<u8> = (0..bytes).map(|index| (index.wrapping_mul(31) >> 3) as u8).collect();
    let mut writer = stream.try_clone().map_err(Error::context("connect"))?;
    let copy = sent.clone();
    let sender =
        std::thread::spawn(move || writer.write_all(&copy).and_then(|()| writer.shutdown(Shutdown::Write)));
    let mut received = Vec::new();
    let end = (&stream).read_to_end(&mut received);
    let _ = sender.join();
    match end {
        Ok(_) if received == sent => Ok(format!("{bytes} bytes echoed")),
        Ok(_) => Err(Error::new(format!("received {} of {bytes} bytes, or other contents", received.len()))),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            Err(Error::new(format!("timeout after {} of {bytes} bytes", received.len())))
        }
        Err(error) => Err(Error::context(format!("after {} of {bytes} bytes", received.len()))(error)),
    }
}

/// Port of the discard service (RFC 863), the port of iperf 2.
const DISCARD_PORT: u16 = 5_001;

/// Sends `bytes` bytes and waits until the service closes the connection, which means that it has read all
/// of them.
pub(crate) fn send_discard(from: IpAddr, to: IpAddr, bytes: usize) -> Result<String> {
    let start = Instant::now();
    let mut stream = connect(from, to, DISCARD_PORT).map_err(Error::context("connect"))?;
    let sent = stream.write_all(&vec![0xA5; bytes]).and_then(|()| stream.shutdown(Shutdown::Write));
    sent.map_err(Error::context("send"))?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).map_err(Error::context("end"))?;
    if !answer.is_empty() {
        return Err(Error::new(format!("the discard service sent {} bytes", answer.len())));
    }
    Ok(format!("{bytes} bytes accepted in {:.1} ms", start.elapsed().as_secs_f64() * 1e3))
}
