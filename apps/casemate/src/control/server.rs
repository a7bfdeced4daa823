//! The server of the control socket: a client sends one request line and receives the response.
//!
//! One thread serves all clients and never blocks on one of them; the engine's event loop only queues
//! responses. The number of clients is limited for each state, so that clients that follow the log or
//! wait for a peer leave room for a `status`. `session` handles one client.

use super::Request;
use super::session::{ClientSession, SharedState};
use crate::metrics::{MetricsChannel, MetricsListener, MetricsService};
use crate::vici::{ViciChannel, ViciService};
use casemate_linux::Error;
use casemate_linux::instance::Instance;
use casemate_linux::sandbox;
use casemate_linux::unix_socket::{self, PollFd};
use casemate_wire::invariant::OrBroken;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum number of clients that send a request or receive a response; further ones are disconnected.
const MAX_REQUESTING: usize = 32;
/// Maximum numbers of clients that follow the log or a trace, and that wait for a command. A further client
/// replaces the oldest.
const MAX_FOLLOWING: usize = 16;
const MAX_WAITING: usize = 32;
/// Pause after a failed accept, as happens without free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Maximum timeout of poll, which limits the effect of an error in a computed deadline.
const IDLE: Duration = Duration::from_secs(60);

/// The handle for responding to a client. Dropping it completes the response.
pub(crate) struct Reply {
    client: u64,
    shared: Arc<SharedState>,
    responses: Sender<Response>,
    waker: Arc<UnixStream>,
}

impl Reply {
    /// Queues a line. Returns false if the client is gone or too slow.
    pub(crate) fn send(&self, line: String) -> bool {
        self.queue(Response::Line(self.client, line))
    }

    /// Queues a line that the control thread makes, because it takes long. Returns false if the client is
    /// gone or too slow.
    pub(crate) fn send_with(&self, make: impl FnOnce() -> String + Send + 'static) -> bool {
        self.queue(Response::LineWith(self.client, Box::new(make)))
    }

    fn queue(&self, line: Response) -> bool {
        let is_taken = self.shared.take_line() && self.responses.send(line).is_ok();
        if is_taken {
            signal(&self.waker);
        }
        is_taken
    }

    /// Whether the client is still connected, as far as known.
    pub(crate) fn is_open(&self) -> bool {
        self.shared.is_open()
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if self.responses.send(Response::End(self.client)).is_ok() {
            signal(&self.waker);
        }
    }
}

/// A request, with the handle for its response.
pub(crate) struct PendingRequest {
    pub(crate) request: Request,
    pub(crate) reply: Reply,
}

/// Messages from the event loop to the control thread.
enum Response {
    /// A line for a client.
    Line(u64, String),
    /// A line for a client that is still to be made.
    LineWith(u64, Box<dyn FnOnce() -> String + Send>),
    /// The end of the response to a client.
    End(u64),
}

/// Wakes a thread when dropped.
pub(crate) struct Waker(pub(crate) UnixStream);

impl Drop for Waker {
    fn drop(&mut self) {
        signal(&self.0);
    }
}

/// Makes the other end readable. A full buffer means that it is already.
pub(crate) fn signal(mut waker: &UnixStream) {
    let _ = waker.write(b"!");
}

/// Clears the wake-up; bytes that are left over cause only a spurious wake-up.
pub(crate) fn clear(mut wake: &UnixStream) {
    let _ = wake.read(&mut [0; 64]);
}

/// A pair of sockets that never block.
pub(crate) fn pair() -> io::Result<(UnixStream, UnixStream)> {
    let (here, there) = UnixStream::pair()?;
    here.set_nonblocking(true)?;
    there.set_nonblocking(true)?;
    Ok((here, there))
}

/// Listeners for other clients that the control thread serves.
#[derive(Default)]
pub(crate) struct Listeners {
    pub(crate) vici: Option<UnixListener>,
    pub(crate) metrics: Option<MetricsListener>,
}

/// The event loop's ends of the channels to the services of these listeners.
pub(crate) struct Channels {
    pub(crate) vici: Option<ViciChannel>,
    pub(crate) metrics: Option<MetricsChannel>,
}

/// The event loop's side of the control socket.
pub(crate) struct ControlServer {
    wake: UnixStream,
    waker: UnixStream,
    requests: Receiver<PendingRequest>,
    path: PathBuf,
}

