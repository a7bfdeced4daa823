//! Jobs: commands that take more than one round. They are ICMP echo requests (RFC 792, RFC 4443 section 4)
//! and exchanges with a TCP echo service.

use crate::stack::Stack;
use casemate_app::command::PendingCommand;
use smoltcp::iface::SocketHandle;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::socket::icmp::{self, Endpoint, PacketBuffer, PacketMetadata};
use smoltcp::socket::tcp::{self, SocketBuffer, State};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{Icmpv4Packet, Icmpv4Repr, Icmpv6Packet, Icmpv6Repr};
use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;

/// A job that runs beside the network stack.
pub(crate) trait Job {
    /// Continues the job. Returns its result when it is finished.
    fn step(&mut self, stack: &mut Stack, now: Instant) -> Option<Result<String, String>>;
}

/// Parses a command and starts its job. `ping` and `tcp` have the same syntax as in `probe` of
/// verify/interop.
pub(crate) fn parse(words: &[&str], stack: &mut Stack, now: Instant) -> Result<Box<dyn Job>, String> {
    match *words {
        ["ping", from, to, ref sizes @ ..] => {
            let mut all = Vec::new();
            for size in sizes {
                let (first, last) = size.split_once('-').unwrap_or((size, size));
                all.extend(number(first)?..=number(last)?);
            }
            Ok(Box::new(Ping::new(FlowAddrs::parse(from, to)?, all, stack, now)?))
        }
        ["tcp", from, to, bytes] => {
            Ok(Box::new(Exchange::new(FlowAddrs::parse(from, to)?, number(bytes)?, stack, now)?))
        }
        ["initiate", name] => Ok(Box::new(IkeCommand::initiate(name, false, stack, now)?)),
        ["initiate", name, "--ike"] => Ok(Box::new(IkeCommand::initiate(name, true, stack, now)?)),
        ["terminate", name] => Ok(Box::new(IkeCommand::terminate(name, stack, now)?)),
        _ => Err(format!("`{}`: unknown command; the option --help lists the commands", words.join(" "))),
    }
}

/// Addresses of the device and of its peer.
#[derive(Clone, Copy)]
pub(crate) struct FlowAddrs {
    local: IpAddr,
    remote: IpAddr,
}

impl FlowAddrs {
    fn parse(local: &str, remote: &str) -> Result<Self, String> {
        Ok(Self { local: address(local)?, remote: address(remote)? })
    }
}

fn address(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|error| format!("`{text}`: {error}"))
}

fn number(text: &str) -> Result<usize, String> {
    text.parse().map_err(|error| format!("`{text}`: {error}"))
}

/// Maximum time of a command. IKE gives up a silent peer before.
const IKE_TIMEOUT: Duration = Duration::from_secs(20);

/// An IKE command that waits for its result.
struct IkeCommand {
    pending: PendingCommand,
    started: Instant,
}

impl IkeCommand {
    fn initiate(name: &str, ike: bool, stack: &mut Stack, now: Instant) -> Result<Self, String> {
        let pending = stack
            .with_ike(now, |endpoint, context| PendingCommand::initiate(name, ike, endpoint, context))?;
        Ok(Self { pending, started: now })
    }

    fn terminate(name: &str, stack: &mut Stack, now: Instant) -> Result<Self, String> {
        let pending =
            stack.with_ike(now, |endpoint, context| PendingCommand::terminate(name, endpoint, context))?;
        Ok(Self { pending, started: now })
    }
}

impl Job for IkeCommand {
    fn step(&mut self, stack: &mut Stack, now: Instant) -> Option<Result<String, String>> {
        // The command was given after IKE ran in this round, so the events of this round precede it.
        let result = if now > self.started {
            stack.events().iter().find_map(|event| self.pending.on_event(event))
        } else {
            None
        };
        if let Some(done) = result {
            return Some(done.map(|()| "done".into()));
        }
        if self.pending.is_complete() {
            return Some(Ok("done".into()));
        }
        (now - self.started > IKE_TIMEOUT)
            .then(|| Err(format!("no result after {} s", IKE_TIMEOUT.total_millis() / 1_000)))
    }
}

const BUFFER: usize = 100_000;

/// A socket for echo requests between two addresses.
struct EchoSocket {
    socket: SocketHandle,
    ident: u16,
    ends: FlowAddrs,
}

impl EchoSocket {
    fn new(ident: u16, ends: FlowAddrs, stack: &mut Stack) -> Result<Self, String> {
        let buffer = || PacketBuffer::new(vec![PacketMetadata::EMPTY; 8], vec![0; BUFFER]);
        let mut socket = icmp::Socket::new(buffer(), buffer());
        socket.bind(Endpoint::Ident(ident)).map_err(|error| format!("ICMP: {error}"))?;
        Ok(Self { socket: stack.sockets.add(socket), ident, ends })
    }

