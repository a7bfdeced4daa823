use super::*;
use crate::{WRAPPING_KEY_LEN, WrappingKey};
use casemate::Routes;
use casemate_ike::SharedKeys;
use casemate_rustcrypto::RustCrypto;
use casemate_store::Revision;
use casemate_test_support::TestRng;
use core::net::IpAddr;
use proptest::prelude::*;

mod wrapping_key;

const PROVIDERS: Providers<'static> = Providers(&[&RustCrypto]);
const SECOND: Duration = Duration::from_secs(1);

struct NoRoutes;

impl Routes for NoRoutes {
    fn source_for(&self, _: IpAddr) -> Option<IpAddr> {
        None
    }
}

fn keys() -> StoreKeys {
    StoreKeys::new(b"test/")
}

fn wrapping(key: u8) -> WrappingKey {
    WrappingKey::new(&SecretBytes::new(&[key; WRAPPING_KEY_LEN]), &PROVIDERS).unwrap()
}

fn data_keys(wrapping_key: u8) -> DataKeys {
    DataKeys::new(keys(), WrappingKeys::new(wrapping(wrapping_key), None))
}

fn facts(records: &[(u64, Write)]) -> Vec<WriteFacts> {
    let data_key = |write: &Write| match write {
        Write::Put { value, .. } => DataKeyId::of_record(value),
        Write::Delete(_) => None,
    };
    let named = BTreeMap::new;
    records
        .iter()
        .map(|(spi, write)| WriteFacts { spi: *spi, data_key: data_key(write), named: named() })
        .collect()
}

fn restore(
    data_keys: &mut DataKeys,
    contents: &SlotContents,
    now: Instant,
) -> Result<FormerKeys, StartError> {
    data_keys.restore(contents, &PROVIDERS, &mut TestRng::new(now.as_micros()), now)
}

/// The data keys of an owner, and a store that executes what it writes.
struct Case {
    data_keys: DataKeys,
    owner: u64,
    store: BTreeMap<Vec<u8>, Vec<u8>>,
    now: Instant,
    rng: TestRng,
}

impl Case {
    fn new() -> Self {
        let (store, now, rng) = (BTreeMap::new(), Instant::from_secs(1_000), TestRng::new(1));
        Self { data_keys: data_keys(1), owner: 1, store, now, rng }
    }

    fn seal(&mut self, spi: u64) -> Vec<u8> {
        let mut context = Context {
            now: self.now,
            unix_time: 0,
            rng: &mut self.rng,
            providers: &PROVIDERS,
            credentials: &SharedKeys::new(),
            routes: &NoRoutes,
        };
        let record = SecretBytes::new(&spi.to_be_bytes());
        self.data_keys.seal(self.owner, spi, &record, &mut context).unwrap().0
    }

    /// The record of an SPI, ready to be written.
    fn record(&mut self, spi: u64) -> (u64, Write) {
        (spi, Write::Put { key: keys().record(spi), value: self.seal(spi), lease: None })
    }

    /// All writes of a transaction.
    fn transaction(&mut self, records: &[(u64, Write)]) -> Vec<Write> {
        let of_records = records.iter().map(|(_, write)| write.clone());
        let all: Vec<Write> = of_records.chain(self.data_keys.writes()).collect();
        assert!(all.len() <= records.len() + MAX_KEY_WRITES);
        all
    }

    fn execute(&mut self, writes: Vec<Write>) {
        for write in writes {
            match write {
                Write::Put { key, value, .. } => drop(self.store.insert(key, value)),
                Write::Delete(key) => drop(self.store.remove(&key)),
            }
        }
        self.check();
    }

    /// Executes a transaction whose answer arrives.
    fn commit(&mut self, records: &[(u64, Write)]) {
        let writes = self.transaction(records);
        self.execute(writes);
        self.data_keys.written(&facts(records));
        self.data_keys.replace_if_due(self.now);
    }

    fn write(&mut self, spis: &[u64]) {
        self.data_keys.replace_if_due(self.now);
        let records: Vec<_> = spis.iter().map(|spi| self.record(*spi)).collect();
        self.commit(&records);
    }

    fn delete(&mut self, spi: u64) {
        self.commit(&[(spi, Write::Delete(keys().record(spi)))]);
    }

    fn entries(&self, prefix: &[u8]) -> Vec<Entry> {
        let found = self.store.iter().filter(|(key, _)| key.starts_with(prefix));
        let entry = |(key, value): (&Vec<u8>, &Vec<u8>)| {
            let (created, changed) = (Revision(1), Revision(1));
            Entry { key: key.clone(), value: value.clone(), created, changed, lease: None }
        };
        found.map(entry).collect()
    }

