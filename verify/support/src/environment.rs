//! Support for tests that use the operating system: executable files, conditions that become true with a
//! delay, and a report of tests that cannot run on this machine.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Writes a program, such as a script, that can be executed immediately. Panics on an error.
///
/// Another process writes the file. If this process wrote it, a child that another test forks at that
/// moment would have the file open for writing until its `exec`, and Linux does not execute a file that is
/// open for writing (ETXTBSY).
#[expect(clippy::unwrap_used, reason = "called by tests only, which may fail")]
pub fn write_program(path: &Path, text: &[u8]) {
    let mut command = Command::new("sh");
    command.args(["-c", "cat > \"$0\" && chmod 755 \"$0\""]).arg(path).stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(text).unwrap();
    assert!(child.wait().unwrap().success(), "{}", path.display());
}

/// Longest wait of [`eventually`], for a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Calls `look` until it returns a value, and returns the value. Panics with `what` after 20 seconds.
///
/// A program that another test is starting holds copies of all open files of this process until exec. Until
/// then a TUN interface, a lock or a port that was closed still exists, which takes long on a busy machine.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Environment variable with the path of the report. The report has one line for each skipped test: its
/// name and the reason.
pub const REPORT: &str = "CASEMATE_SKIPPED";

/// Reports that the current test is skipped. `cargo xtask test` prints the skipped tests and their reasons
/// in its summary. The test harness has no result "skipped": without the report, a test whose program is
/// not installed would pass without running.
///
/// Without a report file, the message goes to standard error only.
///
/// Panics if the report cannot be written, because the skipped test would otherwise remain unnoticed.
#[expect(clippy::panic, reason = "called by tests only, which may fail")]
pub fn skip(reason: impl Display) {
    // The harness uses the name of the test as the thread name.
    let thread = thread::current();
    let line = line(thread.name().unwrap_or("a test"), &reason.to_string());
    eprint!("skipped: {line}");
    if let Some(report) = std::env::var_os(REPORT)
        && let Err(error) = append(report.as_ref(), &line)
    {
        panic!("{}: {error}", Path::new(&report).display());
    }
}

fn line(test: &str, reason: &str) -> String {
    format!("{test}: {}\n", reason.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Appends the line in one write, so that lines of other threads and processes are not mixed in.
fn append(report: &Path, line: &str) -> io::Result<()> {
    File::options().create(true).append(true).open(report)?.write_all(line.as_bytes())
}

/// The standard error of a dry run of an example, without the warnings that this machine does not have the
/// addresses of the example.
pub fn warnings_of_example(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let is_other = |line: &&str| !line.contains("is not an address of this host");
    text.lines().filter(is_other).map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_testbed::TempDir;
    use std::fs;
    use std::sync::atomic::Ordering;

    /// Other threads start programs during the test.
    #[test]
    fn program_can_be_executed_immediately() {
        let scratch = TempDir::new("scratch-program").unwrap();
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        assert!(Command::new("true").status().unwrap().success());
                    }
                });
            }
            // The size makes the write take some time.
            let program = [&b"#!/bin/sh\nexit 7\n"[..], &[b'#'; 4 << 20]].concat();
            let results: Vec<_> = (0..50)
                .map(|n| {
                    let path = scratch.file(&n.to_string());
                    write_program(&path, &program);
                    let status = Command::new(&path).status();
                    fs::remove_file(path).unwrap();
                    status.map(|status| status.code())
                })
                .collect();
            is_over.store(true, Ordering::Relaxed);
            for result in results {
                assert_eq!(result.unwrap(), Some(7));
            }
        });
    }

    #[test]
    fn line_contains_the_reason_without_line_breaks() {
        assert_eq!(line("a::b", "no\n  nft "), "a::b: no nft\n");
    }

    #[test]
    fn append_keeps_earlier_lines() {
        let scratch = TempDir::new("skipped").unwrap();
        let report = scratch.file("report");
        append(&report, "one: why\n").unwrap();
        append(&report, "two: why\n").unwrap();
        assert_eq!(std::fs::read_to_string(&report).unwrap(), "one: why\ntwo: why\n");
    }
}
