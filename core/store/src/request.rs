//! Requests to a store, among them transactions, their completions, and the events of watches.

use crate::{Entry, Key, MAX_KEY, MAX_VALUE, Revision};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

/// Maximum number of entries of one [`Range`].
pub const MAX_RANGE: usize = 1_000;
/// Maximum number of comparisons, and of writes, of one transaction. etcd's default limit is 128.
pub const MAX_WRITES: usize = 96;
/// Maximum number of requests of one user that are pending: submitted, and their completion not yet taken.
pub const MAX_PENDING: usize = 1_024;
/// Maximum number of watches of one user.
pub const MAX_WATCHES: usize = 64;

/// Names a request until it is completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Names a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchId(pub u64);

/// A lease: entries that are bound to it are deleted when it is not renewed in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lease(pub i64);

/// A request to a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Executes a transaction. Completed with [`Outcome::Committed`] or [`Outcome::Refused`].
    Commit(Transaction),
    /// Reads entries in the order of their keys. Completed with [`Outcome::Entries`].
    Read(Range),
    /// Grants a lease that lasts this long after each renewal, in whole seconds; at least as long as the
    /// shortest lease of the store. Completed with [`Outcome::LeaseGranted`].
    NewLease(Duration),
    /// Renews a lease. Completed with [`Outcome::Renewed`] or [`Outcome::Ended`].
    Renew(Lease),
    /// Ends a lease, and deletes its entries. Completed with [`Outcome::Ended`].
    Revoke(Lease),
    /// Reports the changes of keys that begin with the prefix, from this revision on, as [`WatchEvent`]s.
    /// Completed with [`Outcome::Watching`], or with [`StoreError::Refused`] if a watch has this name or the
    /// user has [`MAX_WATCHES`].
    Watch {
        /// Name of the watch, unique among those of this user.
        watch: WatchId,
        /// First bytes of the keys.
        prefix: Key,
        /// First revision of interest. If the store no longer has all events from there on, the first event
        /// is [`WatchEvent::Gap`].
        from: Revision,
    },
    /// Ends a watch. Completed with [`Outcome::Ended`].
    Unwatch(WatchId),
}

impl Request {
    /// Whether the request keeps the limits of every store. [`Store::submit`](crate::Store::submit) returns
    /// other requests.
    ///
    /// Keys have 1 to [`MAX_KEY`] bytes, prefixes at most as many, values at most [`MAX_VALUE`]. A
    /// transaction has at most [`MAX_WRITES`] comparisons and as many writes, and writes no key twice. A
    /// range asks for 1 to [`MAX_RANGE`] entries. A lease lasts at least one second, and whole seconds.
    pub fn is_within_limits(&self) -> bool {
        match self {
            Self::Commit(transaction) => transaction.is_within_limits(),
            Self::Read(Range { prefix, after, limit }) => {
                prefix.len() <= MAX_KEY
                    && after.as_ref().is_none_or(|after| after.len() <= MAX_KEY)
                    && (1..=MAX_RANGE).contains(limit)
            }
            Self::NewLease(time) => time.as_secs() > 0 && time.subsec_nanos() == 0,
            Self::Watch { prefix, .. } => prefix.len() <= MAX_KEY,
            Self::Renew(_) | Self::Revoke(_) | Self::Unwatch(_) => true,
        }
    }

    /// Bytes of all keys and values in the request.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Commit(Transaction { comparisons, writes }) => {
                let compared = comparisons.iter().map(|comparison| comparison.key().len());
                let written = writes.iter().map(|write| match write {
                    Write::Put { key, value, .. } => key.len().saturating_add(value.len()),
                    Write::Delete(key) => key.len(),
                });
                compared.chain(written).fold(0, usize::saturating_add)
            }
            Self::Read(Range { prefix, after, .. }) => {
                prefix.len().saturating_add(after.as_ref().map_or(0, Vec::len))
            }
            Self::Watch { prefix, .. } => prefix.len(),
            Self::NewLease(_) | Self::Renew(_) | Self::Revoke(_) | Self::Unwatch(_) => 0,
        }
    }
}

