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
    framing: Framing,
    is_reusable: bool,
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

/// What is left of the body of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
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
            framing: Framing::End,
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
            && self.framing == Framing::End
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
        if matches!(self.framing, Framing::Length(length) if length > limit as u64) {
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
        self.framing = match (value("transfer-encoding"), value("content-length")) {
            (Some(encoding), _) if encoding == "chunked" => Framing::Chunks,
            (None, Some(length)) => {
                Framing::Length(length.parse().map_err(|_| malformed("the length of the body"))?)
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
            match self.framing {
                Framing::End | Framing::Length(0) => {
                    self.framing = Framing::End;
                    return Ok(None);
                }
                Framing::Chunk(0) => {
                    self.skip_line_end(deadline)?;
                    self.framing = Framing::Chunks;
                }
                Framing::Chunks => self.next_chunk(deadline)?,
                Framing::Length(left) | Framing::Chunk(left) => {
                    if self.received.is_empty() {
                        self.fill(deadline)?;
                    }
                    let count = usize::try_from(left).unwrap_or(usize::MAX).min(self.received.len());
                    let piece: Vec<u8> = self.received.drain(..count).collect();
                    let left = left.saturating_sub(piece.len() as u64);
                    self.framing = match self.framing {
                        Framing::Length(_) => Framing::Length(left),
                        _ => Framing::Chunk(left),
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
                    self.framing = Framing::Chunk(size);
                    if size == 0 {
                        while self.skip_line_end(deadline)? > 0 {}
                        self.framing = Framing::End;
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
