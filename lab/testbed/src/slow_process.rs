//! A process that runs for a share of the time only, as if its processor were slower.
//!
//! A thread stops and continues the process in turns. All costs of the process grow by the same factor, so
//! their ratios stay those of this machine. Packets leave in bursts, one for each [`PERIOD`].

use crate::sys;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time in which the process runs once.
pub const PERIOD: Duration = Duration::from_millis(20);
/// Real-time priority of the thread: above everything that could delay it.
const PRIORITY: i32 = 30;
/// Shortest turn: less is lost while the process wakes up.
const LEAST_TURN: Duration = Duration::from_micros(20);

/// Slows a process down. Dropping it lets the process run without interruption again.
#[derive(Debug)]
pub struct SlowProcess {
    /// Nanoseconds for which the process runs in each period.
    turn: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl SlowProcess {
    /// Lets the process run for `share` of the time, from 0 to 1. The process must outlive this value.
    pub fn start(pid: u32, share: f64) -> Self {
        let turn = Arc::new(AtomicU64::new(nanoseconds(share)));
        let is_over = Arc::new(AtomicBool::new(false));
        let thread = {
            let (turn, is_over) = (turn.clone(), is_over.clone());
            std::thread::spawn(move || alternate(pid, &turn, &is_over))
        };
        Self { turn, is_over, thread: Some(thread) }
    }

    /// Changes the share.
    pub fn set_share(&self, share: f64) {
        self.turn.store(nanoseconds(share), Ordering::Relaxed);
    }
}

impl Drop for SlowProcess {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // An error means that the process has ended.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn nanoseconds(share: f64) -> u64 {
    PERIOD.mul_f64(share.clamp(0.0, 1.0)).max(LEAST_TURN).as_nanos() as u64
}

fn alternate(pid: u32, turn: &AtomicU64, is_over: &AtomicBool) -> io::Result<()> {
    // Without the right to do so, the turns are less exact.
    let _ = sys::set_fifo_priority(PRIORITY);
    let mut begin = Instant::now();
    while !is_over.load(Ordering::Relaxed) {
        sys::continue_process(pid)?;
        std::thread::sleep(Duration::from_nanos(turn.load(Ordering::Relaxed)));
        sys::stop_process(pid)?;
        begin += PERIOD;
        let now = Instant::now();
        std::thread::sleep(begin.saturating_duration_since(now));
        // After a delay, periods that have passed are not repeated.
        begin = begin.max(now.checked_sub(PERIOD).unwrap_or(now));
    }
    sys::continue_process(pid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_slow_process_gets_its_share() {
        let mut child = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let slow = SlowProcess::start(child.id(), 0.1);
        let time = Duration::from_millis(400);
        let cpu = || sys::process_cpu_time(child.id()).unwrap();
        let before = cpu();
        std::thread::sleep(time);
        let spent = cpu() - before;
        // A busy machine prolongs the turns.
        assert!(spent < time / 2, "{spent:?}");
        drop(slow);
        // The state after the command's name is T while a process is stopped.
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        let state = stat.rsplit(") ").next().unwrap().chars().next();
        assert_ne!(state, Some('T'), "{stat}");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
