//! The change of the wrapping key.

use super::*;
use crate::writes::MAX_DELETED;
use casemate_store::MAX_WRITES;

const BOTH: [u8; 2] = [1, 2];

/// The keys of a node: 1 is the former wrapping key, 2 the new one.
fn wrapping_keys(keys: &[u8]) -> WrappingKeys {
    WrappingKeys::new(wrapping(keys[0]), keys.get(1).copied().map(wrapping))
}

/// A store with so many data keys, one for each record, and the proof of key 1.
fn store_with(count: u64) -> Case {
    let mut case = Case::new();
    for spi in 0..count {
        case.write(&[spi]);
        case.data_keys.retire(case.now);
    }
    let entry = keys().wrapping_key();
    let proof = wrapping(1).proof(&entry, &mut case.rng).unwrap();
    case.store.insert(entry, proof);
    case
}

/// The next owner, with these keys: the data keys, and those that it reads. `None` if the proofs refuse it.
fn next_owner(case: &Case, node: &[u8]) -> Option<(DataKeys, FormerKeys)> {
    let entry = keys().wrapping_key();
    let proved = wrapping_keys(node).needed(&entry, &case.store[&entry])?;
    let mut next = DataKeys::new(keys(), wrapping_keys(node));
    let contents = SlotContents { proved: Some(proved), ..case.contents(100_000) };
    let former = restore(&mut next, &contents, case.now).expect("a node that is not refused reads all keys");
    Some((next, former))
}

/// A node that is not refused reads all records. Returns which nodes are not: those with key 1, key 2, and
/// both.
fn readers(case: &Case) -> [bool; 3] {
    [&[1][..], &[2], &BOTH].map(|node| {
        let Some((_, former)) = next_owner(case, node) else { return false };
        let records = case.entries(&keys().records());
        assert!(records.iter().all(|entry| former.open(&entry.key, &entry.value).is_some()));
        true
    })
}

fn put(case: &mut Case, writes: &[Write]) {
    for write in writes {
        let Write::Put { key, value, lease: None } = write else { panic!("{write:?}") };
        case.store.insert(key.clone(), value.clone());
    }
}

/// Executes the transactions of a change of which the owner learns, so many at most. Returns their number.
fn change(case: &mut Case, owner: &mut DataKeys, most: usize) -> usize {
    let mut transactions = 0;
    while owner.is_changing() && transactions < most {
        let writes = owner.writes();
        assert!(writes.len() <= MAX_WRITES - MAX_DELETED);
        put(case, &writes);
        owner.written(&[]);
        transactions += 1;
    }
    transactions
}

#[test]
fn a_change_is_one_transaction_for_few_keys() {
    for count in [0, 1, 8, 91] {
        let mut case = store_with(count);
        assert_eq!(readers(&case), [true, false, true]);
        let (mut owner, _) = next_owner(&case, &[2, 1]).unwrap();
        assert_eq!(change(&mut case, &mut owner, 9), 1, "{count}");
        assert_eq!(readers(&case), [false, true, true], "{count}");
        let (owner, _) = next_owner(&case, &[2, 1]).unwrap();
        assert!(!owner.is_changing() && owner.count() as u64 == count);
    }
}

/// The owner ends after each transaction, whose answer it may know. The next one goes on or back.
#[test]
fn the_change_of_many_keys_may_end_at_any_time() {
    let ends = (0..=4).flat_map(|executed| [false, true].map(|knows| (executed, knows)));
    for ((executed, knows), next) in ends.flat_map(|end| [[2, 1], [1, 2]].map(|next| (end, next))) {
        let mut case = store_with(200);
        let (mut owner, _) = next_owner(&case, &[2, 1]).unwrap();
        for number in 0..executed {
            let writes = owner.writes();
            put(&mut case, &writes);
            if number + 1 < executed || knows {
                owner.written(&[]);
            }
        }
        let expected = match executed {
            0 => [true, false, true],
            1 | 2 => [false, false, true],
            _ => [false, true, true],
        };
        assert_eq!(readers(&case), expected, "{executed}, {knows}");
        let (mut owner, _) = next_owner(&case, &next).unwrap();
        change(&mut case, &mut owner, 9);
        assert_eq!(readers(&case), [next == [1, 2], next == [2, 1], true], "{executed}, {next:?}");
        assert!(!owner.is_changing());
    }
}

/// A transaction without an answer is repeated, whether it was executed or not.
#[test]
fn a_change_without_an_answer_is_repeated() {
    for executed in [false, true] {
        let mut case = store_with(100);
        let (mut owner, _) = next_owner(&case, &[2, 1]).unwrap();
        let first = owner.writes();
        if executed {
            put(&mut case, &first);
        }
        assert_eq!(owner.writes(), first);
        assert_eq!(change(&mut case, &mut owner, 9), 2);
        assert_eq!(readers(&case), [false, true, true]);
    }
}

/// A single machine has no proofs. Its data keys are the proof.
#[test]
fn a_single_machine_writes_no_proof() {
    let mut case = store_with(3);
    case.store.remove(&keys().wrapping_key());
    let mut owner = DataKeys::new(keys(), wrapping_keys(&[2, 1]));
    restore(&mut owner, &case.contents(100_000), case.now).unwrap();
    assert_eq!(change(&mut case, &mut owner, 9), 1);
    assert!(!case.store.contains_key(&keys().wrapping_key()));
    let starts = |node: &[u8]| {
        let mut next = DataKeys::new(keys(), wrapping_keys(node));
        restore(&mut next, &case.contents(100_000), case.now).map(|_| next.is_changing())
    };
    assert_eq!(starts(&[2]), Ok(false));
    assert_eq!(starts(&[2, 1]), Ok(false));
    assert_eq!(starts(&[1]), Err(StartError::WrappingKey));
    assert_eq!(starts(&[1, 2]), Ok(true), "back to the former key");
}

/// New records of the next owner have data keys of the new wrapping key.
#[test]
fn a_new_data_key_is_encrypted_with_the_first_key() {
    let mut case = store_with(1);
    case.data_keys = next_owner(&case, &[2, 1]).unwrap().0;
    case.owner = 2;
    let writes = case.data_keys.writes();
    put(&mut case, &writes);
    case.data_keys.written(&[]);
    let record = case.record(7);
    let writes = case.transaction(&[record]);
    put(&mut case, &writes);
    for entry in case.entries(&keys().data_keys()) {
        assert!(wrapping(2).unwrap_key(&entry.key, &entry.value).is_ok());
    }
    assert_eq!(readers(&case), [false, true, true]);
}
