//! Support for tests that use the operating system: temporary directories, executable files, and a report of
//! tests that cannot run on this machine.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{fs, thread};

/// Number of directories that this process has created, including those of killed processes with the same
/// ID.
static COUNT: AtomicU32 = AtomicU32::new(0);
/// More directories than any test program creates.
const MOST: u32 = 100_000;

/// Temporary directory. It is removed with its contents when the value is dropped, even if the test fails.
///
/// It is in the temporary directory of the system, because the path of a Unix socket has a maximum length.
/// Programs other than tests use `lab/testbed/src/lib.rs`.
#[derive(Debug)]
pub struct TempDir(PathBuf);

impl TempDir {
    /// Creates an empty directory with `name` in its path. Panics on an error.
    #[expect(clippy::panic, reason = "called by tests only, which may fail")]
    pub fn new(name: &str) -> Self {
        loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("casemate-{name}-{}-{count}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => return Self(path),
                Err(error) if error.kind() == ErrorKind::AlreadyExists && count < MOST => {}
                Err(error) => panic!("{}: {error}", path.display()),
            }
        }
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the path of a file in the directory. The file need not exist.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

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

impl Drop for TempDir {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("cannot remove {}: {error}", self.0.display());
        }
    }
}

/// Environment variable with the path of the report. The report has one line for each skipped test: its
/// name and the reason.
pub const REPORT: &str = "CASEMATE_SKIPPED";

/// Reports that the current test is skipped. `cargo xtask test` prints the skipped tests and their reasons
/// in its summary. The test harness has no result "skipped": without the report, a test whose program is
/// not installed would pass without running.
///
/// Without a report file, the message goes to standard error
/// only.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_empty_at_first_and_removed_on_drop() {
        let (one, other) = (TempDir::new("scratch"), TempDir::new("scratch"));
        assert_ne!(one.path(), other.path());
        fs::create_dir(one.file("deep")).unwrap();
        fs::write(one.file("deep/file"), "text").unwrap();
        assert_eq!(fs::read_dir(other.path()).unwrap().count(), 0);
        let paths = [one.path(), other.path()].map(Path::to_path_buf);
        drop((one, other));
        assert!(paths.iter().all(|path| !path.exists()));
    }

    #[test]
    fn directory_is_removed_after_a_panic() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let fails = move || {
            let scratch = TempDir::new("scratch-fails");
            fs::write(scratch.file("file"), "text").unwrap();
            sender.send(scratch.path().to_path_buf()).unwrap();
            panic!("expected panic");
        };
        assert!(std::thread::spawn(fails).join().is_err());
        assert!(!receiver.recv().unwrap().exists());
    }

    /// Other threads start programs during the test.
    #[test]
    fn program_can_be_executed_immediately() {
        let scratch = TempDir::new("scratch-program");
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
    fn directory_of_a_killed_process_is_not_reused() {
        let next = COUNT.load(Ordering::Relaxed);
        let left = std::env::temp_dir().join(format!("casemate-scratch-left-{}-{next}", std::process::id()));
        fs::create_dir(&left).unwrap();
        let scratch = TempDir::new("scratch-left");
        assert_ne!(scratch.path(), left);
        fs::remove_dir(left).unwrap();
    }

    #[test]
    fn line_contains_the_reason_without_line_breaks() {
        assert_eq!(line("a::b", "no\n  nft "), "a::b: no nft\n");
    }

    #[test]
    fn append_keeps_earlier_lines() {
        let scratch = TempDir::new("skipped");
        let report = scratch.file("report");
        append(&report, "one: why\n").unwrap();
        append(&report, "two: why\n").unwrap();
        assert_eq!(std::fs::read_to_string(&report).unwrap(), "one: why\ntwo: why\n");
    }
}
