//! The store of a cell on a cluster of etcd 3 servers (docs/decisions/0142-etcd.md).
//!
//! [`EtcdStore`] speaks etcd's JSON gateway over HTTP/1.1 and TLS. Its calls do not block: one thread
//! executes requests in the order of their submission, and consecutive transactions together. New leases and
//! renewals have a thread and a connection of their own, and so has each watch.
//!
//! Each request is completed within a deadline. A transaction is sent once: if its outcome is unknown, its
//! user learns [`StoreError::Unavailable`](casemate_store::StoreError) and reads what became of it. When
//! the cluster has lost data or is another one, all requests fail as damaged until the store is opened
//! again.
#![forbid(unsafe_code)]

mod client;
mod cluster;
mod config;
mod connection;
mod exchange;
mod message;
mod schedule;
mod shared;
mod watcher;
mod watches;

pub use config::{Config, ConfigError, Endpoint, Login, MAX_ENDPOINTS, MAX_PREFIX, Seen, Tls};
pub use shared::Wake;

use casemate_store::{Completion, Request, RequestId, Store, WatchEvent};
use client::Client;
use cluster::Cluster;
use schedule::Lane;
use shared::Shared;
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// Called by each thread at its start. An error ends the thread, and the store is not opened.
pub type ThreadEntry = fn() -> Result<(), String>;

/// etcd grants no shorter lease: one and a half of its default election timeout of one second, in whole
/// seconds.
const SHORTEST_LEASE: Duration = Duration::from_secs(2);

/// The store of a cell on etcd.
pub struct EtcdStore {
    shared: Arc<Shared>,
}

impl fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdStore")
            .field("prefix", &self.shared.cluster.config.prefix)
            .finish_non_exhaustive()
    }
}

impl EtcdStore {
    /// Starts the threads of a store. They connect with the first request.
    ///
    /// # Errors
    ///
    /// Returns an error if a value of the configuration is invalid, or if a thread cannot be started.
    pub fn open(config: Config, wake: Wake) -> Result<Self, ConfigError> {
        config.check()?;
        let store = Self { shared: Arc::new(Shared::new(Cluster::new(config), wake)) };
        let (entered, results) = channel();
        for (name, lane) in [("etcd-data", Lane::Data), ("etcd-leases", Lane::Leases)] {
            let entered = entered.clone();
            let report = move |result| drop(entered.send(result));
            store.start(name, report, move |shared| work(shared, lane)).map_err(ConfigError::Thread)?;
        }
        drop(entered);
        results.iter().collect::<Result<(), String>>().map_err(ConfigError::Thread)?;
        Ok(store)
    }

    /// Starts a thread. `report` gets the result of its entry.
    fn start(
        &self,
        name: &str,
        report: impl FnOnce(Result<(), String>) + Send + 'static,
        run: impl FnOnce(&Shared) + Send + 'static,
    ) -> Result<(), String> {
        let shared = Arc::clone(&self.shared);
        let thread = move || {
            let result = (shared.cluster.config.thread_entry)();
            let may_run = result.is_ok();
            report(result);
            if may_run {
                run(&shared);
            }
        };
        let started = thread::Builder::new().name(name.into()).spawn(thread);
        started.map(|_| ()).map_err(|error| error.to_string())
    }

    /// What can be asked while another part of the program has the store.
    pub fn monitor(&self) -> EtcdMonitor {
        EtcdMonitor(Arc::clone(&self.shared))
    }
}

/// State of a store that another part of the program has.
#[derive(Clone)]
pub struct EtcdMonitor(Arc<Shared>);

impl fmt::Debug for EtcdMonitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EtcdMonitor")
    }
}

impl EtcdMonitor {
    /// What the store has seen of the cluster; `None` before the first response. A later process that is
    /// given this in its configuration notices a cluster that was set back in the meantime.
    pub fn seen(&self) -> Option<Seen> {
        self.0.cluster.seen()
    }

    /// Why the store is damaged ([`Damaged`](casemate_store::StoreError::Damaged)), if it is: what the
    /// cluster has said, and what was expected.
    pub fn damage(&self) -> Option<String> {
        self.last_failure().filter(|_| self.0.cluster.is_damaged())
    }

    /// Text of the last failure of a server or request, for a log: the server or path, the cause, and what
    /// was expected. It may be older than the last success.
    pub fn last_failure(&self) -> Option<String> {
        self.0.cluster.failure()
    }
}

/// Executes the requests of a lane.
fn work(shared: &Shared, lane: Lane) {
    let mut client = Client::new(&shared.cluster, shared);
    while let Some(jobs) = shared.next_jobs(lane) {
        shared.finish(client.execute(jobs));
    }
}

impl Store for EtcdStore {
    fn submit(&mut self, id: RequestId, request: Request) -> Result<(), Request> {
        let Some(number) = self.shared.submit(id, request)? else { return Ok(()) };
        let shared = Arc::clone(&self.shared);
        let report = move |result: Result<(), String>| {
            if let Err(why) = result {
                shared.refuse_watch(number, &why);
            }
        };
        let started = self.start("etcd-watch", report, move |shared| watcher::run(shared, number));
        if let Err(why) = started {
            self.shared.refuse_watch(number, &why);
        }
        Ok(())
    }

    fn next_completion(&mut self) -> Option<Completion> {
        self.shared.next_completion()
    }

    fn next_event(&mut self) -> Option<WatchEvent> {
        self.shared.next_event()
    }

    fn shortest_lease(&self) -> Duration {
        SHORTEST_LEASE
    }

    fn identity(&self) -> Option<u64> {
        self.shared.cluster.seen().map(|seen| seen.cluster)
    }
}

impl Drop for EtcdStore {
    /// Ends the threads without waiting for them.
    fn drop(&mut self) {
        self.shared.close();
    }
}
