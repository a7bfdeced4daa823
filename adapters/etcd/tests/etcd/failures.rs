//! Servers that fail, hang, compact their history, or take part in an election.

use crate::user::{User, commit, endpoints, put, put_with, range};
use casemate_etcd::Config;
use casemate_store::{
    Comparison, Outcome, Request, RequestId, Revision, Store, StoreError, WatchEvent, WatchId,
};
use casemate_test_support::etcd::Cluster;
use casemate_test_support::eventually;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Deadline of requests in these tests.
const DEADLINE: Duration = Duration::from_secs(2);
/// What a busy machine may add to a deadline.
const SLACK: Duration = Duration::from_millis(500);

fn user(cluster: &Cluster, first: usize) -> User {
    User::new(Config::new(endpoints(cluster, first), "cell/"))
}

fn changed(key: &str, at: Revision) -> Comparison {
    Comparison::Changed(key.into(), at)
}

fn created(key: &str, at: Revision) -> Comparison {
    Comparison::Created(key.into(), at)
}

/// A counter in the store: each transaction compares the revision of the last one that was committed.
#[derive(Debug, Default, Clone, Copy)]
struct Counter {
    value: u32,
    at: Revision,
    unknown: u32,
}

impl Counter {
    fn next(self, key: &str) -> Request {
        commit(&[changed(key, self.at)], &[put(key, &(self.value + 1).to_string())])
    }

    /// Reads what became of a transaction with an unknown outcome. It was executed once or not at all.
    fn recover(&mut self, user: &mut User, key: &str) {
        let entries = eventually("a read after an unknown outcome", || match user.run(range(key)) {
            Ok(Outcome::Entries { entries, .. }) => Some(entries),
            _ => None,
        });
        let found = entries.first().map_or((0, Revision::ABSENT), |entry| {
            (String::from_utf8_lossy(&entry.value).parse().unwrap(), entry.changed)
        });
        assert!(found.0 == self.value || found.0 == self.value + 1, "{found:?} after {self:?}");
        (self.value, self.at) = found;
        self.unknown += 1;
    }
}

#[test]
fn leader_is_killed_under_load() {
    let Some(mut cluster) = Cluster::start("leader", None, &[]) else { return };
    let leader = cluster.leader().unwrap();
    let mut user = user(&cluster, leader);
    let lease = user.grant(5);
    user.write(&[put_with("bound", "", lease)]);
    let mut load = Load::new(&mut user);
    load.run_until(&mut user, Duration::from_secs(1));
    load.submit_all(&mut user);
    cluster.kill(leader);
    let before = load.total();
    let mut longest = Duration::ZERO;
    for second in 2..8 {
        load.run_until(&mut user, Duration::from_secs(second));
        longest = longest.max(load.longest_gap);
        // A renewal may wait for the election, but the next one is in time.
        let renewal = user.run(Request::Renew(lease));
        assert!(matches!(renewal, Ok(Outcome::Renewed) | Err(StoreError::Unavailable)), "{renewal:?}");
    }
    load.finish(&mut user);
    let after = load.total() - before;
    println!("{before} transactions before the kill, {after} after it; longest pause {longest:?}");
    println!(
        "unknown outcomes: {:?}",
        load.counters.iter().map(|counter| counter.unknown).collect::<Vec<_>>()
    );
    assert!(after > 100, "{after} transactions after the kill");
    assert!(cluster.leader().is_some_and(|new| new != leader));
    assert_eq!(user.run(Request::Renew(lease)), Ok(Outcome::Renewed));
    assert_eq!(user.read("bound").len(), 1);
    // The watch has seen each value of each counter once, in order, across the change of the server.
    eventually("all events", || {
        load.take_events(&mut user);
        (load.seen == load.counters.iter().map(|counter| counter.value).collect::<Vec<_>>()).then_some(())
    });
    assert_eq!(user.store.next_event(), None);
}

/// Counters that are incremented all the time.
struct Load {
    keys: Vec<String>,
    counters: Vec<Counter>,
    in_flight: BTreeMap<RequestId, (usize, Instant)>,
    /// The values that the watch has reported.
    seen: Vec<u32>,
    start: Instant,
    last_commit: Instant,
    longest_gap: Duration,
}

impl Load {
    fn new(user: &mut User) -> Self {
        assert_eq!(user.watch(1, "n", Revision(0)), Ok(Outcome::Watching));
        let keys: Vec<String> = (0..8).map(|number| format!("n{number}")).collect();
        Self {
            counters: vec![Counter::default(); keys.len()],
            in_flight: BTreeMap::new(),
            seen: vec![0; keys.len()],
            keys,
            start: Instant::now(),
            last_commit: Instant::now(),
            longest_gap: Duration::ZERO,
        }
    }

    fn total(&self) -> u32 {
        self.counters.iter().map(|counter| counter.value).sum()
    }

