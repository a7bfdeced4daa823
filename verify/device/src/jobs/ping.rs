//! Echo requests of several sizes, every byte of the answers compared.

use super::Job;
use crate::stack::Stack;
use smoltcp::iface::SocketHandle;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::socket::icmp::{Endpoint, PacketBuffer, PacketMetadata, Socket};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{Icmpv4Packet, Icmpv4Repr, Icmpv6Packet, Icmpv6Repr};
use std::collections::VecDeque;
use std::net::IpAddr;

const IDENT: u16 = 0xCA5E;
/// How long an answer may take. None may be lost: the device cuts what is too long, and so does its peer.
const LIMIT: Duration = Duration::from_secs(3);
const BUFFER: usize = 100_000;

pub(crate) struct Ping {
    socket: SocketHandle,
    ends: (IpAddr, IpAddr),
    sizes: VecDeque<usize>,
    count: usize,
    /// The request that waits for its answer: its number, its data, and since when.
    waiting: Option<(u16, Vec<u8>, Instant)>,
    began: Instant,
}

impl Ping {
    pub(crate) fn new(
        ends: (IpAddr, IpAddr),
        sizes: Vec<usize>,
        stack: &mut Stack,
        now: Instant,
    ) -> Result<Self, String> {
        let buffer = || PacketBuffer::new(vec![PacketMetadata::EMPTY; 8], vec![0; BUFFER]);
        let mut socket = Socket::new(buffer(), buffer());
        socket.bind(Endpoint::Ident(IDENT)).map_err(|error| format!("ICMP: {error}"))?;
        let (socket, count) = (stack.sockets.add(socket), sizes.len());
        Ok(Self { socket, ends, sizes: sizes.into(), count, waiting: None, began: now })
    }

    /// Sends the next request; `false` if there is none.
    fn send(&mut self, stack: &mut Stack, now: Instant) -> Result<bool, String> {
        let Some(size) = self.sizes.pop_front() else { return Ok(false) };
        let number = self.sizes.len() as u16;
        let data: Vec<u8> = (0..size).map(|at| (at.wrapping_mul(7) as u8) ^ number as u8).collect();
        let socket = stack.sockets.get_mut::<Socket<'_>>(self.socket);
        let full = |error| format!("{size} bytes: {error}");
        let sums = ChecksumCapabilities::default();
        match self.ends {
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let echo = Icmpv6Repr::EchoRequest { ident: IDENT, seq_no: number, data: &data };
                let room = socket.send(echo.buffer_len(), to.into()).map_err(full)?;
                echo.emit(&from, &to, &mut Icmpv6Packet::new_unchecked(room), &sums);
            }
            (_, to) => {
                let echo = Icmpv4Repr::EchoRequest { ident: IDENT, seq_no: number, data: &data };
                let room = socket.send(echo.buffer_len(), to.into()).map_err(full)?;
                echo.emit(&mut Icmpv4Packet::new_unchecked(room), &sums);
            }
        }
        self.waiting = Some((number, data, now));
        Ok(true)
    }

    /// Takes an answer, if it is the right one.
    fn take(&mut self, stack: &mut Stack) {
        let socket = stack.sockets.get_mut::<Socket<'_>>(self.socket);
        while let Ok((answer, _)) = socket.recv() {
            let is_it = self.waiting.as_ref().is_some_and(|(number, data, _)| {
                answer.get(6..8) == Some(&number.to_be_bytes()) && answer.get(8..) == Some(data)
            });
            if is_it {
                self.waiting = None;
            }
        }
    }
}

impl Job for Ping {
    fn step(&mut self, stack: &mut Stack, now: Instant) -> Option<Result<String, String>> {
        self.take(stack);
        let done = match &self.waiting {
            Some((_, data, since)) if now - *since > LIMIT => {
                Err(format!("no answer to {} bytes", data.len()))
            }
            Some(_) => return None,
            None => match self.send(stack, now) {
                Ok(true) => return None,
                Ok(false) => Ok(format!("{} answered, {} ms", self.count, (now - self.began).total_millis())),
                Err(error) => Err(error),
            },
        };
        stack.sockets.remove(self.socket);
        Some(done)
    }
}
