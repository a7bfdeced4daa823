//! The suite of tests that every store passes.

use crate::user::{Signal, endpoints, open};
use casemate_etcd::{Config, EtcdStore};
use casemate_store::conformance::{Subject, check};
use casemate_test_support::etcd::Cluster;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

struct Etcd {
    cluster: Cluster,
    count: usize,
    signal: Arc<Signal>,
}

impl Subject for Etcd {
    type Store = EtcdStore;

    /// Each store has a prefix of its own.
    fn fresh(&mut self) -> EtcdStore {
        self.count += 1;
        let endpoints = endpoints(&self.cluster, self.count % 3);
        // Many requests for one entry are executed one after the other.
        let deadline = Duration::from_secs(50);
        let config = Config { deadline, ..Config::new(endpoints, &format!("{}/", self.count)) };
        let (store, signal) = open(config);
        self.signal = signal;
        store
    }

    fn step(&mut self, _: &mut EtcdStore) {
        self.signal.wait(Duration::from_millis(100));
    }

    fn pass(&mut self, _: &mut EtcdStore, time: Duration) {
        thread::sleep(time);
    }
}

#[test]
fn store_on_etcd_passes_the_suite() {
    let Some(cluster) = Cluster::start("conformance", None, &[]) else { return };
    let mut subject = Etcd { cluster, count: 0, signal: Arc::default() };
    let passed = check(&mut subject).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(passed > 0);
    subject.cluster.stop();
}
