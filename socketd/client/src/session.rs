//! A session with the stack server, shared by all threads of the application.
//!
//! Each thread waits for its own response. One of the waiting threads polls the notification socket on
//! behalf of all; when it has its response, another thread takes over.

use crate::listener::connect_to_server;
use crate::transport::{PeerState, ShmTransport, drain_notifications};
use casemate_socketd_protocol::{
    ClientChannel, Error, PushError, ReceivedResponse, Request, RequestId, Response, Transport,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::HashMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A session with a stack server. Clones share the session. The session and all its sockets are closed
/// when the last clone and the last socket are dropped, or when the process ends.
#[derive(Debug, Clone)]
pub struct Session(Arc<SharedSession>);

#[derive(Debug)]
struct SharedSession {
    state: Mutex<State>,
    /// Signals a new response, or that no thread polls the notification socket.
    changed: Condvar,
    socket: UnixStream,
    max_request_data: usize,
}

#[derive(Debug)]
struct State {
    channel: ClientChannel<ShmTransport>,
    next: u32,
    /// Responses that their threads have not taken yet.
    responses: HashMap<RequestId, (ReceivedResponse, Vec<u8>)>,
    /// A thread polls the notification socket.
    is_polled: bool,
    /// Reason why the session has ended.
    ended: Option<&'static str>,
}

/// A response, and the number of data bytes received with it.
pub(crate) type ResponseAndLen = (Response, usize);

impl Session {
    /// Connects to the server at `path`. The server must have been started by root or by this user, and
    /// no other user may be able to replace entries of the socket's directory. Otherwise the function
    /// returns [`io::ErrorKind::PermissionDenied`].
    pub fn connect(path: impl AsRef<Path>) -> io::Result<Self> {
        let (transport, sizes) = connect_to_server(path.as_ref())?;
        let socket = transport.try_clone_socket()?;
        let invalid = |violation| io::Error::new(io::ErrorKind::InvalidData, violation);
        let channel = ClientChannel::new(transport, sizes).map_err(invalid)?;
        let responses = HashMap::new();
        let state = State { channel, next: 0, responses, is_polled: false, ended: None };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        Ok(Self(Arc::new(SharedSession {
            state,
            changed,
            socket,
            max_request_data: sizes.max_request_data(),
        })))
    }

    /// Calls `act` with the shared memory. For tests of the server that corrupt the memory; an
    /// application does not need this.
    pub fn with_memory(&self, act: impl FnOnce(&[AtomicU64])) {
        act(self.0.lock().channel.transport().memory());
    }

    /// Notifies the server, which then checks the rings.
    pub fn notify(&self) {
        self.0.lock().channel.transport().notify();
    }

    /// Returns the maximum data length of one request.
    pub(crate) fn max_request_data(&self) -> usize {
        self.0.max_request_data
    }

    /// Sends a request and waits for the response. Copies the response's data to `into`. After `timeout`
    /// the request is cancelled, and the function returns [`io::ErrorKind::TimedOut`].
    pub(crate) fn request(
        &self,
        request: &Request,
        data: &[u8],
        into: &mut [u8],
        timeout: Option<Duration>,
    ) -> io::Result<ResponseAndLen> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let session = &*self.0;
        let mut state = session.lock();
        let id = state.next_id();
        loop {
            state.check_open()?;
            match state.channel.send_request(id, request, data) {
                Ok(()) => break,
                Err(PushError::TooLong) => return Err(io::ErrorKind::InvalidInput.into()),
                Err(PushError::Violation(_)) => state.ended = Some(PROTOCOL_VIOLATION),
                Err(PushError::Full) => {
                    state.collect_responses(None);
                    state = session.wait(state, None);
                }
            }
        }
        session.await_response(state, id, into, deadline)
    }
}

/// ID of requests whose response is ignored.
const IGNORED_ID: RequestId = RequestId(0);

const PROTOCOL_VIOLATION: &str = "the stack server violated the protocol";
const SERVER_ENDED: &str = "the stack server has ended";

