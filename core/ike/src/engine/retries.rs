//! Retries of connections whose IKE SA ended or could not be started, and their status.

use super::Ike;
use crate::config::{ChildConfig, Connection};
use crate::{Context, DownReason, Event, Host, IkeSaId};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_sa::Instant;
use casemate_sa::table::{OrderedMap, WordSet};
use casemate_wire::invariant::OrBroken;

/// A connection that is to be started again.
#[derive(Debug)]
pub(crate) struct Retry {
    pub(crate) connection: Arc<Connection>,
    /// Child SAs to set up. If the list is empty, only the IKE SA is set up.
    pub(crate) children: Vec<Arc<ChildConfig>>,
    /// Time of the next attempt.
    pub(crate) at: Instant,
    /// Number of consecutive attempts that failed or whose IKE SA ended soon.
    pub(crate) attempts: u8,
    /// Whether the attempt begins as soon as the addresses of the peer are known.
    pub(crate) waits_for_addrs: bool,
    /// Whether an IKE SA of the connection was up before.
    pub(crate) restores: bool,
}

/// Scheduled retries, at most one for each connection.
#[derive(Debug, Default)]
pub(crate) struct RetryQueue {
    /// By the address of the connection in memory.
    waiting: OrderedMap<u64, Box<Entry>>,
    /// Entries (time, number, connection).
    timers: WordSet,
    last: u64,
}

#[derive(Debug)]
struct Entry {
    retry: Retry,
    /// Orders retries that are due at the same time by the time of their insertion. The order of addresses in
    /// memory would differ from run to run.
    number: u64,
}

impl RetryQueue {
    /// Adds a retry. A retry that is scheduled for the same connection is merged, at the later of both times.
    pub(crate) fn add(&mut self, mut retry: Retry) {
        let key = connection_key(&retry.connection);
        if let Some(Entry { retry: known, .. }) = self.take(key) {
            retry.at = retry.at.max(known.at);
            retry.attempts = retry.attempts.max(known.attempts);
            retry.waits_for_addrs |= known.waits_for_addrs;
            retry.restores |= known.restores;
            for child in known.children {
                if !retry.children.contains(&child) {
                    retry.children.push(child);
                }
            }
        }
        self.last = self.last.wrapping_add(1);
        let entry = Entry { retry, number: self.last };
        self.timers.insert(timer_entry(&entry, key));
        self.waiting.insert(key, Box::new(entry));
    }

    fn take(&mut self, key: u64) -> Option<Entry> {
        let entry = *self.waiting.remove(key)?;
        self.timers.remove(timer_entry(&entry, key));
        Some(entry)
    }

    /// All retries in the order of their times.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Retry> {
        self.timers.iter().filter_map(|[.., key]| self.waiting.get(key)).map(|entry| &entry.retry)
    }

    /// Cancels the retry of a connection, or of one of its children. Returns whether there was one.
    pub(crate) fn cancel(&mut self, connection: &str, child: Option<&str>) -> bool {
        let found = self.iter().find(|retry| retry.connection.name == connection);
        let Some(key) = found.map(|retry| connection_key(&retry.connection)) else { return false };
        let entry = self.waiting.get_mut(key).or_report("a retry with a time is waiting");
        let Some(Entry { retry, .. }) = entry.map(|entry| &mut **entry) else { return false };
        let before = retry.children.len();
        retry.children.retain(|known| child.is_some_and(|child| child != known.name));
        let is_less = child.is_none() || retry.children.len() < before;
        if is_less && retry.children.is_empty() {
            self.take(key);
        }
        is_less
    }

    /// Ends the retry of a connection that has an IKE SA again, for the Child SAs that are there.
    pub(crate) fn end_for(&mut self, connection: &Arc<Connection>, has: impl Fn(&ChildConfig) -> bool) {
        let Some(entry) = self.take(connection_key(connection)) else { return };
        let mut retry = entry.retry;
        retry.children.retain(|child| !has(child));
        if !retry.children.is_empty() {
            self.add(retry);
        }
    }

    /// Whether a retry will restore the connection, which was up before.
    pub(crate) fn restores(&self, connection: &Arc<Connection>) -> bool {
        self.waiting.get(connection_key(connection)).is_some_and(|entry| entry.retry.restores)
    }

    /// Time of the first retry.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|[at, ..]| Instant::from_micros(at))
    }

    /// Takes a retry that is due.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<Retry> {
        let [at, _, key] = self.timers.first()?;
        if at > now.as_micros() {
            return None;
        }
        self.take(key).map(|entry| entry.retry)
    }

    /// Makes the retries due that wait for the addresses of their peers.
    pub(crate) fn end_waits_for_addrs(&mut self, now: Instant) {
        let waiting = self
            .timers
            .iter()
            .map(|[.., key]| key)
            .filter(|key| self.waiting.get(*key).is_some_and(|entry| entry.retry.waits_for_addrs));
        let keys: Vec<u64> = waiting.collect();
        for Entry { retry, .. } in keys.into_iter().filter_map(|key| self.take(key)).collect::<Vec<_>>() {
            self.add(Retry { at: now, waits_for_addrs: false, ..retry });
        }
    }

    /// Adapts to new connections: a retry whose connection differs in its children only continues under the
    /// new connection. Other retries are dropped, and so are those whose children are all no longer
    /// configured.
    pub(crate) fn reconfigure(&mut self, connections: &[Arc<Connection>]) {
        let keys: Vec<u64> = self.timers.iter().map(|[.., key]| key).collect();
        let waiting: Vec<_> = keys.into_iter().filter_map(|key| self.take(key)).collect();
        for Entry { retry, .. } in waiting {
            let is_its = |new: &&Arc<Connection>| new.differs_in_children_only(&retry.connection);
            let Some(connection) = connections.iter().find(is_its) else { continue };
            let is_whole = retry.children.is_empty();
            let kept = |child: &Arc<ChildConfig>| connection.children.contains(child);
            let children: Vec<_> = retry.children.into_iter().filter(kept).collect();
            if is_whole || !children.is_empty() {
                self.add(Retry { connection: connection.clone(), children, ..retry });
            }
        }
    }
}

