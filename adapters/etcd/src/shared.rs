//! What the user of a store and its threads share: requests that are pending, completions, and watches.

use crate::client::Observer;
use crate::cluster::Cluster;
use crate::schedule::{Job, Lane, Schedule};
use crate::watches::Watches;
use casemate_store::{Completion, MAX_PENDING, Outcome, Request, RequestId, StoreError, WatchEvent};
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Called when the user can take completions or events, by a thread of the store or by a call of the user. It
/// must not block, and must not call the store.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// Bytes of keys and values that pending requests may have.
const MAX_PENDING_BYTES: usize = 64 << 20;

/// Lock order: `state`, then the status of `cluster`.
pub(crate) struct Shared {
    pub(crate) cluster: Cluster,
    state: Mutex<State>,
    /// Signalled for requests that a thread of the lane can execute.
    data_work: Condvar,
    lease_work: Condvar,
    wake: Wake,
}

/// Requests, completions and watches.
#[derive(Default)]
pub(crate) struct State {
    schedule: Schedule,
    /// Submitted requests whose completion is not taken.
    pending: BTreeSet<RequestId>,
    /// Requests that wait or are executed, in bytes of keys and values.
    pending_bytes: usize,
    pub(crate) completions: VecDeque<Completion>,
    pub(crate) watches: Watches,
}

impl State {
    pub(crate) fn complete(&mut self, id: RequestId, outcome: Result<Outcome, StoreError>) {
        self.completions.push_back(Completion { id, outcome });
    }
}

impl Shared {
    pub(crate) fn new(cluster: Cluster, wake: Wake) -> Self {
        Self { cluster, state: Mutex::default(), data_work: Condvar::new(), lease_work: Condvar::new(), wake }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn wake(&self) {
        (self.wake)();
    }

    /// Queues a request, or returns it if it exceeds a limit. Returns the number of a watch, which needs a
    /// thread.
    pub(crate) fn submit(&self, id: RequestId, request: Request) -> Result<Option<u64>, Request> {
        let mut state = self.state();
        let size = request.bytes();
        // A single request is never too long: etcd has a limit of its own.
        let has_room =
            state.pending_bytes == 0 || state.pending_bytes.saturating_add(size) <= MAX_PENDING_BYTES;
        let is_free = state.pending.len() < MAX_PENDING && !state.pending.contains(&id);
        if !has_room || !is_free || !request.is_within_limits() {
            return Err(request);
        }
        state.pending.insert(id);
        let deadline = Instant::now() + self.cluster.config.deadline;
        match request {
            Request::Watch { watch, prefix, from } => {
                let number = state.watches.add(watch, prefix, from, (id, deadline));
                if number.is_none() {
                    state.complete(id, Err(StoreError::Refused));
                    drop(state);
                    self.wake();
                }
                return Ok(number);
            }
            Request::Unwatch(watch) => {
                if let Some(waiting) = state.watches.remove(watch) {
                    state.complete(waiting, Ok(Outcome::Ended));
                }
                state.complete(id, Ok(Outcome::Ended));
                drop(state);
                self.wake();
            }
            request => {
                state.pending_bytes = state.pending_bytes.saturating_add(size);
                let work = self.work(Lane::of(&request));
                state.schedule.submit(id, request, deadline);
                work.notify_one();
            }
        }
        Ok(None)
    }

    /// Ends a watch whose thread cannot be started.
    pub(crate) fn refuse_watch(&self, number: u64, why: &str) {
        self.cluster.report(format!("etcd: the thread of a watch cannot be started: {why}"));
        let mut state = self.state();
        if let Some(request) = state.watches.end(number) {
            state.complete(request, Err(StoreError::Refused));
        }
        drop(state);
        self.wake();
    }

    const fn work(&self, lane: Lane) -> &Condvar {
        match lane {
            Lane::Data => &self.data_work,
            Lane::Leases => &self.lease_work,
        }
    }

    pub(crate) fn next_completion(&self) -> Option<Completion> {
        let mut state = self.state();
        let completion = state.completions.pop_front()?;
        state.pending.remove(&completion.id);
        Some(completion)
    }

    pub(crate) fn next_event(&self) -> Option<WatchEvent> {
        self.state().watches.next_event()
    }

    /// Waits for requests of a lane; `None` when the store is dropped.
    pub(crate) fn next_jobs(&self, lane: Lane) -> Option<Vec<Job>> {
        let mut state = self.state();
        while !self.cluster.is_closing() {
            if lane == Lane::Leases {
                state.schedule.renew_kept(Instant::now(), self.cluster.config.deadline);
            }
            let jobs = state.schedule.take(lane);
            if !jobs.is_empty() {
                return Some(jobs);
            }
            let work = self.work(lane);
            state = match state.schedule.renews_at().filter(|_| lane == Lane::Leases) {
                Some(at) => {
                    let time = at.saturating_duration_since(Instant::now());
                    work.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0
                }
                None => work.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
        None
    }

    /// Ends requests that a thread has executed.
    pub(crate) fn finish(&self, ended: Vec<(Job, Result<Outcome, StoreError>)>) {
        let mut state = self.state();
        let mut may_begin = false;
        for (job, outcome) in ended {
            may_begin |= state.schedule.finish(&job, &outcome);
            state.pending_bytes = state.pending_bytes.saturating_sub(job.request.bytes());
            if let Some(id) = job.id {
                state.complete(id, outcome);
            }
        }
        drop(state);
        if may_begin {
            self.data_work.notify_one();
            self.lease_work.notify_one();
        }
        self.wake();
    }

    /// Ends all threads. They may take as long as a connection attempt or the deadline of a request.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        self.cluster.close();
        state.watches.interrupt();
        drop(state);
        for work in [&self.data_work, &self.lease_work] {
            work.notify_all();
        }
    }
}

impl Observer for Shared {
    /// The streams of watches may hang on the same server.
    fn on_change(&self) {
        self.state().watches.interrupt();
    }
}
