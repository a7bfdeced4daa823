//! The control thread's side: accepts clients and passes the values of the event loop to them.

use super::MetricsListener;
use super::Snapshot;
use super::session::Session;
use crate::control::{Ready, signal};
use casemate_linux::unix_socket::PollFd;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Maximum number of clients; further ones wait in the queue of the listener.
const MAX_CLIENTS: usize = 16;
/// Pause after a failed accept, as happens without free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Identifies the client of a scrape. Not used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ScrapeId(pub(super) u64);

/// The values for some scrapes.
struct Values {
    scrapes: Vec<ScrapeId>,
    snapshot: Arc<Snapshot>,
}

/// The event loop's ends of the two channels.
pub(crate) struct MetricsChannel {
    scrapes: Receiver<ScrapeId>,
    values: Sender<Values>,
    waker: Arc<UnixStream>,
}

impl MetricsChannel {
    /// The scrapes that wait for values.
    pub(super) fn take_scrapes(&self) -> impl Iterator<Item = ScrapeId> {
        self.scrapes.try_iter()
    }

    /// Sends the values that were read since `begun`.
    pub(super) fn send(&self, scrapes: Vec<ScrapeId>, begun: Instant, mut snapshot: Snapshot) {
        snapshot.collected_in = begun.elapsed();
        // Sending fails only when the control thread has ended, which the event loop notices.
        if self.values.send(Values { scrapes, snapshot: snapshot.into() }).is_ok() {
            signal(&self.waker);
        }
    }
}

/// The listener and its clients.
pub(crate) struct MetricsService {
    listener: MetricsListener,
    sessions: Vec<Session>,
    last_session: u64,
    to_loop: Sender<ScrapeId>,
    from_loop: Receiver<Values>,
    paused_until: Option<Instant>,
}

impl MetricsService {
    /// Serves clients of `listener`. `waker` wakes the control thread.
    pub(crate) fn new(listener: MetricsListener, waker: Arc<UnixStream>) -> (Self, MetricsChannel) {
        let (to_loop, scrapes) = channel();
        let (values, from_loop) = channel();
        let (sessions, last_session, paused_until) = Default::default();
        let service = Self { listener, sessions, last_session, to_loop, from_loop, paused_until };
        (service, MetricsChannel { scrapes, values, waker })
    }

    /// What to poll for: the listener, then the clients.
    pub(crate) fn polled(&self, now: Instant) -> impl Iterator<Item = PollFd<'_>> {
        let accepts = self.sessions.len() < MAX_CLIENTS && self.pause(now).is_none();
        let listener = PollFd::new(self.listener.as_fd(), accepts, false);
        std::iter::once(listener).chain(self.sessions.iter().map(Session::polled))
    }

    /// When to call [`serve`](Self::serve) at the latest.
    pub(crate) fn deadline(&self, now: Instant) -> Option<Instant> {
        self.sessions.iter().map(Session::deadline).chain(self.pause(now)).min()
    }

    fn pause(&self, now: Instant) -> Option<Instant> {
        self.paused_until.filter(|end| *end > now)
    }

    /// Reads, writes and accepts what is ready, in the order of [`polled`](Self::polled). Returns whether the
    /// event loop has something to do.
    pub(crate) fn serve(&mut self, ready: &[Ready], now: Instant) -> bool {
        let mut ready = ready.iter();
        let has_connections = ready.next().is_some_and(|listener| listener.readable);
        for Values { scrapes, snapshot } in self.from_loop.try_iter() {
            for session in self.sessions.iter_mut().filter(|session| scrapes.contains(&session.id)) {
                session.start_response(snapshot.clone(), now);
            }
        }
        let mut has_scrapes = false;
        for (session, ready) in self.sessions.iter_mut().zip(ready) {
            session.serve(ready, now);
            if session.take_request(now) {
                has_scrapes = true;
                // Sending fails only when the event loop has ended.
                let _ = self.to_loop.send(session.id);
            }
        }
        self.sessions.retain(|session| !session.is_closed());
        if has_connections {
            self.accept(now);
        }
        has_scrapes
    }

    fn accept(&mut self, now: Instant) {
        while self.sessions.len() < MAX_CLIENTS {
            match self.listener.accept() {
                Ok(Some(stream)) => {
                    self.last_session = self.last_session.wrapping_add(1);
                    self.sessions.push(Session::new(ScrapeId(self.last_session), stream, now));
                }
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.paused_until = Some(now + ACCEPT_PAUSE);
                    return;
                }
            }
        }
    }
}
