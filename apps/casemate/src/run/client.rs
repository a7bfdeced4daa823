//! One client of the control socket: its request, its answer, and how long it may take for both.

use super::control::Ready;
use crate::control::{Request, outcome};
use casemate_linux::local::Polled;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long a client may take for its request, and how long it may take nothing of its answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// A longer request is none, in bytes.
const MAX_REQUEST: usize = 4_096;
/// Lines that may wait for a client; one that takes them more slowly than they come is left.
const MAX_LINES: usize = 4_096;

/// What the loop and the control thread both know of a client.
pub(super) struct Place {
    is_open: AtomicBool,
    /// Lines that were handed over and not written yet.
    lines: AtomicUsize,
}

impl Place {
    pub(super) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Takes room for one line; `false` if there is none, or no client.
    pub(super) fn take_line(&self) -> bool {
        self.is_open() && self.lines.fetch_add(1, Ordering::Relaxed) < MAX_LINES
    }

    fn close(&self) {
        self.is_open.store(false, Ordering::Relaxed);
    }
}

/// What a client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It sends its request.
    Asking,
    /// The loop answers at once.
    Served,
    /// The loop answers when something has happened.
    Waiting,
    /// It follows the log.
    Following,
    /// The answer is complete.
    Finishing,
    /// It is gone, or it is left.
    Ended,
}

pub(super) struct Client {
    pub(super) id: u64,
    stream: UnixStream,
    stage: Stage,
    /// What it has sent so far.
    request: Vec<u8>,
    /// What it has not taken yet of its answer, behind `written` bytes that it has.
    answer: Vec<u8>,
    written: usize,
    /// When it began, or last took something of its answer.
    since: Instant,
    place: Arc<Place>,
}

impl Client {
    pub(super) fn new(id: u64, stream: UnixStream, now: Instant) -> Self {
        let place = Arc::new(Place { is_open: AtomicBool::new(true), lines: AtomicUsize::new(0) });
        let (stage, request, answer) = (Stage::Asking, Vec::new(), Vec::new());
        Self { id, stream, stage, request, answer, written: 0, since: now, place }
    }

    /// Whether it holds a place of those who ask: until it waits or follows.
    pub(super) fn asks(&self) -> bool {
        matches!(self.stage, Stage::Asking | Stage::Served | Stage::Finishing)
    }

    pub(super) fn waits(&self) -> bool {
        self.stage == Stage::Waiting
    }

    pub(super) fn follows(&self) -> bool {
        self.stage == Stage::Following
    }

    pub(super) fn has_ended(&self) -> bool {
        self.stage == Stage::Ended
    }

    /// What to wait for.
    pub(super) fn polled(&self) -> Polled<'_> {
        Polled::new(self.stream.as_fd(), self.stage == Stage::Asking, self.has_more())
    }

    /// When its patience is over, if it keeps the server waiting.
    pub(super) fn deadline(&self) -> Option<Instant> {
        (self.stage == Stage::Asking || self.has_more()).then(|| self.since + PATIENCE)
    }

    /// Reads and writes what can be read and written.
    pub(super) fn serve(&mut self, ready: &Ready, now: Instant) {
        let is_late = self.deadline().is_some_and(|deadline| deadline <= now);
        if is_late {
            return self.end();
        }
        if ready.readable && self.stage == Stage::Asking && self.read().is_err() {
            return self.end();
        }
        if ready.gone {
            return self.end();
        }
        if ready.writable {
            self.write(now);
        }
    }

    /// The request, once it is complete, with its place. The client then waits for as long as such an answer
    /// takes.
    pub(super) fn take_request(&mut self) -> Option<(u64, Request, Arc<Place>)> {
        if self.stage != Stage::Asking || !self.request.contains(&b'\n') {
            return None;
        }
        let line = std::mem::take(&mut self.request);
        let request = str::from_utf8(&line).ok().and_then(Request::from_line);
        let Some(request) = request else {
            self.end();
            return None;
        };
        self.stage = match &request {
            Request::Log(true) => Stage::Following,
            Request::Initiate(..) | Request::Terminate(..) => Stage::Waiting,
            _ => Stage::Served,
        };
        Some((self.id, request, self.place.clone()))
    }

    /// Adds a line to its answer.
    pub(super) fn push_line(&mut self, line: &str, now: Instant) {
        if matches!(self.stage, Stage::Finishing | Stage::Ended) {
            return;
        }
        if !self.has_more() {
            self.since = now;
        }
        self.answer.extend_from_slice(line.as_bytes());
        self.answer.push(b'\n');
        self.write(now);
    }

    /// There is no more to add.
    pub(super) fn finish(&mut self, now: Instant) {
        if self.stage != Stage::Ended {
            self.stage = Stage::Finishing;
            self.write(now);
        }
    }

    /// Ends it in favour of a newer one.
    pub(super) fn give_way(&mut self, now: Instant) {
        if self.stage == Stage::Waiting {
            let why = "too many clients wait: this was the oldest";
            self.push_line(&outcome(&Err(why.into())), now);
        }
        self.end();
    }

    fn has_more(&self) -> bool {
        self.written < self.answer.len()
    }

    fn read(&mut self) -> io::Result<()> {
        let mut bytes = [0; 1_024];
        loop {
            let len = match self.stream.read(&mut bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            self.request.extend_from_slice(bytes.get(..len).unwrap_or_default());
            if self.request.contains(&b'\n') {
                return Ok(());
            }
            if len == 0 || self.request.len() > MAX_REQUEST {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
    }

    fn write(&mut self, now: Instant) {
        while let Some(rest) = self.answer.get(self.written..).filter(|rest| !rest.is_empty()) {
            match self.stream.write(rest) {
                Ok(0) => return self.end(),
                Ok(len) => (self.written, self.since) = (self.written.saturating_add(len), now),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return self.end(),
            }
        }
        self.answer.clear();
        self.written = 0;
        self.place.lines.store(0, Ordering::Relaxed);
        if self.stage == Stage::Finishing {
            self.end();
        }
    }

    fn end(&mut self) {
        self.place.close();
        self.stage = Stage::Ended;
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}
