//! Threads that help while more packets wait than one thread can work on. Without such a backlog they sleep.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Helpers that sleep until they are called.
pub(super) struct Crew {
    state: Mutex<State>,
    called: Condvar,
    /// Helpers that sleep and were not called. A hint, read without the lock.
    asleep: AtomicUsize,
    is_over: AtomicBool,
}

#[derive(Default)]
struct State {
    /// Helpers that sleep.
    waiting: usize,
    /// How many of them were called and have not come yet.
    calls: usize,
}

impl Crew {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::default(),
            called: Condvar::new(),
            asleep: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
        }
    }

    /// Calls one of those who sleep, if there are any.
    #[inline]
    pub(super) fn call(&self) {
        if self.asleep.load(Ordering::Relaxed) > 0 {
            self.wake_one();
        }
    }

    fn wake_one(&self) {
        let mut state = self.lock();
        if state.calls >= state.waiting {
            return;
        }
        state.calls = state.calls.saturating_add(1);
        self.count(&state);
        drop(state);
        self.called.notify_one();
    }

    /// Sleeps until somebody calls; `false` if nobody will any more.
    pub(super) fn wait(&self) -> bool {
        let mut state = self.lock();
        state.waiting = state.waiting.saturating_add(1);
        self.count(&state);
        let waited = self.called.wait_while(state, |state| state.calls == 0 && !self.is_over());
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        state.waiting = state.waiting.saturating_sub(1);
        state.calls = state.calls.saturating_sub(1);
        self.count(&state);
        !self.is_over()
    }

    /// Sends all helpers home.
    pub(super) fn dismiss(&self) {
        let state = self.lock();
        self.is_over.store(true, Ordering::Relaxed);
        drop(state);
        self.called.notify_all();
    }

    /// Whether helpers are to go home.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn count(&self, state: &State) {
        self.asleep.store(state.waiting.saturating_sub(state.calls), Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eventually::eventually;
    use std::thread;

    fn wait_for(condition: impl Fn() -> bool) {
        eventually("they wake or sleep", || condition().then_some(()));
    }

    #[test]
    fn a_call_wakes_one_helper_once() {
        let (crew, came) = (Crew::new(), AtomicUsize::new(0));
        crew.call();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while crew.wait() {
                        came.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            let all_sleep = || crew.asleep.load(Ordering::Relaxed) == 2;
            wait_for(all_sleep);
            assert_eq!(came.load(Ordering::Relaxed), 0, "nobody heard a call before there was somebody");
            for calls in [1, 2, 1] {
                let before = came.load(Ordering::Relaxed);
                (0..calls).for_each(|_| crew.call());
                wait_for(|| came.load(Ordering::Relaxed) == before + calls);
                wait_for(all_sleep);
            }
            crew.dismiss();
        });
        assert_eq!(came.load(Ordering::Relaxed), 4);
    }

    #[test]
    fn who_comes_when_all_is_over_goes_at_once() {
        let crew = Crew::new();
        crew.dismiss();
        assert!(!crew.wait() && crew.is_over());
    }
}
