//! Services for bytes by the thousand: echo (RFC 862), and discard where iperf 2 sends to.

use alloc::vec;
use alloc::vec::Vec;
use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::Duration;

const ECHO: u16 = 7;
/// Where iperf 2 sends by default; its server need not answer.
const DISCARD: u16 = 5_001;
/// Connections that each of the two takes at once.
const CONNECTIONS: usize = 2;
/// Bytes that are carried from the one buffer to the other at once.
const PART: usize = 1_024;
/// A peer that says nothing for so long is asked whether it is there, and after that time it is given up.
const SILENCE: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(30);

/// The two services.
pub struct Bulk(Vec<(u16, SocketHandle)>);

impl Bulk {
    /// Opens both. Each connection has two buffers of this many bytes.
    pub fn open(sockets: &mut SocketSet<'static>, buffer: usize) -> Self {
        let ports = [ECHO, DISCARD].into_iter().flat_map(|port| [port; CONNECTIONS]);
        let socket = || {
            let room = || SocketBuffer::new(vec![0; buffer]);
            let mut socket = Socket::new(room(), room());
            socket.set_nagle_enabled(false);
            socket.set_keep_alive(Some(SILENCE));
            socket.set_timeout(Some(PATIENCE));
            socket
        };
        Self(ports.map(|port| (port, sockets.add(socket()))).collect())
    }

    /// One turn: every connection goes on as far as it can.
    pub fn serve(&self, sockets: &mut SocketSet<'_>) {
        for (port, handle) in &self.0 {
            let socket = sockets.get_mut::<Socket<'_>>(*handle);
            if !socket.is_open() {
                // The socket is closed and the port is not 0: nothing can be wrong.
                let _ = socket.listen(*port);
            }
            if *port == ECHO {
                echo(socket);
            } else {
                discard(socket);
            }
            // The peer says nothing more, and everything it said is dealt with.
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
        // There is room for it.
        let _ = socket.send_slice(part.get(..len).unwrap_or_default());
    }
}

fn discard(socket: &mut Socket<'_>) {
    while socket.can_recv() && socket.recv(|data| (data.len(), ())).is_ok() {}
}