    /// Sends the request with this sequence number.
    fn request(&self, number: u16, data: &[u8], stack: &mut Stack) -> Result<(), String> {
        let socket = stack.sockets.get_mut::<icmp::Socket<'_>>(self.socket);
        let full = |error| format!("{} bytes: {error}", data.len());
        let (ident, sums) = (self.ident, ChecksumCapabilities::default());
        match (self.ends.local, self.ends.remote) {
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
    fn receive_replies(&self, stack: &mut Stack, mut on_reply: impl FnMut(u16, &[u8])) {
        let socket = stack.sockets.get_mut::<icmp::Socket<'_>>(self.socket);
        while let Ok((reply, _)) = socket.recv() {
            if let [_, _, _, _, _, _, high, low, data @ ..] = reply {
                on_reply(u16::from_be_bytes([*high, *low]), data);
            }
        }
    }

    fn close(&self, stack: &mut Stack) {
        stack.sockets.remove(self.socket);
    }
}

const PING_IDENT: u16 = 0xCA5E;
/// Maximum time of a reply. No reply may be lost, because device and peer fragment long packets.
const PING_TIMEOUT: Duration = Duration::from_secs(3);

/// An echo request without a reply so far.
struct PendingEcho {
    /// Sequence number.
    number: u16,
    data: Vec<u8>,
    sent_at: Instant,
}

/// Sends echo requests of several sizes and compares every byte of the replies.
pub(crate) struct Ping {
    echo: EchoSocket,
    sizes: VecDeque<usize>,
    count: usize,
    pending: Option<PendingEcho>,
    started: Instant,
}

impl Ping {
    pub(crate) fn new(
        ends: FlowAddrs,
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
        self.pending = Some(PendingEcho { number, data, sent_at: now });
        Ok(true)
    }

    /// Receives replies, and completes the pending request if its reply is correct.
    fn receive_replies(&mut self, stack: &mut Stack) {
        let pending = &mut self.pending;
        self.echo.receive_replies(stack, |number, data| {
            if pending.as_ref().is_some_and(|request| request.number == number && request.data == data) {
                *pending = None;
            }
        });
    }
}

impl Job for Ping {
    fn step(&mut self, stack: &mut Stack, now: Instant) -> Option<Result<String, String>> {
        self.receive_replies(stack);
        let done = match &self.pending {
            Some(PendingEcho { data, sent_at, .. }) if now - *sent_at > PING_TIMEOUT => {
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
        let echo = EchoSocket::new(FLOW_IDENT, FlowAddrs::parse(from, to)?, stack)?;
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

const ECHO: u16 = 7;
const LOCAL_PORT: u16 = 49_200;
const TCP_BUFFER: usize = 65_535;
/// Maximum time without progress.
const LIMIT: Duration = Duration::from_secs(5);

pub(crate) struct Exchange {
    socket: SocketHandle,
    data: Vec<u8>,
    sent: usize,
    received: Vec<u8>,
    progress: Instant,
}

impl Exchange {
    pub(crate) fn new(
        ends: FlowAddrs,
        bytes: usize,
        stack: &mut Stack,
        now: Instant,
    ) -> Result<Self, String> {
        let buffer = || SocketBuffer::new(vec![0; TCP_BUFFER]);
        let mut socket = tcp::Socket::new(buffer(), buffer());
        socket.set_nagle_enabled(false);
        socket.set_ack_delay(None);
        let connected =
            socket.connect(stack.interface.context(), (ends.remote, ECHO), (ends.local, LOCAL_PORT));
        connected.map_err(|error| format!("connect: {error}"))?;
        let data = (0..bytes).map(|at| (at.wrapping_mul(31) >> 3) as u8).collect();
        Ok(Self { socket: stack.sockets.add(socket), data, sent: 0, received: Vec::new(), progress: now })
    }
}

impl Job for Exchange {
    fn step(&mut self, stack: &mut Stack, now: Instant) -> Option<Result<String, String>> {
        let Self { socket: handle, data, sent, received, progress } = self;
        let socket = stack.sockets.get_mut::<tcp::Socket<'_>>(*handle);
        let before = (*sent, received.len());
        if socket.can_send() {
            let rest = data.get(*sent..).unwrap_or_default();
            *sent = sent.saturating_add(socket.send_slice(rest).unwrap_or(0));
        }
        while socket.can_recv() && socket.recv(|part| (part.len(), received.extend_from_slice(part))).is_ok()
        {
        }
        if before != (*sent, received.len()) {
            *progress = now;
        }
        let bytes = data.len();
        let done = if received == data {
            // Wait for the last acknowledgement; otherwise the peer would retransmit its last segment.
            socket.close();
            if !matches!(socket.state(), State::TimeWait | State::Closed) && now - *progress <= LIMIT {
                return None;
            }
            Ok(format!("{bytes} bytes there and back"))
        } else if received.len() >= bytes {
            Err(format!("{} of {bytes} bytes came back, or they differ", received.len()))
        } else if now - *progress > LIMIT {
            Err(format!("no progress after {} of {bytes} bytes, in state {}", received.len(), socket.state()))
        } else {
            return None;
        };
        socket.abort();
        stack.sockets.remove(*handle);
        Some(done)
    }
}
