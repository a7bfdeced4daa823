//! What the device has for others: echo (RFC 862), a page over HTTP, and a place for iperf to send to.

use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::tcp::{Socket, SocketBuffer};

const ECHO: u16 = 7;
const HTTP: u16 = 80;
/// Where iperf 2 sends by default; its server need not answer.
const DISCARD: u16 = 5_001;

/// Connections that each service takes at once.
const BACKLOG: usize = 4;
const BUFFER: usize = 65_535;

/// Length of the page; that of the bare-PC paper's web server.
const PAGE: usize = 3_500;

pub(crate) struct Services(Vec<(u16, SocketHandle)>);

impl Services {
    pub(crate) fn open(sockets: &mut SocketSet<'static>) -> Self {
        let ports = [ECHO, HTTP, DISCARD].into_iter().flat_map(|port| [port; BACKLOG]);
        Self(ports.map(|port| (port, sockets.add(socket()))).collect())
    }

    pub(crate) fn serve(&self, sockets: &mut SocketSet<'_>) {
        for (port, handle) in &self.0 {
            let socket = sockets.get_mut::<Socket<'_>>(*handle);
            if !socket.is_open() {
                // It was closed by both sides: ready for the next. The port is not 0.
                let _ = socket.listen(*port);
            }
            match *port {
                ECHO => echo(socket),
                HTTP => page(socket),
                _ => discard(socket),
            }
        }
    }
}

/// A socket with large buffers.
pub(crate) fn socket() -> Socket<'static> {
    let buffer = || SocketBuffer::new(vec![0; BUFFER]);
    let mut socket = Socket::new(buffer(), buffer());
    socket.set_nagle_enabled(false);
    socket
}

fn echo(socket: &mut Socket<'_>) {
    let room = socket.send_capacity().saturating_sub(socket.send_queue());
    if socket.can_send() && socket.can_recv() {
        let taken = socket.recv(|data| {
            let part = data.get(..room.min(data.len())).unwrap_or_default().to_vec();
            (part.len(), part)
        });
        if let Ok(part) = taken {
            // There is room for it.
            let _ = socket.send_slice(&part);
        }
    }
    close_after_peer(socket);
}

fn discard(socket: &mut Socket<'_>) {
    while socket.can_recv() && socket.recv(|data| (data.len(), ())).is_ok() {}
    close_after_peer(socket);
}

/// One request, one page.
fn page(socket: &mut Socket<'_>) {
    let is_asked = |data: &mut [u8]| {
        let whole = data.windows(4).any(|end| end == b"\r\n\r\n");
        (if whole { data.len() } else { 0 }, whole)
    };
    if socket.can_recv() && socket.recv(is_asked) == Ok(true) {
        let head = format!("HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {PAGE}\r\n\r\n");
        let body: Vec<u8> = (0..PAGE).map(|at| b'a' + (at % 26) as u8).collect();
        // Buffers are larger than a page.
        let _ = socket.send_slice(&[head.as_bytes(), &body].concat());
        socket.close();
    }
    close_after_peer(socket);
}

fn close_after_peer(socket: &mut Socket<'_>) {
    if socket.state() == smoltcp::socket::tcp::State::CloseWait && !socket.can_recv() {
        socket.close();
    }
}
