//! A session of the control socket: its request, its response, and their timeouts.

use super::server::Ready;
use super::{Request, outcome};
use casemate_linux::unix_socket::PollFd;
use casemate_wire::invariant::OrBroken;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Timeout for the request, and for progress of the response.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum length of a request, in bytes.
const MAX_REQUEST: usize = 4_096;
/// Maximum number of lines queued for a client; a slower client is disconnected.
const MAX_LINES: usize = 4_096;

/// State of a session that the engine's event loop and the control thread share.
pub(super) struct SharedState {
    is_open: AtomicBool,
    /// Lines that were queued and not written yet.
    lines: AtomicUsize,
}

impl SharedState {
    pub(super) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Reserves room for one line. Returns false if there is none or the session is closed.
    pub(super) fn take_line(&self) -> bool {
        self.is_open() && self.lines.fetch_add(1, Ordering::Relaxed) < MAX_LINES
    }

    fn set_closed(&self) {
        self.is_open.store(false, Ordering::Relaxed);
    }
}

/// The state of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The client is sending its request.
    Requesting,
    /// The event loop responds immediately.
    Responding,
    /// The event loop responds when a command is complete.
    Waiting,
    /// The client follows the log or a trace.
    Following,
    /// The response is complete and being written.
    Finishing,
    /// The session is closed.
    Closed,
}

pub(super) struct ClientSession {
    pub(super) id: u64,
    stream: UnixStream,
    state: State,
    /// The request so far.
    request: Vec<u8>,
    /// The response; the first `written` bytes have been written.
    response: Vec<u8>,
    written: usize,
    /// Start of the session, or last progress of the response.
    last_progress: Instant,
    shared: Arc<SharedState>,
}

impl ClientSession {
    pub(super) fn new(id: u64, stream: UnixStream, now: Instant) -> Self {
        let shared = Arc::new(SharedState { is_open: AtomicBool::new(true), lines: AtomicUsize::new(0) });
        let (state, request, response) = (State::Requesting, Vec::new(), Vec::new());
        Self { id, stream, state, request, response, written: 0, last_progress: now, shared }
    }

    /// Whether the session counts against the limit of requesting clients.
    pub(super) fn is_requesting(&self) -> bool {
        matches!(self.state, State::Requesting | State::Responding | State::Finishing)
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.state == State::Waiting
    }

    pub(super) fn is_following(&self) -> bool {
        self.state == State::Following
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// The events to poll for.
    pub(super) fn polled(&self) -> PollFd<'_> {
        PollFd::new(self.stream.as_fd(), self.state == State::Requesting, self.has_output())
    }

    /// When the session times out, if the client is the one to act.
    pub(super) fn deadline(&self) -> Option<Instant> {
        (self.is_incomplete() || self.has_output()).then(|| self.last_progress + TIMEOUT)
    }

    fn is_incomplete(&self) -> bool {
        self.state == State::Requesting && !self.request.contains(&b'\n')
    }

    /// Reads and writes without blocking, and closes the session on timeout or error. The timeout comes last:
    /// this thread may have been busy with the response to another client.
    pub(super) fn serve(&mut self, ready: &Ready, now: Instant) {
        if ready.readable && self.state == State::Requesting && self.read().is_err() {
            return self.close();
        }
        if ready.gone {
            return self.close();
        }
        if ready.writable {
            self.write(now);
        }
        if self.deadline().is_some_and(|deadline| deadline <= now) {
            self.close();
        }
    }

    /// Takes the request when it is complete. The next state of the session follows from the kind of
    /// request.
    pub(super) fn take_request(&mut self) -> Option<Request> {
        if self.state != State::Requesting || !self.request.contains(&b'\n') {
            return None;
        }
        let line = std::mem::take(&mut self.request);
        let request = str::from_utf8(&line).ok().and_then(Request::from_line);
        let Some(request) = request else {
            self.close();
            return None;
        };
        self.state = match &request {
            Request::Log { follow: true } | Request::Trace { .. } => State::Following,
            Request::Initiate { .. } | Request::Terminate(..) => State::Waiting,
            _ => State::Responding,
        };
        Some(request)
    }

    /// The state that this session shares with the event loop.
    pub(super) fn shared(&self) -> Arc<SharedState> {
        self.shared.clone()
    }

    /// Appends a line to the response.
    pub(super) fn push_line(&mut self, line: &str, now: Instant) {
        if matches!(self.state, State::Finishing | State::Closed) {
            return;
        }
        if !self.has_output() {
            self.last_progress = now;
        }
        self.response.extend_from_slice(line.as_bytes());
        self.response.push(b'\n');
        self.write(now);
    }

    /// Marks the response as complete.
    pub(super) fn finish(&mut self, now: Instant) {
        if self.state != State::Closed {
            self.state = State::Finishing;
            self.write(now);
        }
    }

    /// Closes the session to make room for a newer one.
    pub(super) fn evict(&mut self, now: Instant) {
        if self.state == State::Waiting {
            let why = "too many clients are waiting, and this one waited longest: try again";
            self.push_line(&outcome(&Err(why.into())), now);
        }
        self.close();
    }

    fn has_output(&self) -> bool {
        self.written < self.response.len()
    }

    fn read(&mut self) -> io::Result<()> {
        let mut bytes = [0; 1_024];
        loop {
            let len = match self.stream.read(&mut bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            self.request.extend_from_slice(bytes.get(..len).or_broken_default("no more is read than fits"));
            if self.request.contains(&b'\n') {
                return Ok(());
            }
            if len == 0 || self.request.len() > MAX_REQUEST {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
    }

    fn write(&mut self, now: Instant) {
        while let Some(rest) = self.response.get(self.written..).filter(|rest| !rest.is_empty()) {
            match self.stream.write(rest) {
                Ok(0) => return self.close(),
                Ok(len) => (self.written, self.last_progress) = (self.written.saturating_add(len), now),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return self.close(),
            }
        }
        self.response.clear();
        self.written = 0;
        self.shared.lines.store(0, Ordering::Relaxed);
        if self.state == State::Finishing {
            self.close();
        }
    }

    fn close(&mut self) {
        self.shared.set_closed();
        self.state = State::Closed;
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_reads_is_kept_although_this_thread_was_busy() {
        let (here, mut client) = UnixStream::pair().unwrap();
        here.set_nonblocking(true).unwrap();
        let start = Instant::now();
        let mut session = ClientSession::new(1, here, start);
        session.state = State::Responding;
        session.push_line(&"x".repeat(8 << 20), start);
        assert!(session.has_output(), "more than the socket takes at once");
        client.read_exact(&mut vec![0; 64 << 10]).unwrap();
        let late = start + 2 * TIMEOUT;
        let writable = Ready { readable: false, writable: true, gone: false };
        session.serve(&writable, late);
        assert!(!session.is_closed());
        // The client reads nothing more.
        session.serve(&writable, late + TIMEOUT);
        assert!(session.is_closed());
    }
}
