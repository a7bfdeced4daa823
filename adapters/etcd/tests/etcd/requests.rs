//! Batches, large requests, a full store, and stores that are opened and dropped.

use crate::user::{User, commit, endpoints, open, put, put_with, range};
use casemate_crypto::SecretBytes;
use casemate_etcd::{Config, ConfigError, Endpoint, EtcdStore, Login};
use casemate_store::{
    Comparison, Lease, MAX_VALUE, MAX_WRITES, Outcome, Range, Request, RequestId, Revision, Store,
    StoreError, Write,
};
use casemate_test_support::etcd::Cluster;
use casemate_test_support::eventually;
use std::collections::BTreeSet;
use std::io::Read;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

fn large(key: &str, size: usize) -> Write {
    Write::Put { key: key.into(), value: vec![7; size], lease: None }
}

#[test]
fn transactions_of_a_batch_have_their_own_outcomes() {
    let Some(mut cluster) = Cluster::start("batch", None, &[]) else { return };
    let mut user = User::new(Config::new(endpoints(&cluster, 0), "cell/"));
    let at = user.write(&[put("existing", "")]);
    // While the first transaction is executed, the others wait and form a batch.
    let mut ids = vec![user.submit(commit(&[], &[put("first", "")]))];
    for number in 0..20 {
        let expected = if number % 2 == 0 { at } else { Revision::ABSENT };
        let compared = [Comparison::Created(b"existing".to_vec(), expected)];
        ids.push(user.submit(commit(&compared, &[put(&format!("b{number:02}"), "")])));
    }
    let outcomes: Vec<Outcome> = ids.into_iter().map(|id| user.wait(id).unwrap()).collect();
    let mut revisions = BTreeSet::new();
    for (number, outcome) in outcomes[1..].iter().enumerate() {
        match outcome {
            Outcome::Committed(revision) if number % 2 == 0 => revisions.insert(*revision),
            Outcome::Refused(revision) if number % 2 == 1 => revisions.insert(*revision),
            other => panic!("transaction {number}: {other:?}"),
        };
    }
    assert!(revisions.len() < 20, "no batch");
    let keys: Vec<_> = user.read("b").into_iter().map(|entry| entry.key).collect();
    let even = (0..20).step_by(2).map(|number| format!("b{number:02}").into_bytes());
    assert_eq!(keys, even.collect::<Vec<_>>());

    // etcd refuses a batch as a whole because of one transaction. The others are executed all the same.
    let mut ids = vec![user.submit(commit(&[], &[put("first", "")]))];
    for number in 0..20 {
        let name = format!("c{number:02}");
        let write = if number == 10 { put_with(&name, "", Lease(77)) } else { put(&name, "") };
        ids.push(user.submit(commit(&[], &[write])));
    }
    for (number, id) in ids.into_iter().enumerate() {
        let outcome = user.wait(id);
        let is_expected = match number {
            11 => outcome == Err(StoreError::Refused),
            _ => matches!(outcome, Ok(Outcome::Committed(_))),
        };
        assert!(is_expected, "transaction {number}: {outcome:?}");
    }
    assert_eq!(user.read("c").len(), 19);
    cluster.stop();
}

#[test]
fn large_requests_and_a_full_store() {
    let quota = (40 << 20).to_string();
    let Some(mut cluster) = Cluster::start("large", None, &["--quota-backend-bytes", &quota]) else { return };
    let config = Config::new(endpoints(&cluster, 0), "cell/");
    let mut user = User::new(Config { deadline: Duration::from_secs(10), ..config });
    // etcd's default limit is less than what a transaction may have.
    let names: Vec<String> = (0..MAX_WRITES).map(|number| format!("t{number:02}")).collect();
    let largest: Vec<Write> = names.iter().map(|name| large(name, MAX_VALUE)).collect();
    assert_eq!(user.run(commit(&[], &largest)), Err(StoreError::Refused));
    assert!(
        user.store.monitor().last_failure().unwrap().contains("larger than max"),
        "{:?}",
        user.store.monitor().last_failure()
    );
    assert_eq!(user.read("t"), []);

    // A range that would be longer than a response may be is read in parts.
    for part in 0..12 {
        let names = (0..16).map(|number| format!("r{part:02}{number:02}"));
        user.write(&names.map(|name| large(&name, MAX_VALUE)).collect::<Vec<_>>());
    }
    let (mut found, mut after, mut parts) = (0, None, 0);
    loop {
        let range = Range { prefix: b"r".to_vec(), after, limit: 1_000 };
        let Ok(Outcome::Entries { entries, more, .. }) = user.run(Request::Read(range)) else { panic!() };
        assert!(entries.iter().all(|entry| entry.value.len() == MAX_VALUE));
        found += entries.len();
        parts += 1;
        after = entries.last().map(|entry| entry.key.clone());
        if !more {
            break;
        }
    }
    assert_eq!(found, 192);
    assert!(parts > 1, "{parts} parts");

    let refused = (0..40).find_map(|number| {
        let write = |part| large(&format!("f{number}-{part}"), MAX_VALUE);
        user.run(commit(&[], &(0..16).map(write).collect::<Vec<_>>())).err()
    });
    assert_eq!(refused, Some(StoreError::Refused));
    assert!(
        user.store.monitor().last_failure().unwrap().contains("space exceeded"),
        "{:?}",
        user.store.monitor().last_failure()
    );
    assert!(matches!(user.run(range("a")), Ok(Outcome::Entries { .. })));
    cluster.stop();
}

