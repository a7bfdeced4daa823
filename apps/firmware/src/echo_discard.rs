//! TCP services for bulk data: echo (RFC 862), and discard for iperf 2.

use alloc::vec;
use alloc::vec::Vec;
use casemate_wire::invariant::OrBroken;
use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::Duration;

const ECHO: u16 = 7;
/// Default port of iperf 2, whose server need not respond.
const DISCARD: u16 = 5_001;
/// Number of concurrent connections per service.
const CONNECTIONS: usize = 2;
/// Number of bytes copied at once from the receive buffer to the send buffer.
const PART: usize = 1_024;
/// Idle time after which a keepalive is sent, and time after which a silent peer is given up.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_secs(30);

/// A socket can listen if it is closed and the port is not 0.
pub(crate) const CAN_LISTEN: &str = "a closed socket can listen";

/// The echo and discard services.
pub struct EchoDiscard(Vec<(u16, SocketHandle)>);

impl EchoDiscard {
    /// Opens both services. Each connection has two buffers of `buffer` bytes.
    pub fn open(sockets: &mut SocketSet<'static>, buffer: usize) -> Self {
        let ports = [ECHO, DISCARD].into_iter().flat_map(|port| [port; CONNECTIONS]);
        let socket = |port| {
            let room = || SocketBuffer::new(vec![0; buffer]);
            let mut socket = Socket::new(room(), room());
            socket.set_nagle_enabled(false);
            socket.set_keep_alive(Some(KEEPALIVE_INTERVAL));
            socket.set_timeout(Some(TIMEOUT));
            // Listen now, so that a connection before the first round is not refused.
            socket.listen(port).or_report(CAN_LISTEN);
            socket
        };
        Self(ports.map(|port| (port, sockets.add(socket(port)))).collect())
    }

    /// Processes all connections as far as possible without blocking.
    pub fn serve(&self, sockets: &mut SocketSet<'_>) {
        for (port, handle) in &self.0 {
            let socket = sockets.get_mut::<Socket<'_>>(*handle);
            if !socket.is_open() {
                socket.listen(*port).or_report(CAN_LISTEN);
            }
            if *port == ECHO {
                echo(socket);
            } else {
                discard(socket);
            }
            // The peer has closed its direction and all data is processed.
            if socket.state() == State::CloseWait && !socket.can_recv() {
                socket.close();
            }
        }
    }
}

fn echo(socket: &mut Socket<'_>) {
    if !socket.can_recv() {
        return;
    }
    let mut part = [0; PART];
    while socket.can_recv() && socket.can_send() {
        let room = socket.send_capacity().saturating_sub(socket.send_queue()).min(PART);
        let Ok(len) = socket.recv_slice(part.get_mut(..room).unwrap_or_default()) else { return };
        let part = part.get(..len).or_broken_default("no more than the buffer is received");
        socket.send_slice(part).or_report("the socket can send, and has room");
    }
}

fn discard(socket: &mut Socket<'_>) {
    while socket.can_recv() && socket.recv(|data| (data.len(), ())).is_ok() {}
}
