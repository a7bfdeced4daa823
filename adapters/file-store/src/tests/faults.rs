//! Faults of the disk: failed synchronizations and writes, no room, cuts of power, and damage.

use super::simulated_disk::SimulatedDisk;
use super::{Opened, committed, put};
use crate::database::{self, OpenFault};
use crate::{Calls, FileStore};
use casemate_store::{Entry, MAX_VALUE, Outcome, Request, Revision, Store, StoreError, Transaction, Write};
use casemate_test_support::TestRng;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// An empty database on a disk of its own.
fn empty_disk() -> SimulatedDisk {
    let disk = SimulatedDisk::default();
    database::create(disk.clone()).unwrap();
    disk
}

fn open(disk: &SimulatedDisk) -> Result<Opened, OpenFault> {
    let (sender, wake) = channel();
    let store = FileStore::start(
        disk.clone(),
        None,
        false,
        Calls {
            on_start: Box::new(|| Ok(())),
            wake: Box::new(move || {
                let _ = sender.send(());
            }),
        },
    )?;
    Ok(Opened { store, wake, next_id: 0 })
}

/// Waits until the thread of the store has taken the first request.
fn wait_until_executing(opened: &Opened) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while opened.store.shared.lock().executing.is_empty() {
        assert!(Instant::now() < deadline, "the thread takes no request");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Entries of a database, and its revision.
fn contents(disk: &SimulatedDisk) -> Result<(Vec<Entry>, Revision), OpenFault> {
    let (_, contents) = database::Database::open(disk.clone())?;
    Ok((contents.entries, contents.revision))
}

/// Transactions that put and delete a few entries of different sizes.
fn transaction(rng: &mut TestRng) -> Request {
    let mut writes = BTreeMap::new();
    for _ in 0..=rng.below(4) {
        let key = format!("key {}", rng.below(20)).into_bytes();
        let len = if rng.below(8) == 0 { rng.below(MAX_VALUE) } else { rng.below(2_000) };
        let write = if rng.below(4) == 0 {
            Write::Delete(key.clone())
        } else {
            Write::Put { key: key.clone(), value: rng.bytes(len), lease: None }
        };
        writes.insert(key, write);
    }
    Request::Commit(Transaction { comparisons: vec![], writes: writes.into_values().collect() })
}

#[test]
fn after_a_failed_synchronization_nothing_succeeds() {
    for syncs in 0..6 {
        let disk = empty_disk();
        let mut opened = open(&disk).unwrap();
        opened.put("first", b"1").unwrap();
        disk.state().syncs_left = Some(syncs);
        let mut confirmed = vec!["first".to_owned()];
        let mut failures = 0;
        for number in 0..10 {
            let key = format!("key {number}");
            match opened.put(&key, &[7; 3_000]) {
                Ok(_) => {
                    assert_eq!(failures, 0, "a success after a failed synchronization");
                    confirmed.push(key);
                }
                Err(StoreError::Unavailable) => failures += 1,
                Err(other) => panic!("{other}"),
            }
        }
        assert_eq!((confirmed.len(), failures), (syncs / 2 + 1, 10 - syncs / 2));
        assert!(opened.store.failure().unwrap().contains("os error 5"), "{:?}", opened.store.failure());
        assert_eq!(opened.run(Request::Renew(casemate_store::Lease(1))), Err(StoreError::Unavailable));
        drop(opened);
        // The disk has what was confirmed, whatever the memory of the kernel has.
        let operations = disk.state().operations;
        disk.state().cut_at = Some((operations + 1, 0));
        redb::StorageBackend::sync_data(&disk).unwrap();
        let (after, _) = disk.state().cut.take().unwrap();
        let (entries, _) = contents(&SimulatedDisk::with_contents(&after)).unwrap();
        let keys: Vec<String> =
            entries.iter().map(|entry| String::from_utf8(entry.key.clone()).unwrap()).collect();
        for key in &confirmed {
            assert!(keys.contains(key), "{key} is confirmed, and only {keys:?} are there");
        }
    }
}

#[test]
fn a_failed_write_makes_the_store_unavailable() {
    for writes in 0..8 {
        let disk = empty_disk();
        let mut opened = open(&disk).unwrap();
        opened.put("first", b"1").unwrap();
        disk.state().writes_left = Some(writes);
        let mut outcomes = Vec::new();
        for number in 0..10 {
            outcomes.push(opened.put(&format!("key {number}"), b""));
        }
        let succeeded = outcomes.iter().take_while(|outcome| outcome.is_ok()).count();
        assert!(succeeded <= writes, "{outcomes:?}");
        assert!(outcomes[succeeded..].iter().all(|outcome| *outcome == Err(StoreError::Unavailable)));
        assert!(opened.store.failure().is_some());
    }
}

#[test]
fn a_defect_of_the_database_makes_the_store_unavailable() {
    let disk = empty_disk();
    let mut opened = open(&disk).unwrap();
    opened.put("first", b"1").unwrap();
    disk.state().panics = true;
    assert_eq!(opened.put("second", b"2"), Err(StoreError::Unavailable));
    assert_eq!(opened.put("third", b"3"), Err(StoreError::Unavailable));
    assert!(opened.store.failure().unwrap().contains("panicked"));
}

#[test]
fn a_full_disk_refuses_writes_until_there_is_room() {
    let disk = empty_disk();
    let mut opened = open(&disk).unwrap();
    let watch = Request::Watch { watch: casemate_store::WatchId(1), prefix: vec![], from: Revision(1) };
    opened.run(watch).unwrap();
    let mut expected = BTreeMap::new();
    disk.state().capacity = Some(1_000_000);
    let value = [7; 30_000];
    let mut refused = None;
    for number in 0..100_u32 {
        let (one, two) = (format!("{number:02} one"), format!("{number:02} two"));
        match committed(opened.run(put(&[(&one, &value), (&two, &value)], None))) {
            Ok(revision) => {
                expected.insert(one.into_bytes(), revision);
                expected.insert(two.into_bytes(), revision);
            }
            Err(StoreError::Refused) => {
                refused = Some(number);
                break;
            }
            Err(other) => panic!("{other}"),
        }
    }
    let refused = refused.expect("the disk is never full");
    assert!(refused > 3, "{refused} transactions");
    let found = |entries: Vec<Entry>| entries.into_iter().map(|entry| (entry.key, entry.changed)).collect();
    // Nothing is half applied; reads and leases work, and writes are refused at once.
    let (entries, revision) = opened.entries();
    assert_eq!(found(entries), expected);
    let lease = opened.run(Request::NewLease(Duration::from_secs(9))).unwrap();
    let Outcome::LeaseGranted(lease) = lease else { panic!("{lease:?}") };
    assert_eq!(opened.run(Request::Renew(lease)), Ok(Outcome::Renewed));
    assert_eq!(opened.put("small", b""), Err(StoreError::Refused));
    assert_eq!(opened.store.failure(), None);
    disk.state().capacity = None;
    let deadline = Instant::now() + Duration::from_secs(10);
    let later = loop {
        match opened.put("later", &value) {
            Ok(revision) => break revision,
            Err(StoreError::Refused) if Instant::now() < deadline => thread::sleep(Duration::from_millis(50)),
            Err(other) => panic!("{other}"),
        }
    };
    assert_eq!(later.0, revision.0 + 1, "refused transactions have no revision");
    expected.insert(b"later".into(), later);
    assert_eq!(found(opened.entries().0), expected);
    let mut events = Vec::new();
    while let Some(event) = opened.store.next_event() {
        let casemate_store::WatchEvent::Put(_, entry) = event else { panic!("{event:?}") };
        events.push((entry.key, entry.changed));
    }
    events.sort();
    assert_eq!(events, expected.clone().into_iter().collect::<Vec<_>>(), "each change is reported once");
    drop(opened);
    let (entries, revision) = contents(&disk).unwrap();
    assert_eq!((found(entries), revision), (expected, later));
}

#[test]
fn a_watch_of_a_batch_without_room_begins() {
    let disk = empty_disk();
    let mut opened = open(&disk).unwrap();
    opened.put("first", b"").unwrap();
    // After a read, the thread does nothing on the disk.
    opened.entries();
    let len = disk.contents().len();
    // The thread waits for the disk while the rest of the requests arrive, so that these are one batch.
    let mut lock = disk.state();
    let small = opened.submit(put(&[("small", b"")], None));
    wait_until_executing(&opened);
    let large: Vec<_> = (0..10).map(|_| opened.submit(put(&[("large", &[7; 60_000])], None))).collect();
    let watch = casemate_store::WatchId(1);
    let last = opened.submit(Request::Watch { watch, prefix: vec![], from: Revision(3) });
    lock.capacity = Some(len);
    drop(lock);
    let expected = std::iter::once((small, Ok(Outcome::Committed(Revision(2)))))
        .chain(large.into_iter().map(|id| (id, Err(StoreError::Refused))))
        .chain([(last, Ok(Outcome::Watching))]);
    for (id, outcome) in expected {
        assert_eq!(opened.next_completion(), casemate_store::Completion { id, outcome });
    }
    assert_eq!(opened.store.next_event(), None, "what is undone is not reported");
}

#[test]
fn a_write_without_room_at_any_point_leaves_nothing_half_applied() {
    // Some file systems need room to overwrite a block.
    for writes in 0..12 {
        let disk = empty_disk();
        let mut opened = open(&disk).unwrap();
        let at = committed(opened.run(put(&[("a", b"1"), ("b", b"1")], None))).unwrap();
        {
            let mut state = disk.state();
            (state.writes_left, state.write_error) = (Some(writes), Some(ErrorKind::StorageFull));
        }
        let outcome =
            committed(opened.run(put(&[("a", &[2; 5_000]), ("b", &[2; 5_000]), ("c", b"2")], None)));
        disk.state().writes_left = None;
        let (entries, revision) = opened.entries();
        let values: Vec<(usize, Revision)> =
            entries.iter().map(|entry| (entry.value.len(), entry.changed)).collect();
        match outcome {
            Ok(later) => {
                assert_eq!((values, revision), (vec![(5_000, later), (5_000, later), (1, later)], later));
            }
            Err(StoreError::Refused) => {
                assert_eq!((values, revision), (vec![(1, at), (1, at)], at));
                thread::sleep(Duration::from_millis(1_010));
                let later = opened.put("c", b"3").unwrap();
                assert_eq!(later.0, at.0 + 1);
            }
            Err(other) => panic!("{other} after {writes} writes"),
        }
        let before = opened.entries();
        drop(opened);
        assert_eq!(contents(&disk).unwrap(), before);
    }
}

#[test]
fn a_cut_of_power_loses_no_confirmed_transaction_and_leaves_none_half() {
    let mut later = 0;
    for seed in 0..300 {
        let mut rng = TestRng::new(seed);
        let disk = empty_disk();
        let mut opened = open(&disk).unwrap();
        let begin = disk.state().operations;
        disk.state().cut_at = Some((begin + 1 + rng.below(150), seed));
        let mut states = BTreeMap::from([(0, vec![])]);
        for _ in 0..15 {
            let outcome = opened.run(transaction(&mut rng));
            let Ok(Outcome::Committed(revision)) = outcome else { panic!("{outcome:?}") };
            states.insert(revision.0, opened.entries().0);
            disk.state().confirmed = revision.0;
        }
        drop(opened);
        let cut = disk.state().cut.take();
        let (after, confirmed) = cut.unwrap_or_else(|| (disk.contents(), disk.state().confirmed));
        let (entries, revision) = contents(&SimulatedDisk::with_contents(&after)).unwrap();
        assert!(revision.0 >= confirmed, "seed {seed}: revision {} of {confirmed} confirmed", revision.0);
        assert_eq!(Some(&entries), states.get(&revision.0), "seed {seed}: revision {}", revision.0);
        later += usize::from(revision.0 > confirmed);
    }
    // Some cuts come after the transaction is on the disk and before it is confirmed.
    assert!(later > 5, "{later}");
}

/// The bytes of a database with some entries, closed in order or as after a kill, and its contents.
fn example(is_closed: bool) -> (Vec<u8>, (Vec<Entry>, Revision)) {
    let disk = empty_disk();
    let mut opened = open(&disk).unwrap();
    let mut rng = TestRng::new(9);
    for _ in 0..15 {
        opened.run(transaction(&mut rng)).unwrap();
    }
    let contents = opened.entries();
    let killed = disk.contents();
    drop(opened);
    (if is_closed { disk.contents() } else { killed }, contents)
}

#[test]
fn a_damaged_file_is_refused_or_has_all_its_entries() {
    for is_closed in [true, false] {
        let (bytes, expected) = example(is_closed);
        let (mut refused, mut unused) = (0, 0);
        let places = (0..1_024).chain((1_024..bytes.len()).step_by(131));
        for at in places {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at & 7);
            match contents(&SimulatedDisk::with_contents(&damaged)) {
                Err(OpenFault::Damaged(_)) => refused += 1,
                Err(OpenFault::Io(error)) => panic!("byte {at}: {error}"),
                Ok(found) => {
                    assert!(found == expected, "byte {at}: other contents");
                    unused += 1;
                }
            }
        }
        assert!(refused > 100 && unused > 100, "{refused} refused, {unused} with all entries");
    }
}

