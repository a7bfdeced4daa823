//! A web server with one page: GET and HEAD, HTTP/1.1 with persistent connections (RFC 9112).

use crate::echo_discard::CAN_LISTEN;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use casemate_wire::invariant::OrBroken;
use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::Duration;

/// The page: 3,500 bytes, the size used in the paper about the bare-metal PC.
pub const PAGE: &[u8] = include_bytes!("page.html");

const PORT: u16 = 80;
const CAN_SEND: &str = "the socket can send, and has room for a response";
/// Number of concurrent connections.
const CONNECTIONS: usize = 16;
/// End of a request header.
const HEADER_END: &[u8] = b"\r\n\r\n";
/// Maximum length of a request header.
const MAX_REQUEST_HEADER: usize = 2_048;
/// Size of the send buffer: room for two responses.
const SEND_BUFFER: usize = 8_192;
/// Maximum length of a response header.
const MAX_RESPONSE_HEADER: usize = 256;
/// Idle time after which a keepalive is sent, and time after which a silent peer is given up.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_secs(30);

/// The web server.
pub struct Http {
    connections: Vec<Connection>,
    served: u64,
}

/// A connection slot.
struct Connection {
    socket: SocketHandle,
    /// The received part of an incomplete request header.
    head: Vec<u8>,
    /// Length of the part of `head` that contains no end of the header.
    searched: usize,
}

impl Http {
    /// Opens the server on port 80.
    pub fn open(sockets: &mut SocketSet<'static>) -> Self {
        let mut open_connection = || {
            let mut socket = Socket::new(
                SocketBuffer::new(vec![0; MAX_REQUEST_HEADER]),
                SocketBuffer::new(vec![0; SEND_BUFFER]),
            );
            socket.set_nagle_enabled(false);
            socket.set_keep_alive(Some(KEEPALIVE_INTERVAL));
            socket.set_timeout(Some(TIMEOUT));
            // Listen now, so that a connection before the first round is not refused.
            socket.listen(PORT).or_report(CAN_LISTEN);
            Connection {
                socket: sockets.add(socket),
                head: Vec::with_capacity(MAX_REQUEST_HEADER),
                searched: 0,
            }
        };
        Self { connections: (0..CONNECTIONS).map(|_| open_connection()).collect(), served: 0 }
    }

    /// Returns the number of responses sent.
    pub const fn served(&self) -> u64 {
        self.served
    }

    /// Processes all connections as far as possible without blocking.
    pub fn serve(&mut self, sockets: &mut SocketSet<'_>) {
        for connection in &mut self.connections {
            let socket = sockets.get_mut::<Socket<'_>>(connection.socket);
            if !socket.is_open() {
                connection.reset();
                socket.listen(PORT).or_report(CAN_LISTEN);
            }
            self.served = self.served.saturating_add(connection.serve(socket));
        }
    }
}

impl Connection {
    /// Receives requests and sends responses. Returns the number of responses.
    fn serve(&mut self, socket: &mut Socket<'_>) -> u64 {
        let mut served = 0;
        while socket.may_send() && has_room(socket) {
            let Some(response) = self.next_response(socket) else { break };
            socket.send_slice(response.head().as_bytes()).or_report(CAN_SEND);
            if response.has_body() {
                socket.send_slice(PAGE).or_report(CAN_SEND);
            }
            served += 1;
            if !response.keep_alive {
                self.reset();
                socket.close();
            }
        }
        // The peer has closed its direction and all requests are answered.
        if socket.state() == State::CloseWait && !socket.can_recv() && has_room(socket) {
            socket.close();
        }
        served
    }

    fn next_response(&mut self, socket: &mut Socket<'_>) -> Option<Response> {
        self.receive(socket);
        // In most rounds there is no new data.
        let new = self.head.get(self.searched..).filter(|new| !new.is_empty())?;
        let Some(end) = new.windows(HEADER_END.len()).position(|end| end == HEADER_END) else {
            // The last bytes may be the beginning of the end marker.
            self.searched = self.head.len().saturating_sub(HEADER_END.len().saturating_sub(1));
            // RFC 6585 section 5: Request Header Fields Too Large.
            return (self.head.len() >= MAX_REQUEST_HEADER).then_some(Response::error(431));
        };
        let end = self.searched.saturating_add(end);
        let head = self.head.get(..end).or_broken_default("the request ends before its end marker");
        let response = Response::to(head);
        self.head.drain(..end.saturating_add(HEADER_END.len()));
        self.searched = 0;
        Some(response)
    }