impl ControlServer {
    /// Opens the socket and starts the control thread, which also serves the clients of `listeners`. The lock
    /// of the journal guarantees that no other process uses the path.
    pub(crate) fn open(instance: &Instance, listeners: Listeners) -> Result<(Self, Channels), Error> {
        let path = instance.control_socket();
        let failed = |error| Error::new(path.display().to_string(), error);
        let listener = unix_socket::listen(&path).map_err(failed)?;
        let (wake, waker) = pair().map_err(failed)?;
        let (response_ready, response_waker) = pair().map_err(failed)?;
        let response_waker = Arc::new(response_waker);
        let (vici, vici_channel) =
            listeners.vici.map(|listener| ViciService::new(listener, response_waker.clone())).unzip();
        let (metrics, metrics_channel) =
            listeners.metrics.map(|listener| MetricsService::new(listener, response_waker.clone())).unzip();
        let channels = Channels { vici: vici_channel, metrics: metrics_channel };
        let (to_loop, requests) = channel();
        let (responses, from_loop) = channel();
        let (end, server_waker) =
            waker.try_clone().and_then(|end| Ok((Waker(end), waker.try_clone()?))).map_err(failed)?;
        let server = ControlThread {
            listener,
            to_loop,
            waker: server_waker,
            from_loop,
            response_ready,
            responses,
            response_waker,
            vici,
            metrics,
            clients: Vec::new(),
            next_client: 0,
            paused_until: Instant::now(),
        };
        let thread = thread::Builder::new().name("control".into());
        let work = move || {
            // Dropped last, also after a panic, to wake the event loop.
            let _end = end;
            let server = server;
            // The sockets are open, so the thread needs no capabilities.
            sandbox::drop_capabilities().map(|()| server.run())
        };
        thread.spawn(work).map_err(failed)?;
        Ok((Self { wake, waker, requests, path }, channels))
    }

    /// Readable when there is a request.
    pub(crate) fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// A handle that wakes the event loop like a request.
    pub(crate) fn waker(&self) -> io::Result<Waker> {
        self.waker.try_clone().map(Waker)
    }

    /// Makes [`wake`](Self::wake) readable.
    pub(crate) fn wake_loop(&self) {
        signal(&self.waker);
    }

