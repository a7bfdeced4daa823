//! ICMP echo requests and replies (RFC 792, RFC 4443 section 4) through a socket of the stack.

use super::{Job, address};
use crate::stack::Stack;
use smoltcp::iface::SocketHandle;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::socket::icmp::{Endpoint, PacketBuffer, PacketMetadata, Socket};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{Icmpv4Packet, Icmpv4Repr, Icmpv6Packet, Icmpv6Repr};
use std::collections::BTreeSet;
use std::collections::VecDeque;
use std::net::IpAddr;

const BUFFER: usize = 100_000;

/// A socket for echo requests between two addresses.
pub(super) struct EchoSocket {
    socket: SocketHandle,
    ident: u16,
    ends: (IpAddr, IpAddr),
}

impl EchoSocket {
    pub(super) fn new(ident: u16, ends: (IpAddr, IpAddr), stack: &mut Stack) -> Result<Self, String> {
        let buffer = || PacketBuffer::new(vec![PacketMetadata::EMPTY; 8], vec![0; BUFFER]);
        let mut socket = Socket::new(buffer(), buffer());
        socket.bind(Endpoint::Ident(ident)).map_err(|error| format!("ICMP: {error}"))?;
        Ok(Self { socket: stack.sockets.add(socket), ident, ends })
    }

    /// Sends the request with this sequence number.
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

    /// Receives all pending replies and calls `on_reply` with sequence number and data of each.
    pub(super) fn receive_replies(&self, stack: &mut Stack, mut on_reply: impl FnMut(u16, &[u8])) {
        let socket = stack.sockets.get_mut::<Socket<'_>>(self.socket);
        while let Ok((reply, _)) = socket.recv() {
            if let [_, _, _, _, _, _, high, low, data @ ..] = reply {
                on_reply(u16::from_be_bytes([*high, *low]), data);
            }
        }
    }

    pub(super) fn close(&self, stack: &mut Stack) {
        stack.sockets.remove(self.socket);
    }
}

const PING_IDENT: u16 = 0xCA5E;
/// Maximum time of a reply. No reply may be lost, because device and peer fragment long packets.
const PING_TIMEOUT: Duration = Duration::from_secs(3);

/// Sends echo requests of several sizes and compares every byte of the replies.
pub(crate) struct Ping {
    echo: EchoSocket,
    sizes: VecDeque<usize>,
    count: usize,
    /// The pending request: sequence number, data, and time of sending.
    pending: Option<(u16, Vec<u8>, Instant)>,
    started: Instant,
}

impl Ping {
    pub(crate) fn new(
        ends: (IpAddr, IpAddr),
        sizes: Vec<usize>,
        stack: &mut Stack,
        now: Instant,
    ) -> Result<Self, String> {
        let (echo, count) = (EchoSocket::new(PING_IDENT, ends, stack)?, sizes.len());
        Ok(Self { echo, sizes: sizes.into(), count, pending: None, started: now })
    }

    /// Sends the next request. Returns false if there is none.
    fn send(&mut self, stack: &mut Stack, now: Instant) -> Result<bool, String> {
        let Some(size) = self.sizes.pop_front() else { return Ok(false) };
        let number = self.sizes.len() as u16;
        let data: Vec<u8> = (0..size).map(|at| (at.wrapping_mul(7) as u8) ^ number as u8).collect();
        self.echo.request(number, &data, stack)?;
        self.pending = Some((number, data, now));
        Ok(true)
    }

    /// Receives replies, and completes the pending request if its reply is correct.
    fn receive_replies(&mut self, stack: &mut Stack) {
        let pending = &mut self.pending;
        self.echo.receive_replies(stack, |number, data| {
            if pending.as_ref().is_some_and(|(sequence, sent, _)| *sequence == number && sent == data) {
                *pending = None;
            }
        });
    }
}

impl Job for Ping {
    fn step(&mut self, stack: &mut Stack, now: Instant) -> Option<Result<String, String>> {
        self.receive_replies(stack);
        let done = match &self.pending {
            Some((_, data, since)) if now - *since > PING_TIMEOUT => {
                Err(format!("no reply to {} bytes", data.len()))
            }
            Some(_) => return None,
            None => match self.send(stack, now) {
                Ok(true) => return None,
                Ok(false) => {
                    Ok(format!("{} answered, {} ms", self.count, (now - self.started).total_millis()))
                }
                Err(error) => Err(error),
            },
        };
        self.echo.close(stack);
        Some(done)
    }
}

const FLOW_IDENT: u16 = 0xF10E;
const FLOW_DATA: [u8; 64] = [0xA7; 64];
const INTERVAL: Duration = Duration::from_millis(10);
/// Time to wait for the last replies.
const LAST_REPLY_TIMEOUT: Duration = Duration::from_secs(1);

/// Sends echo requests at a constant rate while other commands run, to detect interruptions of the tunnel.
/// `probe flow` does the same.
pub(crate) struct Flow {
    echo: EchoSocket,
    next: Instant,
    sent: u16,
    missing: BTreeSet<u16>,
}

impl Flow {
    pub(crate) fn new(from: &str, to: &str, stack: &mut Stack, now: Instant) -> Result<Self, String> {
        let echo = EchoSocket::new(FLOW_IDENT, (address(from)?, address(to)?), stack)?;
        Ok(Self { echo, next: now, sent: 0, missing: BTreeSet::new() })
    }

    /// Receives replies, and sends a request if one is due.
    pub(crate) fn step(&mut self, stack: &mut Stack, now: Instant) {
        self.receive_replies(stack);
        if now < self.next {
            return;
        }
        self.next = now + INTERVAL;
        // A request that cannot be sent counts as lost.
        let _ = self.echo.request(self.sent, &FLOW_DATA, stack);
        self.missing.insert(self.sent);
        self.sent = self.sent.saturating_add(1);
    }

    fn receive_replies(&mut self, stack: &mut Stack) {
        let missing = &mut self.missing;
        self.echo.receive_replies(stack, |number, data| {
            if data == FLOW_DATA {
                missing.remove(&number);
            }
        });
    }

    /// Stops sending.
    pub(crate) fn stop(self, now: Instant) -> StoppedFlow {
        StoppedFlow { flow: self, since: now }
    }
}

/// A flow that waits for its last replies.
pub(crate) struct StoppedFlow {
    flow: Flow,
    since: Instant,
}

impl Job for StoppedFlow {
    fn step(&mut self, stack: &mut Stack, now: Instant) -> Option<Result<String, String>> {
        self.flow.receive_replies(stack);
        if !self.flow.missing.is_empty() && now - self.since <= LAST_REPLY_TIMEOUT {
            return None;
        }
        self.flow.echo.close(stack);
        Some(Ok(format!("{} sent, {} lost", self.flow.sent, self.flow.missing.len())))
    }
}
