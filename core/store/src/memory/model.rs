//! A comparison of the store in memory with a simpler model, for random requests of two users.
//!
//! The model keeps every change that was ever made, and replays all of them for each question.

use super::*;
use crate::{
    Comparison, Key, Lease, MAX_WRITES, Outcome, Range, Request, RequestId, StoreError, Transaction,
    WatchEvent, WatchId, Write,
};
use proptest::collection::vec;
use proptest::prelude::*;
use std::vec;

const KEYS: [&str; 5] = ["a", "a/1", "a/2", "b", "b/1"];
const PREFIXES: [&str; 4] = ["", "a", "a/", "b/1"];

#[derive(Debug, Clone)]
enum Step {
    Commit { user: usize, comparisons: Vec<(usize, bool, Expected)>, writes: Vec<(usize, Option<usize>)> },
    Read { user: usize, prefix: usize, after: Option<usize>, limit: usize },
    NewLease { user: usize, seconds: u64 },
    Renew { user: usize, lease: usize },
    Revoke { user: usize, lease: usize },
    Watch { user: usize, watch: u64, prefix: usize, back: u64 },
    Unwatch { user: usize, watch: u64 },
    Advance { millis: u64 },
}

/// The revision of a comparison.
#[derive(Debug, Clone, Copy)]
enum Expected {
    Absent,
    Correct,
    Lower,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let user = || 0..2_usize;
    let expected =
        prop_oneof![1 => Just(Expected::Absent), 4 => Just(Expected::Correct), 1 => Just(Expected::Lower)];
    let comparisons = vec((0..KEYS.len(), any::<bool>(), expected), 0..3);
    // A write is a deletion, a put, or a put with one of the leases.
    let writes = vec((0..KEYS.len(), proptest::option::weighted(0.7, 0..8_usize)), 0..4);
    let step = prop_oneof![
        8 => (user(), comparisons, writes)
            .prop_map(|(user, comparisons, writes)| Step::Commit { user, comparisons, writes }),
        2 => (user(), 0..PREFIXES.len(), proptest::option::of(0..KEYS.len()), 1..4_usize)
            .prop_map(|(user, prefix, after, limit)| Step::Read { user, prefix, after, limit }),
        1 => (user(), 1..4_u64).prop_map(|(user, seconds)| Step::NewLease { user, seconds }),
        1 => (user(), 0..8_usize).prop_map(|(user, lease)| Step::Renew { user, lease }),
        1 => (user(), 0..8_usize).prop_map(|(user, lease)| Step::Revoke { user, lease }),
        1 => (user(), 0..3_u64, 0..PREFIXES.len(), 0..6_u64)
            .prop_map(|(user, watch, prefix, back)| Step::Watch { user, watch, prefix, back }),
        1 => (user(), 0..3_u64).prop_map(|(user, watch)| Step::Unwatch { user, watch }),
        2 => (0..1_500_u64).prop_map(|millis| Step::Advance { millis }),
    ];
    vec(step, 1..120)
}

/// One change: revision, key, and the value with its lease; `None` is a deletion.
type Made = (u64, Key, Option<(Vec<u8>, Option<Lease>)>);

#[derive(Default)]
struct Model {
    now: Duration,
    made: Vec<Made>,
    revision: u64,
    /// Length and end of each lease that exists.
    leases: Vec<(Lease, Duration, Duration)>,
    /// User, name, prefix and first revision of each watch, and number of the next change to look at.
    watches: Vec<(usize, u64, Key, u64, usize)>,
}

impl Model {
    fn entry(&self, key: &[u8]) -> Option<Entry> {
        let mut found: Option<Entry> = None;
        for (revision, changed, value) in &self.made {
            if changed != key {
                continue;
            }
            found = value.clone().map(|(value, lease)| {
                let changed = Revision(*revision);
                let created = found.as_ref().map_or(changed, |entry| entry.created);
                Entry { key: key.to_vec(), value, created, changed, lease }
            });
        }
        found
    }

    fn entries(&self) -> Vec<Entry> {
        KEYS.iter().filter_map(|key| self.entry(key.as_bytes())).collect()
    }

    fn commit(&mut self, transaction: &Transaction) -> Result<Outcome, StoreError> {
        for comparison in &transaction.comparisons {
            let entry = self.entry(comparison.key());
            let (actual, expected) = match comparison {
                Comparison::Created(_, expected) => (entry.map_or(0, |entry| entry.created.0), expected.0),
                Comparison::Changed(_, expected) => (entry.map_or(0, |entry| entry.changed.0), expected.0),
            };
            if actual != expected {
                return Ok(Outcome::Refused(Revision(self.revision)));
            }
        }
        let unknown = |write: &Write| match write {
            Write::Put { lease: Some(lease), .. } => self.leases.iter().all(|(known, ..)| known != lease),
            _ => false,
        };
        if transaction.writes.iter().any(unknown) {
            return Err(StoreError::Refused);
        }
        let next = self.revision + 1;
        for write in &transaction.writes {
            match write {
                Write::Put { key, value, lease } => {
                    self.made.push((next, key.clone(), Some((value.clone(), *lease))));
                    self.revision = next;
                }
                Write::Delete(key) if self.entry(key).is_some() => {
                    self.made.push((next, key.clone(), None));
                    self.revision = next;
                }
                Write::Delete(_) => {}
            }
        }
        Ok(Outcome::Committed(Revision(self.revision)))
    }

