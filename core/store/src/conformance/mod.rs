//! A suite of tests that every [`Store`] passes, so that users can rely on the same behaviour of all.
//!
//! An implementation gives the suite a [`Subject`], which makes stores and lets time pass, and calls
//! [`check`]. The suite looks at a store through the trait only: it does not see durability, faults, or
//! several users.

mod leases;
mod limits;
mod ranges;
mod transactions;
mod watches;

use crate::{
    Comparison, Entry, Key, Lease, Outcome, Range, Request, RequestId, Revision, Store, StoreError,
    Transaction, WatchEvent, WatchId, Write,
};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

/// The stores under test.
pub trait Subject {
    /// The implementation.
    type Store: Store;

    /// Returns a store that is in order and has no entries. It may have the revision of earlier stores.
    fn fresh(&mut self) -> Self::Store;

    /// Waits until something may have arrived from the store, for at most 100 ms.
    fn step(&mut self, store: &mut Self::Store);

    /// Lets this time pass for leases.
    fn pass(&mut self, store: &mut Self::Store, time: Duration);
}

/// A test of the suite that a store does not pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Name of the test.
    pub test: &'static str,
    /// What the store did, and what was expected.
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.test, self.what)
    }
}

impl core::error::Error for Failure {}

/// Steps to wait for a completion or an event, of 100 ms at most.
const MAX_STEPS: usize = 100;
/// Steps in which nothing must arrive.
const QUIET_STEPS: usize = 3;

type Check = Result<(), String>;

/// Runs all tests of the suite, each with a fresh store, and returns their number.
///
/// # Errors
///
/// Returns the first test that the store does not pass.
pub fn check<S: Subject>(subject: &mut S) -> Result<usize, Failure> {
    let groups = [transactions::tests(), ranges::tests(), leases::tests(), watches::tests(), limits::tests()];
    let mut count = 0_usize;
    for (test, run) in groups.into_iter().flatten() {
        let store = subject.fresh();
        let mut session =
            Session { subject, store, next_id: 0, waiting: BTreeMap::new(), events: Vec::new() };
        run(&mut session).map_err(|what| Failure { test, what })?;
        count = count.saturating_add(1);
    }
    Ok(count)
}

type Tests<S> = Vec<(&'static str, fn(&mut Session<'_, S>) -> Check)>;

/// A user of one store, with helpers that make requests and wait for their completions.
struct Session<'s, S: Subject> {
    subject: &'s mut S,
    store: S::Store,
    next_id: u64,
    /// Completions that have arrived and were not asked for yet.
    waiting: BTreeMap<RequestId, Result<Outcome, StoreError>>,
    /// Events that have arrived and were not asked for yet.
    events: Vec<WatchEvent>,
}

