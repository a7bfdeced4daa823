//! The application's session: calls of many threads over one pair of rings.
//!
//! Each thread waits for its own answer. One of those that wait looks at the doorbell for all of them; when it has its answer,
//! another one does.

use crate::door::enter;
use crate::link::{Link, Rung, hush};
use casemate_rings::{Answer, Call, Caller, Error, Outcome, PutError, Tag, Transport};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::HashMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A session with a stack server. Copies of it are the same session. When the last copy and all its sockets are gone, or the
/// process ends, the session ends with everything in it.
#[derive(Debug, Clone)]
pub struct Stack(Arc<Session>);

#[derive(Debug)]
struct Session {
    state: Mutex<State>,
    /// An answer has come for somebody, or nobody looks at the doorbell.
    changed: Condvar,
    bell: UnixStream,
    most_sent: usize,
}

#[derive(Debug)]
struct State {
    caller: Caller<Link>,
    next: u32,
    /// Answers whose threads have not taken them yet.
    answers: HashMap<Tag, (Outcome, Vec<u8>)>,
    /// A thread waits for the doorbell.
    is_watched: bool,
    /// Why there is no session any more.
    ended: Option<&'static str>,
}

/// An answer, and how many bytes of data came with it.
pub(crate) type Reply = (Answer, usize);

impl Stack {
    /// Begins a session with the server at this path. It must have been started by root or by this user, in a directory whose
    /// entries no other user can replace.
    pub fn connect(path: impl AsRef<Path>) -> io::Result<Self> {
        let (link, geometry) = enter(path.as_ref())?;
        let bell = link.bell()?;
        let wrong = |violation| io::Error::new(io::ErrorKind::InvalidData, violation);
        let caller = Caller::new(link, geometry).map_err(wrong)?;
        let answers = HashMap::new();
        let state = State { caller, next: 0, answers, is_watched: false, ended: None };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        Ok(Self(Arc::new(Session { state, changed, bell, most_sent: geometry.most_sent() })))
    }

    /// Lets the words be looked at, and changed, that this process shares with the server. What an application that is broken could
    /// do there, a test can do with this; nothing else needs it.
    pub fn memory(&self, act: impl FnOnce(&[AtomicU64])) {
        act(self.0.lock().caller.transport().memory());
    }

    /// Wakes the server, which finds out by itself what there is to do.
    pub fn ring(&self) {
        self.0.lock().caller.transport().ring();
    }

    /// The most data that one call can send.
    pub(crate) fn most_sent(&self) -> usize {
        self.0.most_sent
    }

    /// Makes a call and waits for its answer; data that comes with it goes to `into`. When `limit` is over, the call is cancelled.
    pub(crate) fn ask(
        &self,
        call: &Call,
        data: &[u8],
        into: &mut [u8],
        limit: Option<Duration>,
    ) -> io::Result<Reply> {
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let session = &*self.0;
        let mut state = session.lock();
        let tag = state.tag();
        loop {
            state.alive()?;
            match state.caller.call(tag, call, data) {
                Ok(()) => break,
                Err(PutError::TooLong) => return Err(io::ErrorKind::InvalidInput.into()),
                Err(PutError::Violation(_)) => state.ended = Some(BROKEN),
                Err(PutError::Full) => {
                    state.collect(None);
                    state = session.wait(state, None);
                }
            }
        }
        session.await_answer(state, tag, into, deadline)
    }
}

/// The number of calls whose answers are nobody's concern.
const NOBODYS: Tag = Tag(0);

const BROKEN: &str = "the server broke the rules of the session";
const GONE: &str = "the stack server has ended";

