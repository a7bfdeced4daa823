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
    waiting: Table<u64, Box<Entry>>,
    /// In this order: time, number, connection.
    timers: Index,
    last: u64,
}

#[derive(Debug)]
struct Entry {
    restart: Restart,
    /// Of two that are due at the same time, the one that was added first is begun first. The order in memory would
    /// be another in each run.
    number: u64,
}

impl Restarts {
    /// Adds one. What waits for the same connection already is begun with it, at the later of both times.
    pub(crate) fn add(&mut self, mut restart: Restart) {
        let place = place_of(&restart.connection);
        if let Some(Entry { restart: known, .. }) = self.take(place) {
            restart.at = restart.at.max(known.at);
            restart.attempts = restart.attempts.max(known.attempts);
            for child in known.children {
                if !restart.children.contains(&child) {
                    restart.children.push(child);
                }
            }
        }
        self.last = self.last.wrapping_add(1);
        let entry = Entry { restart, number: self.last };
        self.timers.insert(timer(&entry, place));
        self.waiting.insert(place, Box::new(entry));
    }

    fn take(&mut self, place: u64) -> Option<Entry> {
        let entry = *self.waiting.remove(place)?;
        self.timers.remove(timer(&entry, place));
        Some(entry)
    }

    /// All of them, the first that is due first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Restart> {
        self.timers.iter().filter_map(|[.., place]| self.waiting.get(place)).map(|entry| &entry.restart)
    }

    /// Cancels those of a connection, or what is for one of its children; whether there was something.
    pub(crate) fn cancel(&mut self, connection: &str, child: Option<&str>) -> bool {
        let found = self.iter().find(|restart| restart.connection.name == connection);
        let Some(place) = found.map(|restart| place_of(&restart.connection)) else { return false };
        let Some(Entry { restart, .. }) = self.waiting.get_mut(place).map(|entry| &mut **entry) else {
            return false;
        };
        let before = restart.children.len();
        restart.children.retain(|known| child.is_some_and(|child| child != known.name));
        let is_less = child.is_none() || restart.children.len() < before;
        if is_less && restart.children.is_empty() {
            self.take(place);
        }
        is_less
    }

    /// When the first is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.timers.first().map(|[at, ..]| Instant::from_micros(at))
    }

    /// Takes one that is due.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<Restart> {
        let [at, _, place] = self.timers.first()?;
        if at > now.as_micros() {
            return None;
        }
        self.take(place).map(|entry| entry.restart)
    }

    /// After the connections were exchanged: those that differ in their children only go on under the new
    /// ones. The others are dropped, and those that wait for children none of which is configured any more.
    pub(crate) fn reconfigure(&mut self, connections: &[Arc<Connection>]) {
        let places: Vec<u64> = self.timers.iter().map(|[.., place]| place).collect();
        let waiting: Vec<_> = places.into_iter().filter_map(|place| self.take(place)).collect();
        for Entry { restart, .. } in waiting {
            let is_its = |new: &&Arc<Connection>| new.differs_in_children_only(&restart.connection);
            let Some(connection) = connections.iter().find(is_its) else { continue };
            let is_whole = restart.children.is_empty();
            let kept = |child: &Arc<Child>| connection.children.contains(child);
            let children: Vec<_> = restart.children.into_iter().filter(kept).collect();
            if is_whole || !children.is_empty() {
                self.add(Restart { connection: connection.clone(), children, ..restart });
            }
        }
    }
}

/// Where a connection lies. While a restart holds it, no other lies there.
fn place_of(connection: &Arc<Connection>) -> u64 {
    Arc::as_ptr(connection).addr() as u64
}

const fn timer(entry: &Entry, place: u64) -> [u64; 3] {
    [entry.restart.at.as_micros(), entry.number, place]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Identity;
    use alloc::format;
    use alloc::string::String;

    fn connections(count: u8) -> Vec<Arc<Connection>> {
        let named = |name: String| Identity::Fqdn(name);
        let one = |number: u8| {
            Connection::with_shared_key(&format!("{number}"), named("left".into()), named("right".into()))
        };
        (0..count).map(|number| Arc::new(one(number))).collect()
    }

    fn restart(connection: &Arc<Connection>) -> Restart {
        Restart {
            connection: connection.clone(),
            children: Vec::new(),
            at: Instant::from_secs(1),
            attempts: 0,
        }
    }

    #[test]
    fn of_those_that_are_due_at_once_the_first_that_was_added_is_first() {
        let mut connections = connections(6);
        for _ in 0..connections.len() {
            // Whatever their order in memory is, some of these orders differ from it.
            connections.rotate_left(1);
            let mut restarts = Restarts::default();
            connections.iter().for_each(|connection| restarts.add(restart(connection)));
            assert!(restarts.take_due(Instant::ZERO).is_none());
            let taken: Vec<_> = core::iter::from_fn(|| restarts.take_due(Instant::from_secs(1)))
                .map(|it| it.connection)
                .collect();
            assert!(taken.iter().zip(&connections).all(|(taken, added)| Arc::ptr_eq(taken, added)));
            assert_eq!((taken.len(), restarts.due()), (connections.len(), None));
        }
    }

    #[test]
    fn what_waits_already_is_begun_with_what_is_added_at_the_later_time() {
        let connections = connections(2);
        let mut restarts = Restarts::default();
        restarts.add(Restart { at: Instant::from_secs(9), attempts: 3, ..restart(&connections[0]) });
        restarts.add(restart(&connections[1]));
        restarts.add(restart(&connections[0]));
        let all: Vec<_> =
            restarts.iter().map(|it| (it.connection.name.clone(), it.at, it.attempts)).collect();
        let wanted = [("1".into(), Instant::from_secs(1), 0), ("0".into(), Instant::from_secs(9), 3)];
        assert_eq!(all, wanted);
    }
}
