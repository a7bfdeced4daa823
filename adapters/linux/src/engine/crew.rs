//! Threads that help while more packets wait than one thread can work on.
//!
//! The engine's own thread reads everything and carries on with each batch itself, unless more waits to be read and a helper has
//! nothing to do: then it gives the batch away and reads on. A batch that nobody has begun with is taken back before the engine
//! waits for anything. So without a backlog no packet changes its thread.

use super::batch::Batch;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Batches that wait, and who waits for them.
pub(super) struct Crew {
    state: Mutex<State>,
    work: Condvar,
    /// Helpers without work, less the batches that wait for them; and these batches. Hints, read without the lock.
    free_hands: AtomicUsize,
    waiting: AtomicUsize,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Box<Batch>>,
    /// Batches that nobody uses.
    spare: Vec<Box<Batch>>,
    idle: usize,
    is_over: bool,
}

impl Crew {
    pub(super) fn new() -> Self {
        let none = || AtomicUsize::new(0);
        Self { state: Mutex::default(), work: Condvar::new(), free_hands: none(), waiting: none() }
    }

    /// Whether somebody could carry on with a batch at once.
    #[inline]
    pub(super) fn has_free_hands(&self) -> bool {
        self.free_hands.load(Ordering::Relaxed) > 0
    }

    /// Whether a batch waits that nobody has begun with.
    #[inline]
    pub(super) fn has_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Gives a batch away.
    pub(super) fn give(&self, batch: Box<Batch>) {
        let mut state = self.lock();
        state.waiting.push_back(batch);
        self.count(&state);
        drop(state);
        self.work.notify_one();
    }

    /// Takes the oldest batch that nobody has begun with.
    pub(super) fn take_back(&self) -> Option<Box<Batch>> {
        let mut state = self.lock();
        let batch = state.waiting.pop_front();
        self.count(&state);
        batch
    }

    /// An empty batch. There are never more than helpers and one.
    pub(super) fn spare(&self) -> Box<Batch> {
        let spare = self.lock().spare.pop();
        spare.unwrap_or_else(Batch::new)
    }

    /// Gives back what [`spare`](Self::spare) gave, with nothing left to do.
    pub(super) fn put_back(&self, batch: Box<Batch>) {
        self.lock().spare.push(batch);
    }

    /// Waits for a batch; `None` if there will be no more.
    pub(super) fn next(&self) -> Option<Box<Batch>> {
        let mut state = self.lock();
        state.idle = state.idle.saturating_add(1);
        self.count(&state);
        let waited = self.work.wait_while(state, |state| state.waiting.is_empty() && !state.is_over);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        state.idle = state.idle.saturating_sub(1);
        let batch = state.waiting.pop_front();
        self.count(&state);
        batch
    }

    /// Sends all helpers home once nothing waits.
    pub(super) fn dismiss(&self) {
        self.lock().is_over = true;
        self.work.notify_all();
    }

    fn count(&self, state: &State) {
        self.free_hands.store(state.idle.saturating_sub(state.waiting.len()), Ordering::Relaxed);
        self.waiting.store(state.waiting.len(), Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_sa::Instant;
    use std::thread;
    use std::time::Duration;

    /// A batch to be told from others by when it was read.
    fn batch(crew: &Crew, millis: u64) -> Box<Batch> {
        let mut batch = crew.spare();
        batch.now = Instant::from_millis(millis);
        batch
    }

    fn wait_for(condition: impl Fn() -> bool) {
        for _ in 0..2_000 {
            if condition() {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
        panic!("waited in vain");
    }

    #[test]
    fn a_helper_gets_what_is_given_and_goes_when_nothing_is_left() {
        let crew = Crew::new();
        assert!(!crew.has_free_hands(), "nobody is there");
        thread::scope(|scope| {
            let helper = scope.spawn(|| {
                let mut seen = Vec::new();
                while let Some(batch) = crew.next() {
                    seen.push(batch.now);
                    crew.put_back(batch);
                }
                seen
            });
            wait_for(|| crew.has_free_hands());
            let given: Vec<_> = (0..20).map(|millis| batch(&crew, millis)).collect();
            let expected: Vec<_> = given.iter().map(|batch| batch.now).collect();
            given.into_iter().for_each(|batch| crew.give(batch));
            crew.dismiss();
            assert_eq!(helper.join().unwrap(), expected);
        });
    }

    #[test]
    fn what_nobody_began_with_is_taken_back_the_oldest_first() {
        let crew = Crew::new();
        (1..=2).for_each(|millis| crew.give(batch(&crew, millis)));
        assert!(crew.has_waiting() && !crew.has_free_hands());
        for millis in 1..=2 {
            assert_eq!(crew.take_back().unwrap().now, Instant::from_millis(millis));
        }
        assert!(crew.take_back().is_none() && !crew.has_waiting());
    }
}
