//! The claim of a slot at a start: a lease, one transaction, and the records of the former owner.

use crate::StoreKeys;
use alloc::vec::Vec;
use casemate_store::{
    Comparison, Entry, Key, Lease, MAX_RANGE, Outcome, Range, Request, Revision, StoreError, Transaction,
    Write,
};
use core::fmt;
use core::time::Duration;

/// Why a start has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartError {
    /// The store has failed.
    Store(StoreError),
    /// Another process owns the slot.
    Owned,
    /// The store contains something else than expected.
    Unexpected,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Owned => f.write_str("another process uses it"),
            Self::Unexpected => f.write_str("it has entries of another kind"),
        }
    }
}

impl core::error::Error for StartError {}

/// A claimed slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claimed {
    pub(crate) lease: Lease,
    /// Revision at which the owner was entered.
    pub(crate) epoch: Revision,
    /// Number of owners, this one included.
    pub(crate) owner: u64,
    /// The records.
    pub(crate) entries: Vec<Entry>,
}

/// A claim in progress.
#[derive(Debug)]
pub(crate) struct SlotClaim {
    keys: StoreKeys,
    node: Vec<u8>,
    step: Step,
}

#[derive(Debug)]
enum Step {
    Lease,
    /// Reads the number of owners so far.
    Count(Lease),
    Commit {
        lease: Lease,
        owner: u64,
    },
    Records(Claimed),
}

/// What follows a step.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Request(Request),
    Done(Claimed),
}

impl SlotClaim {
    /// Begins with the first request. `node` names the owner, and `lease` is the time of its lease.
    pub(crate) fn begin(keys: StoreKeys, node: Vec<u8>, lease: Duration) -> (Self, Request) {
        (Self { keys, node, step: Step::Lease }, Request::NewLease(lease))
    }

    /// Continues after the completion of the last request.
    pub(crate) fn advance(&mut self, outcome: Result<Outcome, StoreError>) -> Result<Next, StartError> {
        let outcome = outcome.map_err(StartError::Store)?;
        let (step, next) = match (&mut self.step, outcome) {
            (Step::Lease, Outcome::LeaseGranted(lease)) => {
                (Step::Count(lease), Next::Request(Request::Read(self.all(self.keys.takeovers()))))
            }
            (Step::Count(lease), Outcome::Entries { entries, .. }) => {
                let lease = *lease;
                let known = entries.first();
                let (former, changed) = match known {
                    Some(entry) => (count(&entry.value)?, entry.changed),
                    None => (0, Revision::ABSENT),
                };
                let owner = former.checked_add(1).ok_or(StartError::Unexpected)?;
                let transaction = self.transaction(owner, lease, changed);
                let step = Step::Commit { lease, owner };
                (step, Next::Request(Request::Commit(transaction)))
            }
            (Step::Commit { lease, owner }, Outcome::Committed(epoch)) => {
                let claimed = Claimed { lease: *lease, epoch, owner: *owner, entries: Vec::new() };
                (Step::Records(claimed), Next::Request(Request::Read(self.all(self.keys.records()))))
            }
            (Step::Commit { .. }, Outcome::Refused(_)) => return Err(StartError::Owned),
            (Step::Records(claimed), Outcome::Entries { entries, more, .. }) => {
                claimed.entries.extend(entries);
                let after = claimed.entries.last().map(|entry| entry.key.clone()).filter(|_| more);
                let Some(after) = after else { return Ok(Next::Done(claimed.clone())) };
                let range = Range { after: Some(after), ..self.all(self.keys.records()) };
                return Ok(Next::Request(Request::Read(range)));
            }
            _ => return Err(StartError::Unexpected),
        };
        self.step = step;
        Ok(next)
    }

    fn all(&self, prefix: Key) -> Range {
        Range { prefix, after: None, limit: MAX_RANGE }
    }

    /// Enters this owner if there is none, and counts it.
    fn transaction(&self, owner: u64, lease: Lease, counted: Revision) -> Transaction {
        let (slot, takeovers) = (self.keys.owner(), self.keys.takeovers());
        Transaction {
            comparisons: [
                Comparison::Created(slot.clone(), Revision::ABSENT),
                Comparison::Changed(takeovers.clone(), counted),
            ]
            .into(),
            writes: [
                Write::Put { key: slot, value: self.node.clone(), lease: Some(lease) },
                Write::Put { key: takeovers, value: owner.to_be_bytes().into(), lease: None },
            ]
            .into(),
        }
    }
}

fn count(value: &[u8]) -> Result<u64, StartError> {
    value.as_array::<8>().map(|bytes| u64::from_be_bytes(*bytes)).ok_or(StartError::Unexpected)
}
