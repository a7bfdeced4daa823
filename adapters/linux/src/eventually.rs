//! Waiting in tests for what becomes true a little later than one would think.
//!
//! A program that another test starts at this moment has copies of all open files of this process until it has become that program.
//! So long a TUN interface, a lock or a port that was closed is still there, and on a busy machine that is long.

use std::thread;
use std::time::{Duration, Instant};

/// What a busy machine may take for anything.
const PATIENCE: Duration = Duration::from_secs(20);

/// What `look` finds, as soon as it finds something.
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(2));
    }
}
