//! Waits in tests for conditions that become true with a delay.
//!
//! A program that another test is starting holds copies of all open files of this process until exec. Until
//! then a TUN interface, a lock or a port that was closed still exists, which takes long on a busy machine.

use std::thread;
use std::time::{Duration, Instant};

/// Longest wait, for a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Calls `look` until it returns a value, and returns the value.
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