    /// Lets each counter have a transaction in flight.
    fn submit_all(&mut self, user: &mut User) {
        let busy: Vec<usize> = self.in_flight.values().map(|(index, _)| *index).collect();
        for index in (0..self.keys.len()).filter(|index| !busy.contains(index)) {
            let id = user.submit(self.counters[index].next(&self.keys[index]));
            self.in_flight.insert(id, (index, Instant::now()));
        }
    }

    /// Takes the end of one transaction.
    fn take(&mut self, user: &mut User) {
        let (id, outcome) = user.next();
        let (index, submitted) = self.in_flight.remove(&id).expect("a request that was submitted");
        assert!(submitted.elapsed() < DEADLINE + SLACK, "{:?}", submitted.elapsed());
        let counter = &mut self.counters[index];
        match outcome {
            Ok(Outcome::Committed(at)) => {
                (counter.value, counter.at) = (counter.value + 1, at);
                self.longest_gap = self.longest_gap.max(self.last_commit.elapsed());
                self.last_commit = Instant::now();
            }
            Err(StoreError::Unavailable) => counter.recover(user, &self.keys[index]),
            other => panic!("{other:?}: {counter:?}"),
        }
        self.take_events(user);
    }

    fn take_events(&mut self, user: &mut User) {
        while let Some(event) = user.store.next_event() {
            let WatchEvent::Put(WatchId(1), entry) = event else { panic!("{event:?}") };
            let index = self.keys.iter().position(|key| key.as_bytes() == entry.key).unwrap();
            self.seen[index] += 1;
            assert_eq!(entry.value, self.seen[index].to_string().into_bytes());
        }
    }

    /// Runs until this time after the beginning.
    fn run_until(&mut self, user: &mut User, time: Duration) {
        while self.start.elapsed() < time {
            self.submit_all(user);
            self.take(user);
        }
    }

    fn finish(&mut self, user: &mut User) {
        while !self.in_flight.is_empty() {
            self.take(user);
        }
    }
}

#[test]
fn hanging_server_is_left() {
    let Some(cluster) = Cluster::start("hanging", None, &[]) else { return };
    let follower = (cluster.leader().unwrap() + 1) % 3;
    let mut user = user(&cluster, follower);
    let lease = user.grant(10);
    let at = user.write(&[put("a", "1")]);
    assert_eq!(user.watch(1, "a", Revision(at.0 + 1)), Ok(Outcome::Watching));
    cluster.signal(follower, "STOP");
    // The outcome of a transaction that was sent is unknown. A read is repeated on another server.
    let (outcome, time) = user.timed(commit(&[], &[put("b", "1")]));
    assert_eq!(outcome, Err(StoreError::Unavailable));
    assert!(time < DEADLINE + SLACK, "{time:?}");
    let at = user.write(&[put("a", "2")]);
    // The watch moves with the other connections, and does not wait for its own timeout.
    let start = Instant::now();
    assert!(matches!(user.event(), WatchEvent::Put(_, entry) if entry.changed == at));
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert_eq!(user.run(Request::Renew(lease)), Ok(Outcome::Renewed));
    cluster.signal(follower, "CONT");

    // A read or a renewal that hangs is repeated on another server within the deadline.
    let other = (follower + 1) % 3;
    let mut reader = self::user(&cluster, other);
    reader.read("a");
    reader.run(Request::Renew(lease)).unwrap();
    cluster.signal(other, "STOP");
    let ids = [range("a"), Request::Renew(lease)].map(|request| reader.submit(request));
    let start = Instant::now();
    assert!(matches!(reader.wait(ids[0]), Ok(Outcome::Entries { .. })));
    assert_eq!(reader.wait(ids[1]), Ok(Outcome::Renewed));
    assert!(start.elapsed() < DEADLINE + SLACK, "{:?}", start.elapsed());
    cluster.signal(other, "CONT");
}

#[test]
fn one_server_is_down() {
    let Some(mut cluster) = Cluster::start("one-down", None, &[]) else { return };
    let follower = (cluster.leader().unwrap() + 1) % 3;
    let mut user = user(&cluster, follower);
    user.write(&[put("a", "1")]);
    cluster.kill(follower);
    // The connection is closed, so nothing is sent on it and no outcome is unknown.
    let (outcome, time) = user.timed(commit(&[], &[put("a", "2")]));
    assert!(matches!(outcome, Ok(Outcome::Committed(_))), "{outcome:?}");
    assert!(time < DEADLINE, "{time:?}");
    // A new store begins with the server that is down.
    let mut user = self::user(&cluster, follower);
    assert_eq!(user.read("a")[0].value, b"2");
    assert!(
        user.store.monitor().last_failure().unwrap().contains("refused"),
        "{:?}",
        user.store.monitor().last_failure()
    );
}

