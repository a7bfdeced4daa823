//! A directory for one test, gone with it however the test ends.
//!
//! It is where the system has its temporary files, because the path of a Unix socket has to be short. What runs outside of tests has
//! `lab/stage/src/scratch.rs`.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
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
