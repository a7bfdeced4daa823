//! A store for state that outlives a gateway, as its users see it: transactions that compare revisions,
//! leases, ranges and watches (docs/decisions/0140-cells.md).
//!
//! A [`Store`] does no I/O in a call: a request is submitted and its completion is taken later, so that
//! nothing waits for a disk or a server. The model is that of etcd 3. Every change of the store has a
//! revision, higher than all before. An entry knows the revision at which its key was created and the one at
//! which it was last changed.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

extern crate alloc;
#[cfg(test)]
extern crate std;

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod memory;
mod request;
mod state;
mod watches;

pub use memory::{Link, MemoryHub, MemoryStore, Snapshot};
pub use request::{
    Comparison, Completion, Lease, MAX_PENDING, MAX_RANGE, MAX_WATCHES, MAX_WRITES, Outcome, Range, Request,
    RequestId, StoreError, Transaction, WatchEvent, WatchId, Write,
};
pub use state::{Change, Checkpoint, State};
pub use watches::Watches;

use alloc::vec::Vec;
use core::time::Duration;

/// Name of an entry: bytes without structure for the store, compared byte by byte. At most [`MAX_KEY`] bytes.
pub type Key = Vec<u8>;
/// Longest key in bytes.
pub const MAX_KEY: usize = 256;
/// Longest value in bytes.
pub const MAX_VALUE: usize = 64 << 10;

/// Position in the history of a store. 0 stands for a key that does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(pub u64);

impl Revision {
    /// Revision of a key that does not exist.
    pub const ABSENT: Self = Self(0);
}

/// An entry of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Name of the entry.
    pub key: Key,
    /// At most [`MAX_VALUE`] bytes.
    pub value: Vec<u8>,
    /// Revision at which the key was created. A key that is deleted and put again has another one.
    pub created: Revision,
    /// Revision at which the entry was last put.
    pub changed: Revision,
    /// The lease with which the entry ends.
    pub lease: Option<Lease>,
}

/// A store. One user has it; its requests are executed in the order in which they were submitted, and
/// completed in any order. A request without an answer ([`StoreError::Unavailable`]) may be executed later,
/// behind any that follow it.
pub trait Store {
    /// Queues a request. `id` names it in its completion, and must be unique among the pending requests.
    ///
    /// # Errors
    ///
    /// Returns the request if [`MAX_PENDING`] requests are pending or one with this `id` is, if the request
    /// exceeds a limit ([`Request::is_within_limits`]), or if the pending requests together have more bytes
    /// than the store keeps. Nothing is queued then.
    fn submit(&mut self, id: RequestId, request: Request) -> Result<(), Request>;

    /// Takes the next completion, in the order in which they arrived.
    fn next_completion(&mut self) -> Option<Completion>;

    /// Takes the next event of a watch. Events of one watch are in the order of their revisions.
    fn next_event(&mut self) -> Option<WatchEvent>;

    /// Shortest lease that the store grants.
    fn shortest_lease(&self) -> Duration;

    /// Identifies the contents, after the first completion: contents that were restored from a copy may have
    /// another identity than those that were copied. `None` if the store has none.
    fn identity(&self) -> Option<u64> {
        None
    }
}

impl<S: Store + ?Sized> Store for alloc::boxed::Box<S> {
    fn submit(&mut self, id: RequestId, request: Request) -> Result<(), Request> {
        (**self).submit(id, request)
    }

    fn next_completion(&mut self) -> Option<Completion> {
        (**self).next_completion()
    }

    fn next_event(&mut self) -> Option<WatchEvent> {
        (**self).next_event()
    }

    fn shortest_lease(&self) -> Duration {
        (**self).shortest_lease()
    }

    fn identity(&self) -> Option<u64> {
        (**self).identity()
    }
}