    fn contents(&self, owner: u64) -> SlotContents {
        let (data_keys, records) = (self.entries(&keys().data_keys()), self.entries(&keys().records()));
        SlotContents { data_keys, records, ..SlotContents::new(Revision(1), owner, None) }
    }

    /// Each record in the store has its key there.
    fn check(&self) {
        let contents = self.contents(u64::MAX);
        let former = restore(&mut data_keys(1), &contents, self.now).unwrap();
        for Entry { key, value, .. } in &contents.records {
            let opened = former.open(key, value).expect("the key of a record was deleted");
            assert_eq!(Some(u64::from_be_bytes(*opened.text.as_array().unwrap())), spi_of(key));
        }
        assert!(contents.data_keys.len() <= self.data_keys.count(), "all keys in the store are known");
    }

    /// The next owner begins.
    fn take_over(&mut self) -> FormerKeys {
        self.owner += 1;
        self.data_keys = data_keys(1);
        let contents = self.contents(self.owner);
        restore(&mut self.data_keys, &contents, self.now).unwrap()
    }

    /// Writes records of former keys until there are none, and deletes the keys. Returns the number of
    /// groups.
    fn rewrite(&mut self) -> usize {
        let mut groups = 0;
        for _ in 0..1_000 {
            self.now = self.now.after(PAUSE);
            let due: Vec<u64> = self.data_keys.take_due(self.now).into_iter().collect();
            groups += usize::from(!due.is_empty());
            if !due.is_empty() || self.data_keys.has_unused() {
                self.write(&due);
            }
        }
        groups
    }
}

