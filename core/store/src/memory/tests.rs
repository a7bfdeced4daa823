//! Tests of the store in memory: the conformance suite, faults, and a comparison with a simpler model.

use super::*;
use crate::conformance::{self, Subject};
use crate::{Lease, Range, Transaction, WatchId, Write};
use std::vec;

/// A new hub for each store.
struct InMemory {
    hub: MemoryHub,
    link: Link,
}

impl Subject for InMemory {
    type Store = MemoryStore;

    fn fresh(&mut self) -> MemoryStore {
        self.hub = MemoryHub::new();
        let mut store = self.hub.store();
        store.set_link(self.link);
        store
    }

    fn step(&mut self, _: &mut MemoryStore) {
        self.hub.advance(Duration::from_millis(1));
    }

    fn pass(&mut self, _: &mut MemoryStore, time: Duration) {
        self.hub.advance(time);
    }
}

#[test]
fn the_store_in_memory_conforms() {
    let mut subject = InMemory { hub: MemoryHub::new(), link: Link::default() };
    assert_eq!(conformance::check(&mut subject), Ok(40));
}

#[test]
fn a_slow_link_changes_nothing() {
    let (request_delay, answer_delay) = (Duration::from_millis(7), Duration::from_millis(20));
    let link = Link { request_delay, answer_delay, ..Link::default() };
    let mut subject = InMemory { hub: MemoryHub::new(), link };
    assert_eq!(conformance::check(&mut subject), Ok(40));
}

fn put(key: &str, value: &str, lease: Option<Lease>) -> Request {
    let write = Write::Put { key: key.into(), value: value.into(), lease };
    Request::Commit(Transaction { comparisons: vec![], writes: vec![write] })
}

/// Submits a request, and returns its outcome if it has arrived.
fn run(store: &mut MemoryStore, request: Request) -> Option<Result<Outcome, StoreError>> {
    store.submit(RequestId(77), request).unwrap();
    let completion = store.next_completion()?;
    assert_eq!(completion.id, RequestId(77));
    Some(completion.outcome)
}

fn keys(hub: &MemoryHub) -> Vec<Vec<u8>> {
    hub.entries().into_iter().map(|entry| entry.key).collect()
}

const SECOND: Duration = Duration::from_secs(1);
const UNAVAILABLE: Option<Result<Outcome, StoreError>> = Some(Err(StoreError::Unavailable));

fn outcome(store: &mut MemoryStore) -> Option<Result<Outcome, StoreError>> {
    store.next_completion().map(|completion| completion.outcome)
}

#[test]
fn users_share_the_contents_and_have_their_own_requests_and_watches() {
    let hub = MemoryHub::new();
    let (mut one, mut two) = (hub.store(), hub.store());
    let watch = Request::Watch { watch: WatchId(1), prefix: vec![], from: Revision(1) };
    assert_eq!(run(&mut one, watch), Some(Ok(Outcome::Watching)));
    one.submit(RequestId(1), put("a", "1", None)).unwrap();
    two.submit(RequestId(1), put("b", "2", None)).unwrap();
    let completion =
        |at| Some(Completion { id: RequestId(1), outcome: Ok(Outcome::Committed(Revision(at))) });
    assert_eq!(two.next_completion(), completion(2));
    assert_eq!(one.next_completion(), completion(1));
    assert_eq!(keys(&hub), [b"a", b"b"]);
    assert_eq!(two.next_event(), None);
    assert!(matches!(one.next_event(), Some(WatchEvent::Put(WatchId(1), entry)) if entry.key == b"a"));
    assert!(matches!(one.next_event(), Some(WatchEvent::Put(WatchId(1), entry)) if entry.key == b"b"));
    assert_eq!(one.next_event(), None);
}

#[test]
fn a_request_that_does_not_arrive_is_never_executed() {
    let hub = MemoryHub::new();
    let mut store = hub.store();
    store.set_link(Link { delivers_requests: false, ..Link::default() });
    assert_eq!(run(&mut store, put("lost", "", None)), None);
    hub.advance(SECOND);
    assert_eq!(outcome(&mut store), None);
    hub.advance(SECOND);
    assert_eq!(outcome(&mut store), UNAVAILABLE);
    store.set_link(Link::default());
    hub.advance(SECOND * 100);
    assert_eq!(keys(&hub), [[0; 0]; 0]);
    assert_eq!((outcome(&mut store), hub.next_timeout()), (None, None));
}

