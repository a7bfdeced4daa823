//! The server with its limits: all sessions, served in turn.

use crate::session::{ClientSession, RemovedSockets, RequestContext, SocketTable};
use crate::sockets::{EphemeralPorts, add_delay};
use alloc::vec::Vec;
use casemate_socketd_protocol::{RingSizes, Transport, Violation};
use casemate_wire::invariant::OrBroken;
use core::fmt;
use core::ops::RangeInclusive;
use smoltcp::iface::{Interface, SocketHandle, SocketSet};
use smoltcp::socket::tcp;
use smoltcp::time::{Duration, Instant};

/// Time that the last packet of an aborted connection may wait for address resolution.
const RESET_TIMEOUT: Duration = Duration::from_secs(1);

/// Limits of the server and of each application. The maximum memory that applications can make the server
/// use is about `applications * (rings.bytes() + sockets * 2 * buffer_bytes)`.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Maximum number of applications.
    pub applications: usize,
    /// Maximum number of sockets per application: connections (closing ones included), UDP sockets, and
    /// backlog entries.
    pub sockets: u16,
    /// Size of a socket buffer in bytes. Each socket has one buffer per direction.
    pub buffer_bytes: usize,
    /// Maximum number of datagrams in a UDP socket buffer.
    pub buffer_datagrams: usize,
    /// Maximum number of waiting requests per application.
    pub waiting_requests: usize,
    /// Maximum number of requests per application and round.
    pub requests_per_round: usize,
    /// Sizes of the rings of a session.
    pub rings: RingSizes,
}

/// Ports below 1024 that an application may bind. Ports from 1024 need no grant.
#[derive(Debug, Clone, Default)]
pub struct PortGrant {
    ports: Vec<RangeInclusive<u16>>,
}

/// First port that needs no grant.
const FIRST_UNPRIVILEGED: u16 = 1_024;

impl PortGrant {
    /// No port below 1024.
    pub const fn none() -> Self {
        Self { ports: Vec::new() }
    }

    /// Adds a range of ports.
    #[must_use]
    pub fn with_ports(mut self, ports: RangeInclusive<u16>) -> Self {
        self.ports.push(ports);
        self
    }

    /// Returns whether the application may bind the port.
    pub fn permits(&self, port: u16) -> bool {
        port >= FIRST_UNPRIVILEGED || self.ports.iter().any(|range| range.contains(&port))
    }
}

/// ID of a session. IDs are never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(u64);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An event for the owner of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// An application violated the ring protocol; its session was terminated.
    ProtocolViolation(SessionId, Violation),
}

/// Counters since the start of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Applications admitted.
    pub admitted: u64,
    /// Applications rejected because the server was full.
    pub rejected: u64,
    /// Sessions terminated because of a protocol violation.
    pub violations: u64,
    /// Requests received.
    pub requests: u64,
    /// Requests that failed immediately, [`WouldBlock`](casemate_socketd_protocol::Error::WouldBlock) not
    /// counted.
    pub failed: u64,
}

/// The server has reached its limit of applications.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyApplications;

impl fmt::Display for TooManyApplications {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the server has reached its limit of applications")
    }
}

impl core::error::Error for TooManyApplications {}

/// A server of sockets of one network stack.
pub struct Server<T> {
    limits: Limits,
    sessions: Vec<(SessionId, ClientSession<T>)>,
    /// Index of the session that is served first in the current round.
    first: usize,
    next_id: u64,
    ports: EphemeralPorts,
    /// Aborted sockets of ended sessions that still have to send their last packet.
    aborting: Vec<(SocketHandle, Instant)>,
    counters: Counters,
}

const FIRST_EXISTS: &str = "the session that is served first exists";

impl<T: Transport> Server<T> {
    /// Creates a server without applications. `seed` must be random and secret.
    pub const fn new(limits: Limits, seed: u64) -> Self {
        Self {
            limits,
            sessions: Vec::new(),
            first: 0,
            next_id: 1,
            ports: EphemeralPorts::new(seed),
            aborting: Vec::new(),
            counters: Counters { admitted: 0, rejected: 0, violations: 0, requests: 0, failed: 0 },
        }
    }

    /// Returns the limits of the server.
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the counters.
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns whether the limit of applications is reached.
    pub fn is_full(&self) -> bool {
        self.sessions.len() >= self.limits.applications
    }

    /// Counts an application that was rejected before a transport existed.
    pub const fn count_rejected(&mut self) {
        self.counters.rejected = self.counters.rejected.saturating_add(1);
    }

