//! A test that cannot run on a machine says so, and why; `cargo xtask test` lists what was said in its summary.
//!
//! The test harness knows no such outcome: without this, a machine that lacks a program would pass tests that never ran.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::thread;

/// The environment variable that names the file to say it in: one line for each test, its name and the reason.
pub const REPORT: &str = "CASEMATE_LEFT_OUT";

/// Notes that the running test is left out. Without a report to note it in, it goes to standard error only.
///
/// Panics if the report cannot be written, because then nobody would learn of it.
#[expect(clippy::panic, reason = "called by tests only, which may fail")]
pub fn note(why: impl Display) {
    // The harness names a test's thread after it.
    let thread = thread::current();
    let line = line(thread.name().unwrap_or("a test"), &why.to_string());
    eprint!("left out: {line}");
    if let Some(report) = std::env::var_os(REPORT)
        && let Err(error) = append(report.as_ref(), &line)
    {
        panic!("{}: {error}", Path::new(&report).display());
    }
}

fn line(test: &str, why: &str) -> String {
    format!("{test}: {}\n", why.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// In one write, so that tests in other threads and processes do not get in between.
fn append(report: &Path, line: &str) -> io::Result<()> {
    File::options().create(true).append(true).open(report)?.write_all(line.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_line() {
        assert_eq!(line("a::b", "no\n  nft "), "a::b: no nft\n");
    }

    #[test]
    fn what_is_appended_stays() {
        let scratch = casemate_scratch::Scratch::new("left-out");
        let report = scratch.file("report");
        append(&report, "one: why\n").unwrap();
        append(&report, "two: why\n").unwrap();
        assert_eq!(std::fs::read_to_string(&report).unwrap(), "one: why\ntwo: why\n");
    }
}