#[test]
fn a_lost_answer_says_nothing_about_the_execution() {
    let hub = MemoryHub::new();
    let mut store = hub.store();
    let watch = Request::Watch { watch: WatchId(1), prefix: vec![], from: Revision(1) };
    run(&mut store, watch).unwrap().unwrap();
    store.set_link(Link { delivers_answers: false, ..Link::default() });
    assert_eq!(run(&mut store, put("key", "", None)), None);
    assert_eq!(keys(&hub), [b"key"]);
    assert_eq!(store.next_event(), None);
    hub.advance(SECOND * 2);
    assert_eq!(outcome(&mut store), UNAVAILABLE);
    // Events are reported when the link is back; the answer is not.
    store.set_link(Link::default());
    hub.advance(SECOND * 2);
    assert_eq!(outcome(&mut store), None);
    assert!(matches!(store.next_event(), Some(WatchEvent::Put(..))));
}

#[test]
fn a_slow_request_is_executed_after_its_user_gave_up() {
    let hub = MemoryHub::new();
    let mut store = hub.store();
    store.set_link(Link { request_delay: SECOND * 5, ..Link::default() });
    run(&mut store, put("first", "", None));
    // A later request does not overtake the first, although its own way is short, until the user has given
    // the first one up.
    store.set_link(Link::default());
    store.submit(RequestId(2), put("second", "", None)).unwrap();
    hub.advance(SECOND);
    assert!(keys(&hub).is_empty() && outcome(&mut store).is_none());
    hub.advance(SECOND);
    assert_eq!(outcome(&mut store), UNAVAILABLE);
    assert_eq!(outcome(&mut store), Some(Ok(Outcome::Committed(Revision(1)))));
    // The number of the first request is free, although it is still on the way.
    store.submit(RequestId(1), put("third", "", None)).unwrap();
    drop(store);
    hub.advance(SECOND * 3);
    let entries = hub.entries();
    let revision = |key: &[u8]| entries.iter().find(|entry| entry.key == key).map(|entry| entry.changed.0);
    assert_eq!([revision(b"first"), revision(b"second"), revision(b"third")], [Some(3), Some(1), Some(2)]);
}

#[test]
fn requests_on_the_way_are_bounded_although_the_user_gave_up() {
    let hub = MemoryHub::new();
    let mut store = hub.store();
    store.set_link(Link { request_delay: SECOND * 100, deadline: Duration::ZERO, ..Link::default() });
    for number in 0..MAX_PENDING as u64 {
        store.submit(RequestId(number), put("key", "", None)).unwrap();
        assert_eq!(outcome(&mut store), UNAVAILABLE);
    }
    assert!(store.submit(RequestId(0), put("key", "", None)).is_err());
    hub.advance(SECOND * 100);
    assert_eq!(hub.revision(), Revision(MAX_PENDING as u64));
    store.submit(RequestId(0), put("key", "", None)).unwrap();
}

#[test]
fn a_full_store_refuses_writes_and_keeps_entries_of_leases() {
    let hub = MemoryHub::new();
    let mut store = hub.store();
    let Some(Ok(Outcome::LeaseGranted(lease))) = run(&mut store, Request::NewLease(SECOND)) else { panic!() };
    run(&mut store, put("bound", "", Some(lease))).unwrap().unwrap();
    hub.set_full(true);
    assert_eq!(run(&mut store, put("key", "", None)), Some(Err(StoreError::Refused)));
    assert_eq!(run(&mut store, Request::Revoke(lease)), Some(Err(StoreError::Refused)));
    hub.advance(SECOND * 10);
    assert_eq!((keys(&hub), hub.revision()), (vec![b"bound".to_vec()], Revision(1)));
    hub.set_full(false);
    assert_eq!((keys(&hub), hub.revision()), (vec![], Revision(2)));
    assert_eq!(run(&mut store, Request::Renew(lease)), Some(Ok(Outcome::Ended)));
}

#[test]
fn a_watch_that_misses_changes_ends_with_a_gap() {
    let hub = MemoryHub::new();
    let mut store = hub.store();
    let watch = |watch, from| Request::Watch { watch: WatchId(watch), prefix: vec![], from: Revision(from) };
    run(&mut store, watch(1, 1)).unwrap().unwrap();
    run(&mut store, put("key", "1", None)).unwrap().unwrap();
    run(&mut store, put("key", "2", None)).unwrap().unwrap();
    assert!(store.next_event().is_some());
    hub.compact();
    run(&mut store, watch(2, 2)).unwrap().unwrap();
    run(&mut store, watch(3, 3)).unwrap().unwrap();
    run(&mut store, put("key", "3", None)).unwrap().unwrap();
    let mut events: Vec<_> = core::iter::from_fn(|| store.next_event()).collect();
    events.sort_by_key(|event| match event {
        WatchEvent::Gap(watch) | WatchEvent::Put(watch, _) | WatchEvent::Deleted(watch, ..) => *watch,
    });
    assert_eq!(events[..2], [WatchEvent::Gap(WatchId(1)), WatchEvent::Gap(WatchId(2))]);
    assert!(matches!(&events[2..], [WatchEvent::Put(WatchId(3), entry)] if entry.value == b"3"));
    // The watches have ended: their names are free.
    assert_eq!(run(&mut store, watch(1, 4)), Some(Ok(Outcome::Watching)));
}

