//! Processes that are killed while they write.
//!
//! The test starts its own program again, which runs [`commit_until_killed`] with the path of a store.

use super::{Files, Opened, put};
use casemate_store::{Outcome, RequestId, Store};
use casemate_test_support::TestRng;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const PATH: &str = "CASEMATE_FILE_STORE_TEST_PATH";
/// Number of processes that are killed.
const KILLS: u64 = 40;
/// Requests of a process that wait at a time.
const WAITING: usize = 8;

/// A transaction that writes its number three times. Values of many sizes use many pages.
fn transaction(number: u64) -> casemate_store::Request {
    let mut value = number.to_be_bytes().to_vec();
    value.resize(8 + (number as usize * 997) % 5_000, number as u8);
    let entry = format!("entry {}", number % 50);
    put(&[("first", &number.to_be_bytes()), (&entry, &value), ("second", &number.to_be_bytes())], None)
}

/// What the killed process does: it says on standard output which numbers are confirmed. In an ordinary run
/// of the tests, there is no path and nothing to do.
#[test]
fn commit_until_killed() {
    let Some(path) = std::env::var_os(PATH) else { return };
    let mut opened = Opened::open(Path::new(&path)).unwrap();
    let mut number = last_number(&mut opened);
    let mut waiting = VecDeque::<(RequestId, u64)>::new();
    let end = Instant::now() + Duration::from_secs(60);
    let mut output = std::io::stdout();
    while Instant::now() < end {
        while waiting.len() < WAITING {
            number += 1;
            waiting.push_back((opened.submit(transaction(number)), number));
        }
        let completion = opened.next_completion();
        let (id, confirmed) = waiting.pop_front().unwrap();
        assert!(
            completion.id == id && matches!(completion.outcome, Ok(Outcome::Committed(_))),
            "{completion:?}"
        );
        writeln!(output, "confirmed {confirmed}").unwrap();
        assert_eq!(opened.store.next_event(), None);
    }
}

/// Checks that no transaction is half written, and returns the number of the last one; 0 if there is none.
fn last_number(opened: &mut Opened) -> u64 {
    let (entries, revision) = opened.entries();
    let value =
        |key: &str| entries.iter().find(|entry| entry.key == key.as_bytes()).map(|entry| entry.value.clone());
    let Some(first) = value("first") else {
        assert!(entries.is_empty() && revision.0 == 0);
        return 0;
    };
    let number = u64::from_be_bytes(first.as_slice().try_into().unwrap());
    assert_eq!(value("second").as_ref(), Some(&first));
    assert_eq!(revision.0, number, "each transaction has a revision");
    for back in 0..number.min(50) {
        let number = number - back;
        let casemate_store::Request::Commit(transaction) = transaction(number) else { unreachable!() };
        let casemate_store::Write::Put { key, value, .. } = &transaction.writes[1] else { unreachable!() };
        let entry = entries.iter().find(|entry| entry.key == *key).unwrap();
        assert_eq!((&entry.value, entry.changed.0), (value, number));
    }
    number
}

#[test]
fn a_killed_process_loses_no_confirmed_transaction_and_leaves_none_half() {
    let mut files = Files::new();
    let path = files.next();
    let mut rng = TestRng::new(1);
    let (mut total, mut unconfirmed) = (0, 0);
    for kill in 0..KILLS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tests::crash::commit_until_killed", "--nocapture"])
            .env(PATH, &path)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let confirmed_of =
            |line: String| line.strip_prefix("confirmed ").and_then(|number| number.parse::<u64>().ok());
        // The first confirmation says that the process writes; then it is killed at any moment. Some are
        // killed while they open the store.
        let mut last = if kill % 5 == 4 { None } else { lines.by_ref().find_map(confirmed_of) };
        thread::sleep(Duration::from_micros(rng.below(20_000) as u64));
        child.kill().unwrap();
        child.wait().unwrap();
        last = lines.filter_map(confirmed_of).last().or(last);
        let number = last_number(&mut Opened::open(&path).unwrap());
        let confirmed = last.unwrap_or(total);
        assert!(
            number >= confirmed,
            "kill {kill}: {number} is the last of {confirmed} confirmed transactions"
        );
        assert!(number <= confirmed + WAITING as u64 + 1, "kill {kill}: {number} after {confirmed}");
        unconfirmed += u64::from(number > confirmed);
        total = number;
    }
    assert!(total > KILLS * 8, "{total} transactions of {KILLS} processes");
    assert!(unconfirmed > 0, "no process was killed between the disk and the confirmation");
}