    /// Returns the pending requests, or an error if the control thread has ended, which only a panic can
    /// cause.
    pub(crate) fn requests(&mut self) -> Result<Vec<PendingRequest>, Error> {
        clear(&self.wake);
        let mut requests = Vec::new();
        loop {
            match self.requests.try_recv() {
                Ok(request) => requests.push(request),
                Err(TryRecvError::Empty) => return Ok(requests),
                Err(TryRecvError::Disconnected) => {
                    return Err(Error::other(
                        self.path.display().to_string(),
                        "the control thread has ended",
                    ));
                }
            }
        }
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        // The next start replaces a socket that could not be removed.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// State of the control thread.
struct ControlThread {
    listener: UnixListener,
    to_loop: Sender<PendingRequest>,
    waker: UnixStream,
    from_loop: Receiver<Response>,
    response_ready: UnixStream,
    /// For replies, which make `response_ready` readable.
    responses: Sender<Response>,
    response_waker: Arc<UnixStream>,
    vici: Option<ViciService>,
    metrics: Option<MetricsService>,
    /// In order of arrival.
    clients: Vec<ClientSession>,
    next_client: u64,
    paused_until: Instant,
}

impl ControlThread {
    fn run(mut self) {
        loop {
            let Some(events) = self.wait() else { return };
            let now = Instant::now();
            for (client, ready) in self.clients.iter_mut().zip(events.clients) {
                client.serve(&ready, now);
            }
            if events.has_responses {
                clear(&self.response_ready);
            }
            self.queue_responses();
            self.pass_requests(now);
            self.clients.retain(|client| !client.is_closed());
            if self.vici.as_mut().is_some_and(|vici| vici.serve(&events.vici, now)) {
                signal(&self.waker);
            }
            if self.metrics.as_mut().is_some_and(|metrics| metrics.serve(&events.metrics, now)) {
                signal(&self.waker);
            }
            if events.has_connections {
                self.accept(now);
            }
        }
    }

    /// Waits for events. `None` only because of a defect.
    fn wait(&self) -> Option<ControlEvents> {
        const POLLED: &str = "the listener and the response queue are polled";
        let now = Instant::now();
        let is_paused = now < self.paused_until;
        let mut polled = vec![
            PollFd::new(self.listener.as_fd(), !is_paused, false),
            PollFd::new(self.response_ready.as_fd(), true, false),
        ];
        polled.extend(self.clients.iter().map(ClientSession::polled));
        let before_vici = polled.len();
        polled.extend(self.vici.iter().flat_map(|vici| vici.polled(now)));
        let of_vici = polled.len().saturating_sub(before_vici);
        polled.extend(self.metrics.iter().flat_map(|metrics| metrics.polled(now)));
        let pause = is_paused.then_some(self.paused_until);
        let clients = self.clients.iter().filter_map(ClientSession::deadline);
        let vici = self.vici.as_ref().and_then(|vici| vici.deadline(now));
        let metrics = self.metrics.as_ref().and_then(|metrics| metrics.deadline(now));
        let due = clients.chain(vici).chain(metrics).chain(pause).min();
        let timeout = due.map_or(IDLE, |due| due.saturating_duration_since(now).min(IDLE));
        if unix_socket::poll(&mut polled, timeout).is_err() {
            // poll(2) fails only for lack of memory, which may be temporary.
            thread::sleep(ACCEPT_PAUSE);
        }
        let mut ready = polled.iter().map(|polled| Ready {
            readable: polled.readable,
            writable: polled.writable,
            gone: polled.hung_up,
        });
        Some(ControlEvents {
            has_connections: ready.next().or_report(POLLED)?.readable,
            has_responses: ready.next().or_report(POLLED)?.readable,
            clients: ready.by_ref().take(self.clients.len()).collect(),
            vici: ready.by_ref().take(of_vici).collect(),
            metrics: ready.collect(),
        })
    }

    fn queue_responses(&mut self) {
        for response in self.from_loop.try_iter() {
            let (Response::Line(id, _) | Response::LineWith(id, _) | Response::End(id)) = &response;
            let Some(client) = self.clients.iter_mut().find(|client| client.id == *id) else { continue };
            match response {
                Response::Line(_, line) => client.push_line(&line, Instant::now()),
                Response::LineWith(_, make) => {
                    let line = make();
                    client.push_line(&line, Instant::now());
                }
                Response::End(_) => client.finish(Instant::now()),
            }
        }
    }

    /// Passes complete requests to the event loop. If a limit is exceeded, closes the oldest session in
    /// the same state.
    fn pass_requests(&mut self, now: Instant) {
        for index in 0..self.clients.len() {
            let Some(client) = self.clients.get_mut(index) else { continue };
            let Some(request) = client.take_request() else { continue };
            let (client, shared) = (client.id, client.shared());
            match &request {
                Request::Log { follow: true } | Request::Trace { .. } => {
                    self.make_room(ClientSession::is_following, MAX_FOLLOWING, now)
                }
                Request::Initiate { .. } | Request::Terminate(..) => {
                    self.make_room(ClientSession::is_waiting, MAX_WAITING, now);
                }
                _ => {}
            }
            let (responses, waker) = (self.responses.clone(), self.response_waker.clone());
            let reply = Reply { client, shared, responses, waker };
            // Sending fails only when the event loop has ended.
            let _ = self.to_loop.send(PendingRequest { request, reply });
            signal(&self.waker);
        }
    }

    fn make_room(&mut self, in_state: fn(&ClientSession) -> bool, limit: usize, now: Instant) {
        let count = self.clients.iter().filter(|client| in_state(client)).count();
        let mut in_this_state = self.clients.iter_mut().filter(|client| in_state(client));
        if let Some(oldest) = in_this_state.next().filter(|_| count > limit) {
            oldest.evict(now);
        }
    }

    fn accept(&mut self, now: Instant) {
        for _ in 0..MAX_REQUESTING {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.paused_until = now + ACCEPT_PAUSE;
                    return;
                }
            };
            let requesting = self.clients.iter().filter(|client| client.is_requesting()).count();
            if requesting >= MAX_REQUESTING || unix_socket::check_peer(&stream).is_err() {
                continue;
            }
            if stream.set_nonblocking(true).is_ok() {
                self.next_client = self.next_client.wrapping_add(1);
                self.clients.push(ClientSession::new(self.next_client, stream, now));
            }
        }
    }
}

/// What one wait found.
struct ControlEvents {
    has_connections: bool,
    has_responses: bool,
    /// In the order of the clients.
    clients: Vec<Ready>,
    /// The listener of vici and its clients.
    vici: Vec<Ready>,
    /// The listener of metrics and its clients.
    metrics: Vec<Ready>,
}

/// Readiness of a client's socket.
pub(crate) struct Ready {
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    pub(crate) gone: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_the_control_thread_wakes_the_event_loop_with_an_error() {
        let ((wake, waker), (to_loop, requests)) = (pair().unwrap(), channel());
        let end = Waker(waker.try_clone().unwrap());
        let mut control = ControlServer { wake, waker, requests, path: "socket".into() };
        assert!(control.requests().unwrap().is_empty());
        let fails = move || {
            let _end = end;
            let _to_loop: Sender<PendingRequest> = to_loop;
            panic!("on purpose");
        };
        assert!(thread::spawn(fails).join().is_err());
        let mut polled = [PollFd::new(control.wake(), true, false)];
        unix_socket::poll(&mut polled, Duration::ZERO).unwrap();
        assert!(polled[0].readable);
        let error = control.requests().err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), Some("socket: the control thread has ended"));
    }
}
