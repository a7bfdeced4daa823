//! Threads that move packets: how they share the work, and how they sleep and wake up.
//!
//! One thread reads at a time. The thread that reads a batch also seals or opens it, so the packets stay in
//! the cache of one processor, and submits it to the reorder queue. The next thread may read as soon as the
//! sequence numbers of the batch are reserved, or its SAs found. Workers are woken only if more packets wait
//! to be read, and a woken worker polls as long as that is so.

use super::event_loop::ReadySet;
use super::shared::{Batch, Shared};
use super::{inbound, outbound, rx};
use crate::Error;
use crate::sys::Epoll;
use casemate_wire::invariant::OrBroken;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest time of busy waiting: about what it takes to fall asleep and to be woken, which is longest on a
/// virtual machine.
const MAX_SPIN: Duration = Duration::from_micros(30);

impl Shared {
    /// Reads once from each input that is ready, and does all work for the packets. Returns whether more
    /// packets wait.
    pub(super) fn poll_all(&self, ready: &ReadySet, batch: &mut Box<Batch>) -> Result<bool, Error> {
        let mut has_more = false;
        for input in ready.inputs() {
            has_more |= self.poll_once(input, batch)?;
        }
        Ok(has_more)
    }

    fn poll_once(&self, input: usize, batch: &mut Box<Batch>) -> Result<bool, Error> {
        let mut rx = self.lock_rx();
        let has_more = rx.read(input, batch, self)?;
        let release_rx = || {
            drop(rx);
            if has_more {
                self.workers.wake_one();
            }
        };
        match input {
            _ if batch.buffers.is_empty() => release_rx(),
            rx::TUN | rx::TUNNELS => {
                let sequence = outbound::begin(self, batch, release_rx);
                self.outbound.submit(sequence, batch, |stage, batch| stage.finish(batch, self));
            }
            _ => {
                let sequence = inbound::begin(self, batch, release_rx);
                self.inbound.submit(sequence, batch, |stage, batch| stage.finish(batch, self));
            }
        }
        Ok(has_more)
    }

    /// Main loop of a worker thread.
    pub(super) fn run_worker(&self, epoll: &Epoll) {
        let mut batch = Batch::new();
        while self.workers.wait_for_wakeup() {
            while self.poll_as_worker(epoll, &mut batch) && !self.workers.is_shut_down() {}
        }
    }

    /// Polls each input once. Returns whether more packets wait.
    fn poll_as_worker(&self, epoll: &Epoll, batch: &mut Box<Batch>) -> bool {
        let polled = ReadySet::poll(self, epoll).and_then(|ready| self.poll_all(&ready, batch));
        let context = self.lock_endpoint();
        let datapath = context.endpoint().datapath();
        if datapath.has_events() || datapath.has_rohc_feedback() || datapath.has_trace_records() {
            self.reports.wakeup.signal();
        }
        drop(context);
        // The event loop meets an error that persists, too, and ends the run.
        polled.unwrap_or_else(|error| {
            self.reports.report_error(error.to_string());
            false
        })
    }
}

/// Worker threads, which sleep until they are woken.
pub(super) struct WorkerPool {
    state: Mutex<PoolState>,
    wakeup: Condvar,
    /// Workers that sleep and have no pending wake-up. A hint, read without the lock.
    idle: AtomicUsize,
    is_shut_down: AtomicBool,
}

#[derive(Default)]
struct PoolState {
    /// Workers that sleep.
    sleeping: usize,
    /// Wake-ups that no worker has taken yet.
    pending: usize,
}

impl WorkerPool {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::default(),
            wakeup: Condvar::new(),
            idle: AtomicUsize::new(0),
            is_shut_down: AtomicBool::new(false),
        }
    }

    /// Wakes one sleeping worker, if there is one.
    #[inline]
    pub(super) fn wake_one(&self) {
        if self.idle.load(Ordering::Relaxed) > 0 {
            self.notify_one();
        }
    }

    fn notify_one(&self) {
        let mut state = self.lock();
        if state.pending >= state.sleeping {
            return;
        }
        state.pending = state.pending.saturating_add(1);
        self.update_idle(&state);
        drop(state);
        self.wakeup.notify_one();
    }

    /// Sleeps until a wake-up. Returns `false` after [`shutdown`](Self::shutdown).
    pub(super) fn wait_for_wakeup(&self) -> bool {
        let mut state = self.lock();
        state.sleeping = state.sleeping.saturating_add(1);
        self.update_idle(&state);
        let waited = self.wakeup.wait_while(state, |state| state.pending == 0 && !self.is_shut_down());
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        state.sleeping = state.sleeping.checked_sub(1).or_broken("this worker is counted as sleeping", 0);
        state.pending = state.pending.saturating_sub(1);
        self.update_idle(&state);
        !self.is_shut_down()
    }

    /// Ends all workers.
    pub(super) fn shutdown(&self) {
        let state = self.lock();
        self.is_shut_down.store(true, Ordering::Relaxed);
        drop(state);
        self.wakeup.notify_all();
    }

    /// Whether the workers are to end.
    pub(super) fn is_shut_down(&self) -> bool {
        self.is_shut_down.load(Ordering::Relaxed)
    }

    fn update_idle(&self, state: &PoolState) {
        self.idle.store(state.sleeping.saturating_sub(state.pending), Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Calls `poll` until it returns a value, without going to sleep. Returns `None` after [`MAX_SPIN`]: then the
/// caller should sleep.
#[inline]
pub(super) fn spin_wait<T>(mut poll: impl FnMut() -> Option<T>) -> Option<T> {
    if let found @ Some(_) = poll() {
        return found;
    }
    let start = Instant::now();
    while start.elapsed() < MAX_SPIN {
        spin_loop();
        if let found @ Some(_) = poll() {
            return found;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_test_support::eventually;
    use std::thread;

    fn wait_for(condition: impl Fn() -> bool) {
        eventually("the workers wake up or sleep", || condition().then_some(()));
    }

    #[test]
    fn a_wakeup_wakes_one_worker_once() {
        let (pool, woken) = (WorkerPool::new(), AtomicUsize::new(0));
        pool.wake_one();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while pool.wait_for_wakeup() {
                        woken.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            let all_sleep = || pool.idle.load(Ordering::Relaxed) == 2;
            wait_for(all_sleep);
            assert_eq!(woken.load(Ordering::Relaxed), 0, "a wake-up before there is a worker has no effect");
            for wakeups in [1, 2, 1] {
                let before = woken.load(Ordering::Relaxed);
                (0..wakeups).for_each(|_| pool.wake_one());
                wait_for(|| woken.load(Ordering::Relaxed) == before + wakeups);
                wait_for(all_sleep);
            }
            pool.shutdown();
        });
        assert_eq!(woken.load(Ordering::Relaxed), 4);
    }

    #[test]
    fn a_worker_that_starts_after_shutdown_ends_at_once() {
        let pool = WorkerPool::new();
        pool.shutdown();
        assert!(!pool.wait_for_wakeup() && pool.is_shut_down());
    }

    #[test]
    fn spin_wait_returns_a_value_that_comes_soon_and_gives_up_otherwise() {
        assert_eq!(spin_wait(|| Some(1)), Some(1));
        let mut polls = 0;
        let third = || {
            polls += 1;
            (polls == 3).then_some(polls)
        };
        assert_eq!(spin_wait(third), Some(3));
        assert_eq!(spin_wait(|| None::<u8>), None);
    }
}
