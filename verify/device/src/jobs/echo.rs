//! ICMP echo (RFC 792, RFC 4443 section 4) through a socket of the stack.

use crate::stack::Stack;
use smoltcp::iface::SocketHandle;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::socket::icmp::{Endpoint, PacketBuffer, PacketMetadata, Socket};
use smoltcp::wire::{Icmpv4Packet, Icmpv4Repr, Icmpv6Packet, Icmpv6Repr};
use std::net::IpAddr;

const BUFFER: usize = 100_000;

/// A socket for requests between two ends, and their answers.
pub(super) struct Echo {
    socket: SocketHandle,
    ident: u16,
    ends: (IpAddr, IpAddr),
}

impl Echo {
    pub(super) fn new(ident: u16, ends: (IpAddr, IpAddr), stack: &mut Stack) -> Result<Self, String> {
        let buffer = || PacketBuffer::new(vec![PacketMetadata::EMPTY; 8], vec![0; BUFFER]);
        let mut socket = Socket::new(buffer(), buffer());
        socket.bind(Endpoint::Ident(ident)).map_err(|error| format!("ICMP: {error}"))?;
        Ok(Self { socket: stack.sockets.add(socket), ident, ends })
    }

    /// Sends the request of this number.
    pub(super) fn request(&self, number: u16, data: &[u8], stack: &mut Stack) -> Result<(), String> {
        let socket = stack.sockets.get_mut::<Socket<'_>>(self.socket);
        let full = |error| format!("{} bytes: {error}", data.len());
        let (ident, sums) = (self.ident, ChecksumCapabilities::default());
        match self.ends {
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let echo = Icmpv6Repr::EchoRequest { ident, seq_no: number, data };
                let room = socket.send(echo.buffer_len(), to.into()).map_err(full)?;
                echo.emit(&from, &to, &mut Icmpv6Packet::new_unchecked(room), &sums);
            }
            (_, to) => {
                let echo = Icmpv4Repr::EchoRequest { ident, seq_no: number, data };
                let room = socket.send(echo.buffer_len(), to.into()).map_err(full)?;
                echo.emit(&mut Icmpv4Packet::new_unchecked(room), &sums);
            }
        }
        Ok(())
    }

    /// Takes every answer that has come, with its number and its data.
    pub(super) fn answers(&self, stack: &mut Stack, mut take: impl FnMut(u16, &[u8])) {
        let socket = stack.sockets.get_mut::<Socket<'_>>(self.socket);
        while let Ok((answer, _)) = socket.recv() {
            if let [_, _, _, _, _, _, high, low, data @ ..] = answer {
                take(u16::from_be_bytes([*high, *low]), data);
            }
        }
    }

    pub(super) fn close(&self, stack: &mut Stack) {
        stack.sockets.remove(self.socket);
    }
}
