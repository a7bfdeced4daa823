//! TCP and UDP sockets.

use crate::Session;
use crate::session::ResponseAndLen;
use casemate_socketd_protocol::{Readiness, Request, Response, SocketId};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The error for a response that does not match its request.
pub(crate) fn unexpected_response(response: Response) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the stack server sent an unexpected response: {response:?}"),
    )
}

/// Sends a request that neither sends nor receives data.
pub(crate) fn request_without_data(
    stack: &Session,
    request: &Request,
    timeout: Option<Duration>,
) -> io::Result<Response> {
    stack.request(request, &[], &mut [], timeout).map(|(response, _)| response)
}

/// Returns `None` for the unspecified address.
pub(crate) fn bind_address(addr: SocketAddr) -> Option<IpAddr> {
    Some(addr.ip()).filter(|ip| !ip.is_unspecified())
}

/// A socket of the server. Dropping it closes the socket.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) stack: Session,
    pub(crate) id: SocketId,
}

impl Drop for Socket {
    fn drop(&mut self) {
        // If this fails, the session and all its sockets have ended already.
        let _ = request_without_data(&self.stack, &Request::Close { socket: self.id }, None);
    }
}

/// Time limit of a socket's operations; `None` for no limit.
#[derive(Debug, Default)]
pub(crate) struct Timeout(Mutex<Option<Duration>>);

impl Timeout {
    pub(crate) fn get(&self) -> Option<Duration> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, timeout: Option<Duration>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = timeout;
    }
}

const WRITE: Readiness = Readiness { read: false, write: true };

/// A TCP connection. Several threads may use it at the same time through shared references.
#[derive(Debug)]
pub struct TcpStream {
    socket: Socket,
    peer: SocketAddr,
    read_timeout: Timeout,
    write_timeout: Timeout,
}

impl TcpStream {
    /// Opens a connection and waits until it is established.
    pub fn connect(stack: &Session, remote: SocketAddr) -> io::Result<Self> {
        Self::connect_within(stack, remote, None)
    }

    /// Opens a connection and waits at most `timeout` until it is established.
    pub fn connect_timeout(stack: &Session, remote: SocketAddr, timeout: Duration) -> io::Result<Self> {
        Self::connect_within(stack, remote, Some(timeout))
    }

    fn connect_within(stack: &Session, remote: SocketAddr, timeout: Option<Duration>) -> io::Result<Self> {
        match request_without_data(stack, &Request::Connect { remote }, None)? {
            Response::Opened { socket, .. } => {
                let stream = Self::new(stack, socket, remote);
                let poll = Request::Poll { socket, interest: WRITE, wait: true };
                request_without_data(stack, &poll, timeout).map(|_| stream)
            }
            other => Err(unexpected_response(other)),
        }
    }

    fn new(stack: &Session, id: SocketId, peer: SocketAddr) -> Self {
        let socket = Socket { stack: stack.clone(), id };
        Self { socket, peer, read_timeout: Timeout::default(), write_timeout: Timeout::default() }
    }

    /// Returns the address and port of the peer.
    pub const fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// Sets the time limit for reading. Afterwards `read` fails with [`io::ErrorKind::TimedOut`]; no data
    /// is lost.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) {
        self.read_timeout.set(timeout);
    }

    /// Sets the time limit for writing. Afterwards `write` fails with [`io::ErrorKind::TimedOut`].
    pub fn set_write_timeout(&self, timeout: Option<Duration>) {
        self.write_timeout.set(timeout);
    }

    /// Closes the sending direction; the peer reads the end of the stream.
    pub fn shutdown_write(&self) -> io::Result<()> {
        request_without_data(&self.socket.stack, &Request::ShutdownWrite { socket: self.socket.id }, None)
            .map(drop)
    }

    fn request(
        &self,
        request: &Request,
        data: &[u8],
        into: &mut [u8],
        timeout: &Timeout,
    ) -> io::Result<ResponseAndLen> {
        self.socket.stack.request(request, data, into, timeout.get())
    }
}

impl Read for &TcpStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        let max_len = u32::try_from(into.len()).unwrap_or(u32::MAX);
        let request = Request::Receive { socket: self.socket.id, max_len, wait: true };
        match self.request(&request, &[], into, &self.read_timeout)? {
            (Response::Received { .. }, len) => Ok(len),
            (other, _) => Err(unexpected_response(other)),
        }
    }
}

