//! HTTP/1.1 to one server (RFC 9112), over TCP or TLS: a POST request, and the response as a whole or as a
//! stream. Each call has a deadline.
//!
//! It supports what etcd's JSON gateway sends: bodies with `Content-Length` or in chunks.

use crate::config::{Endpoint, Tls};
use rustls::{ClientConnection, StreamOwned};
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Maximum size of a response head, and of the trailer of a chunked body.
const MAX_HEAD: usize = 16 << 10;
/// Bytes that one call reads.
const READ_SIZE: usize = 64 << 10;
const MAX_HEADERS: usize = 64;

/// A connection to a server. After an error of any method it must not be used again.
pub(crate) struct Connection {
    stream: Stream,
    host: String,
    /// Received bytes that are not processed.
    received: Vec<u8>,
    /// Bytes of the body of a stream that are not yet a whole line.
    line: Vec<u8>,
    body: BodyLength,
    is_reusable: bool,
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

/// What is left of the body of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyLength {
    /// This number of bytes.
    Length(u64),
    /// This number of bytes of a chunk and its line end, then more chunks.
    Chunk(u64),
    /// Chunks, beginning with the size of the next one.
    Chunks,
    /// Nothing.
    End,
}

/// A response as a whole.
#[derive(Debug)]
pub(crate) struct Response {
    /// Status code of HTTP.
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

/// The body of a response is longer than its reader accepts.
pub(crate) const TOO_LONG: ErrorKind = ErrorKind::FileTooLarge;

fn malformed(what: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what.into())
}

/// Time left until a deadline, at least a millisecond: zero would mean no limit for a socket.
fn time_left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::Error::new(ErrorKind::TimedOut, "no response in time"));
    }
    Ok(left.max(Duration::from_millis(1)))
}

/// Linux reports a timeout of a socket as EAGAIN.
fn named_timeout(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::WouldBlock => io::Error::new(ErrorKind::TimedOut, "no response in time"),
        _ => error,
    }
}

impl Connection {
    /// Connects to a server. The TLS handshake takes place with the first request.
    pub(crate) fn open(endpoint: &Endpoint, tls: Option<&Tls>, deadline: Instant) -> io::Result<Self> {
        let socket = TcpStream::connect_timeout(&endpoint.address, time_left(deadline)?)?;
        socket.set_nodelay(true)?;
        let stream = match tls {
            None => Stream::Plain(socket),
            Some(tls) => {
                let name = endpoint.tls_name().ok_or_else(|| malformed("server name"))?;
                let session = ClientConnection::new(tls.config(), name).map_err(io::Error::other)?;
                Stream::Tls(Box::new(StreamOwned::new(session, socket)))
            }
        };
        Ok(Self {
            stream,
            host: endpoint.address.to_string(),
            received: Vec::new(),
            line: Vec::new(),
            body: BodyLength::End,
            is_reusable: true,
        })
    }

    fn socket(&self) -> &TcpStream {
        match &self.stream {
            Stream::Plain(socket) => socket,
            Stream::Tls(stream) => &stream.sock,
        }
    }

    /// Another handle of the socket, with which another thread can shut it down.
    pub(crate) fn shutdown_handle(&self) -> io::Result<TcpStream> {
        self.socket().try_clone()
    }

    /// Whether the next request can use the connection: the response is read to its end, and the server has
    /// neither closed the connection nor sent anything else.
    pub(crate) fn is_idle(&self) -> bool {
        let socket = self.socket();
        let is_silent = || {
            socket.set_nonblocking(true)?;
            let peeked = socket.peek(&mut [0]);
            socket.set_nonblocking(false)?;
            io::Result::Ok(matches!(peeked, Err(error) if error.kind() == ErrorKind::WouldBlock))
        };
        self.is_reusable
            && self.body == BodyLength::End
            && self.received.is_empty()
            && is_silent().unwrap_or(false)
    }

