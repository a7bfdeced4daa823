//! A client of the metrics: its request, its response, and their timeouts. A connection has one request.

use super::Snapshot;
use super::address::MetricsStream;
use super::exposition::Exposition;
use super::http::{self, MAX_REQUEST, Received, Scrape};
use super::service::ScrapeId;
use crate::control::Ready;
use casemate_linux::unix_socket::PollFd;
use casemate_wire::invariant::OrBroken;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time for the whole request.
const REQUEST_TIME: Duration = Duration::from_secs(5);
/// Time for the whole response. Prometheus waits 10 seconds by default, and at most as long as its interval.
const RESPONSE_TIME: Duration = Duration::from_secs(60);
/// Time in which the client closes the connection after the response.
const CLOSE_TIME: Duration = Duration::from_secs(1);
/// Number of pieces that are written before other clients get their turn.
const PIECES: usize = 16;

enum State {
    /// The client is sending its request; the bytes so far.
    Requesting(Vec<u8>),
    /// The event loop reads the values.
    Waiting(Scrape),
    /// The response is being written; `None` if what is left is in the buffer.
    Responding(Option<Page>),
    /// The client has the response and has not closed the connection. What it sends is discarded: closing a
    /// socket with unread bytes would reset the connection before the client has read the response.
    Closing,
    Closed,
}

struct Page {
    exposition: Exposition,
    is_chunked: bool,
}

pub(super) struct Session {
    pub(super) id: ScrapeId,
    stream: MetricsStream,
    state: State,
    deadline: Instant,
    /// Bytes of the response; the first `written` of them have been written.
    output: Vec<u8>,
    written: usize,
}

impl Session {
    pub(super) fn new(id: ScrapeId, stream: MetricsStream, now: Instant) -> Self {
        let state = State::Requesting(Vec::new());
        Self { id, stream, state, deadline: now + REQUEST_TIME, output: Vec::new(), written: 0 }
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    /// When the session ends at the latest.
    pub(super) const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// The events to poll for.
    pub(super) fn polled(&self) -> PollFd<'_> {
        let reads = matches!(self.state, State::Requesting(_) | State::Closing);
        PollFd::new(self.stream.as_fd(), reads, matches!(self.state, State::Responding(_)))
    }

    /// Reads and writes without blocking, and closes the session on timeout or error.
    pub(super) fn serve(&mut self, ready: &Ready, now: Instant) {
        if self.deadline <= now || ready.gone {
            return self.close();
        }
        if ready.readable && self.read().is_err() {
            return self.close();
        }
        if ready.writable && matches!(self.state, State::Responding(_)) && self.write(now).is_err() {
            self.close();
        }
    }

    /// Examines the request. Returns whether it is complete and waits for values.
    pub(super) fn take_request(&mut self, now: Instant) -> bool {
        let State::Requesting(bytes) = &self.state else { return false };
        let received = if bytes.is_empty() { Received::Part } else { Received::parse(bytes) };
        match received {
            Received::Part => false,
            Received::Scrape(scrape) => {
                self.state = State::Waiting(scrape);
                self.deadline = now + RESPONSE_TIME;
                true
            }
            Received::Refused(refusal) => {
                self.respond(refusal.response().into_bytes(), None, now);
                false
            }
        }
    }

    /// Starts the response with these values.
    pub(super) fn start_response(&mut self, snapshot: Arc<Snapshot>, now: Instant) {
        let State::Waiting(scrape) = self.state else { return };
        let exposition = Exposition::new(snapshot, scrape.format);
        let page = Page { exposition, is_chunked: scrape.is_chunked };
        self.respond(http::head(scrape).into_bytes(), Some(page), now);
    }

    fn respond(&mut self, head: Vec<u8>, page: Option<Page>, now: Instant) {
        (self.output, self.written) = (head, 0);
        self.state = State::Responding(page);
        if self.write(now).is_err() {
            self.close();
        }
    }

    /// Reads what has arrived: more of the request, or what is discarded.
    fn read(&mut self) -> io::Result<()> {
        let mut bytes = [0; 4_096];
        let len = match self.stream.read(&mut bytes) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => len,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if let State::Requesting(request) = &mut self.state {
            let room = MAX_REQUEST.saturating_sub(request.len());
            request
                .extend_from_slice(bytes.get(..len.min(room)).or_broken_default("no more is read than fits"));
        }
        Ok(())
    }

    /// Writes until the socket takes no more, or other clients have to get their turn.
    fn write(&mut self, now: Instant) -> io::Result<()> {
        for _ in 0..PIECES {
            while let Some(rest) = self.output.get(self.written..).filter(|rest| !rest.is_empty()) {
                match self.stream.write(rest) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(len) => self.written = self.written.saturating_add(len),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            let State::Responding(page) = &mut self.state else { return Ok(()) };
            let Some(next) = page.as_mut().map(Page::next) else {
                self.state = State::Closing;
                self.deadline = now + CLOSE_TIME;
                return self.stream.shutdown(Shutdown::Write);
            };
            if next.is_last {
                *page = None;
            }
            (self.output, self.written) = (next.bytes, 0);
        }
        Ok(())
    }

    fn close(&mut self) {
        self.state = State::Closed;
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

struct NextBytes {
    bytes: Vec<u8>,
    is_last: bool,
}

impl Page {
    /// The next bytes of the body. The last chunk is empty (RFC 9112 section 7.1).
    fn next(&mut self) -> NextBytes {
        let piece = self.exposition.next_piece();
        let is_last = piece.is_none();
        let bytes = match (piece, self.is_chunked) {
            (None, true) => b"0\r\n\r\n".to_vec(),
            (Some(piece), true) => format!("{:x}\r\n{piece}\r\n", piece.len()).into_bytes(),
            (piece, false) => piece.unwrap_or_default().into_bytes(),
        };
        NextBytes { bytes, is_last }
    }
}