impl Write for &TcpStream {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let data = data.get(..data.len().min(self.socket.stack.max_request_data())).unwrap_or_default();
        let socket = self.socket.id;
        loop {
            match self.request(&Request::Send { socket }, data, &mut [], &self.write_timeout) {
                Ok((Response::Sent { bytes }, _)) => return Ok(data.len().min(bytes as usize)),
                Ok((other, _)) => return Err(unexpected_response(other)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            let poll = Request::Poll { socket, interest: WRITE, wait: true };
            self.request(&poll, &[], &mut [], &self.write_timeout)?;
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for TcpStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        (&*self).read(into)
    }
}

impl Write for TcpStream {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        (&*self).write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A listening TCP socket.
#[derive(Debug)]
pub struct TcpListener {
    socket: Socket,
}

impl TcpListener {
    /// Default backlog: maximum number of connections that wait to be accepted.
    pub const BACKLOG: u16 = 8;

    /// Listens with a backlog of [`BACKLOG`](Self::BACKLOG). The unspecified address of either IP version
    /// stands for all addresses of both.
    pub fn bind(stack: &Session, addr: SocketAddr) -> io::Result<Self> {
        Self::with_backlog(stack, addr, Self::BACKLOG)
    }

    /// Listens with the given backlog. Each backlog entry counts as one socket of the application.
    pub fn with_backlog(stack: &Session, addr: SocketAddr, backlog: u16) -> io::Result<Self> {
        let request = Request::Listen { local: bind_address(addr), port: addr.port(), backlog };
        match request_without_data(stack, &request, None)? {
            Response::Opened { socket, .. } => {
                Ok(Self { socket: Socket { stack: stack.clone(), id: socket } })
            }
            other => Err(unexpected_response(other)),
        }
    }

    /// Waits for a connection.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.accept_within(None)
    }

    /// Waits for a connection, at most `timeout`.
    pub fn accept_timeout(&self, timeout: Duration) -> io::Result<(TcpStream, SocketAddr)> {
        self.accept_within(Some(timeout))
    }

    fn accept_within(&self, timeout: Option<Duration>) -> io::Result<(TcpStream, SocketAddr)> {
        let Socket { stack, id } = &self.socket;
        match request_without_data(stack, &Request::Accept { socket: *id, wait: true }, timeout)? {
            Response::Accepted { socket, peer } => Ok((TcpStream::new(stack, socket, peer), peer)),
            other => Err(unexpected_response(other)),
        }
    }
}

/// A UDP socket.
#[derive(Debug)]
pub struct UdpSocket {
    socket: Socket,
    local: SocketAddr,
    read_timeout: Timeout,
}

impl UdpSocket {
    /// Binds a port; 0 for any free port. The unspecified address of either IP version stands for all
    /// addresses of both.
    pub fn bind(stack: &Session, addr: SocketAddr) -> io::Result<Self> {
        match request_without_data(
            stack,
            &Request::Bind { local: bind_address(addr), port: addr.port() },
            None,
        )? {
            Response::Opened { socket, local } => {
                let socket = Socket { stack: stack.clone(), id: socket };
                Ok(Self { socket, local, read_timeout: Timeout::default() })
            }
            other => Err(unexpected_response(other)),
        }
    }

    /// Returns the local address and port.
    pub const fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Sets the time limit for receiving. Afterwards `recv_from` fails with [`io::ErrorKind::TimedOut`].
    pub fn set_read_timeout(&self, timeout: Option<Duration>) {
        self.read_timeout.set(timeout);
    }

    /// Sends a datagram. Waits while the socket's buffer is full.
    pub fn send_to(&self, data: &[u8], to: SocketAddr) -> io::Result<usize> {
        let Socket { stack, id: socket } = &self.socket;
        loop {
            match stack.request(&Request::SendTo { socket: *socket, to }, data, &mut [], None) {
                Ok((Response::Sent { bytes }, _)) => return Ok(data.len().min(bytes as usize)),
                Ok((other, _)) => return Err(unexpected_response(other)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            request_without_data(
                stack,
                &Request::Poll { socket: *socket, interest: WRITE, wait: true },
                None,
            )?;
        }
    }

    /// Waits for a datagram. The part that does not fit is discarded.
    pub fn recv_from(&self, into: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let max_len = u32::try_from(into.len()).unwrap_or(u32::MAX);
        let request = Request::Receive { socket: self.socket.id, max_len, wait: true };
        match self.socket.stack.request(&request, &[], into, self.read_timeout.get())? {
            (Response::Received { from: Some(from) }, len) => Ok((len, from)),
            (other, _) => Err(unexpected_response(other)),
        }
    }
}