impl<S: Subject> Session<'_, S> {
    /// Submits a request that the store must accept.
    fn submit(&mut self, request: Request) -> Result<RequestId, String> {
        let id = RequestId(self.next_id);
        self.next_id = self.next_id.saturating_add(1);
        match self.store.submit(id, request) {
            Ok(()) => Ok(id),
            Err(request) => Err(format!("the store does not accept {request:?}")),
        }
    }

    fn take_arrived(&mut self) -> Check {
        while let Some(completion) = self.store.next_completion() {
            if completion.id.0 >= self.next_id {
                return Err(format!("a completion of request {}, which was not submitted", completion.id.0));
            }
            if self.waiting.insert(completion.id, completion.outcome).is_some() {
                return Err(format!("two completions of request {}", completion.id.0));
            }
        }
        while let Some(event) = self.store.next_event() {
            self.events.push(event);
        }
        Ok(())
    }

    /// Waits for the completion of a request.
    fn wait(&mut self, id: RequestId) -> Result<Result<Outcome, StoreError>, String> {
        for _ in 0..MAX_STEPS {
            self.take_arrived()?;
            if let Some(outcome) = self.waiting.remove(&id) {
                return Ok(outcome);
            }
            self.subject.step(&mut self.store);
        }
        Err(format!("no completion of request {} within {MAX_STEPS} steps", id.0))
    }

    /// Waits until this number of events has arrived, and takes them all.
    fn wait_for_events(&mut self, count: usize) -> Result<Vec<WatchEvent>, String> {
        for _ in 0..MAX_STEPS {
            self.take_arrived()?;
            if self.events.len() >= count {
                return Ok(core::mem::take(&mut self.events));
            }
            self.subject.step(&mut self.store);
        }
        Err(format!("{} of {count} events within {MAX_STEPS} steps: {:?}", self.events.len(), self.events))
    }

    /// Takes exactly these events, and sees that no more arrive.
    fn expect_events(&mut self, expected: &[WatchEvent]) -> Check {
        let mut events = self.wait_for_events(expected.len())?;
        for _ in 0..QUIET_STEPS {
            self.subject.step(&mut self.store);
            self.take_arrived()?;
        }
        events.append(&mut self.events);
        same(&events.as_slice(), &expected)
    }

    /// Executes a request that has a result.
    fn run(&mut self, request: Request) -> Result<Outcome, String> {
        let id = self.submit(request.clone())?;
        self.wait(id)?.map_err(|error| format!("{request:?}: {error}"))
    }

    fn commit(&mut self, comparisons: &[Comparison], writes: &[Write]) -> Result<Outcome, String> {
        self.run(commit(comparisons, writes))
    }

    /// Commits writes without a condition, and returns their revision.
    fn write(&mut self, writes: &[Write]) -> Result<Revision, String> {
        match self.commit(&[], writes)? {
            Outcome::Committed(revision) => Ok(revision),
            other => Err(format!("{other:?} where Committed was expected")),
        }
    }

    /// Reads all entries below a prefix, of which there must be at most 1,000.
    fn read(&mut self, prefix: &str) -> Result<(Vec<Entry>, Revision), String> {
        match self.run(range(prefix, None, crate::MAX_RANGE))? {
            Outcome::Entries { entries, more: false, revision } => Ok((entries, revision)),
            other => Err(format!("{other:?} where Entries without more were expected")),
        }
    }

    fn grant(&mut self, time: Duration) -> Result<Lease, String> {
        match self.run(Request::NewLease(time))? {
            Outcome::LeaseGranted(lease) => Ok(lease),
            other => Err(format!("{other:?} where LeaseGranted was expected")),
        }
    }

    fn watch(&mut self, watch: u64, prefix: &str, from: Revision) -> Check {
        let prefix = key(prefix);
        let outcome = self.run(Request::Watch { watch: WatchId(watch), prefix, from })?;
        same(&outcome, &Outcome::Watching)
    }
}

fn key(text: &str) -> Key {
    text.as_bytes().to_vec()
}

fn put(name: &str, value: &str) -> Write {
    Write::Put { key: key(name), value: value.as_bytes().to_vec(), lease: None }
}

fn put_with(name: &str, value: &str, lease: Lease) -> Write {
    Write::Put { key: key(name), value: value.as_bytes().to_vec(), lease: Some(lease) }
}

fn delete(name: &str) -> Write {
    Write::Delete(key(name))
}

fn created(name: &str, at: Revision) -> Comparison {
    Comparison::Created(key(name), at)
}

fn changed(name: &str, at: Revision) -> Comparison {
    Comparison::Changed(key(name), at)
}

fn commit(comparisons: &[Comparison], writes: &[Write]) -> Request {
    Request::Commit(Transaction { comparisons: comparisons.to_vec(), writes: writes.to_vec() })
}

fn range(prefix: &str, after: Option<&str>, limit: usize) -> Request {
    Request::Read(Range { prefix: key(prefix), after: after.map(key), limit })
}

fn entry(name: &str, value: &str, [created, changed]: [Revision; 2], lease: Option<Lease>) -> Entry {
    Entry { key: key(name), value: value.as_bytes().to_vec(), created, changed, lease }
}

fn next(revision: Revision) -> Revision {
    Revision(revision.0.saturating_add(1))
}

fn same<T: PartialEq + fmt::Debug>(actual: &T, expected: &T) -> Check {
    if actual == expected {
        return Ok(());
    }
    Err(format!("{actual:?} where {expected:?} was expected"))
}

fn holds(condition: bool, expected: &str) -> Check {
    if condition { Ok(()) } else { Err(format!("{expected} was expected")) }
}

/// Bytes of this length.
fn bytes(len: usize) -> Vec<u8> {
    vec![b'x'; len]
}