    /// Creates a session for an application. The transport's memory has the sizes [`Limits::rings`] and
    /// is zero.
    pub fn admit(&mut self, transport: T, grant: PortGrant) -> Result<SessionId, TooManyApplications> {
        if self.is_full() {
            self.count_rejected();
            return Err(TooManyApplications);
        }
        let session = ClientSession::new(transport, grant, &self.limits);
        let Some(session) = session.or_report("the memory of a transport has the sizes of the limits") else {
            self.count_rejected();
            return Err(TooManyApplications);
        };
        let id = SessionId(self.next_id);
        self.next_id = self.next_id.saturating_add(1);
        self.counters.admitted = self.counters.admitted.saturating_add(1);
        self.sessions.push((id, session));
        Ok(id)
    }

    /// Returns the sessions with their transports.
    pub fn sessions(&self) -> impl Iterator<Item = (SessionId, &T)> {
        self.sessions.iter().map(|(id, session)| (*id, session.transport()))
    }

    /// Ends the session of an application that has gone. Its connections are reset; its ports are free
    /// when the resets are sent.
    pub fn end_session(&mut self, id: SessionId, now: Instant, sockets: &mut SocketSet<'static>) {
        let Some(index) = self.sessions.iter().position(|(known, _)| *known == id) else { return };
        let (_, mut session) = self.sessions.remove(index);
        self.abort(&mut session.table, now, sockets);
    }

    fn abort(&mut self, table: &mut SocketTable, now: Instant, sockets: &mut SocketSet<'static>) {
        let RemovedSockets { tcp, udp } = table.drain();
        for socket in tcp {
            sockets.get_mut::<tcp::Socket<'_>>(socket).abort();
            self.aborting.push((socket, add_delay(now, RESET_TIMEOUT)));
        }
        for socket in udp {
            sockets.remove(socket);
        }
        // Bounds the memory used by applications that connect and disconnect all the time.
        let surplus = self.aborting.len().saturating_sub(usize::from(self.limits.sockets));
        for (socket, _) in self.aborting.drain(..surplus) {
            sockets.remove(socket);
        }
    }

    /// Serves every application once. The caller must call this after each poll of the interface and
    /// after each notification of an application, and poll the interface again afterwards. Returns true
    /// if there is more to do immediately.
    pub fn serve(
        &mut self,
        now: Instant,
        interface: &mut Interface,
        sockets: &mut SocketSet<'static>,
        mut notice: impl FnMut(Notice),
    ) -> bool {
        self.remove_aborted(now, sockets);
        let count = self.sessions.len();
        self.first = self.first.checked_add(1).filter(|first| *first < count).unwrap_or(0);
        let Self { sessions, ports, limits, counters, .. } = self;
        let (mut more, mut violations) = (false, Vec::new());
        let (front, back) = sessions.split_at_mut_checked(self.first).or_broken_default(FIRST_EXISTS);
        for (id, session) in back.iter_mut().chain(front) {
            // Taken out of the application, so that the context can borrow it beside the socket table.
            let grant = core::mem::take(&mut session.grant);
            let mut context = RequestContext { now, interface, sockets, ports, limits, grant: &grant };
            match session.serve(&mut context, counters) {
                Ok(has_more) => more |= has_more,
                Err(violation) => violations.push((*id, violation)),
            }
            session.grant = grant;
        }
        for (id, violation) in violations {
            self.counters.violations = self.counters.violations.saturating_add(1);
            self.end_session(id, now, sockets);
            notice(Notice::ProtocolViolation(id, violation));
        }
        more
    }

    /// Returns the latest time for the next call of [`serve`](Self::serve), beside the deadlines of the
    /// interface and the notifications of applications: the time at which a closing socket is removed.
    pub fn due(&self) -> Option<Instant> {
        let closing = self.sessions.iter().flat_map(|(_, session)| &session.table.closing);
        let aborting = self.aborting.iter().map(|(_, until)| *until);
        closing.map(|closing| closing.until).chain(aborting).min()
    }

    /// Removes aborted sockets that have sent their last packet.
    fn remove_aborted(&mut self, now: Instant, sockets: &mut SocketSet<'static>) {
        self.aborting.retain(|(socket, until)| {
            // smoltcp clears the endpoint when the reset is sent.
            let has_more = sockets.get::<tcp::Socket<'_>>(*socket).local_endpoint().is_some();
            let stays = has_more && now < *until;
            if !stays {
                sockets.remove(*socket);
            }
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_ports_need_a_grant() {
        let grant = PortGrant::none().with_ports(80..=80).with_ports(400..=500);
        for (port, permitted) in
            [(0, false), (79, false), (80, true), (450, true), (1_023, false), (1_024, true)]
        {
            assert_eq!(grant.permits(port), permitted, "{port}");
        }
    }
}