    /// Sends a POST request. After an error, the server has not received the whole request, so it does not
    /// execute it.
    pub(crate) fn send(
        &mut self,
        path: &str,
        token: Option<&str>,
        body: &[u8],
        deadline: Instant,
    ) -> io::Result<()> {
        let authorization = token.map(|token| format!("Authorization: {token}\r\n")).unwrap_or_default();
        // With `hasleader`, a member without a leader refuses a request and ends a watch.
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Grpc-Metadata-hasleader: true\r\n{authorization}\r\n",
            self.host,
            body.len()
        );
        let mut message = zeroize::Zeroizing::new(Vec::with_capacity(head.len().saturating_add(body.len())));
        message.extend_from_slice(head.as_bytes());
        message.extend_from_slice(body);
        let mut rest = message.as_slice();
        while !rest.is_empty() {
            self.socket().set_write_timeout(Some(time_left(deadline)?))?;
            self.socket().set_read_timeout(Some(time_left(deadline)?))?;
            let written = match &mut self.stream {
                Stream::Plain(socket) => socket.write(rest),
                Stream::Tls(stream) => stream.write(rest),
            };
            match written.map_err(named_timeout)? {
                0 => return Err(ErrorKind::WriteZero.into()),
                count => rest = rest.get(count..).unwrap_or_default(),
            }
        }
        match &mut self.stream {
            Stream::Plain(socket) => socket.flush(),
            Stream::Tls(stream) => stream.flush(),
        }
        .map_err(named_timeout)
    }

    /// Reads a response. The error [`TOO_LONG`] reports a body of more than `limit` bytes.
    pub(crate) fn receive(&mut self, limit: usize, deadline: Instant) -> io::Result<Response> {
        let status = self.receive_head(deadline)?;
        let mut body = Vec::new();
        if matches!(self.body, BodyLength::Length(length) if length > limit as u64) {
            return Err(TOO_LONG.into());
        }
        while let Some(piece) = self.next_piece(deadline)? {
            body.extend_from_slice(&piece);
            if body.len() > limit {
                return Err(TOO_LONG.into());
            }
        }
        Ok(Response { status, body })
    }

    /// Reads the head of a response, and returns its status.
    pub(crate) fn receive_head(&mut self, deadline: Instant) -> io::Result<u16> {
        loop {
            if let Some((length, status)) = self.parse_head()? {
                self.received.drain(..length);
                return Ok(status);
            }
            if self.received.len() > MAX_HEAD {
                return Err(malformed("the head of the response is too long"));
            }
            self.fill(deadline)?;
        }
    }

    fn parse_head(&mut self) -> io::Result<Option<(usize, u16)>> {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut head = httparse::Response::new(&mut headers);
        let parsed = head.parse(&self.received);
        let parsed = parsed.map_err(|error| malformed(format!("no HTTP response: {error}")))?;
        let httparse::Status::Complete(length) = parsed else { return Ok(None) };
        let value = |name: &str| {
            let mut found = head.headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
            found.next().map(|header| String::from_utf8_lossy(header.value).trim().to_ascii_lowercase())
        };
        self.body = match (value("transfer-encoding"), value("content-length")) {
            (Some(encoding), _) if encoding == "chunked" => BodyLength::Chunks,
            (None, Some(length)) => {
                BodyLength::Length(length.parse().map_err(|_| malformed("the length of the body"))?)
            }
            _ => return Err(malformed("the response has no known length of its body")),
        };
        self.is_reusable =
            head.version == Some(1) && value("connection").is_none_or(|value| value != "close");
        let status = head.code.ok_or_else(|| malformed("the response has no status"))?;
        Ok(Some((length, status)))
    }

    /// Returns the next line of a response in pieces, without its end; `None` after the last one. `limit` is
    /// the maximum number of bytes. After a timeout ([`ErrorKind::TimedOut`]) the next call continues.
    pub(crate) fn next_line(&mut self, limit: usize, deadline: Instant) -> io::Result<Option<Vec<u8>>> {
        let mut searched = 0_usize;
        loop {
            let unsearched = self.line.get(searched..).unwrap_or_default();
            if let Some(end) = unsearched.iter().position(|&byte| byte == b'\n') {
                let mut line: Vec<u8> = self.line.drain(..=searched.saturating_add(end)).collect();
                line.pop();
                if line.is_empty() {
                    searched = 0;
                    continue;
                }
                return Ok(Some(line));
            }
            searched = self.line.len();
            if searched > limit {
                return Err(TOO_LONG.into());
            }
            match self.next_piece(deadline)? {
                Some(piece) => self.line.extend_from_slice(&piece),
                None => return Ok(None),
            }
        }
    }

    /// Returns the next bytes of the body; `None` after the last one.
    fn next_piece(&mut self, deadline: Instant) -> io::Result<Option<Vec<u8>>> {
        loop {
            match self.body {
                BodyLength::End | BodyLength::Length(0) => {
                    self.body = BodyLength::End;
                    return Ok(None);
                }
                BodyLength::Chunk(0) => {
                    self.skip_line_end(deadline)?;
                    self.body = BodyLength::Chunks;
                }
                BodyLength::Chunks => self.next_chunk(deadline)?,
                BodyLength::Length(left) | BodyLength::Chunk(left) => {
                    if self.received.is_empty() {
                        self.fill(deadline)?;
                    }
                    let count = usize::try_from(left).unwrap_or(usize::MAX).min(self.received.len());
                    let piece: Vec<u8> = self.received.drain(..count).collect();
                    let left = left.saturating_sub(piece.len() as u64);
                    self.body = match self.body {
                        BodyLength::Length(_) => BodyLength::Length(left),
                        _ => BodyLength::Chunk(left),
                    };
                    return Ok(Some(piece));
                }
            }
        }
    }

    /// Reads the size of the next chunk. A size of zero ends the body after the trailer.
    fn next_chunk(&mut self, deadline: Instant) -> io::Result<()> {
        loop {
            let parsed = httparse::parse_chunk_size(&self.received);
            match parsed.map_err(|_| malformed("the size of a chunk"))? {
                httparse::Status::Complete((length, size)) => {
                    self.received.drain(..length);
                    self.body = BodyLength::Chunk(size);
                    if size == 0 {
                        while self.skip_line_end(deadline)? > 0 {}
                        self.body = BodyLength::End;
                    }
                    return Ok(());
                }
                httparse::Status::Partial if self.received.len() > MAX_HEAD => {
                    return Err(malformed("the size of a chunk"));
                }
                httparse::Status::Partial => self.fill(deadline)?,
            }
        }
    }

    /// Reads a line with its end, and returns the number of bytes before the end.
    fn skip_line_end(&mut self, deadline: Instant) -> io::Result<usize> {
        loop {
            if let Some(end) = self.received.iter().position(|&byte| byte == b'\n') {
                self.received.drain(..=end);
                return Ok(end.saturating_sub(1));
            }
            if self.received.len() > MAX_HEAD {
                return Err(malformed("a line of the response is too long"));
            }
            self.fill(deadline)?;
        }
    }

    /// Receives at least one byte.
    fn fill(&mut self, deadline: Instant) -> io::Result<()> {
        self.socket().set_read_timeout(Some(time_left(deadline)?))?;
        self.socket().set_write_timeout(Some(time_left(deadline)?))?;
        let before = self.received.len();
        self.received.resize(before.saturating_add(READ_SIZE), 0);
        let room = self.received.get_mut(before..).unwrap_or_default();
        let read = match &mut self.stream {
            Stream::Plain(socket) => socket.read(room),
            Stream::Tls(stream) => stream.read(room),
        };
        let count = read.as_ref().copied().unwrap_or(0);
        self.received.truncate(before.saturating_add(count));
        match read.map_err(named_timeout)? {
            0 => Err(io::Error::new(ErrorKind::UnexpectedEof, "the server has closed the connection")),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::TcpListener;
    use std::thread::{self, JoinHandle};

    const LIMIT: Duration = Duration::from_secs(10);

    /// A server that takes one request and sends these pieces, then keeps the connection until it is closed
    /// by the client. The thread returns the request.
    fn server(pieces: Vec<Vec<u8>>, pause: Duration) -> (Endpoint, JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = Endpoint::new(listener.local_addr().unwrap());
        let run = move || {
            let mut socket = listener.accept().unwrap().0;
            let mut request = vec![0; 4_096];
            let count = socket.read(&mut request).unwrap();
            for piece in pieces {
                // Fails if the client has given up.
                let _ = socket.write_all(&piece);
                thread::sleep(pause);
            }
            let _ = socket.read(&mut [0]);
            String::from_utf8_lossy(&request[..count]).into_owned()
        };
        (endpoint, thread::spawn(run))
    }

    fn deadline() -> Instant {
        Instant::now() + LIMIT
    }

    fn request(endpoint: &Endpoint) -> Connection {
        let mut connection = Connection::open(endpoint, None, deadline()).unwrap();
        connection.send("/path", Some("token"), b"{}", deadline()).unwrap();
        connection
    }

    fn respond(text: &str) -> (Connection, JoinHandle<String>) {
        let (endpoint, server) = server(vec![text.as_bytes().to_vec()], Duration::ZERO);
        (request(&endpoint), server)
    }

    const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

    #[test]
    fn request_and_response_with_a_length() {
        let (mut connection, server) = respond("HTTP/1.1 503 x\r\nContent-Length: 5\r\nX: y\r\n\r\nhello");
        let response = connection.receive(5, deadline()).unwrap();
        assert_eq!((response.status, response.body), (503, b"hello".to_vec()));
        assert!(connection.is_idle());
        let host = connection.host.clone();
        drop(connection);
        let expected = format!(
            "POST /path HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\
             Grpc-Metadata-hasleader: true\r\nAuthorization: token\r\n\r\n{{}}"
        );
        assert_eq!(server.join().unwrap(), expected);
    }

    #[test]
    fn bodies_beyond_the_limit_are_too_long() {
        let long = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n".to_owned();
        for text in [long, format!("{CHUNKED}4\r\nabcd\r\n2\r\nef\r\n0\r\n\r\n")] {
            let (mut connection, _server) = respond(&text);
            assert_eq!(connection.receive(5, deadline()).unwrap_err().kind(), TOO_LONG);
        }
        let (mut connection, _server) = respond(&format!("{CHUNKED}6\r\nabcdef"));
        connection.receive_head(deadline()).unwrap();
        assert_eq!(connection.next_line(5, deadline()).unwrap_err().kind(), TOO_LONG);
    }

    #[test]
    fn connections_are_used_again_only_if_they_are_in_order() {
        let idle = |text: &str| {
            let (mut connection, _server) = respond(text);
            connection.receive(100, deadline()).unwrap();
            thread::sleep(Duration::from_millis(20));
            connection.is_idle()
        };
        assert!(idle(&format!("{CHUNKED}1\r\nx\r\n0\r\n\r\n")));
        assert!(idle(&format!("{CHUNKED}1\r\nx\r\n0\r\nTrailer: x\r\n\r\n")));
        assert!(!idle("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"));
        assert!(!idle("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"));
        assert!(!idle("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nmore"));
        let (mut connection, server) = respond("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        connection.receive(100, deadline()).unwrap();
        connection.shutdown_handle().unwrap().shutdown(std::net::Shutdown::Write).unwrap();
        server.join().unwrap();
        assert!(!connection.is_idle(), "the server has closed the connection");
    }

    #[test]
    fn malformed_responses_are_errors() {
        for text in [
            "\0\0",
            "SSH-2.0-x\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\nContent-Length: 1\r\n\r\n",
            &format!("{CHUNKED}zz\r\n"),
            &format!("HTTP/1.1 200 OK\r\n{}", "X: y\r\n".repeat(10_000)),
        ] {
            let (mut connection, _server) = respond(text);
            let error = connection.receive(100, deadline()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidData, "{text:.60}: {error}");
        }
    }

    /// Each piece arrives in time, but not all of them.
    #[test]
    fn slow_response_ends_at_the_deadline() {
        let pieces = CHUNKED.bytes().map(|byte| vec![byte]).collect();
        let (endpoint, _server) = server(pieces, Duration::from_millis(20));
        let mut connection = request(&endpoint);
        let start = Instant::now();
        let error = connection.receive(100, start + Duration::from_millis(200)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    }

    #[test]
    fn lines_continue_after_a_timeout() {
        let pieces = ["3\r\nab\n\r\n", "2\r\ncd\r\n", "3\r\ne\n\n\r\n2\r\nf\n\r\n0\r\n\r\n"];
        let pieces = std::iter::once(CHUNKED).chain(pieces).map(|piece| piece.as_bytes().to_vec());
        let (endpoint, _server) = server(pieces.collect(), Duration::from_millis(60));
        let mut connection = request(&endpoint);
        connection.receive_head(deadline()).unwrap();
        let (mut lines, mut timeouts) = (Vec::new(), 0);
        loop {
            match connection.next_line(100, Instant::now() + Duration::from_millis(10)) {
                Ok(Some(line)) => lines.push(String::from_utf8(line).unwrap()),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::TimedOut);
                    timeouts += 1;
                    assert!(timeouts < 1_000);
                }
            }
        }
        assert_eq!(lines, ["ab", "cde", "f"]);
        assert!(timeouts > 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Chunks may be cut anywhere.
        #[test]
        fn chunks_arrive_in_any_pieces(
            chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..40), 0..8),
            cuts in proptest::collection::vec(1_usize..50, 1..8),
        ) {
            let mut message = CHUNKED.as_bytes().to_vec();
            for chunk in &chunks {
                message.extend(format!("{:x}\r\n", chunk.len()).bytes());
                message.extend(chunk);
                message.extend(b"\r\n");
            }
            message.extend(b"0\r\n\r\n");
            let (mut pieces, mut rest) = (Vec::new(), message.as_slice());
            for cut in cuts.iter().cycle().take(200) {
                let (piece, more) = rest.split_at((*cut).min(rest.len()));
                pieces.push(piece.to_vec());
                rest = more;
            }
            pieces.push(rest.to_vec());
            let (endpoint, _server) = server(pieces, Duration::ZERO);
            let response = request(&endpoint).receive(1_000, deadline()).unwrap();
            prop_assert_eq!(response.body, chunks.concat());
        }
    }
}