#[test]
fn majority_is_down_for_a_while() {
    let Some(mut cluster) = Cluster::start("majority", None, &[]) else { return };
    let leader = cluster.leader().unwrap();
    let rest = (leader + 1) % 3;
    let mut user = user(&cluster, rest);
    let at = user.write(&[put("a", "1")]);
    assert_eq!(user.watch(1, "a", Revision(at.0 + 1)), Ok(Outcome::Watching));
    cluster.kill(leader);
    cluster.kill((leader + 2) % 3);
    // The remaining server still believes in the leader at first. A transaction that only compares must not
    // be executed by one server alone.
    let requests = [
        commit(&[changed("a", at)], &[]),
        range("a"),
        commit(&[], &[put("b", "1")]),
        Request::NewLease(Duration::from_secs(5)),
    ];
    let start = Instant::now();
    let ids: Vec<_> = requests.into_iter().map(|request| user.submit(request)).collect();
    for id in ids {
        assert_eq!(user.wait(id), Err(StoreError::Unavailable), "{id:?}");
        assert!(start.elapsed() < DEADLINE + SLACK, "{:?}", start.elapsed());
    }
    let (outcome, time) = user.timed(Request::Watch { watch: WatchId(2), prefix: b"x".to_vec(), from: at });
    assert!(matches!(outcome, Ok(Outcome::Watching) | Err(StoreError::Unavailable)), "{outcome:?}");
    assert!(time < DEADLINE + SLACK, "{time:?}");

    cluster.start_member(leader);
    let at = eventually("transactions after the return of the majority", || {
        match user.run(commit(&[], &[put("a", "2")])) {
            Ok(Outcome::Committed(at)) => Some(at),
            Err(StoreError::Unavailable) => None,
            other => panic!("{other:?}"),
        }
    });
    // Earlier attempts may have been executed, too.
    loop {
        match user.event() {
            WatchEvent::Put(WatchId(1), entry) if entry.changed == at => break,
            WatchEvent::Put(WatchId(1), entry) => assert_eq!(entry.value, b"2"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn compacted_history_is_a_gap() {
    let Some(mut cluster) = Cluster::start("compaction", None, &[]) else { return };
    let leader = cluster.leader().unwrap();
    let mut user = user(&cluster, leader);
    let first = user.write(&[put("a", "1")]);
    assert_eq!(user.watch(1, "a", Revision(first.0 + 1)), Ok(Outcome::Watching));
    let last = (2..6).map(|value| user.write(&[put("a", &value.to_string())])).last().unwrap();
    for _ in 2..6 {
        assert!(matches!(user.event(), WatchEvent::Put(WatchId(1), _)));
    }
    cluster.control(None, &["compaction", &last.0.to_string()]).unwrap();
    // A watch that begins in the compacted part ends with a gap, one after it sees all events.
    assert_eq!(user.watch(2, "a", first), Ok(Outcome::Watching));
    assert_eq!(user.event(), WatchEvent::Gap(WatchId(2)));
    assert_eq!(user.watch(2, "a", Revision(last.0 + 1)), Ok(Outcome::Watching));
    // The watch that has seen all events goes on, on another server, too.
    cluster.kill(leader);
    eventually("a transaction after the change of the leader", || {
        matches!(user.run(commit(&[], &[put("a", "6")])), Ok(Outcome::Committed(_))).then_some(())
    });
    let mut events = [user.event(), user.event()].map(|event| match event {
        WatchEvent::Put(watch, entry) => (watch.0, entry.value),
        other => panic!("{other:?}"),
    });
    events.sort();
    assert_eq!(events, [(1, b"6".to_vec()), (2, b"6".to_vec())]);
    user.drop_and_wait();
}

#[test]
fn lease_ends_while_its_owner_is_stopped() {
    let Some(mut cluster) = Cluster::start("lease", None, &[]) else { return };
    let mut owner = user(&cluster, 0);
    let mut other = user(&cluster, 1);
    let claim = |user: &mut User, name: &str, lease| {
        let slot = [created("slot", Revision::ABSENT)];
        user.run(commit(&slot, &[put_with("slot", name, lease), put("takeovers", name)]))
    };
    let lease = owner.grant(3);
    let granted = Instant::now();
    let Ok(Outcome::Committed(epoch)) = claim(&mut owner, "owner", lease) else { panic!("no claim") };
    assert_eq!(other.watch(1, "slot", Revision(epoch.0 + 1)), Ok(Outcome::Watching));
    // The owner renews once and then stops.
    assert_eq!(owner.run(Request::Renew(lease)), Ok(Outcome::Renewed));
    let WatchEvent::Deleted(WatchId(1), key, ended) = other.event() else { panic!("no end") };
    assert_eq!(key, b"slot");
    assert!(granted.elapsed() >= Duration::from_secs(3), "{:?}", granted.elapsed());
    let second = other.grant(30);
    let Ok(Outcome::Committed(later)) = claim(&mut other, "other", second) else { panic!("no claim") };
    assert!(ended > epoch && later > ended);

    // The owner wakes up: it has no lease, and its writes compare an epoch that is over.
    assert_eq!(owner.run(Request::Renew(lease)), Ok(Outcome::Ended));
    let write = commit(&[created("slot", epoch)], &[put("record", "owner")]);
    assert_eq!(owner.run(write), Ok(Outcome::Refused(later)));
    assert_eq!(owner.read("record"), []);
    assert_eq!(claim(&mut owner, "owner", second), Ok(Outcome::Refused(later)));
    cluster.stop();
}
