//! A session of vici: the packets of a client, the packets for it, and their timeouts.

use super::packet::{ClientPacket, PacketReader, ServerPacket};
use crate::control::Ready;
use casemate_linux::unix_socket::PollFd;
use casemate_wire::invariant::OrBroken;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Time in which a client that has begun a packet sends more of it, or reads more of what is sent to it.
/// Between packets a client may wait without limit.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of bytes queued for a client; more than the list of 100,000 SAs needs.
const MAX_QUEUED: usize = 256 << 20;
/// Number of queued bytes beyond which a client that reads its events too slowly is disconnected.
const MAX_QUEUED_EVENTS: usize = 8 << 20;
/// Size of the buffer for reading.
const READ_LEN: usize = 64 << 10;

/// Identifies a session. Not used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SessionId(pub(super) u64);

/// State of a session that the event loop and the control thread share.
pub(super) struct SharedState {
    is_open: AtomicBool,
    /// Bytes that were queued and not written yet.
    queued: AtomicUsize,
}

impl SharedState {
    pub(super) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Reserves room for a packet. Closes the session and returns false if there is none.
    pub(super) fn reserve(&self, len: usize, is_event: bool) -> bool {
        let queued = self.queued.fetch_add(len, Ordering::Relaxed).saturating_add(len);
        if queued > if is_event { MAX_QUEUED_EVENTS } else { MAX_QUEUED } {
            self.is_open.store(false, Ordering::Relaxed);
        }
        self.is_open()
    }
}

pub(super) struct ViciSession {
    pub(super) id: SessionId,
    stream: UnixStream,
    received: PacketReader,
    /// The client waits for the response to a command. Its next packet is read afterwards.
    is_busy: bool,
    /// The next bytes to write; the first `written` of them have been written.
    output: Vec<u8>,
    written: usize,
    /// Last progress of a packet in either direction.
    last_progress: Instant,
    shared: Arc<SharedState>,
}

impl ViciSession {
    pub(super) fn new(id: SessionId, stream: UnixStream, now: Instant) -> Self {
        let shared = Arc::new(SharedState { is_open: AtomicBool::new(true), queued: AtomicUsize::new(0) });
        Self {
            id,
            stream,
            received: PacketReader::default(),
            is_busy: false,
            output: Vec::new(),
            written: 0,
            last_progress: now,
            shared,
        }
    }

    /// The state that this session shares with the event loop.
    pub(super) fn shared(&self) -> Arc<SharedState> {
        self.shared.clone()
    }

    pub(super) fn is_closed(&self) -> bool {
        !self.shared.is_open()
    }

    /// The events to poll for.
    pub(super) fn polled(&self) -> PollFd<'_> {
        PollFd::new(self.stream.as_fd(), !self.is_busy, self.has_output())
    }

    /// When the session times out, if the client is the one to act.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let must_act = self.has_output() || (self.received.has_part() && !self.is_busy);
        must_act.then(|| self.last_progress + TIMEOUT)
    }

    /// Reads and writes without blocking, and closes the session on timeout or error.
    pub(super) fn serve(&mut self, ready: &Ready, now: Instant) {
        let is_late = self.deadline().is_some_and(|deadline| deadline <= now);
        if is_late || ready.gone {
            return self.close();
        }
        if ready.readable && !self.is_busy && self.read(now).is_err() {
            return self.close();
        }
        if ready.writable {
            self.write(now);
        }
    }

    /// The next packet of the client, if it is complete and no command is in progress. Closes the session if
    /// it is malformed.
    pub(super) fn take_packet(&mut self) -> Option<ClientPacket> {
        if self.is_busy || self.is_closed() {
            return None;
        }
        match self.received.next_packet() {
            Ok(packet) => {
                self.is_busy = matches!(packet, Some(ClientPacket::Command(..)));
                packet
            }
            Err(_) => {
                self.close();
                None
            }
        }
    }

    /// Queues a packet. A response ends the command in progress.
    pub(super) fn push(&mut self, packet: &ServerPacket, bytes: &[u8], now: Instant) {
        if self.is_closed() {
            return;
        }
        if matches!(packet, ServerPacket::Response(_) | ServerPacket::UnknownCommand) {
            self.is_busy = false;
        }
        if !self.has_output() {
            self.last_progress = now;
        }
        self.output.extend_from_slice(bytes);
        self.write(now);
    }

    /// Closes the session. The event loop learns of it later.
    pub(super) fn close(&mut self) {
        self.shared.is_open.store(false, Ordering::Relaxed);
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }

    fn has_output(&self) -> bool {
        self.written < self.output.len()
    }

    /// Reads what has arrived, up to the length of the buffer.
    fn read(&mut self, now: Instant) -> io::Result<()> {
        let mut bytes = zeroize::Zeroizing::new(vec![0; READ_LEN]);
        match self.stream.read(&mut bytes) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => {
                self.last_progress = now;
                self.received.push(bytes.get(..len).or_broken_default("no more is read than fits"));
                Ok(())
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn write(&mut self, now: Instant) {
        while let Some(rest) = self.output.get(self.written..).filter(|rest| !rest.is_empty()) {
            match self.stream.write(rest) {
                Ok(0) => return self.close(),
                Ok(len) => {
                    (self.written, self.last_progress) = (self.written.saturating_add(len), now);
                    self.shared.queued.fetch_sub(len, Ordering::Relaxed);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return self.close(),
            }
        }
        self.output = Vec::new();
        self.written = 0;
    }
}