    fn end_lease(&mut self, lease: Lease) {
        let next = self.revision + 1;
        for entry in self.entries().into_iter().filter(|entry| entry.lease == Some(lease)) {
            self.made.push((next, entry.key, None));
            self.revision = next;
        }
        self.leases.retain(|(known, ..)| *known != lease);
    }

    fn advance(&mut self, time: Duration) {
        self.now += time;
        while let Some((end, lease)) = self.leases.iter().map(|(lease, _, end)| (*end, *lease)).min()
            && end <= self.now
        {
            self.end_lease(lease);
        }
    }

    /// The events that the watch has and were not taken.
    fn events(&mut self, user: usize, name: u64) -> Vec<WatchEvent> {
        let watch = self.watches.iter_mut().find(|watch| (watch.0, watch.1) == (user, name));
        let Some((_, _, prefix, from, next)) = watch else { return vec![] };
        let (prefix, from, first) = (prefix.clone(), *from, core::mem::replace(next, self.made.len()));
        let mut events = Vec::new();
        for index in first..self.made.len() {
            let (revision, key, value) = self.made[index].clone();
            if revision >= from && key.starts_with(&prefix) {
                // The entry as it was after this change.
                let until = Self { made: self.made[..=index].to_vec(), ..Self::default() };
                events.push(match value {
                    Some(_) => WatchEvent::Put(WatchId(name), until.entry(&key).unwrap()),
                    None => WatchEvent::Deleted(WatchId(name), key, Revision(revision)),
                });
            }
        }
        events
    }
}

/// The store, the model, and all leases that were granted.
struct Compared {
    hub: MemoryHub,
    stores: [MemoryStore; 2],
    model: Model,
    leases: Vec<Lease>,
}

impl Compared {
    fn lease(&self, index: usize) -> Lease {
        self.leases.get(index).copied().unwrap_or(Lease(1_000))
    }

    fn run(&mut self, user: usize, request: Request) -> Result<Outcome, StoreError> {
        self.stores[user].submit(RequestId(1), request).unwrap();
        self.stores[user].next_completion().unwrap().outcome
    }

