//! The thread `file store`: executes requests in memory, writes the changes, and completes the requests.

use crate::SHORTEST_LEASE;
use crate::database::{Contents, Database, OpenFault, WriteFault};
use crate::disk::Disk;
use crate::queues::{Shared, Work};
use casemate_store::{Completion, Request, RequestId, State, StoreError, Watches};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of keys and values that a file may have. They are in memory, too.
const CAPACITY: usize = 256 << 20;
/// Time after which a store that was full tries to write again.
const FULL_RETRY: Duration = Duration::from_secs(1);

/// What the thread works on.
pub(crate) struct Worker<D> {
    shared: Arc<Shared>,
    wake: Box<dyn Fn() + Send>,
    database: Database<D>,
    state: State,
    watches: Watches,
    start: Instant,
    /// When to write again, after the storage was full.
    retry: Option<Duration>,
}

impl<D: Disk> Worker<D> {
    /// Opens the database, and ends the leases of the former process.
    pub(crate) fn open(disk: D, shared: Arc<Shared>, wake: Box<dyn Fn() + Send>) -> Result<Self, OpenFault> {
        let (mut database, Contents { revision, entries }) = Database::open(disk)?;
        let mut state = State::new(revision, CAPACITY, SHORTEST_LEASE);
        state.load(entries);
        // A new state is not full.
        let _ = state.end_former_leases();
        if state.changes() > 0 {
            write(&mut database, &state, 0).map_err(|fault| match fault {
                WriteFault::Full => OpenFault::Io(std::io::ErrorKind::StorageFull.into()),
                WriteFault::Broken(reason) => OpenFault::Io(std::io::Error::other(reason)),
            })?;
        }
        let watches = Watches::default();
        Ok(Self { shared, wake, database, state, watches, start: Instant::now(), retry: None })
    }

    /// Executes requests until the user is gone. After a failure, completes all with
    /// [`StoreError::Unavailable`].
    pub(crate) fn run(mut self) {
        // A defect of the database must not leave requests without completions.
        let end = panic::catch_unwind(AssertUnwindSafe(|| self.execute_until_closed()));
        let reason = match end {
            Ok(Ok(())) => return,
            Ok(Err(reason)) => reason,
            Err(_) => "the thread of the store panicked".into(),
        };
        self.shared.fail(reason);
        (self.wake)();
        while let Work::Execute(requests) = self.shared.next_work(None) {
            let unavailable = |(id, _)| Completion { id, outcome: Err(StoreError::Unavailable) };
            self.shared.complete(requests.into_iter().map(unavailable).collect());
            (self.wake)();
        }
    }

    fn execute_until_closed(&mut self) -> Result<(), String> {
        loop {
            let Work::Execute(requests) = self.shared.next_work(self.next_timeout()) else { return Ok(()) };
            let before = self.state.changes();
            let completions = self.execute_batch(&requests)?;
            let has_completions = !completions.is_empty();
            self.shared.complete(completions);
            let has_events = self.shared.add_events(&mut self.watches, &self.state);
            if has_completions || has_events {
                (self.wake)();
            }
            if self.state.changes() > before {
                self.state.trim();
                let compacted =
                    self.database.compact_if_large(self.state.entries().len(), self.state.bytes());
                if let Err(WriteFault::Broken(reason)) = compacted {
                    return Err(reason);
                }
            }
        }
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Time until a lease ends, or until a full store is tried again.
    fn next_timeout(&self) -> Option<Duration> {
        let at = self.state.next_expiry()?.max(self.retry.unwrap_or_default());
        Some(at.saturating_sub(self.now()))
    }

    fn set_full(&mut self) {
        self.state.set_full(true);
        self.retry = Some(self.now().saturating_add(FULL_RETRY));
    }

    /// Executes requests, and returns their completions when all changes are on the disk.
    fn execute_batch(&mut self, requests: &[(RequestId, Request)]) -> Result<Vec<Completion>, String> {
        let now = self.now();
        if self.retry.is_some_and(|retry| retry <= now) {
            self.retry = None;
            self.state.set_full(false);
        }
        let (checkpoint, watches, first) =
            (self.state.checkpoint(), self.watches.clone(), self.state.changes());
        let completions = self.execute_all(requests, now);
        if self.state.changes() == first {
            return Ok(completions);
        }
        match write(&mut self.database, &self.state, first) {
            Ok(()) => Ok(completions),
            Err(WriteFault::Full) => {
                self.state.roll_back(checkpoint);
                self.watches = watches;
                self.set_full();
                Ok(self.execute_all(requests, now))
            }
            Err(WriteFault::Broken(reason)) => Err(reason),
        }
    }

    fn execute_all(&mut self, requests: &[(RequestId, Request)], now: Duration) -> Vec<Completion> {
        self.state.expire(now);
        let execute = |(id, request): &(RequestId, Request)| Completion {
            id: *id,
            outcome: self.state.execute(request, &mut self.watches, now),
        };
        requests.iter().map(execute).collect()
    }
}

/// Writes the changes of the state from this number on.
fn write<D: Disk>(database: &mut Database<D>, state: &State, first: u64) -> Result<(), WriteFault> {
    let changes = (first..state.changes()).map_while(|number| state.change_at(number));
    database.write(changes, state.revision())
}
