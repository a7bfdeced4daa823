//! Clusters that have lost data, and clusters that are not the expected one.

use crate::user::{User, commit, endpoints, put, range};
use casemate_etcd::{Config, Seen};
use casemate_store::{Outcome, Request, Revision, StoreError, WatchEvent, WatchId};
use casemate_test_support::etcd::Cluster;
use casemate_test_support::eventually;

const DAMAGED: Result<Outcome, StoreError> = Err(StoreError::Damaged);

#[test]
fn cluster_that_was_restored_from_a_snapshot_is_damaged() {
    let Some(mut cluster) = Cluster::start("restored", None, &[]) else { return };
    let config = Config::new(endpoints(&cluster, 0), "cell/");
    let mut user = User::new(config.clone());
    user.write(&[put("reserved", "1")]);
    let before = user.store.monitor().seen().unwrap();
    assert_eq!(user.store.monitor().damage(), None);
    let snapshot = cluster.file("snapshot");
    cluster.save_snapshot(&snapshot);
    let at = user.write(&[put("reserved", "2")]);
    let seen = user.store.monitor().seen().unwrap();
    assert_eq!(seen, Seen { revision: at.0, ..before });
    assert_eq!(user.watch(1, "", Revision(at.0 + 1)), Ok(Outcome::Watching));
    cluster.restore_snapshot(&snapshot);

    // The cluster has the same identifier and an earlier revision.
    let outcome = eventually("a response", || match user.run(range("")) {
        Err(StoreError::Unavailable) => None,
        outcome => Some(outcome),
    });
    assert_eq!(outcome, DAMAGED);
    let failure = user.store.monitor().last_failure().unwrap();
    assert!(failure.contains(&format!("at least {} was expected", at.0)), "{failure}");
    assert_eq!(user.store.monitor().damage(), Some(failure));
    assert_eq!(user.event(), WatchEvent::Gap(WatchId(1)));
    // From then on, whatever the cluster does.
    let mut unaware = User::new(config.clone());
    assert_eq!(unaware.read("reserved")[0].value, b"1");
    for _ in 0..4 {
        unaware.write(&[put("reserved", "3")]);
    }
    for request in [
        range(""),
        commit(&[], &[put("a", "")]),
        Request::NewLease(std::time::Duration::from_secs(5)),
        Request::Watch { watch: WatchId(2), prefix: Vec::new(), from: Revision(1) },
    ] {
        assert_eq!(user.run(request), DAMAGED);
    }
    // A process that starts later notices it only if it is told what was seen, and only while the revision
    // is lower.
    let lower = unaware.store.monitor().seen().unwrap();
    let at_least = |revision| Config { seen: Some(Seen { revision, ..seen }), ..config.clone() };
    assert_eq!(User::new(at_least(lower.revision + 1)).run(range("")), DAMAGED);
    assert!(User::new(at_least(lower.revision)).run(range("")).is_ok());
    let other = Seen { cluster: seen.cluster ^ 1, revision: 1 };
    let mut other = User::new(Config { seen: Some(other), ..config });
    assert_eq!(other.run(Request::NewLease(std::time::Duration::from_secs(5))), DAMAGED);
    assert!(
        other.store.monitor().last_failure().unwrap().contains("cluster"),
        "{:?}",
        other.store.monitor().last_failure()
    );
    cluster.stop();
}