    fn transaction(
        &self,
        comparisons: &[(usize, bool, Expected)],
        writes: &[(usize, Option<usize>)],
    ) -> Transaction {
        let comparison = |&(key, by_creation, expected): &(usize, bool, Expected)| {
            let entry = self.model.entry(KEYS[key].as_bytes());
            let actual = entry.map_or(0, |entry| if by_creation { entry.created.0 } else { entry.changed.0 });
            let revision = Revision(match expected {
                Expected::Absent => 0,
                Expected::Correct => actual,
                Expected::Lower => actual.saturating_sub(1),
            });
            if by_creation {
                Comparison::Created(KEYS[key].into(), revision)
            } else {
                Comparison::Changed(KEYS[key].into(), revision)
            }
        };
        let mut written: BTreeMap<usize, Write> = BTreeMap::new();
        for (number, &(key, put)) in writes.iter().enumerate() {
            let write = match put {
                // Half of the puts have no lease.
                Some(lease) => {
                    let lease = (lease % 2 == 0).then(|| self.lease(lease / 2));
                    Write::Put { key: KEYS[key].into(), value: vec![number as u8], lease }
                }
                None => Write::Delete(KEYS[key].into()),
            };
            written.insert(key, write);
        }
        assert!(written.len() <= MAX_WRITES);
        Transaction {
            comparisons: comparisons.iter().map(comparison).collect(),
            writes: written.into_values().collect(),
        }
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Commit { user, comparisons, writes } => {
                let transaction = self.transaction(comparisons, writes);
                let expected = self.model.commit(&transaction);
                assert_eq!(self.run(*user, Request::Commit(transaction)), expected);
            }
            Step::Read { user, prefix, after, limit } => {
                let (prefix, after) = (PREFIXES[*prefix], after.map(|after| Key::from(KEYS[after])));
                let mut entries = self.model.entries();
                entries.retain(|entry| entry.key.starts_with(prefix.as_bytes()));
                entries.retain(|entry| after.as_ref().is_none_or(|after| entry.key > *after));
                let more = entries.len() > *limit;
                entries.truncate(*limit);
                let expected = Outcome::Entries { entries, more, revision: Revision(self.model.revision) };
                let range = Range { prefix: prefix.into(), after, limit: *limit };
                assert_eq!(self.run(*user, Request::Read(range)), Ok(expected));
            }
            Step::NewLease { user, seconds } => {
                let length = Duration::from_secs(*seconds);
                let outcome = self.run(*user, Request::NewLease(length));
                let Ok(Outcome::LeaseGranted(lease)) = outcome else { panic!("{outcome:?}") };
                assert!(!self.leases.contains(&lease));
                self.leases.insert(0, lease);
                self.model.leases.push((lease, length, self.model.now + length));
            }
            Step::Renew { user, lease } => {
                let (lease, now) = (self.lease(*lease), self.model.now);
                let known = self.model.leases.iter_mut().find(|(known, ..)| *known == lease);
                let expected = known.map_or(Outcome::Ended, |(_, length, end)| {
                    *end = now + *length;
                    Outcome::Renewed
                });
                assert_eq!(self.run(*user, Request::Renew(lease)), Ok(expected));
            }
            Step::Revoke { user, lease } => {
                let lease = self.lease(*lease);
                self.model.end_lease(lease);
                assert_eq!(self.run(*user, Request::Revoke(lease)), Ok(Outcome::Ended));
            }
            Step::Watch { user, watch, prefix, back } => {
                let exists = self.model.watches.iter().any(|known| (known.0, known.1) == (*user, *watch));
                let (prefix, from) =
                    (Key::from(PREFIXES[*prefix]), (self.model.revision + 3).saturating_sub(*back));
                let request =
                    Request::Watch { watch: WatchId(*watch), prefix: prefix.clone(), from: Revision(from) };
                let expected = if exists { Err(StoreError::Refused) } else { Ok(Outcome::Watching) };
                assert_eq!(self.run(*user, request), expected);
                if !exists {
                    self.model.watches.push((*user, *watch, prefix, from, 0));
                }
            }
            Step::Unwatch { user, watch } => {
                self.model.watches.retain(|known| (known.0, known.1) != (*user, *watch));
                assert_eq!(self.run(*user, Request::Unwatch(WatchId(*watch))), Ok(Outcome::Ended));
            }
            Step::Advance { millis } => {
                self.hub.advance(Duration::from_millis(*millis));
                self.model.advance(Duration::from_millis(*millis));
            }
        }
        assert_eq!(self.hub.entries(), self.model.entries());
        assert_eq!(self.hub.revision(), Revision(self.model.revision));
    }

    fn compare_events(&mut self) {
        for user in 0..2 {
            let mut events: BTreeMap<u64, Vec<WatchEvent>> = BTreeMap::new();
            while let Some(event) = self.stores[user].next_event() {
                let (WatchEvent::Put(watch, _) | WatchEvent::Deleted(watch, ..) | WatchEvent::Gap(watch)) =
                    &event;
                events.entry(watch.0).or_default().push(event);
            }
            for name in 0..3 {
                assert_eq!(events.remove(&name).unwrap_or_default(), self.model.events(user, name));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn the_store_does_what_the_model_does(steps in steps(), interval in 1..20_usize) {
        let hub = MemoryHub::new();
        let stores = [hub.store(), hub.store()];
        let mut compared = Compared { hub, stores, model: Model::default(), leases: vec![] };
        for (number, step) in steps.iter().enumerate() {
            compared.take(step);
            if number % interval == 0 {
                compared.compare_events();
            }
        }
        compared.compare_events();
    }

    /// Undoing changes gives the state of before, whatever was executed since.
    #[test]
    fn a_state_that_is_rolled_back_is_as_before(before in steps(), after in steps()) {
        let hub = MemoryHub::new();
        let stores = [hub.store(), hub.store()];
        let mut compared = Compared { hub, stores, model: Model::default(), leases: vec![] };
        before.iter().for_each(|step| compared.take(step));
        let mut state = compared.hub.snapshot().0;
        let (checkpoint, first) = (state.checkpoint(), state.clone());
        let mut watches = Watches::default();
        for step in &after {
            let now = compared.hub.now().saturating_add(Duration::from_secs(1));
            if let Step::Commit { comparisons, writes, .. } = step {
                let transaction = compared.transaction(comparisons, writes);
                let _ = state.execute(&Request::Commit(transaction), &mut watches, now);
            } else if let Step::Revoke { lease, .. } = step {
                let _ = state.execute(&Request::Revoke(compared.lease(*lease)), &mut watches, now);
            } else {
                state.expire(now);
            }
        }
        state.roll_back(checkpoint);
        prop_assert_eq!(std::format!("{state:?}"), std::format!("{first:?}"));
    }
}
