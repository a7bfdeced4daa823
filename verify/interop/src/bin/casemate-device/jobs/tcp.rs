//! Exchanges data with a TCP echo service.

use super::Job;
use crate::stack::Stack;
use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::{Duration, Instant};
use std::net::IpAddr;

const ECHO: u16 = 7;
const LOCAL_PORT: u16 = 49_200;
const BUFFER: usize = 65_535;
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
        (from, to): (IpAddr, IpAddr),
        bytes: usize,
        stack: &mut Stack,
        now: Instant,
    ) -> Result<Self, String> {
        let buffer = || SocketBuffer::new(vec![0; BUFFER]);
        let mut socket = Socket::new(buffer(), buffer());
        socket.set_nagle_enabled(false);
        socket.set_ack_delay(None);
        let connected = socket.connect(stack.interface.context(), (to, ECHO), (from, LOCAL_PORT));
        connected.map_err(|error| format!("connect: {error}"))?;
        let data = (0..bytes).map(|at| (at.wrapping_mul(31) >> 3) as u8).collect();
        Ok(Self { socket: stack.sockets.add(socket), data, sent: 0, received: Vec::new(), progress: now })
    }
}

impl Job for Exchange {
    fn step(&mut self, stack: &mut Stack, now: Instant) -> Option<Result<String, String>> {
        let Self { socket: handle, data, sent, received, progress } = self;
        let socket = stack.sockets.get_mut::<Socket<'_>>(*handle);
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
