//! Contents of a store in memory: executes requests, and remembers the latest changes.
//!
//! The model is that of etcd 3: a transaction that changes something has the next revision, and so has the
//! end of a lease that had entries. Nothing here is durable: [`MemoryStore`](crate::MemoryStore) needs no
//! durability, and a store in a file writes the changes of its state before it reports them.

use crate::{
    Comparison, Entry, Key, Lease, Outcome, Range, Request, Revision, StoreError, Transaction, Watches, Write,
};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::ops::Bound;
use core::time::Duration;

/// Maximum number of leases. A cell has 4,096 slots, and a node needs one lease for all of its slots.
const MAX_LEASES: usize = 4_096;
/// Number of changes that are remembered for watches.
const HISTORY: usize = 4_096;
/// Bytes of keys and values that the remembered changes may have.
const HISTORY_BYTES: usize = 16 << 20;

/// A change of one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The entry that is changed.
    pub key: Key,
    /// Revision of the change. All changes of a transaction have the same one.
    pub revision: Revision,
    /// The entry before the change; `None` if the key did not exist.
    pub before: Option<Entry>,
    /// The entry after the change; `None` if the change deletes it.
    pub after: Option<Entry>,
}

impl Change {
    fn bytes(&self) -> usize {
        let value = |entry: &Option<Entry>| entry.as_ref().map_or(0, |entry| entry.value.len());
        self.key.len().saturating_add(value(&self.before)).saturating_add(value(&self.after))
    }
}

#[derive(Debug, Clone, Copy)]
struct LeaseTime {
    /// How long the lease lasts after a renewal.
    length: Duration,
    /// When the lease ends unless it is renewed.
    end: Duration,
}

/// A point to which [`State::roll_back`] returns.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    changes: u64,
    revision: Revision,
    leases: BTreeMap<Lease, LeaseTime>,
}

/// Contents of a store: entries, leases, and the latest changes.
#[derive(Debug, Clone)]
pub struct State {
    revision: Revision,
    entries: BTreeMap<Key, Entry>,
    /// Bytes of all keys and values.
    bytes: usize,
    /// Maximum of `bytes`.
    capacity: usize,
    is_full: bool,
    leases: BTreeMap<Lease, LeaseTime>,
    next_lease: i64,
    shortest_lease: Duration,
    history: VecDeque<Change>,
    history_bytes: usize,
    /// Number of changes that were forgotten: the number of the first one in `history`.
    forgotten: u64,
    /// Revision of the last change that was forgotten.
    compacted: Revision,
}

impl State {
    /// Returns a state without entries at this revision, which has no changes up to it. It refuses to hold
    /// keys and values of more than `capacity` bytes, and grants no shorter lease than `shortest_lease`.
    pub fn new(revision: Revision, capacity: usize, shortest_lease: Duration) -> Self {
        Self {
            revision,
            entries: BTreeMap::new(),
            bytes: 0,
            capacity,
            is_full: false,
            leases: BTreeMap::new(),
            next_lease: 1,
            shortest_lease,
            history: VecDeque::new(),
            history_bytes: 0,
            forgotten: 0,
            compacted: revision,
        }
    }

    /// Adds entries that exist from the beginning, without a change and without regard to the capacity.
    pub fn load(&mut self, entries: impl IntoIterator<Item = Entry>) {
        for entry in entries {
            self.set(entry.key.clone(), Some(entry));
        }
    }

    /// Revision of the last change.
    pub const fn revision(&self) -> Revision {
        self.revision
    }

    /// All entries, in the order of their keys.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    /// Bytes of all keys and values.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Makes the state refuse transactions that write, and ends of leases with entries, until this is undone.
    pub const fn set_full(&mut self, is_full: bool) {
        self.is_full = is_full;
    }

    /// Whether the state refuses to write: because it was made full, or because there is no revision left.
    pub const fn is_full(&self) -> bool {
        self.is_full || self.revision.0 == u64::MAX
    }