#[test]
fn a_truncated_file_is_refused_or_has_all_its_entries() {
    for is_closed in [true, false] {
        let (bytes, expected) = example(is_closed);
        let mut refused = 0;
        for len in (0..bytes.len()).filter(|len| *len < 8_192 || bytes.len() - len < 8_192 || len % 61 == 0) {
            match contents(&SimulatedDisk::with_contents(&bytes[..len])) {
                Err(OpenFault::Damaged(_)) => refused += 1,
                Err(OpenFault::Io(error)) => panic!("{len} bytes: {error}"),
                Ok(found) => assert!(found == expected, "{len} bytes: other contents"),
            }
        }
        assert!(refused > 10_000, "{refused}");
    }
}

#[test]
fn requests_that_wait_share_their_synchronizations() {
    let disk = empty_disk();
    let mut opened = open(&disk).unwrap();
    opened.put("first", b"").unwrap();
    let before = disk.state().syncs;
    opened.put("single", b"").unwrap();
    assert_eq!(disk.state().syncs, before + 2);
    // After a read, the thread does nothing on the disk.
    opened.entries();
    // The thread waits for the disk while requests arrive.
    let lock = disk.state();
    let first = opened.submit(put(&[("key", b"")], None));
    wait_until_executing(&opened);
    let rest: Vec<_> = (0..200).map(|_| opened.submit(put(&[("key", b"")], None))).collect();
    drop(lock);
    for id in std::iter::once(first).chain(rest) {
        assert_eq!(opened.next_completion().id, id);
    }
    assert_eq!(disk.state().syncs, before + 2 + 4);
}
