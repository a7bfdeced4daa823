//! How an owner keeps its slot, and why a start fails.

use casemate_store::StoreError;
use core::fmt;
use core::time::Duration;

/// The lease of a single machine: its store ends it when another process opens the store.
const SINGLE_LEASE: Duration = Duration::from_secs(10 * 365 * 86_400);

/// How an owner keeps its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tenure {
    /// Until another process of this machine opens the store, which one process at a time can have open.
    SingleMachine,
    /// For the time of a lease after each renewal. Other nodes wait for its end.
    Cell {
        /// Time of the lease, in whole seconds; at least the shortest lease of the store.
        lease: Duration,
    },
}

impl Tenure {
    pub(crate) const fn lease(self) -> Duration {
        match self {
            Self::SingleMachine => SINGLE_LEASE,
            Self::Cell { lease } => lease,
        }
    }
}

/// Why a start has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartError {
    /// The store has failed.
    Store(StoreError),
    /// Another process owns the slot.
    Owned,
    /// The store contains something else than expected.
    Unexpected,
    /// A record was written by a later owner than this one: the store is an older copy.
    LaterOwner,
    /// The other nodes of the cell use another data key.
    DataKey,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Owned => f.write_str("another process uses it"),
            Self::Unexpected => f.write_str("it has entries of another kind"),
            Self::LaterOwner => f.write_str("it has records of a later owner, so it was set back"),
            Self::DataKey => f.write_str("its records are encrypted with another data key"),
        }
    }
}

impl core::error::Error for StartError {}