impl SharedSession {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every update of the state is complete before a panic can occur.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn await_response<'s>(
        &'s self,
        mut state: MutexGuard<'s, State>,
        id: RequestId,
        into: &mut [u8],
        mut deadline: Option<Instant>,
    ) -> io::Result<ResponseAndLen> {
        let mut is_late = false;
        loop {
            if let Some(response) = state.collect_responses(Some((id, &mut *into))) {
                // Another thread's response may have been collected too.
                self.changed.notify_all();
                return match response.response {
                    Ok(body) => Ok((body, response.len.min(into.len()))),
                    Err(Error::Cancelled) if is_late => Err(io::ErrorKind::TimedOut.into()),
                    Err(error) => Err(to_io(error)),
                };
            }
            state.check_open()?;
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                // The server responds immediately, with the result of the request, or as cancelled.
                if state.channel.send_request(IGNORED_ID, &Request::Cancel { request: id }, &[]).is_ok() {
                    (is_late, deadline) = (true, None);
                }
            }
            state = self.wait(state, deadline);
        }
    }

    /// Waits for an event or until the time is over.
    fn wait<'s>(&'s self, mut state: MutexGuard<'s, State>, until: Option<Instant>) -> MutexGuard<'s, State> {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if state.is_polled {
            return match left {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(left) => {
                    self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        state.is_polled = true;
        drop(state);
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        // Poll errors are ignored: the socket is read in any case.
        let _ = poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], left.as_ref());
        let peer = drain_notifications(&self.socket);
        let mut state = self.lock();
        state.is_polled = false;
        if peer == PeerState::Closed {
            // Responses sent before the end are still in the ring.
            state.collect_responses(None);
            state.ended.get_or_insert(SERVER_ENDED);
        }
        self.changed.notify_all();
        state
    }
}

impl State {
    fn check_open(&self) -> io::Result<()> {
        match self.ended {
            None => Ok(()),
            Some(reason) => Err(io::Error::new(io::ErrorKind::ConnectionAborted, reason)),
        }
    }

    fn next_id(&mut self) -> RequestId {
        self.next = self.next.checked_add(1).unwrap_or(1);
        RequestId(self.next)
    }

    /// Takes all responses out of the ring. Returns the response for `own` with its data copied; stores
    /// the others for their threads.
    fn collect_responses(&mut self, own: Option<(RequestId, &mut [u8])>) -> Option<ReceivedResponse> {
        let (own_id, mut into) = own.map_or((None, &mut [][..]), |(id, into)| (Some(id), into));
        let stored = own_id.and_then(|id| self.responses.remove(&id));
        if let Some((response, data)) = stored {
            into.iter_mut().zip(data).for_each(|(to, from)| *to = from);
            return Some(response);
        }
        let mut found = None;
        loop {
            let response = match self.channel.peek_response() {
                Ok(Some(response)) => response,
                Ok(None) => return found,
                Err(_) => break,
            };
            if Some(response.id) == own_id {
                self.channel.read_data(into);
                into = &mut [];
                found = Some(response);
            } else if response.id != IGNORED_ID {
                let mut data = vec![0; response.len];
                self.channel.read_data(&mut data);
                self.responses.insert(response.id, (response, data));
            }
            if self.channel.pop_response().is_err() {
                break;
            }
        }
        self.ended = Some(PROTOCOL_VIOLATION);
        found
    }
}

/// Converts an error to the error that `std::net` would return.
pub(crate) fn to_io(error: Error) -> io::Error {
    let kind = match error {
        Error::NotPermitted => io::ErrorKind::PermissionDenied,
        Error::PortInUse | Error::NoFreePort => io::ErrorKind::AddrInUse,
        Error::AddressNotAvailable => io::ErrorKind::AddrNotAvailable,
        Error::NoRoute => io::ErrorKind::NetworkUnreachable,
        Error::TooManySockets | Error::TooManyRequests => io::ErrorKind::QuotaExceeded,
        Error::NoMemory => io::ErrorKind::OutOfMemory,
        Error::WouldBlock => io::ErrorKind::WouldBlock,
        Error::TooLong | Error::Malformed => io::ErrorKind::InvalidInput,
        Error::ConnectionRefused => io::ErrorKind::ConnectionRefused,
        Error::ConnectionReset => io::ErrorKind::ConnectionReset,
        Error::WriteShutDown => io::ErrorKind::BrokenPipe,
        Error::NoSocket | Error::WrongKind => io::ErrorKind::NotConnected,
        Error::Cancelled => io::ErrorKind::TimedOut,
    };
    io::Error::new(kind, error)
}
