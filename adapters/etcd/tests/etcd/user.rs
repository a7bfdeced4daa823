//! A user of a store that waits for completions and events.

use casemate_etcd::{Config, Endpoint, EtcdStore};
use casemate_store::{
    Comparison, Completion, Entry, Lease, Outcome, Range, Request, RequestId, Revision, Store, StoreError,
    Transaction, WatchEvent, WatchId, Write,
};
use casemate_test_support::etcd::Cluster;
use casemate_test_support::eventually;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Longest wait for a completion or event, for a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Wakes the user of a store.
#[derive(Default)]
pub(crate) struct Signal {
    is_set: Mutex<bool>,
    set: Condvar,
}

impl Signal {
    /// Waits for the signal, for at most `limit`.
    pub(crate) fn wait(&self, limit: Duration) {
        let is_set = self.is_set.lock().unwrap();
        let (mut is_set, _) = self.set.wait_timeout_while(is_set, limit, |is_set| !*is_set).unwrap();
        *is_set = false;
    }

    fn set(&self) {
        *self.is_set.lock().unwrap() = true;
        self.set.notify_all();
    }
}

/// Servers of a cluster, beginning with the one with this index.
pub(crate) fn endpoints(cluster: &Cluster, first: usize) -> Vec<Endpoint> {
    cluster.addresses_from(first).into_iter().map(Endpoint::new).collect()
}

/// Opens a store and returns its signal.
pub(crate) fn open(config: Config) -> (EtcdStore, Arc<Signal>) {
    let signal = Arc::new(Signal::default());
    let wake = Arc::clone(&signal);
    (EtcdStore::open(config, Arc::new(move || wake.set())).unwrap(), signal)
}

/// A store with its user.
pub(crate) struct User {
    pub(crate) store: EtcdStore,
    signal: Arc<Signal>,
    next_id: u64,
    arrived: BTreeMap<RequestId, Result<Outcome, StoreError>>,
}

impl User {
    pub(crate) fn new(config: Config) -> Self {
        let (store, signal) = open(config);
        Self { store, signal, next_id: 0, arrived: BTreeMap::new() }
    }

    pub(crate) fn submit(&mut self, request: Request) -> RequestId {
        let id = RequestId(self.next_id);
        self.next_id += 1;
        self.store.submit(id, request).expect("the store accepts the request");
        id
    }

    /// Waits for a completion of any request.
    pub(crate) fn next(&mut self) -> (RequestId, Result<Outcome, StoreError>) {
        let start = Instant::now();
        loop {
            if let Some(arrived) = self.arrived.pop_first() {
                return arrived;
            }
            if let Some(Completion { id, outcome }) = self.store.next_completion() {
                return (id, outcome);
            }
            assert!(start.elapsed() < PATIENCE, "no completion: {:?}", self.store.monitor().last_failure());
            self.signal.wait(Duration::from_millis(100));
        }
    }

    /// Waits for the completion of a request.
    pub(crate) fn wait(&mut self, id: RequestId) -> Result<Outcome, StoreError> {
        let start = Instant::now();
        loop {
            while let Some(completion) = self.store.next_completion() {
                self.arrived.insert(completion.id, completion.outcome);
            }
            if let Some(outcome) = self.arrived.remove(&id) {
                return outcome;
            }
            assert!(start.elapsed() < PATIENCE, "no completion: {:?}", self.store.monitor().last_failure());
            self.signal.wait(Duration::from_millis(100));
        }
    }

    /// Executes a request.
    pub(crate) fn run(&mut self, request: Request) -> Result<Outcome, StoreError> {
        let id = self.submit(request);
        self.wait(id)
    }

    /// Executes a request and returns the time until its completion, too.
    pub(crate) fn timed(&mut self, request: Request) -> (Result<Outcome, StoreError>, Duration) {
        let start = Instant::now();
        let outcome = self.run(request);
        (outcome, start.elapsed())
    }

    /// Writes without a condition, which must succeed.
    pub(crate) fn write(&mut self, writes: &[Write]) -> Revision {
        match self.run(commit(&[], writes)) {
            Ok(Outcome::Committed(revision)) => revision,
            other => panic!("{other:?}: {:?}", self.store.monitor().last_failure()),
        }
    }

    /// Reads up to 1,000 entries, which must succeed.
    pub(crate) fn read(&mut self, prefix: &str) -> Vec<Entry> {
        match self.run(range(prefix)) {
            Ok(Outcome::Entries { entries, .. }) => entries,
            other => panic!("{other:?}: {:?}", self.store.monitor().last_failure()),
        }
    }

    pub(crate) fn grant(&mut self, seconds: u64) -> Lease {
        match self.run(Request::NewLease(Duration::from_secs(seconds))) {
            Ok(Outcome::LeaseGranted(lease)) => lease,
            other => panic!("{other:?}: {:?}", self.store.monitor().last_failure()),
        }
    }

    pub(crate) fn watch(&mut self, id: u64, prefix: &str, from: Revision) -> Result<Outcome, StoreError> {
        self.run(Request::Watch { watch: WatchId(id), prefix: prefix.into(), from })
    }

    /// The next event; `None` after `limit`.
    pub(crate) fn event_within(&mut self, limit: Duration) -> Option<WatchEvent> {
        let start = Instant::now();
        loop {
            if let Some(event) = self.store.next_event() {
                return Some(event);
            }
            let left = limit.checked_sub(start.elapsed())?;
            self.signal.wait(left.min(Duration::from_millis(100)));
        }
    }

    /// Drops the store and waits for the end of its threads, which have the other handles of the signal.
    pub(crate) fn drop_and_wait(self) {
        let Self { store, signal, .. } = self;
        drop(store);
        eventually("the end of all threads", || (Arc::strong_count(&signal) == 1).then_some(()));
    }

    pub(crate) fn event(&mut self) -> WatchEvent {
        let event = self.event_within(PATIENCE);
        event.unwrap_or_else(|| panic!("no event: {:?}", self.store.monitor().last_failure()))
    }
}

pub(crate) fn put(key: &str, value: &str) -> Write {
    Write::Put { key: key.into(), value: value.into(), lease: None }
}

pub(crate) fn put_with(key: &str, value: &str, lease: Lease) -> Write {
    Write::Put { key: key.into(), value: value.into(), lease: Some(lease) }
}

pub(crate) fn commit(comparisons: &[Comparison], writes: &[Write]) -> Request {
    Request::Commit(Transaction { comparisons: comparisons.into(), writes: writes.into() })
}

pub(crate) fn range(prefix: &str) -> Request {
    Request::Read(Range { prefix: prefix.into(), after: None, limit: 1_000 })
}

/// User and system time in `/proc/PID/stat`, in clock ticks (proc(5)).
pub(crate) fn ticks_in(stat: &str) -> u64 {
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    fields.split(' ').skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum()
}
