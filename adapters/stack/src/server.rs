//! All sessions, and whose turn it is.

use crate::application::Application;
use crate::limits::{Grant, Limits};
use crate::open::later;
use crate::ports::Ephemeral;
use crate::table::Table;
use crate::world::World;
use alloc::vec::Vec;
use casemate_rings::{Transport, Violation};
use core::fmt;
use smoltcp::iface::{Interface, SocketHandle, SocketSet};
use smoltcp::socket::tcp;
use smoltcp::time::{Duration, Instant};

/// How long the last packet of an aborted connection may wait for a link-layer address.
const LAST_PACKET: Duration = Duration::from_secs(1);

/// A session. The number is never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(u64);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What the owner of a server should know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// The application has broken the rules of its rings, and has no session any more.
    Broken(SessionId, Violation),
}

/// What has happened so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Applications that were admitted.
    pub admitted: u64,
    /// Applications that were turned away, because there were too many.
    pub turned_away: u64,
    /// Sessions that ended because the rules of the rings were broken.
    pub broken: u64,
    /// Calls.
    pub calls: u64,
    /// Calls that were answered at once with an error, other than that they would have to wait.
    pub refused: u64,
}

/// There is no place for another application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyApplications;

impl fmt::Display for TooManyApplications {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the server has as many applications as it takes")
    }
}

impl core::error::Error for TooManyApplications {}

/// A server of one stack.
pub struct Server<T> {
    limits: Limits,
    applications: Vec<(SessionId, Application<T>)>,
    /// Whose turn it is first.
    first: usize,
    next_id: u64,
    ports: Ephemeral,
    /// Sockets of those who have gone, which have a last packet to send.
    leaving: Vec<(SocketHandle, Instant)>,
    counters: Counters,
}

impl<T: Transport> Server<T> {
    /// A server without applications. `seed` is random; nobody should be able to guess it.
    pub const fn new(limits: Limits, seed: u64) -> Self {
        Self {
            limits,
            applications: Vec::new(),
            first: 0,
            next_id: 1,
            ports: Ephemeral::new(seed),
            leaving: Vec::new(),
            counters: Counters { admitted: 0, turned_away: 0, broken: 0, calls: 0, refused: 0 },
        }
    }

    /// What applications may have.
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What has happened so far.
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Whether there is no place for another application. One that comes now is turned away, and counted.
    pub fn is_full(&self) -> bool {
        self.applications.len() >= self.limits.applications
    }

    /// Notes that an application was turned away before there was a transport for it.
    pub const fn note_turned_away(&mut self) {
        self.counters.turned_away = self.counters.turned_away.saturating_add(1);
    }

    /// A session for another application. The transport has memory of [`Limits::geometry`], all zeros.
    pub fn admit(&mut self, transport: T, grant: Grant) -> Result<SessionId, TooManyApplications> {
        if self.is_full() {
            self.note_turned_away();
            return Err(TooManyApplications);
        }
        let Ok(application) = Application::new(transport, grant, &self.limits) else {
            self.note_turned_away();
            return Err(TooManyApplications);
        };
        let id = SessionId(self.next_id);
        self.next_id = self.next_id.saturating_add(1);
        self.counters.admitted = self.counters.admitted.saturating_add(1);
        self.applications.push((id, application));
        Ok(id)
    }

    /// The sessions, with what they go over.
    pub fn sessions(&self) -> impl Iterator<Item = (SessionId, &T)> {
        self.applications.iter().map(|(id, application)| (*id, application.transport()))
    }

    /// Ends a session: the application has gone. Its connections are broken off, its ports are free when that was sent.
    pub fn end(&mut self, id: SessionId, now: Instant, sockets: &mut SocketSet<'static>) {
        let Some(index) = self.applications.iter().position(|(known, _)| *known == id) else { return };
        let (_, mut application) = self.applications.remove(index);
        self.abort(&mut application.table, now, sockets);
    }

    fn abort(&mut self, table: &mut Table, now: Instant, sockets: &mut SocketSet<'static>) {
        let (tcp, udp) = table.drain();
        for socket in tcp {
            sockets.get_mut::<tcp::Socket<'_>>(socket).abort();
            self.leaving.push((socket, later(now, LAST_PACKET)));
        }
        for socket in udp {
            sockets.remove(socket);
        }
        // Whoever comes and goes all the time does not fill the memory with what is left of it.
        let surplus = self.leaving.len().saturating_sub(usize::from(self.limits.sockets));
        for (socket, _) in self.leaving.drain(..surplus) {
            sockets.remove(socket);
        }
    }

    /// Gives every application a turn. Call it after each poll of the interface, and when an application has rung; poll again
    /// afterwards. Answers whether there is more to do at once.
    pub fn serve(
        &mut self,
        now: Instant,
        interface: &mut Interface,
        sockets: &mut SocketSet<'static>,
        mut notice: impl FnMut(Notice),
    ) -> bool {
        self.sweep(now, sockets);
        let count = self.applications.len();
        self.first = self.first.checked_add(1).filter(|first| *first < count).unwrap_or(0);
        let Self { applications, ports, limits, counters, .. } = self;
        let (mut more, mut broken) = (false, Vec::new());
        let (front, back) = applications.split_at_mut_checked(self.first).unwrap_or_default();
        for (id, application) in back.iter_mut().chain(front) {
            // The application's own, so that the world can lend it out beside the table.
            let grant = core::mem::take(&mut application.grant);
            let mut world = World { now, interface, sockets, ports, limits, grant: &grant };
            match application.turn(&mut world, counters) {
                Ok(has_more) => more |= has_more,
                Err(violation) => broken.push((*id, violation)),
            }
            application.grant = grant;
        }
        for (id, violation) in broken {
            self.counters.broken = self.counters.broken.saturating_add(1);
            self.end(id, now, sockets);
            notice(Notice::Broken(id, violation));
        }
        more
    }

    /// When [`serve`](Self::serve) is to be called at the latest, beside what the interface and the applications want: something
    /// that is being closed may take too long.
    pub fn due(&self) -> Option<Instant> {
        let closing = self.applications.iter().flat_map(|(_, application)| &application.table.closing);
        let leaving = self.leaving.iter().map(|(_, until)| *until);
        closing.map(|closing| closing.until).chain(leaving).min()
    }

    /// Removes the sockets of those who have gone, once their last packet is sent.
    fn sweep(&mut self, now: Instant, sockets: &mut SocketSet<'static>) {
        self.leaving.retain(|(socket, until)| {
            // smoltcp forgets the other end when it has sent the reset.
            let has_more = sockets.get::<tcp::Socket<'_>>(*socket).local_endpoint().is_some();
            let stays = has_more && now < *until;
            if !stays {
                sockets.remove(*socket);
            }
            stays
        });
    }
}