#[test]
fn a_record_names_its_key_and_its_owner() {
    let mut case = Case::new();
    case.write(&[5]);
    let names: Vec<_> = case.store.keys().map(|key| core::str::from_utf8(key).unwrap()).collect();
    assert_eq!(names, ["test/data-keys/000/0000000000000001-00000000", "test/sas/000/0000000000000005"]);
    let (entry, value) = (keys().record(5), case.store[&keys().record(5)].clone());
    assert_eq!(value[..13], [2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
    let former = case.take_over();
    let opened = former.open(&entry, &value).unwrap();
    assert_eq!((opened.owner, &**opened.text), (1, &5_u64.to_be_bytes()[..]));
    assert!(former.open(&keys().record(6), &value).is_none(), "another entry");
    for at in 0..value.len() {
        let mut changed = value.clone();
        changed[at] ^= 1;
        assert!(former.open(&entry, &changed).is_none(), "byte {at}");
        assert!(former.open(&entry, &value[..at]).is_none(), "{at} bytes");
    }
}

#[test]
fn a_data_key_is_not_stored_in_clear_and_no_other_owner_uses_it() {
    let mut case = Case::new();
    case.write(&[1]);
    let first = case.entries(&keys().data_keys()).remove(0);
    let key = wrapping(1).unwrap_key(&first.key, &first.value).unwrap();
    assert!(!case.store.values().any(|value| value.windows(KEY_LEN).any(|part| part == key.expose())));
    case.take_over();
    assert!(case.data_keys.take_due(case.now).is_empty(), "most records change before");
    assert_eq!(case.data_keys.take_due(case.now.after(TIME / REWRITE)), [1].into());
    case.write(&[2]);
    let ids: Vec<_> = case.data_keys.known.keys().map(|id| (id.owner, id.number)).collect();
    assert_eq!(ids, [(1, 0), (2, 0)]);
    assert_eq!(case.store[&keys().record(2)][8], 2);
    // The record of the first owner needs its key until it is written again.
    case.write(&[1]);
    case.write(&[]);
    assert_eq!(case.entries(&keys().data_keys()).len(), 1);
}

#[test]
fn a_key_is_replaced_after_its_time_and_deleted_when_no_record_needs_it() {
    let mut case = Case::new();
    case.write(&[1, 2, 3]);
    case.now = case.now.after(TIME - SECOND);
    case.write(&[1]);
    assert_eq!((case.data_keys.count(), case.data_keys.has_unused()), (1, false));
    case.now = case.now.after(SECOND);
    case.write(&[1]);
    assert_eq!(case.data_keys.count(), 2);
    // The others wait for a while, in case they are written anyway.
    assert!(case.data_keys.take_due(case.now.after(TIME / REWRITE - SECOND)).is_empty());
    case.write(&[2]);
    assert!(!case.data_keys.has_unused());
    case.now = case.now.after(TIME / REWRITE);
    assert_eq!(case.data_keys.take_due(case.now), [3].into());
    case.write(&[3]);
    assert!(case.data_keys.has_unused());
    case.write(&[]);
    assert_eq!((case.data_keys.count(), case.entries(&keys().data_keys()).len()), (1, 1));
}

#[test]
fn records_are_rewritten_in_groups() {
    let mut case = Case::new();
    let spis: Vec<u64> = (0..200).collect();
    case.write(&spis);
    case.now = case.now.after(TIME);
    case.data_keys.replace_if_due(case.now);
    case.now = case.now.after(TIME / REWRITE);
    assert_eq!(case.data_keys.take_due(case.now).len(), GROUP);
    assert!(case.data_keys.take_due(case.now).is_empty(), "a pause follows");
    assert_eq!(case.rewrite(), 4);
    assert_eq!((case.data_keys.count(), case.entries(&keys().records()).len()), (1, 200));
    assert_eq!(case.rewrite(), 0);
}

#[test]
fn a_key_encrypts_a_bounded_number_of_records() {
    let mut case = Case::new();
    case.write(&[1]);
    case.data_keys.current.as_mut().unwrap().records = MAX_RECORDS - 1;
    case.write(&[1]);
    assert!(case.data_keys.current.is_none());
    case.write(&[1]);
    assert_eq!(case.data_keys.current_id().unwrap().number, 1);
}

#[test]
fn the_number_of_keys_is_bounded() {
    let mut case = Case::new();
    // A record of each key is never written again.
    for round in 0..20 {
        case.write(&[100 + round]);
        case.now = case.now.after(TIME);
    }
    assert_eq!((case.data_keys.count(), case.entries(&keys().data_keys()).len()), (MAX_KEYS, MAX_KEYS));
    case.rewrite();
    assert_eq!(case.data_keys.count(), 1);
}

/// The first write of a key has no answer: it was executed, is executed late, or never.
#[test]
fn a_key_without_an_answer_is_written_again() {
    for executed in [true, false] {
        let mut case = Case::new();
        let first = case.record(1);
        let unanswered = case.transaction(&[first]);
        if executed {
            case.execute(unanswered);
        }
        // It is not replaced: the number of keys does not grow while the store fails.
        case.now = case.now.after(2 * TIME);
        case.data_keys.replace_if_due(case.now);
        case.write(&[1]);
        assert_eq!((case.data_keys.count(), case.entries(&keys().data_keys()).len()), (1, 1));
    }
}

/// The rewriting of the last record of a former key has no answer.
#[test]
fn a_key_is_kept_until_a_later_write_has_an_answer() {
    for executed in [true, false] {
        let mut case = Case::new();
        case.write(&[1]);
        case.now = case.now.after(TIME);
        case.data_keys.replace_if_due(case.now);
        let second = case.record(1);
        let unanswered = case.transaction(&[second]);
        if executed {
            case.execute(unanswered);
        }
        assert!(!case.data_keys.has_unused(), "{executed}");
        case.write(&[1]);
        assert!(case.data_keys.has_unused());
        case.write(&[]);
        assert_eq!(case.data_keys.count(), 1);
    }
}

/// An owner that ends prepares its records while a write with older ones is in progress.
#[test]
fn a_later_key_of_a_record_that_follows_is_kept() {
    let mut case = Case::new();
    let first = case.record(1);
    let writes = case.transaction(core::slice::from_ref(&first));
    case.data_keys.retire(case.now);
    let second = case.record(1);
    case.execute(writes);
    case.data_keys.written(&facts(&[first]));
    let possible: Vec<_> = case.data_keys.known.iter().map(|(id, records)| (id.number, *records)).collect();
    assert_eq!(possible, [(0, 1), (1, 1)]);
    case.commit(&[second]);
    case.commit(&[]);
    assert_eq!(case.data_keys.count(), 1);
}

#[test]
fn all_keys_are_deleted_with_the_last_record() {
    let mut case = Case::new();
    for round in 0..3 {
        case.write(&[1, 10 + round]);
        case.now = case.now.after(TIME);
    }
    case.data_keys.retire(case.now);
    [1, 10, 11, 12].into_iter().for_each(|spi| case.delete(spi));
    case.commit(&[]);
    assert!(case.store.is_empty() && !case.data_keys.has_unused());
}

#[test]
fn a_record_without_its_key_cannot_be_read() {
    let mut case = Case::new();
    case.write(&[1, 2]);
    let value = case.store[&keys().record(1)].clone();
    case.store.retain(|key, _| !key.starts_with(&keys().data_keys()));
    let former = restore(&mut data_keys(1), &case.contents(2), case.now).unwrap();
    assert!(former.open(&keys().record(1), &value).is_none());
}

#[test]
fn keys_of_another_wrapping_key_are_refused() {
    let mut case = Case::new();
    case.write(&[1]);
    let contents = case.contents(2);
    for (first, second) in [(2, None), (2, Some(3))] {
        let mut other = DataKeys::new(keys(), WrappingKeys::new(wrapping(first), second.map(wrapping)));
        assert_eq!(restore(&mut other, &contents, case.now).err(), Some(StartError::WrappingKey));
    }
}

#[test]
fn a_key_of_a_later_owner_is_refused() {
    let mut case = Case::new();
    case.take_over();
    case.write(&[1]);
    for (owner, is_refused) in [(1, true), (2, true), (3, false)] {
        let restored = restore(&mut data_keys(1), &case.contents(owner), case.now);
        assert_eq!(restored.err(), is_refused.then_some(StartError::LaterOwner), "{owner}");
    }
}

#[test]
fn entries_with_other_names_are_ignored() {
    let mut case = Case::new();
    case.write(&[1]);
    let (name, value) =
        case.store.first_key_value().map(|(key, value)| (key.clone(), value.clone())).unwrap();
    for other in
        ["x", "1-0", "0000000000000001-0000000g", "+000000000000001-00000000", "000000000000000A-00000000"]
    {
        case.store.insert([&*keys().data_keys(), other.as_bytes()].concat(), value.clone());
    }
    let mut next = data_keys(1);
    restore(&mut next, &case.contents(2), case.now).unwrap();
    assert_eq!(next.known.keys().map(|id| keys().data_key(*id)).collect::<Vec<_>>(), [name]);
}

#[derive(Debug, Clone)]
enum Step {
    /// Writes records. What is executed, and whether the answer arrives.
    Write(Vec<u64>, Answer),
    Delete(u64),
    Pass(u64),
    TakeOver,
    Rewrite,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Answer {
    Arrives,
    /// The transaction is executed, and the owner does not know.
    IsLost,
    /// The transaction is not executed.
    NotExecuted,
}

fn step() -> impl Strategy<Value = Step> {
    let answer =
        prop_oneof![3 => Just(Answer::Arrives), 1 => Just(Answer::IsLost), 1 => Just(Answer::NotExecuted)];
    prop_oneof![
        4 => (prop::collection::vec(0_u64..6, 0..4), answer).prop_map(|(spis, answer)| {
            Step::Write(spis.into_iter().collect::<BTreeSet<u64>>().into_iter().collect(), answer)
        }),
        1 => (0_u64..6).prop_map(Step::Delete),
        2 => (0_u64..4_000).prop_map(Step::Pass),
        1 => Just(Step::TakeOver),
        1 => Just(Step::Rewrite),
    ]
}

proptest! {
    /// Whatever is executed and known of it, each record in the store has its key there: `execute` checks it.
    #[test]
    fn no_record_is_without_its_key(steps in prop::collection::vec(step(), 0..60)) {
        let mut case = Case::new();
        for step in steps {
            match step {
                Step::Write(spis, Answer::Arrives) => case.write(&spis),
                Step::Write(spis, answer) => {
                    case.data_keys.replace_if_due(case.now);
                    let records: Vec<_> = spis.iter().map(|spi| case.record(*spi)).collect();
                    let writes = case.transaction(&records);
                    if answer == Answer::IsLost {
                        case.execute(writes);
                    }
                }
                Step::Delete(spi) => case.delete(spi),
                Step::Pass(seconds) => case.now = case.now.after(Duration::from_secs(seconds)),
                Step::TakeOver => drop(case.take_over()),
                Step::Rewrite => {
                    let due: Vec<u64> = case.data_keys.take_due(case.now).into_iter().collect();
                    case.write(&due);
                }
            }
        }
        // In the end, one key is left, or none.
        case.now = case.now.after(2 * TIME);
        case.data_keys.replace_if_due(case.now);
        case.now = case.now.after(TIME / REWRITE);
        case.rewrite();
        prop_assert!(case.entries(&keys().data_keys()).len() <= 1);
    }
}
