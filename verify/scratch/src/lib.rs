//! A directory for one test, gone with it however the test ends.
//!
//! It is where the system has its temporary files, because the path of a Unix socket has to be short. What runs outside of tests has
//! `lab/stage/src/scratch.rs`.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Directories of this process so far, and of killed ones with its number.
static COUNT: AtomicU32 = AtomicU32::new(0);
/// More directories than any test program makes.
const MOST: u32 = 100_000;

/// The directory. Everything in it goes when this is dropped.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// A new, empty one whose name says whose it is. Panics if there can be none.
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

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path of a file in it, which need not be there.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

/// Writes a program, such as a script, that can be executed at once. Panics if that fails.
///
/// Another process writes it. If this process wrote it, a program that another test starts at that moment
/// would have the file open for writing until its own `exec`, and Linux executes no such file (ETXTBSY).
#[expect(clippy::unwrap_used, reason = "called by tests only, which may fail")]
pub fn write_program(path: &Path, text: &[u8]) {
    let mut command = Command::new("sh");
    command.args(["-c", "cat > \"$0\" && chmod 755 \"$0\""]).arg(path).stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(text).unwrap();
    assert!(child.wait().unwrap().success(), "{}", path.display());
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("{} is left: {error}", self.0.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_empty_at_first_and_gone_at_the_end() {
        let (one, other) = (Scratch::new("scratch"), Scratch::new("scratch"));
        assert_ne!(one.path(), other.path());
        fs::create_dir(one.file("deep")).unwrap();
        fs::write(one.file("deep/file"), "text").unwrap();
        assert_eq!(fs::read_dir(other.path()).unwrap().count(), 0);
        let paths = [one.path(), other.path()].map(Path::to_path_buf);
        drop((one, other));
        assert!(paths.iter().all(|path| !path.exists()));
    }

    #[test]
    fn a_test_that_fails_leaves_nothing() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let fails = move || {
            let scratch = Scratch::new("scratch-fails");
            fs::write(scratch.file("file"), "text").unwrap();
            sender.send(scratch.path().to_path_buf()).unwrap();
            panic!("on purpose");
        };
        assert!(std::thread::spawn(fails).join().is_err());
        assert!(!receiver.recv().unwrap().exists());
    }

    /// While other threads start programs all the time.
    #[test]
    fn a_program_can_be_executed_as_soon_as_it_is_written() {
        let scratch = Scratch::new("scratch-program");
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        assert!(Command::new("true").status().unwrap().success());
                    }
                });
            }
            // So long that it is being written for a while.
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
    fn what_a_killed_process_left_is_not_taken() {
        let next = COUNT.load(Ordering::Relaxed);
        let left = std::env::temp_dir().join(format!("casemate-scratch-left-{}-{next}", std::process::id()));
        fs::create_dir(&left).unwrap();
        let scratch = Scratch::new("scratch-left");
        assert_ne!(scratch.path(), left);
        fs::remove_dir(left).unwrap();
    }
}
