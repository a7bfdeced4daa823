//! The control thread's side of vici: accepts clients, and passes packets between them and the event loop.
//!
//! The thread that serves the control socket calls this, too. It never blocks on a client. It knows packets
//! but no command: what they mean is decided in the event loop, in the order in which they arrive.

use super::packet::{ClientPacket, ServerPacket};
use super::session::{SessionId, SharedState, ViciSession};
use crate::control::{Ready, signal};
use casemate_linux::unix_socket::PollFd;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Maximum number of clients; further ones are disconnected.
const MAX_CLIENTS: usize = 64;
/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Messages to the event loop.
pub(crate) enum ViciInput {
    /// A client has connected.
    Opened(ViciClient),
    /// A client has sent a packet.
    Packet(SessionId, ClientPacket),
    /// A client has disconnected.
    Closed(SessionId),
}

/// Messages from the event loop.
pub(super) enum ViciOutput {
    /// A packet for a client, and its encoding.
    Packet(SessionId, ServerPacket, Vec<u8>),
    /// A time at which to wake the event loop.
    Alarm(Instant),
}

/// The event loop's handle of a client.
pub(crate) struct ViciClient {
    pub(super) id: SessionId,
    shared: Arc<SharedState>,
    outputs: OutputSender,
}

impl ViciClient {
    /// Queues a packet that the client waits for. A client for which too much is queued is disconnected.
    pub(super) fn send(&self, packet: ServerPacket) {
        self.queue(packet, false);
    }

    /// Queues an event that the client may read later. A client that reads too slowly is disconnected.
    pub(super) fn send_event(&self, name: &'static str, message: Vec<u8>) {
        self.queue(ServerPacket::Event(name, message), true);
    }

    fn queue(&self, packet: ServerPacket, is_event: bool) {
        let bytes = packet.encode();
        if self.shared.is_open() && self.shared.reserve(bytes.len(), is_event) {
            self.outputs.send(ViciOutput::Packet(self.id, packet, bytes));
        } else {
            signal(&self.outputs.waker);
        }
    }
}

/// Sends messages to the control thread, and wakes it.
#[derive(Clone)]
pub(super) struct OutputSender {
    sender: Sender<ViciOutput>,
    waker: Arc<UnixStream>,
}

impl OutputSender {
    pub(super) fn send(&self, output: ViciOutput) {
        // Sending fails only when the control thread has ended, which the event loop notices.
        if self.sender.send(output).is_ok() {
            signal(&self.waker);
        }
    }
}

/// The event loop's ends of the two channels.
pub(crate) struct ViciChannel {
    pub(super) inputs: Receiver<ViciInput>,
    pub(super) outputs: OutputSender,
}

/// The listener and its clients.
pub(crate) struct ViciService {
    listener: UnixListener,
    sessions: Vec<ViciSession>,
    next_session: u64,
    to_loop: Sender<ViciInput>,
    from_loop: Receiver<ViciOutput>,
    outputs: OutputSender,
    alarm: Option<Instant>,
    /// End of the pause after a failed accept, as happens without free file descriptors.
    paused_until: Option<Instant>,
}

impl ViciService {
    /// Serves clients of `listener`. `waker` wakes the control thread.
    pub(crate) fn new(listener: UnixListener, waker: Arc<UnixStream>) -> (Self, ViciChannel) {
        let (to_loop, inputs) = channel();
        let (sender, from_loop) = channel();
        let outputs = OutputSender { sender, waker };
        let channel = ViciChannel { inputs, outputs: outputs.clone() };
        let service = Self {
            listener,
            sessions: Vec::new(),
            next_session: 0,
            to_loop,
            from_loop,
            outputs,
            alarm: None,
            paused_until: None,
        };
        (service, channel)
    }

    /// What to poll for: the listener, then the sessions.
    pub(crate) fn polled(&self, now: Instant) -> impl Iterator<Item = PollFd<'_>> {
        let accepts = self.sessions.len() < MAX_CLIENTS && self.pause(now).is_none();
        let listener = PollFd::new(self.listener.as_fd(), accepts, false);
        std::iter::once(listener).chain(self.sessions.iter().map(ViciSession::polled))
    }

    /// When to call [`serve`](Self::serve) at the latest.
    pub(crate) fn deadline(&self, now: Instant) -> Option<Instant> {
        let sessions = self.sessions.iter().filter_map(ViciSession::deadline);
        sessions.chain(self.alarm).chain(self.pause(now)).min()
    }

    fn pause(&self, now: Instant) -> Option<Instant> {
        self.paused_until.filter(|end| *end > now)
    }

    /// Reads, writes and accepts what is ready, in the order of [`polled`](Self::polled). Returns whether
    /// the event loop has something to do.
    pub(crate) fn serve(&mut self, ready: &[Ready], now: Instant) -> bool {
        let mut ready = ready.iter();
        let has_connections = ready.next().is_some_and(|listener| listener.readable);
        for (session, ready) in self.sessions.iter_mut().zip(ready) {
            session.serve(ready, now);
        }
        self.queue_outputs(now);
        let mut has_input = self.pass_packets();
        if self.alarm.is_some_and(|alarm| alarm <= now) {
            self.alarm = None;
            has_input = true;
        }
        if has_connections {
            has_input |= self.accept(now);
        }
        has_input
    }

    fn queue_outputs(&mut self, now: Instant) {
        for output in self.from_loop.try_iter() {
            match output {
                ViciOutput::Packet(id, packet, bytes) => {
                    if let Some(session) = self.sessions.iter_mut().find(|session| session.id == id) {
                        session.push(&packet, &bytes, now);
                    }
                }
                ViciOutput::Alarm(at) => self.alarm = Some(self.alarm.map_or(at, |alarm| alarm.min(at))),
            }
        }
    }

    /// Passes complete packets and the end of sessions to the event loop.
    fn pass_packets(&mut self) -> bool {
        let mut has_input = false;
        for session in &mut self.sessions {
            while let Some(packet) = session.take_packet() {
                has_input = true;
                // Sending fails only when the event loop has ended.
                let _ = self.to_loop.send(ViciInput::Packet(session.id, packet));
            }
            if session.is_closed() {
                has_input = true;
                session.close();
                let _ = self.to_loop.send(ViciInput::Closed(session.id));
            }
        }
        self.sessions.retain(|session| !session.is_closed());
        has_input
    }

    fn accept(&mut self, now: Instant) -> bool {
        let before = self.sessions.len();
        while self.sessions.len() < MAX_CLIENTS {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => {
                    self.paused_until = Some(now + ACCEPT_PAUSE);
                    break;
                }
            };
            // As with charon, a process may connect if it may write the socket file. That includes processes
            // of other users with CAP_DAC_OVERRIDE: FRR's nhrpd is one.
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            self.next_session = self.next_session.wrapping_add(1);
            let session = ViciSession::new(SessionId(self.next_session), stream, now);
            let client =
                ViciClient { id: session.id, shared: session.shared(), outputs: self.outputs.clone() };
            let _ = self.to_loop.send(ViciInput::Opened(client));
            self.sessions.push(session);
        }
        self.sessions.len() > before
    }
}
