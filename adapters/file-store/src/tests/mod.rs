//! Tests of the store in a file: the conformance suite, access, faults of the disk, and crashes.

mod access;
mod crash;
mod faults;
mod simulated_disk;

use crate::{FileStore, OpenError};
use casemate_store::conformance::{self, Subject};
use casemate_store::{
    Completion, Entry, Lease, MAX_RANGE, Outcome, Range, Request, RequestId, Revision, Store, StoreError,
    Transaction, Write,
};
use casemate_test_support::TempDir;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Time within which a store must complete a request, on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

/// A store with the receiver of its wake-ups.
struct Opened {
    store: FileStore,
    wake: Receiver<()>,
    next_id: u64,
}

impl Opened {
    fn open(path: &std::path::Path) -> Result<Self, OpenError> {
        let (sender, wake) = channel();
        let store = FileStore::open(
            path,
            || Ok(()),
            move || {
                let _ = sender.send(());
            },
        )?;
        Ok(Self { store, wake, next_id: 0 })
    }

    fn submit(&mut self, request: Request) -> RequestId {
        let id = RequestId(self.next_id);
        self.next_id += 1;
        self.store.submit(id, request).unwrap();
        id
    }

    fn next_completion(&mut self) -> Completion {
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Some(completion) = self.store.next_completion() {
                return completion;
            }
            assert!(Instant::now() < deadline, "no completion");
            let _ = self.wake.recv_timeout(Duration::from_secs(1));
        }
    }

    /// Executes a request while no other is pending.
    fn run(&mut self, request: Request) -> Result<Outcome, StoreError> {
        let id = self.submit(request);
        let completion = self.next_completion();
        assert_eq!(completion.id, id);
        completion.outcome
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<Revision, StoreError> {
        committed(self.run(put(&[(key, value)], None)))
    }

    fn entries(&mut self) -> (Vec<Entry>, Revision) {
        let mut all = Vec::new();
        loop {
            let after = all.last().map(|entry: &Entry| entry.key.clone());
            match self.run(Request::Read(Range { prefix: vec![], after, limit: MAX_RANGE })) {
                Ok(Outcome::Entries { entries, more, revision }) => {
                    all.extend(entries);
                    if !more {
                        return (all, revision);
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

fn put(entries: &[(&str, &[u8])], lease: Option<Lease>) -> Request {
    let write = |(key, value): &(&str, &[u8])| Write::Put {
        key: key.as_bytes().into(),
        value: value.to_vec(),
        lease,
    };
    Request::Commit(Transaction { comparisons: vec![], writes: entries.iter().map(write).collect() })
}

fn committed(outcome: Result<Outcome, StoreError>) -> Result<Revision, StoreError> {
    outcome.map(|outcome| match outcome {
        Outcome::Committed(revision) => revision,
        other => panic!("{other:?}"),
    })
}

/// A file of its own for each store.
struct Files {
    directory: TempDir,
    count: usize,
}

impl Files {
    fn new() -> Self {
        Self { directory: TempDir::new("file-store").unwrap(), count: 0 }
    }

    fn next(&mut self) -> PathBuf {
        self.count += 1;
        self.directory.file(&format!("store-{}", self.count))
    }
}

impl Subject for Files {
    type Store = FileStore;

    fn fresh(&mut self) -> FileStore {
        FileStore::open(&self.next(), || Ok(()), || {}).unwrap()
    }

    fn step(&mut self, _: &mut FileStore) {
        thread::sleep(Duration::from_millis(1));
    }

    fn pass(&mut self, _: &mut FileStore, time: Duration) {
        thread::sleep(time);
    }
}

#[test]
fn the_store_in_a_file_conforms() {
    assert_eq!(conformance::check(&mut Files::new()), Ok(40));
}

#[test]
fn entries_outlive_the_process_and_leases_do_not() {
    let mut files = Files::new();
    let path = files.next();
    let mut first = Opened::open(&path).unwrap();
    assert!(first.store.is_new());
    let at = first.put("free", b"1").unwrap();
    let Ok(Outcome::LeaseGranted(lease)) = first.run(Request::NewLease(Duration::from_secs(600))) else {
        panic!("no lease")
    };
    let last = committed(first.run(put(&[("bound", b"2"), ("bound too", b"")], Some(lease)))).unwrap();
    drop(first);
    let mut second = Opened::open(&path).unwrap();
    assert!(!second.store.is_new());
    let (entries, revision) = second.entries();
    let free = Entry { key: b"free".into(), value: b"1".into(), created: at, changed: at, lease: None };
    assert_eq!(entries, std::slice::from_ref(&free));
    assert_eq!(revision.0, last.0 + 1, "the end of the leases has a revision");
    // Events of the former process are gone.
    let watch = casemate_store::WatchId(1);
    let from = Request::Watch { watch, prefix: vec![], from: at };
    assert_eq!(second.run(from), Ok(Outcome::Watching));
    let later = second.put("free", b"3").unwrap();
    assert_eq!(later.0, revision.0 + 1);
    assert_eq!(second.store.next_event(), Some(casemate_store::WatchEvent::Gap(watch)));
    drop(second);
    let entries = Opened::open(&path).unwrap().entries();
    assert_eq!(entries, (vec![Entry { value: b"3".into(), changed: later, ..free }], later));
}

#[test]
fn requests_that_were_submitted_are_executed_before_the_store_is_closed() {
    let mut files = Files::new();
    let path = files.next();
    let mut first = Opened::open(&path).unwrap();
    for number in 0..1_000 {
        first.submit(put(&[(&format!("{number:04}"), &[7; 100])], None));
    }
    drop(first);
    assert_eq!(Opened::open(&path).unwrap().entries().0.len(), 1_000);
}

#[test]
fn the_thread_wakes_its_user_and_waits_for_room_for_events() {
    let mut opened = Opened::open(&Files::new().next()).unwrap();
    let watch = casemate_store::WatchId(1);
    opened.run(Request::Watch { watch, prefix: vec![], from: Revision(1) }).unwrap();
    for number in 0..2_000_u32 {
        opened.run(put(&[("key", &number.to_be_bytes())], None)).unwrap();
    }
    assert_eq!(opened.store.shared.lock().events.len(), 256, "events that are not taken are bounded");
    let deadline = Instant::now() + LIMIT;
    let mut seen = Vec::new();
    while seen.len() < 2_000 && Instant::now() < deadline {
        match opened.store.next_event() {
            Some(casemate_store::WatchEvent::Put(_, entry)) => seen.push(entry.changed.0),
            Some(other) => panic!("{other:?}"),
            None => drop(opened.wake.recv_timeout(Duration::from_secs(1))),
        }
    }
    assert_eq!(seen, (1..=2_000).collect::<Vec<_>>());
}

#[test]
fn a_file_that_is_much_larger_than_its_entries_is_compacted() {
    let mut files = Files::new();
    let path = files.next();
    let mut opened = Opened::open(&path).unwrap();
    let value = vec![7; 60_000];
    for number in 0..200 {
        opened.put(&format!("{number:03}"), &value).unwrap();
    }
    let large = std::fs::metadata(&path).unwrap().len();
    assert!(large > 12_000_000, "{large}");
    for number in 0..199 {
        let delete = Write::Delete(format!("{number:03}").into_bytes());
        let request = Transaction { comparisons: vec![], writes: vec![delete] };
        opened.run(Request::Commit(request)).unwrap();
    }
    for _ in 0..10 {
        opened.put("other", b"").unwrap();
    }
    let size = std::fs::metadata(&path).unwrap().len();
    assert!(size < 2_000_000, "{size} bytes after the deletion, {large} before");
    assert_eq!(opened.entries().0.len(), 2);
    // Changes of a few entries do not let the file grow.
    for number in 0..2_000_u32 {
        opened.put("other", &number.to_be_bytes()).unwrap();
    }
    let size = std::fs::metadata(&path).unwrap().len();
    assert!(size < 2_000_000, "{size} bytes after 2,000 changes");
}
