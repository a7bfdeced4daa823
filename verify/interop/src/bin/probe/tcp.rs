//! TCP connections from an address of our choice.

use socket2::{Domain, Protocol, Socket, Type};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

/// How long the peer may be silent.
pub(crate) const LIMIT: Duration = Duration::from_secs(5);

/// A connection to a port, with limits for everything that may wait.
pub(crate) fn connect(from: IpAddr, to: IpAddr, port: u16) -> std::io::Result<TcpStream> {
    connect_from((from, 0).into(), (to, port).into())
}

/// The same from a port of our choice.
pub(crate) fn connect_from(from: SocketAddr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    socket.bind(&from.into())?;
    socket.connect_timeout(&to.into(), LIMIT)?;
    socket.set_read_timeout(Some(LIMIT))?;
    socket.set_write_timeout(Some(LIMIT))?;
    Ok(socket.into())
}
