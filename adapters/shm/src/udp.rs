//! UDP.

use crate::Stack;
use crate::tcp::{Limit, Socket, ask, local, unexpected};
use casemate_rings::{Answer, Call, Readiness};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// A UDP socket.
#[derive(Debug)]
pub struct UdpSocket {
    socket: Socket,
    local: SocketAddr,
    read_limit: Limit,
}

impl UdpSocket {
    /// Takes a port; 0 is any that is free. The unspecified address, of either version, is every address.
    pub fn bind(stack: &Stack, addr: SocketAddr) -> io::Result<Self> {
        match ask(stack, &Call::Bind { local: local(addr), port: addr.port() }, None)? {
            Answer::Opened { socket, local } => {
                let socket = Socket { stack: stack.clone(), handle: socket };
                Ok(Self { socket, local, read_limit: Limit::default() })
            }
            other => Err(unexpected(other)),
        }
    }

    /// Where it is.
    pub const fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Receiving that takes longer fails with [`io::ErrorKind::TimedOut`].
    pub fn set_read_timeout(&self, limit: Option<Duration>) {
        self.read_limit.set(limit);
    }

    /// Sends a datagram; waits while the socket's buffer is full.
    pub fn send_to(&self, data: &[u8], to: SocketAddr) -> io::Result<usize> {
        let Socket { stack, handle: socket } = &self.socket;
        loop {
            match stack.ask(&Call::SendTo { socket: *socket, to }, data, &mut [], None) {
                Ok((Answer::Sent { bytes }, _)) => return Ok(data.len().min(bytes as usize)),
                Ok((other, _)) => return Err(unexpected(other)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            let interest = Readiness { read: false, write: true };
            ask(stack, &Call::Poll { socket: *socket, interest, patient: true }, None)?;
        }
    }

    /// Waits for a datagram; what does not fit is lost.
    pub fn recv_from(&self, into: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let most = u32::try_from(into.len()).unwrap_or(u32::MAX);
        let call = Call::Receive { socket: self.socket.handle, most, patient: true };
        match self.socket.stack.ask(&call, &[], into, self.read_limit.get())? {
            (Answer::Received { from: Some(from) }, len) => Ok((len, from)),
            (other, _) => Err(unexpected(other)),
        }
    }
}