/// All comparisons hold and all writes are made at one revision, or nothing is changed. Each key is written
/// at most once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Transaction {
    /// What must hold.
    pub comparisons: Vec<Comparison>,
    /// What is written if all of that holds.
    pub writes: Vec<Write>,
}

impl Transaction {
    fn is_within_limits(&self) -> bool {
        let is_key = |key: &Key| (1..=MAX_KEY).contains(&key.len());
        let mut written = BTreeSet::new();
        self.comparisons.len() <= MAX_WRITES
            && self.writes.len() <= MAX_WRITES
            && self.comparisons.iter().all(|comparison| is_key(comparison.key()))
            && self.writes.iter().all(|write| {
                let is_short = match write {
                    Write::Put { value, .. } => value.len() <= MAX_VALUE,
                    Write::Delete(_) => true,
                };
                is_short && is_key(write.key()) && written.insert(write.key())
            })
    }
}

/// A condition on one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Comparison {
    /// The key was created at this revision; [`Revision::ABSENT`]: it does not exist.
    Created(Key, Revision),
    /// The key was last changed at this revision; [`Revision::ABSENT`]: it does not exist.
    Changed(Key, Revision),
}

impl Comparison {
    /// The key that is compared.
    pub const fn key(&self) -> &Key {
        let (Self::Created(key, _) | Self::Changed(key, _)) = self;
        key
    }
}

/// A change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Sets the value of a key, and the lease with which it ends.
    Put {
        /// Name of the entry.
        key: Key,
        /// At most [`MAX_VALUE`] bytes.
        value: Vec<u8>,
        /// The lease; `None` if the entry stays. If the lease does not exist, the transaction is completed
        /// with [`StoreError::Refused`].
        lease: Option<Lease>,
    },
    /// Deletes a key, if it exists.
    Delete(Key),
}

impl Write {
    /// The key that is written.
    pub const fn key(&self) -> &Key {
        let (Self::Put { key, .. } | Self::Delete(key)) = self;
        key
    }
}

/// Entries whose keys begin with a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// First bytes of the keys.
    pub prefix: Key,
    /// The entries after this key; `None` for all.
    pub after: Option<Key>,
    /// Maximum number of entries, at most [`MAX_RANGE`].
    pub limit: usize,
}

/// The end of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    /// The request.
    pub id: RequestId,
    /// What became of it.
    pub outcome: Result<Outcome, StoreError>,
}

/// Result of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// All comparisons held, and the writes were made at this revision. They survive a failure of the store.
    /// A transaction that changes nothing is committed at the revision of the store.
    Committed(Revision),
    /// A comparison did not hold at this revision. Nothing was written.
    Refused(Revision),
    /// Entries, and whether there are more after the last one.
    Entries {
        /// In the order of their keys.
        entries: Vec<Entry>,
        /// Whether there are more.
        more: bool,
        /// Revision of the store.
        revision: Revision,
    },
    /// A lease was granted.
    LeaseGranted(Lease),
    /// The lease lasts for its whole time again.
    Renewed,
    /// The lease or watch does not exist any more.
    Ended,
    /// The watch has begun.
    Watching,
}

/// Why a request has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreError {
    /// The store did not answer. It may have executed the request, or may execute it later.
    Unavailable,
    /// The store refuses the request: it is full, or its user may not do this. Nothing was changed.
    Refused,
    /// The contents of the store are damaged or of an unknown kind.
    Damaged,
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unavailable => "the store does not answer",
            Self::Refused => "the store refuses the request",
            Self::Damaged => "the store is damaged",
        })
    }
}

impl core::error::Error for StoreError {}

/// A change that a watch reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchEvent {
    /// An entry was put.
    Put(WatchId, Entry),
    /// An entry was deleted at this revision.
    Deleted(WatchId, Key, Revision),
    /// Events are missing, because the store no longer has them. The watch has ended; its user reads the
    /// entries and watches again.
    Gap(WatchId),
}