    fn receive(&mut self, socket: &mut Socket<'_>) {
        // Twice: the data in the ring buffer may be in two parts.
        for _ in 0..2 {
            if !socket.can_recv() {
                return;
            }
            let room = MAX_REQUEST_HEADER.saturating_sub(self.head.len());
            let received = socket.recv(|data| {
                let part = data.get(..room).unwrap_or(data);
                self.head.extend_from_slice(part);
                (part.len(), ())
            });
            received.or_report("the socket has data");
        }
    }

    fn reset(&mut self) {
        self.head.clear();
        self.searched = 0;
    }
}

fn has_room(socket: &Socket<'_>) -> bool {
    let taken = socket.send_queue().saturating_add(PAGE.len()).saturating_add(MAX_RESPONSE_HEADER);
    taken <= socket.send_capacity()
}

/// A response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Response {
    status: u16,
    /// Send the header only (HEAD).
    head_only: bool,
    /// The connection stays open.
    keep_alive: bool,
}

impl Response {
    /// Returns the response to a request header, which is given without the empty line.
    fn to(head: &[u8]) -> Self {
        let Ok(head) = str::from_utf8(head) else { return Self::error(400) };
        let mut lines = head.split("\r\n");
        let mut words = lines.next().unwrap_or_default().split(' ');
        let (Some(method), Some(target), Some(version), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Self::error(400);
        };
        // A request with a body is refused, because the body would be read as the next request (RFC 9112
        // section 6.1).
        let fields: Vec<(&str, &str)> = lines.filter_map(|line| line.split_once(':')).collect();
        let field = |name: &str| {
            fields.iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
        };
        if field("transfer-encoding").is_some() || field("content-length").is_some_and(|len| len != "0") {
            return Self::error(413);
        }
        // RFC 9112 section 9.3: HTTP/1.1 connections are persistent unless one side asks to close.
        let option = field("connection").unwrap_or_default();
        let keep_alive = match version {
            "HTTP/1.1" => !option.eq_ignore_ascii_case("close"),
            "HTTP/1.0" => option.eq_ignore_ascii_case("keep-alive"),
            _ => return Self::error(505),
        };
        let status = match (method, target) {
            ("GET" | "HEAD", "/" | "/index.html") => 200,
            ("GET" | "HEAD", _) => 404,
            _ => 405,
        };
        Self { status, head_only: method == "HEAD", keep_alive }
    }

    const fn error(status: u16) -> Self {
        Self { status, head_only: false, keep_alive: false }
    }

    const fn has_body(self) -> bool {
        self.status == 200 && !self.head_only
    }

    fn head(self) -> alloc::string::String {
        let Self { status, keep_alive, .. } = self;
        let reason = match status {
            200 => "OK",
            400 => "Bad Request",
            404 => "Not Found",
            405 => "Method Not Allowed\r\nAllow: GET, HEAD",
            413 => "Content Too Large",
            431 => "Request Header Fields Too Large",
            _ => "HTTP Version Not Supported",
        };
        let len = if status == 200 { PAGE.len() } else { 0 };
        let connection = if keep_alive { "keep-alive" } else { "close" };
        format!(
            "HTTP/1.1 {status} {reason}\r\nContent-Type: text/html; charset=utf-8\r\n\
             Content-Length: {len}\r\nConnection: {connection}\r\n\r\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_length_of_the_paper() {
        assert_eq!(PAGE.len(), 3_500);
    }

    #[test]
    fn requests_get_the_expected_responses() {
        for (head, status, keep_alive) in [
            ("GET / HTTP/1.1\r\nHost: a", 200, true),
            ("GET / HTTP/1.1\r\nConnection: Close", 200, false),
            ("GET / HTTP/1.0", 200, false),
            ("GET /index.html HTTP/1.0\r\nconnection: keep-alive", 200, true),
            ("GET /other HTTP/1.1", 404, true),
            ("POST / HTTP/1.1\r\nContent-Length: 0", 405, true),
            ("POST / HTTP/1.1\r\nContent-Length: 5", 413, false),
            ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked", 413, false),
            ("GET / HTTP/2.0", 505, false),
            ("GET /", 400, false),
            ("", 400, false),
            ("GET / HTTP/1.1 more", 400, false),
        ] {
            let response = Response::to(head.as_bytes());
            assert_eq!((response.status, response.keep_alive), (status, keep_alive), "{head}");
            let text = response.head();
            assert!(text.starts_with(&format!("HTTP/1.1 {status} ")) && text.ends_with("\r\n\r\n"), "{text}");
            assert!(text.len() <= MAX_RESPONSE_HEADER);
        }
        assert_eq!(Response::to(b"GET /\xFF HTTP/1.1"), Response::error(400));
        assert!(!Response::to(b"HEAD / HTTP/1.1").has_body());
    }
}
