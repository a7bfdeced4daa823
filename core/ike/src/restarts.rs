//! Connections that are to be begun again later: those whose IKE SA ended, and those that could not be begun.

use crate::config::{Child, Connection};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_sa::Instant;
use casemate_tables::{Index, Table};

/// A connection that is to be begun again.
#[derive(Debug)]
pub(crate) struct Restart {
    pub(crate) connection: Arc<Connection>,
    /// The Child SAs that it is to have; without any, the IKE SA alone.
    pub(crate) children: Vec<Arc<Child>>,
    /// When.
    pub(crate) at: Instant,
    /// Attempts in a row that were in vain, or whose IKE SA ended soon.
    pub(crate) attempts: u8,
}

/// All of them: one for each connection at most.
#[derive(Debug, Default)]
pub(crate) struct Restarts {
    /// By the connection, as it lies in memory.
    waiting: Table<u64, Box<Restart>>,
    /// In this order: time, connection.
    timers: Index,
}

impl Restarts {
    /// Adds one. What waits for the same connection already is begun with it, at the later of both times.
    pub(crate) fn add(&mut self, mut restart: Restart) {
        let place = place_of(&restart.connection);
        if let Some(known) = self.waiting.remove(place) {
            self.timers.remove(timer(known.at, place));
            restart.at = restart.at.max(known.at);
            restart.attempts = restart.attempts.max(known.attempts);
            for child in known.children {
                if !restart.children.contains(&child) {
                    restart.children.push(child);
                }
            }
        }
        self.timers.insert(timer(restart.at, place));
        self.waiting.insert(place, Box::new(restart));
    }

    /// All of them, the first that is due first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Restart> {
        self.timers.iter().filter_map(|[_, place, _]| self.waiting.get(place)).map(|restart| &**restart)
    }

    /// Cancels those of a connection, or what is for one of its children; whether there was something.
    pub(crate) fn cancel(&mut self, connection: &str, child: Option<&str>) -> bool {
        let found = self.timers.iter().find(|[_, place, _]| {
            self.waiting.get(*place).is_some_and(|restart| restart.connection.name == connection)
        });
        let Some(timer @ [_, place, _]) = found else { return false };
        let Some(restart) = self.waiting.get_mut(place) else { return false };
        let before = restart.children.len();
        restart.children.retain(|known| child.is_some_and(|child| child != known.name));
        let is_less = child.is_none() || restart.children.len() < before;
        if is_less && restart.children.is_empty() {
            self.waiting.remove(place);
            self.timers.remove(timer);
        }
        is_less
    }

    /// When the first is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.timers.first().map(|[at, ..]| Instant::from_micros(at))
    }

    /// Takes one that is due.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<Restart> {
        let first @ [at, place, _] = self.timers.first()?;
        if at > now.as_micros() {
            return None;
        }
        self.timers.remove(first);
        self.waiting.remove(place).map(|restart| *restart)
    }

    /// After the connections were exchanged: those that differ in their children only go on under the new
    /// ones. The others are dropped, and those that wait for children none of which is configured any more.
    pub(crate) fn reconfigure(&mut self, connections: &[Arc<Connection>]) {
        let places: Vec<u64> = self.timers.iter().map(|[_, place, _]| place).collect();
        self.timers.clear();
        let waiting: Vec<_> = places.into_iter().filter_map(|place| self.waiting.remove(place)).collect();
        for restart in waiting {
            let is_its = |new: &&Arc<Connection>| new.differs_in_children_only(&restart.connection);
            let Some(connection) = connections.iter().find(is_its) else { continue };
            let is_whole = restart.children.is_empty();
            let kept = |child: &Arc<Child>| connection.children.contains(child);
            let children: Vec<_> = restart.children.into_iter().filter(kept).collect();
            if is_whole || !children.is_empty() {
                self.add(Restart { connection: connection.clone(), children, ..*restart });
            }
        }
    }
}

/// Where a connection lies. While a restart holds it, no other lies there.
fn place_of(connection: &Arc<Connection>) -> u64 {
    Arc::as_ptr(connection).addr() as u64
}

const fn timer(at: Instant, place: u64) -> [u64; 3] {
    [at.as_micros(), place, 0]
}