    /// Executes a request of the user with these watches at the time `now`, which has any beginning.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::Refused`] if the state is full, if the request names a lease that does not exist
    /// for a new entry, or if there are too many leases or watches. Nothing is changed then.
    pub fn execute(
        &mut self,
        request: &Request,
        watches: &mut Watches,
        now: Duration,
    ) -> Result<Outcome, StoreError> {
        match request {
            Request::Commit(transaction) => self.commit(transaction),
            Request::Read(range) => Ok(self.read(range)),
            Request::NewLease(length) => self.grant(*length, now),
            Request::Renew(lease) => Ok(self.leases.get_mut(lease).map_or(Outcome::Ended, |time| {
                time.end = now.saturating_add(time.length);
                Outcome::Renewed
            })),
            Request::Revoke(lease) => self.end_lease(*lease).map(|()| Outcome::Ended),
            Request::Watch { watch, prefix, from } => {
                watches.add(*watch, prefix, self.first_change(*from), *from)
            }
            Request::Unwatch(watch) => {
                watches.remove(*watch);
                Ok(Outcome::Ended)
            }
        }
    }

    fn commit(&mut self, transaction: &Transaction) -> Result<Outcome, StoreError> {
        if !transaction.comparisons.iter().all(|comparison| self.holds(comparison)) {
            return Ok(Outcome::Refused(self.revision));
        }
        let mut bytes = self.bytes;
        let mut is_change = false;
        for write in &transaction.writes {
            let existing = self.entries.get(write.key());
            is_change |= existing.is_some() || matches!(write, Write::Put { .. });
            bytes = bytes.saturating_sub(existing.map_or(0, entry_bytes));
            if let Write::Put { key, value, lease } = write {
                if lease.is_some_and(|lease| !self.leases.contains_key(&lease)) {
                    return Err(StoreError::Refused);
                }
                bytes = bytes.saturating_add(key.len()).saturating_add(value.len());
            }
        }
        if !is_change {
            return Ok(Outcome::Committed(self.revision));
        }
        if self.is_full() || (bytes > self.capacity && bytes > self.bytes) {
            return Err(StoreError::Refused);
        }
        let revision = self.next_revision();
        for write in &transaction.writes {
            match write {
                Write::Put { key, value, lease } => {
                    let created = self.entries.get(key).map_or(revision, |entry| entry.created);
                    let (key, value, lease) = (key.clone(), value.clone(), *lease);
                    self.change(
                        key.clone(),
                        Some(Entry { key, value, created, changed: revision, lease }),
                        revision,
                    );
                }
                Write::Delete(key) => self.change(key.clone(), None, revision),
            }
        }
        Ok(Outcome::Committed(revision))
    }

    fn holds(&self, comparison: &Comparison) -> bool {
        let entry = self.entries.get(comparison.key());
        match comparison {
            Comparison::Created(_, expected) => {
                entry.map_or(Revision::ABSENT, |entry| entry.created) == *expected
            }
            Comparison::Changed(_, expected) => {
                entry.map_or(Revision::ABSENT, |entry| entry.changed) == *expected
            }
        }
    }