/// Address of a connection in memory. It is unique while a retry holds the connection.
fn connection_key(connection: &Arc<Connection>) -> u64 {
    Arc::as_ptr(connection).addr() as u64
}

const fn timer_entry(entry: &Entry, key: u64) -> [u64; 3] {
    [entry.retry.at.as_micros(), entry.number, key]
}

/// A Child SA or IKE SA that is set up again later, because a previous one ended or could not be set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingRetry {
    /// Connection.
    pub connection: Arc<Connection>,
    /// Child SA; `None` for the IKE SA alone.
    pub child: Option<Arc<ChildConfig>>,
    /// Time of the next request. If another request of the IKE SA is outstanding, the request is sent later.
    pub at: Instant,
    /// Number of consecutive attempts that failed or whose SA ended soon.
    pub attempts: u8,
}

impl Ike {
    /// SAs that are to be set up again, beside those of [`status`](Self::status): in an IKE SA of their own,
    /// and in existing IKE SAs.
    pub fn pending_retries(&self) -> impl Iterator<Item = PendingRetry> + '_ {
        let queued = self.shared.retries.iter().flat_map(|retry| {
            let waiting = |child| PendingRetry {
                connection: retry.connection.clone(),
                child,
                at: retry.at,
                attempts: retry.attempts,
            };
            let ike = retry.children.is_empty().then_some(None);
            retry.children.iter().cloned().map(Some).chain(ike).map(waiting)
        });
        queued.chain(self.sas.values().flat_map(|sa| sa.pending_retries()))
    }

    /// Whether an IKE SA of this connection has this Child SA or requests it.
    pub fn has_or_requests(&self, connection: &Arc<Connection>, child: &ChildConfig) -> bool {
        self.sas.of_connection(connection).any(|sa| sa.has_or_requests(child))
    }

    /// Cancels the pending setup of a connection, or of one of its children, as far as the peer has not been
    /// asked yet. Closes an IKE SA that is being set up for nothing else. Returns whether there was something
    /// to cancel.
    pub fn cancel(
        &mut self,
        connection: &str,
        child: Option<&str>,
        host: &mut dyn Host,
        context: &mut Context<'_>,
    ) -> bool {
        let mut any = self.shared.retries.cancel(connection, child);
        #[cfg(feature = "resumption")]
        self.shared.resumption.client.forget(connection, None);
        let is_meant = |config: &Arc<ChildConfig>| child.is_none_or(|child| child == config.name);
        let (mut needless_ikes, mut events): (Vec<IkeSaId>, Vec<Event>) = (Vec::new(), Vec::new());
        for sa in self.sas.values_mut().filter(|sa| sa.common.connection.name == connection) {
            for config in sa.cancel(&is_meant) {
                let connection = sa.common.connection.clone();
                events.push(Event::ChildFailed {
                    connection,
                    child: config,
                    replaces: None,
                    reason: DownReason::Local,
                });
                needless_ikes.extend(sa.is_needless().then_some(sa.common.id));
            }
        }
        any |= !events.is_empty();
        self.shared.events.extend(events);
        for ike in needless_ikes {
            self.terminate(ike, DownReason::Local, host, context);
        }
        any
    }
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

    fn retry(connection: &Arc<Connection>) -> Retry {
        Retry {
            connection: connection.clone(),
            children: Vec::new(),
            at: Instant::from_secs(1),
            attempts: 0,
            waits_for_addrs: false,
            restores: false,
        }
    }

    #[test]
    fn retries_at_the_same_time_run_in_insertion_order() {
        let mut connections = connections(6);
        for _ in 0..connections.len() {
            // Some of these orders differ from the order in memory.
            connections.rotate_left(1);
            let mut retries = RetryQueue::default();
            connections.iter().for_each(|connection| retries.add(retry(connection)));
            assert!(retries.pop_due(Instant::ZERO).is_none());
            let taken: Vec<_> = core::iter::from_fn(|| retries.pop_due(Instant::from_secs(1)))
                .map(|it| it.connection)
                .collect();
            assert!(taken.iter().zip(&connections).all(|(taken, added)| Arc::ptr_eq(taken, added)));
            assert_eq!((taken.len(), retries.next_timeout()), (connections.len(), None));
        }
    }

    #[test]
    fn retries_of_one_connection_are_merged_at_the_later_time() {
        let connections = connections(2);
        let mut retries = RetryQueue::default();
        retries.add(Retry { at: Instant::from_secs(9), attempts: 3, ..retry(&connections[0]) });
        retries.add(retry(&connections[1]));
        retries.add(retry(&connections[0]));
        let all: Vec<_> = retries.iter().map(|it| (it.connection.name.clone(), it.at, it.attempts)).collect();
        let wanted = [("1".into(), Instant::from_secs(1), 0), ("0".into(), Instant::from_secs(9), 3)];
        assert_eq!(all, wanted);
    }
}
