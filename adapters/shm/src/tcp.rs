//! TCP.

use crate::Stack;
use crate::session::Reply;
use casemate_rings::{Answer, Call, Handle, Readiness};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// An answer that does not fit its call.
pub(crate) fn unexpected(answer: Answer) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the server answered {answer:?}"))
}

/// A call that takes no data and gives none.
pub(crate) fn ask(stack: &Stack, call: &Call, limit: Option<Duration>) -> io::Result<Answer> {
    stack.ask(call, &[], &mut [], limit).map(|(answer, _)| answer)
}

/// `None` for the address that stands for all.
pub(crate) fn local(addr: SocketAddr) -> Option<IpAddr> {
    Some(addr.ip()).filter(|ip| !ip.is_unspecified())
}

/// A socket of the server, which is closed when this is dropped.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) stack: Stack,
    pub(crate) handle: Handle,
}

impl Drop for Socket {
    fn drop(&mut self) {
        // If it cannot be closed, the session has ended, and the socket with it.
        let _ = ask(&self.stack, &Call::Close { socket: self.handle }, None);
    }
}

/// How long a socket's calls may take; `None` is as long as it takes.
#[derive(Debug, Default)]
pub(crate) struct Limit(Mutex<Option<Duration>>);

impl Limit {
    pub(crate) fn get(&self) -> Option<Duration> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, limit: Option<Duration>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = limit;
    }
}

/// A TCP connection. It may be used by several threads at a time, through references.
#[derive(Debug)]
pub struct TcpStream {
    socket: Socket,
    peer: SocketAddr,
    read_limit: Limit,
    write_limit: Limit,
}

const WRITE: Readiness = Readiness { read: false, write: true };

impl TcpStream {
    /// Connects, and waits until the connection stands.
    pub fn connect(stack: &Stack, remote: SocketAddr) -> io::Result<Self> {
        Self::connect_in(stack, remote, None)
    }

    /// The same, waiting no longer than `limit`.
    pub fn connect_timeout(stack: &Stack, remote: SocketAddr, limit: Duration) -> io::Result<Self> {
        Self::connect_in(stack, remote, Some(limit))
    }

    fn connect_in(stack: &Stack, remote: SocketAddr, limit: Option<Duration>) -> io::Result<Self> {
        match ask(stack, &Call::Connect { remote }, None)? {
            Answer::Opened { socket, .. } => {
                let stream = Self::new(stack, socket, remote);
                let poll = Call::Poll { socket, interest: WRITE, patient: true };
                ask(stack, &poll, limit).map(|_| stream)
            }
            other => Err(unexpected(other)),
        }
    }

    fn new(stack: &Stack, handle: Handle, peer: SocketAddr) -> Self {
        let socket = Socket { stack: stack.clone(), handle };
        Self { socket, peer, read_limit: Limit::default(), write_limit: Limit::default() }
    }

    /// The other end.
    pub const fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// Reading that takes longer fails with [`io::ErrorKind::TimedOut`]; nothing is lost by that.
    pub fn set_read_timeout(&self, limit: Option<Duration>) {
        self.read_limit.set(limit);
    }

    /// Writing that takes longer fails with [`io::ErrorKind::TimedOut`].
    pub fn set_write_timeout(&self, limit: Option<Duration>) {
        self.write_limit.set(limit);
    }

    /// Nothing more will be written; the other side reads the end.
    pub fn finish(&self) -> io::Result<()> {
        ask(&self.socket.stack, &Call::Finish { socket: self.socket.handle }, None).map(drop)
    }

    fn ask(&self, call: &Call, data: &[u8], into: &mut [u8], limit: &Limit) -> io::Result<Reply> {
        self.socket.stack.ask(call, data, into, limit.get())
    }
}

impl Read for &TcpStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        let most = u32::try_from(into.len()).unwrap_or(u32::MAX);
        let call = Call::Receive { socket: self.socket.handle, most, patient: true };
        match self.ask(&call, &[], into, &self.read_limit)? {
            (Answer::Received { .. }, len) => Ok(len),
            (other, _) => Err(unexpected(other)),
        }
    }
}

impl Write for &TcpStream {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let data = data.get(..data.len().min(self.socket.stack.most_sent())).unwrap_or_default();
        let socket = self.socket.handle;
        loop {
            match self.ask(&Call::Send { socket }, data, &mut [], &self.write_limit) {
                Ok((Answer::Sent { bytes }, _)) => return Ok(data.len().min(bytes as usize)),
                Ok((other, _)) => return Err(unexpected(other)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            let poll = Call::Poll { socket, interest: WRITE, patient: true };
            self.ask(&poll, &[], &mut [], &self.write_limit)?;
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

/// A TCP socket that listens.
#[derive(Debug)]
pub struct TcpListener {
    socket: Socket,
}

impl TcpListener {
    /// Connections that may wait to be accepted.
    pub const BACKLOG: u16 = 8;

    /// Listens, with a backlog of [`BACKLOG`](Self::BACKLOG). The unspecified address, of either version, is every address.
    pub fn bind(stack: &Stack, addr: SocketAddr) -> io::Result<Self> {
        Self::with_backlog(stack, addr, Self::BACKLOG)
    }

    /// Listens, with so many connections that may wait. Each place takes a socket of those that the application may have.
    pub fn with_backlog(stack: &Stack, addr: SocketAddr, backlog: u16) -> io::Result<Self> {
        let call = Call::Listen { local: local(addr), port: addr.port(), backlog };
        match ask(stack, &call, None)? {
            Answer::Opened { socket, .. } => {
                Ok(Self { socket: Socket { stack: stack.clone(), handle: socket } })
            }
            other => Err(unexpected(other)),
        }
    }

    /// Waits for a connection.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.accept_in(None)
    }

    /// Waits for a connection, but no longer than `limit`.
    pub fn accept_timeout(&self, limit: Duration) -> io::Result<(TcpStream, SocketAddr)> {
        self.accept_in(Some(limit))
    }

    fn accept_in(&self, limit: Option<Duration>) -> io::Result<(TcpStream, SocketAddr)> {
        let Socket { stack, handle } = &self.socket;
        match ask(stack, &Call::Accept { socket: *handle, patient: true }, limit)? {
            Answer::Accepted { socket, peer } => Ok((TcpStream::new(stack, socket, peer), peer)),
            other => Err(unexpected(other)),
        }
    }
}