impl Session {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No step leaves the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn await_answer<'s>(
        &'s self,
        mut state: MutexGuard<'s, State>,
        tag: Tag,
        into: &mut [u8],
        mut deadline: Option<Instant>,
    ) -> io::Result<Reply> {
        let mut is_late = false;
        loop {
            if let Some(outcome) = state.collect(Some((tag, &mut *into))) {
                // Whoever waits for an answer of its own may have it now.
                self.changed.notify_all();
                return match outcome.answer {
                    Ok(answer) => Ok((answer, outcome.len.min(into.len()))),
                    Err(Error::Cancelled) if is_late => Err(io::ErrorKind::TimedOut.into()),
                    Err(error) => Err(to_io(error)),
                };
            }
            state.alive()?;
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                // The call is answered in any case, at once: with what it waited for, or as cancelled.
                if state.caller.call(NOBODYS, &Call::Cancel { call: tag }, &[]).is_ok() {
                    (is_late, deadline) = (true, None);
                }
            }
            state = self.wait(state, deadline);
        }
    }

    /// Waits until something has happened, or the time is over.
    fn wait<'s>(&'s self, mut state: MutexGuard<'s, State>, until: Option<Instant>) -> MutexGuard<'s, State> {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if state.is_watched {
            return match left {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(left) => {
                    self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        state.is_watched = true;
        drop(state);
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        // Whatever it says: the doorbell is looked at.
        let _ = poll(&mut [PollFd::new(&self.bell, PollFlags::IN)], left.as_ref());
        let rung = hush(&self.bell);
        let mut state = self.lock();
        state.is_watched = false;
        if rung == Rung::Ended {
            // What was answered before is there still.
            state.collect(None);
            state.ended.get_or_insert(GONE);
        }
        self.changed.notify_all();
        state
    }
}

impl State {
    fn alive(&self) -> io::Result<()> {
        match self.ended {
            None => Ok(()),
            Some(why) => Err(io::Error::new(io::ErrorKind::ConnectionAborted, why)),
        }
    }

    fn tag(&mut self) -> Tag {
        self.next = self.next.checked_add(1).unwrap_or(1);
        Tag(self.next)
    }

    /// Takes all answers out of the ring. `mine` is given back, its data copied; the others are kept for their threads.
    fn collect(&mut self, mine: Option<(Tag, &mut [u8])>) -> Option<Outcome> {
        let (wanted, mut into) = mine.map_or((None, &mut [][..]), |(tag, into)| (Some(tag), into));
        let kept = wanted.and_then(|tag| self.answers.remove(&tag));
        if let Some((outcome, data)) = kept {
            into.iter_mut().zip(data).for_each(|(to, from)| *to = from);
            return Some(outcome);
        }
        let mut found = None;
        loop {
            let outcome = match self.caller.answer() {
                Ok(Some(outcome)) => outcome,
                Ok(None) => return found,
                Err(_) => break,
            };
            if Some(outcome.tag) == wanted {
                self.caller.data(into);
                into = &mut [];
                found = Some(outcome);
            } else if outcome.tag != NOBODYS {
                let mut data = vec![0; outcome.len];
                self.caller.data(&mut data);
                self.answers.insert(outcome.tag, (outcome, data));
            }
            if self.caller.pass().is_err() {
                break;
            }
        }
        self.ended = Some(BROKEN);
        found
    }
}

/// As `std::net` would say it.
pub(crate) fn to_io(error: Error) -> io::Error {
    let kind = match error {
        Error::NotPermitted => io::ErrorKind::PermissionDenied,
        Error::PortInUse | Error::NoPort => io::ErrorKind::AddrInUse,
        Error::NotOurAddress => io::ErrorKind::AddrNotAvailable,
        Error::NoRoute => io::ErrorKind::NetworkUnreachable,
        Error::TooManySockets | Error::TooManyCalls => io::ErrorKind::QuotaExceeded,
        Error::NoMemory => io::ErrorKind::OutOfMemory,
        Error::NotNow => io::ErrorKind::WouldBlock,
        Error::TooLong | Error::Malformed => io::ErrorKind::InvalidInput,
        Error::Refused => io::ErrorKind::ConnectionRefused,
        Error::Reset => io::ErrorKind::ConnectionReset,
        Error::Finished => io::ErrorKind::BrokenPipe,
        Error::NoSocket | Error::WrongKind => io::ErrorKind::NotConnected,
        Error::Cancelled => io::ErrorKind::TimedOut,
    };
    io::Error::new(kind, error)
}