#[test]
fn configurations_are_checked() {
    let endpoint = Endpoint::new(([127, 0, 0, 1], 2379).into());
    let good = Config::new(vec![endpoint.clone()], "cell/");
    let open = |config: Config| EtcdStore::open(config, Arc::new(|| ())).err();
    assert_eq!(open(good.clone()), None);
    assert_eq!(open(Config { endpoints: vec![], ..good.clone() }), Some(ConfigError::Endpoints(0)));
    let many = vec![endpoint.clone(); 10];
    assert_eq!(open(Config { endpoints: many, ..good.clone() }), Some(ConfigError::Endpoints(10)));
    let unnamed = Endpoint { server_name: Some("a b".into()), ..endpoint };
    let error = open(Config { endpoints: vec![unnamed.clone()], ..good.clone() });
    assert_eq!(error, Some(ConfigError::ServerName(unnamed)));
    for prefix in ["", "a b", "\u{e4}", &"x".repeat(129)] {
        let error = open(Config { prefix: prefix.into(), ..good.clone() });
        assert_eq!(error, Some(ConfigError::Prefix(prefix.into())));
    }
    for deadline in [Duration::ZERO, Duration::from_secs(61)] {
        let error = open(Config { deadline, ..good.clone() });
        assert_eq!(error, Some(ConfigError::Deadline(deadline)));
    }
    let login = Some(Login { user: "u".into(), password: SecretBytes::new(&[0xFF]) });
    assert_eq!(open(Config { login, ..good.clone() }), Some(ConfigError::Password));
    let thread_entry = || Err("no capabilities".to_owned());
    let error = open(Config { thread_entry, ..good });
    assert_eq!(error, Some(ConfigError::Thread("no capabilities".into())));
}

/// A server that accepts connections and does not respond.
#[test]
fn dropped_store_ends_its_threads() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = Endpoint::new(listener.local_addr().unwrap());
    let (mut store, signal) = open(Config::new(vec![endpoint], "cell/"));
    for (id, request) in [
        commit(&[], &[put("a", "")]),
        Request::Renew(Lease(1)),
        Request::Watch { watch: casemate_store::WatchId(1), prefix: vec![], from: Revision(1) },
    ]
    .into_iter()
    .enumerate()
    {
        store.submit(RequestId(id as u64), request).unwrap();
    }
    let start = Instant::now();
    std::thread::sleep(Duration::from_millis(300));
    drop(store);
    // The threads and their wake-up are gone; this function has the last handle of the signal.
    eventually("the end of all threads", || (Arc::strong_count(&signal) == 1).then_some(()));
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
}

/// A server that reads requests and closes each connection without a response. Returns the number of
/// requests so far.
fn closing_server() -> (Endpoint, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = Endpoint::new(listener.local_addr().unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    let requests = Arc::clone(&count);
    std::thread::spawn(move || {
        for socket in listener.incoming().take(10_000) {
            // Counted before the connection is closed.
            let mut socket = socket.unwrap();
            let len = socket.read(&mut [0; 4_096]).unwrap_or(0);
            requests.fetch_add(usize::from(len > 0), Ordering::SeqCst);
        }
    });
    (endpoint, count)
}

#[test]
fn transaction_with_an_unknown_outcome_is_sent_once() {
    const DEADLINE: Duration = Duration::from_secs(1);
    let servers = [closing_server(), closing_server()];
    let endpoints = servers.iter().map(|(endpoint, _)| endpoint.clone()).collect();
    let requests = || servers.iter().map(|(_, count)| count.load(Ordering::SeqCst)).sum::<usize>();
    let mut user = User::new(Config { deadline: DEADLINE, ..Config::new(endpoints, "cell/") });
    let start = Instant::now();
    assert_eq!(user.run(commit(&[], &[put("a", "")])), Err(StoreError::Unavailable));
    assert_eq!(requests(), 1);
    assert!(start.elapsed() < DEADLINE, "{:?}", start.elapsed());
    assert_eq!(user.run(Request::Revoke(Lease(1))), Err(StoreError::Unavailable));
    assert!(requests() > 2, "requests for leases are repeated");
    // A transaction, and the others in batches: each is sent once.
    let before = requests();
    let mut ids = vec![user.submit(commit(&[], &[put("first", "")]))];
    ids.extend((0..8).map(|key| user.submit(commit(&[], &[put(&key.to_string(), "")]))));
    let count = ids.len();
    ids.into_iter().for_each(|id| assert_eq!(user.wait(id), Err(StoreError::Unavailable)));
    let sent = requests() - before;
    assert!((1..count).contains(&sent), "{sent} requests for {count} transactions");

    let before = requests();
    let (outcome, time) = user.timed(range(""));
    assert_eq!(outcome, Err(StoreError::Unavailable));
    assert!(requests() > before + 1, "a read is repeated");
    assert!(time < DEADLINE + Duration::from_millis(500), "{time:?}");
    let watch = Request::Watch { watch: casemate_store::WatchId(1), prefix: vec![], from: Revision(1) };
    let (outcome, time) = user.timed(watch);
    assert_eq!(outcome, Err(StoreError::Unavailable));
    assert!(time < DEADLINE + Duration::from_millis(500), "{time:?}");
}
