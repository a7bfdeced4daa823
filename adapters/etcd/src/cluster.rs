//! What all threads of a store know about the cluster: which server to use, what was seen of the cluster, and
//! the token of the login.

use crate::config::{Config, Endpoint, Seen};
use crate::message::{Header, Namespace};
use casemate_store::StoreError;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A cluster as the threads of one store see it.
pub(crate) struct Cluster {
    pub(crate) config: Config,
    pub(crate) namespace: Namespace,
    /// Index of the server that is used.
    preferred: AtomicUsize,
    is_closing: AtomicBool,
    status: Mutex<Status>,
}

#[derive(Default)]
struct Status {
    seen: Option<Seen>,
    is_damaged: bool,
    token: Option<Arc<str>>,
    failure: Option<String>,
}

impl Cluster {
    pub(crate) fn new(config: Config) -> Self {
        let status = Status { seen: config.seen, ..Status::default() };
        Self {
            namespace: Namespace::new(&config.prefix),
            config,
            preferred: AtomicUsize::new(0),
            is_closing: AtomicBool::new(false),
            status: Mutex::new(status),
        }
    }

    fn status(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server that is used, and its index.
    pub(crate) fn preferred(&self) -> Option<(usize, &Endpoint)> {
        let index = self.preferred.load(Ordering::Relaxed);
        self.config.endpoints.get(index).map(|endpoint| (index, endpoint))
    }

    /// Uses the next server, because the one with this index does not do its work. Returns whether that
    /// server was the one in use. Without a reason, the last failure remains.
    pub(crate) fn avoid(&self, index: usize, why: Option<&str>) -> bool {
        if let (Some(endpoint), Some(why)) = (self.config.endpoints.get(index), why) {
            self.report(format!("etcd: {}: {why}", endpoint.address));
        }
        let next = index.saturating_add(1);
        let next = if next < self.config.endpoints.len() { next } else { 0 };
        self.preferred.compare_exchange(index, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Keeps the text of a failure for the administrator.
    pub(crate) fn report(&self, failure: String) {
        self.status().failure = Some(failure);
    }

    /// The last failure.
    pub(crate) fn failure(&self) -> Option<String> {
        self.status().failure.clone()
    }

    pub(crate) fn seen(&self) -> Option<Seen> {
        self.status().seen
    }

    pub(crate) fn is_damaged(&self) -> bool {
        self.status().is_damaged
    }

    /// Ends all work, because the store is dropped.
    pub(crate) fn close(&self) {
        self.is_closing.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Relaxed)
    }

    /// Checks the header of a response. A linearizable response is given `floor`, the revision that was seen
    /// before its request was sent. Others may come from a member that is behind, so that only the identifier
    /// of the cluster counts.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::Damaged`], from the first wrong header on. The cluster has lost data then: it
    /// was restored from a backup, or most of its members have lost the end of their logs.
    pub(crate) fn check(&self, header: Header, floor: Option<u64>) -> Result<(), StoreError> {
        let mut status = self.status();
        if status.is_damaged {
            return Err(StoreError::Damaged);
        }
        let seen = status.seen.unwrap_or(Seen { cluster: header.cluster, revision: 0 });
        let fault = if seen.cluster != header.cluster {
            Some(format!("cluster {:x}: cluster {:x} was expected", header.cluster, seen.cluster))
        } else {
            floor.filter(|&floor| header.revision < floor).map(|floor| {
                format!(
                    "revision {}: at least {floor} was expected, the cluster has lost data",
                    header.revision
                )
            })
        };
        if let Some(fault) = fault {
            status.is_damaged = true;
            status.failure = Some(format!("etcd: {fault}"));
            return Err(StoreError::Damaged);
        }
        let revision = if floor.is_some() { seen.revision.max(header.revision) } else { seen.revision };
        status.seen = Some(Seen { revision, ..seen });
        Ok(())
    }

    /// Reports damage that etcd itself has found.
    pub(crate) fn set_damaged(&self, why: &str) {
        let mut status = self.status();
        status.is_damaged = true;
        status.failure = Some(format!("etcd: {why}"));
    }

    /// Token of the login, if there is one.
    pub(crate) fn token(&self) -> Option<Arc<str>> {
        self.status().token.clone()
    }

    pub(crate) fn set_token(&self, token: &str) {
        self.status().token = Some(token.into());
    }

    /// Forgets a token that a server has refused.
    pub(crate) fn forget_token(&self, refused: &str) {
        let mut status = self.status();
        if status.token.as_deref() == Some(refused) {
            status.token = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(seen: Option<Seen>) -> Cluster {
        let endpoints = [1, 2, 3].map(|port| Endpoint::new(([127, 0, 0, 1], port).into()));
        Cluster::new(Config { seen, ..Config::new(endpoints.into(), "cell/") })
    }

    const DAMAGED: Result<(), StoreError> = Err(StoreError::Damaged);

    #[test]
    fn lower_revision_and_other_cluster_are_damage_from_then_on() {
        let header = |cluster, revision| Header { cluster, revision };
        let known = cluster(None);
        assert_eq!(known.check(header(7, 10), Some(0)), Ok(()));
        assert_eq!(known.check(header(7, 9), None), Ok(()), "a member that is behind");
        // A response to a request that was sent before the first response arrived.
        assert_eq!(known.check(header(7, 9), Some(8)), Ok(()));
        assert_eq!(known.seen(), Some(Seen { cluster: 7, revision: 10 }));
        assert_eq!(known.check(header(7, 9), Some(10)), DAMAGED);
        assert_eq!(known.check(header(7, 11), Some(10)), DAMAGED, "damage does not end");
        assert!(known.failure().unwrap().contains("revision 9: at least 10 was expected"));

        let known = cluster(Some(Seen { cluster: 7, revision: 10 }));
        assert_eq!(known.check(header(8, 11), None), DAMAGED);
        assert!(known.is_damaged());
    }

    #[test]
    fn a_revision_that_is_not_linearizable_is_not_remembered() {
        let known = cluster(None);
        assert_eq!(known.check(Header { cluster: 7, revision: 10 }, None), Ok(()));
        assert_eq!(known.seen(), Some(Seen { cluster: 7, revision: 0 }));
    }

    #[test]
    fn each_server_is_avoided_once() {
        let known = cluster(None);
        assert!(known.avoid(0, Some("x")));
        assert!(!known.avoid(0, Some("x")), "another thread has done it");
        assert_eq!(known.preferred().unwrap().0, 1);
        assert!(known.avoid(1, Some("x")) && known.avoid(2, Some("closed")));
        assert_eq!(known.preferred().unwrap().0, 0);
        assert!(known.avoid(0, None));
        assert_eq!(known.failure().unwrap(), "etcd: 127.0.0.1:3: closed");
    }

    #[test]
    fn only_the_refused_token_is_forgotten() {
        let known = cluster(None);
        known.set_token("new");
        known.forget_token("old");
        assert_eq!(known.token().as_deref(), Some("new"));
        known.forget_token("new");
        assert_eq!(known.token(), None);
    }
}