    fn read(&self, range: &Range) -> Outcome {
        let first = match &range.after {
            Some(after) if *after >= range.prefix => Bound::Excluded(after.clone()),
            _ => Bound::Included(range.prefix.clone()),
        };
        let mut matching = self
            .entries
            .range((first, Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(&range.prefix))
            .map(|(_, entry)| entry.clone());
        let entries: Vec<Entry> = matching.by_ref().take(range.limit).collect();
        Outcome::Entries { entries, more: matching.next().is_some(), revision: self.revision }
    }

    fn grant(&mut self, length: Duration, now: Duration) -> Result<Outcome, StoreError> {
        let next = self.next_lease.checked_add(1).filter(|_| self.leases.len() < MAX_LEASES);
        let next = next.ok_or(StoreError::Refused)?;
        let lease = Lease(self.next_lease);
        let length = length.max(self.shortest_lease);
        self.leases.insert(lease, LeaseTime { length, end: now.saturating_add(length) });
        self.next_lease = next;
        Ok(Outcome::LeaseGranted(lease))
    }

    /// Ends the leases whose time is over, in the order of their ends. If the state is full, leases with
    /// entries stay.
    pub fn expire(&mut self, now: Duration) {
        let mut over: Vec<(Duration, Lease)> = self
            .leases
            .iter()
            .filter(|(_, time)| time.end <= now)
            .map(|(lease, time)| (time.end, *lease))
            .collect();
        over.sort_unstable();
        for (_, lease) in over {
            // A lease that a full state keeps is tried again at the next call.
            let _ = self.end_lease(lease);
        }
    }

    /// When the next lease ends.
    pub fn next_expiry(&self) -> Option<Duration> {
        self.leases.values().map(|time| time.end).min()
    }

    /// Lets all leases last for their whole time again.
    pub fn renew_all(&mut self, now: Duration) {
        for time in self.leases.values_mut() {
            time.end = now.saturating_add(time.length);
        }
    }

    /// Ends a lease, and deletes its entries at one revision.
    fn end_lease(&mut self, lease: Lease) -> Result<(), StoreError> {
        self.delete_bound(|bound| bound == lease)?;
        self.leases.remove(&lease);
        Ok(())
    }

    /// Deletes all entries that are bound to a lease at one revision, because the leases of a former process
    /// have ended.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::Refused`] if the state is full.
    pub fn end_former_leases(&mut self) -> Result<(), StoreError> {
        self.delete_bound(|_| true)
    }

    fn delete_bound(&mut self, ends: impl Fn(Lease) -> bool) -> Result<(), StoreError> {
        let bound = self.entries.values().filter(|entry| entry.lease.is_some_and(&ends));
        let keys: Vec<Key> = bound.map(|entry| entry.key.clone()).collect();
        if keys.is_empty() {
            return Ok(());
        }
        if self.is_full() {
            return Err(StoreError::Refused);
        }
        let revision = self.next_revision();
        for key in keys {
            self.change(key, None, revision);
        }
        Ok(())
    }

    /// The revision of the next change, for a state that is not full.
    const fn next_revision(&self) -> Revision {
        Revision(self.revision.0.saturating_add(1))
    }

    fn change(&mut self, key: Key, after: Option<Entry>, revision: Revision) {
        let before = self.set(key.clone(), after.clone());
        if before.is_some() || after.is_some() {
            self.revision = revision;
            let change = Change { key, revision, before, after };
            self.history_bytes = self.history_bytes.saturating_add(change.bytes());
            self.history.push_back(change);
        }
    }

    /// Sets or deletes an entry, and returns the former one.
    fn set(&mut self, key: Key, entry: Option<Entry>) -> Option<Entry> {
        self.bytes = self.bytes.saturating_add(entry.as_ref().map_or(0, entry_bytes));
        let before = match entry {
            Some(entry) => self.entries.insert(key, entry),
            None => self.entries.remove(&key),
        };
        self.bytes = self.bytes.saturating_sub(before.as_ref().map_or(0, entry_bytes));
        before
    }

    /// Number of changes so far, counted from the first one since [`State::new`].
    pub fn changes(&self) -> u64 {
        self.forgotten.saturating_add(self.history.len() as u64)
    }

    /// The change with this number, counted from 0; `None` if it is forgotten or has not been made.
    pub fn change_at(&self, number: u64) -> Option<&Change> {
        self.history.get(usize::try_from(number.checked_sub(self.forgotten)?).ok()?)
    }

    /// Number of the first change at this revision or after it; `None` if changes from there on are
    /// forgotten.
    fn first_change(&self, from: Revision) -> Option<u64> {
        if from <= self.compacted && self.compacted > Revision::ABSENT {
            return None;
        }
        let before = self.history.partition_point(|change| change.revision < from);
        Some(self.forgotten.saturating_add(before as u64))
    }

    /// Forgets the oldest changes, beyond the number and bytes that a state keeps. The changes of one
    /// revision are forgotten together.
    pub fn trim(&mut self) {
        while self.history.len() > HISTORY || self.history_bytes > HISTORY_BYTES {
            let Some(first) = self.history.front().map(|change| change.revision) else { return };
            self.forget(first);
        }
    }

    /// Forgets the changes up to this revision, which is at most that of the last change.
    pub fn forget(&mut self, last: Revision) {
        while let Some(change) = self.history.pop_front_if(|change| change.revision <= last) {
            self.history_bytes = self.history_bytes.saturating_sub(change.bytes());
            self.forgotten = self.forgotten.saturating_add(1);
            self.compacted = change.revision;
        }
    }

    /// The point to which [`roll_back`](Self::roll_back) returns, as long as no later change is forgotten.
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint { changes: self.changes(), revision: self.revision, leases: self.leases.clone() }
    }

    /// Undoes all changes since the checkpoint, and what happened to leases. Identifiers of leases are not
    /// granted again.
    pub fn roll_back(&mut self, checkpoint: Checkpoint) {
        while self.changes() > checkpoint.changes {
            let Some(change) = self.history.pop_back() else { break };
            self.history_bytes = self.history_bytes.saturating_sub(change.bytes());
            self.set(change.key, change.before);
        }
        self.revision = checkpoint.revision;
        self.leases = checkpoint.leases;
    }
}

fn entry_bytes(entry: &Entry) -> usize {
    entry.key.len().saturating_add(entry.value.len())
}
