//! What the run says: a line for each case and one at the end, for people or as JSON.

use casemate_interop::Result;
use serde_json::json;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The cases that are done.
pub(crate) struct Report {
    json: bool,
    start: Instant,
    tally: Mutex<Tally>,
}

#[derive(Default)]
struct Tally {
    passed: usize,
    failed: Vec<String>,
}

impl Report {
    /// Nothing yet; the clock runs.
    pub(crate) fn new(json: bool) -> Self {
        Self { json, start: Instant::now(), tally: Mutex::default() }
    }

    /// Notes and prints how a case went.
    pub(crate) fn add(&self, name: &str, took: Duration, outcome: Result<String>) {
        let mut tally = self.tally.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let (passed, detail) = match outcome {
            Ok(detail) => (true, detail),
            Err(error) => (false, error.to_string()),
        };
        if passed {
            tally.passed = tally.passed.saturating_add(1);
        } else {
            tally.failed.push(name.into());
        }
        let seconds = took.as_secs_f64();
        if self.json {
            println!("{}", json!({"case": name, "passed": passed, "seconds": seconds, "detail": detail}));
        } else {
            println!("{}  {name:<56} {seconds:5.2} s  {detail}", if passed { "ok  " } else { "FAIL" });
        }
    }

    /// Prints the end of it; whether all passed.
    pub(crate) fn finish(self) -> bool {
        let Tally { passed, failed } =
            self.tally.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        let seconds = self.start.elapsed().as_secs_f64();
        if self.json {
            println!("{}", json!({"passed": passed, "failed": failed, "seconds": seconds}));
        } else {
            failed.iter().for_each(|name| println!("failed: {name}"));
            println!("strongSwan matrix: {passed} passed, {} failed ({seconds:.0} s)", failed.len());
        }
        failed.is_empty() && passed > 0
    }
}
