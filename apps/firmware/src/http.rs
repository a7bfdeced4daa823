//! The web server: one page, by GET and HEAD, HTTP/1.1 with connections that stay (RFC 9112).

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::Duration;

/// The page: 3,500 bytes, as in the paper of the PC without an operating system.
pub const PAGE: &[u8] = include_bytes!("page.html");

const PORT: u16 = 80;
/// Connections at once.
const CONNECTIONS: usize = 16;
/// What a head ends with.
const END: &[u8] = b"\r\n\r\n";
/// The longest head of a request.
const HEAD: usize = 2_048;
/// Room for two answers.
const ANSWERS: usize = 8_192;
/// Room that an answer may need beside the page.
const ANSWER_HEAD: usize = 256;
/// A peer that says nothing for so long is asked whether it is there, and after that time it is given up.
const SILENCE: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(30);

/// The server.
pub struct Http {
    connections: Vec<Connection>,
    served: u64,
}

/// A place for a connection.
struct Connection {
    socket: SocketHandle,
    /// What came of a request that is not whole yet.
    head: Vec<u8>,
    /// Up to where in that there is no end of a head.
    searched: usize,
}

impl Http {
    /// Opens it at port 80.
    pub fn open(sockets: &mut SocketSet<'static>) -> Self {
        let mut place = || {
            let mut socket =
                Socket::new(SocketBuffer::new(vec![0; HEAD]), SocketBuffer::new(vec![0; ANSWERS]));
            socket.set_nagle_enabled(false);
            socket.set_keep_alive(Some(SILENCE));
            socket.set_timeout(Some(PATIENCE));
            Connection { socket: sockets.add(socket), head: Vec::with_capacity(HEAD), searched: 0 }
        };
        Self { connections: (0..CONNECTIONS).map(|_| place()).collect(), served: 0 }
    }

    /// Answers that were given.
    pub const fn served(&self) -> u64 {
        self.served
    }

    /// One turn: every connection goes on as far as it can.
    pub fn serve(&mut self, sockets: &mut SocketSet<'_>) {
        for connection in &mut self.connections {
            let socket = sockets.get_mut::<Socket<'_>>(connection.socket);
            if !socket.is_open() {
                connection.forget();
                // The socket is closed and the port is not 0: nothing can be wrong.
                let _ = socket.listen(PORT);
            }
            self.served = self.served.saturating_add(connection.go_on(socket));
        }
    }
}

impl Connection {
    /// Takes requests and answers them; how many.
    fn go_on(&mut self, socket: &mut Socket<'_>) -> u64 {
        let mut served = 0;
        while socket.may_send() && has_room(socket) {
            let Some(answer) = self.next_answer(socket) else { break };
            // There is room for it.
            let _ = socket.send_slice(answer.head().as_bytes());
            if answer.has_body() {
                let _ = socket.send_slice(PAGE);
            }
            served += 1;
            if !answer.stays {
                self.forget();
                socket.close();
            }
        }
        // The peer says nothing more, and everything it said is answered.
        if socket.state() == State::CloseWait && !socket.can_recv() && has_room(socket) {
            socket.close();
        }
        served
    }

    fn next_answer(&mut self, socket: &mut Socket<'_>) -> Option<Answer> {
        self.take_what_came(socket);
        // Most rounds find nothing new here, and end.
        let new = self.head.get(self.searched..).filter(|new| !new.is_empty())?;
        let Some(end) = new.windows(END.len()).position(|end| end == END) else {
            // Of an end that has begun, its rest may come later.
            self.searched = self.head.len().saturating_sub(END.len().saturating_sub(1));
            // RFC 6585 section 5: Request Header Fields Too Large.
            return (self.head.len() >= HEAD).then_some(Answer::refusal(431));
        };
        let end = self.searched.saturating_add(end);
        let answer = Answer::to(self.head.get(..end).unwrap_or_default());
        self.head.drain(..end.saturating_add(END.len()));
        self.searched = 0;
        Some(answer)
    }

    fn take_what_came(&mut self, socket: &mut Socket<'_>) {
        // Twice, since the second part may lie at the other end of the ring.
        for _ in 0..2 {
            if !socket.can_recv() {
                return;
            }
            let room = HEAD.saturating_sub(self.head.len());
            let _ = socket.recv(|came| {
                let part = came.get(..room).unwrap_or(came);
                self.head.extend_from_slice(part);
                (part.len(), ())
            });
        }
    }

    fn forget(&mut self) {
        self.head.clear();
        self.searched = 0;
    }
}

fn has_room(socket: &Socket<'_>) -> bool {
    let taken = socket.send_queue().saturating_add(PAGE.len()).saturating_add(ANSWER_HEAD);
    taken <= socket.send_capacity()
}

/// What a request gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Answer {
    status: u16,
    /// Whether only the head is wanted.
    head_only: bool,
    /// Whether the connection stays.
    stays: bool,
}

impl Answer {
    /// To the head of a request, without the empty line.
    fn to(head: &[u8]) -> Self {
        let Ok(head) = str::from_utf8(head) else { return Self::refusal(400) };
        let mut lines = head.split("\r\n");
        let mut words = lines.next().unwrap_or_default().split(' ');
        let (Some(method), Some(target), Some(version), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Self::refusal(400);
        };
        // A body would be taken for the next request: whoever sends one is refused (RFC 9112 section 6.1).
        let fields: Vec<(&str, &str)> = lines.filter_map(|line| line.split_once(':')).collect();
        let field = |name: &str| {
            fields.iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
        };
        if field("transfer-encoding").is_some() || field("content-length").is_some_and(|len| len != "0") {
            return Self::refusal(413);
        }
        // RFC 9112 section 9.3: connections stay from version 1.1 on, unless somebody wants otherwise.
        let wish = field("connection").unwrap_or_default();
        let stays = match version {
            "HTTP/1.1" => !wish.eq_ignore_ascii_case("close"),
            "HTTP/1.0" => wish.eq_ignore_ascii_case("keep-alive"),
            _ => return Self::refusal(505),
        };
        let status = match (method, target) {
            ("GET" | "HEAD", "/" | "/index.html") => 200,
            ("GET" | "HEAD", _) => 404,
            _ => 405,
        };
        Self { status, head_only: method == "HEAD", stays }
    }

    const fn refusal(status: u16) -> Self {
        Self { status, head_only: false, stays: false }
    }

    const fn has_body(self) -> bool {
        self.status == 200 && !self.head_only
    }

    fn head(self) -> alloc::string::String {
        let Self { status, stays, .. } = self;
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
        let connection = if stays { "keep-alive" } else { "close" };
        format!(
            "HTTP/1.1 {status} {reason}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len}\r\n\
             Connection: {connection}\r\n\r\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_length_of_the_papers() {
        assert_eq!(PAGE.len(), 3_500);
    }

    #[test]
    fn requests_and_their_answers() {
        for (head, status, stays) in [
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
            let answer = Answer::to(head.as_bytes());
            assert_eq!((answer.status, answer.stays), (status, stays), "{head}");
            let text = answer.head();
            assert!(text.starts_with(&format!("HTTP/1.1 {status} ")) && text.ends_with("\r\n\r\n"), "{text}");
            assert!(text.len() <= ANSWER_HEAD);
        }
        assert_eq!(Answer::to(b"GET /\xFF HTTP/1.1"), Answer::refusal(400));
        assert!(!Answer::to(b"HEAD / HTTP/1.1").has_body());
    }
}