#[test]
fn the_history_is_bounded() {
    let hub = MemoryHub::new();
    let mut store = hub.store();
    let value = "x".repeat(60_000);
    for (count, value) in [(300, value.as_str()), (10_000, "")] {
        let from = Revision(hub.revision().0 + 1);
        run(&mut store, Request::Watch { watch: WatchId(1), prefix: vec![], from }).unwrap().unwrap();
        for _ in 0..count {
            run(&mut store, put("key", value, None)).unwrap().unwrap();
        }
        assert_eq!(store.next_event(), Some(WatchEvent::Gap(WatchId(1))));
        assert_eq!(store.next_event(), None);
    }
}

#[test]
fn a_store_that_lost_confirmed_writes_has_a_lower_revision() {
    let hub = MemoryHub::new();
    let mut store = hub.store();
    let Some(Ok(Outcome::LeaseGranted(lease))) = run(&mut store, Request::NewLease(SECOND * 9)) else {
        panic!()
    };
    run(&mut store, put("kept", "", Some(lease))).unwrap().unwrap();
    run(&mut store, Request::Watch { watch: WatchId(1), prefix: vec![], from: Revision(2) })
        .unwrap()
        .unwrap();
    let snapshot = hub.snapshot();
    assert_eq!(run(&mut store, put("lost", "", None)), Some(Ok(Outcome::Committed(Revision(2)))));
    assert!(store.next_event().is_some());
    hub.advance(SECOND * 8);
    hub.restore(&snapshot);
    let range = Range { prefix: vec![], after: None, limit: 10 };
    let Some(Ok(Outcome::Entries { entries, revision, .. })) = run(&mut store, Request::Read(range)) else {
        panic!()
    };
    assert_eq!((entries, revision), (hub.entries(), Revision(1)));
    assert_eq!(keys(&hub), [b"kept"]);
    assert_eq!(store.next_event(), Some(WatchEvent::Gap(WatchId(1))));
    // The revision is used again, and leases last for their whole time.
    assert_eq!(run(&mut store, put("other", "", None)), Some(Ok(Outcome::Committed(Revision(2)))));
    hub.advance(SECOND * 8);
    assert_eq!(keys(&hub).len(), 2);
    hub.advance(SECOND);
    assert_eq!(keys(&hub), [b"other"]);
}

#[test]
fn an_answer_that_is_later_than_the_deadline_is_not_waited_for() {
    let hub = MemoryHub::new();
    let mut store = hub.store();
    store.set_link(Link { answer_delay: SECOND * 3, ..Link::default() });
    assert_eq!(run(&mut store, put("key", "", None)), None);
    assert_eq!(hub.next_timeout(), Some(SECOND * 2));
    hub.advance(SECOND * 2);
    assert_eq!((outcome(&mut store), keys(&hub)), (UNAVAILABLE, vec![b"key".to_vec()]));
    hub.advance(SECOND * 2);
    assert_eq!(outcome(&mut store), None);
}

#[test]
fn a_state_refuses_to_exceed_its_capacity_and_grants_no_lease_below_the_shortest() {
    let mut state = State::new(Revision(5), 10, SECOND * 3);
    let mut execute = |request, now| state.execute(&request, &mut Watches::default(), SECOND * now);
    assert_eq!(execute(put("key", "1234567", None), 0), Ok(Outcome::Committed(Revision(6))));
    assert_eq!(execute(put("k", "", None), 0), Err(StoreError::Refused));
    assert_eq!(execute(put("key", "12345678", None), 0), Err(StoreError::Refused));
    assert_eq!(execute(put("key", "123456", None), 0), Ok(Outcome::Committed(Revision(7))));
    assert_eq!(execute(put("k", "", None), 0), Ok(Outcome::Committed(Revision(8))));
    let Ok(Outcome::LeaseGranted(lease)) = execute(Request::NewLease(SECOND), 1) else { panic!() };
    assert_eq!(state.next_expiry(), Some(SECOND * 4));
    state.expire(SECOND * 4 - Duration::from_nanos(1));
    assert_eq!(state.next_expiry(), Some(SECOND * 4));
    let mut execute = |request, now| state.execute(&request, &mut Watches::default(), SECOND * now);
    assert_eq!(execute(Request::Renew(lease), 3), Ok(Outcome::Renewed));
    assert_eq!(state.next_expiry(), Some(SECOND * 6));
    state.expire(SECOND * 6);
    assert_eq!(state.next_expiry(), None);
}
