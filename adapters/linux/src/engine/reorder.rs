//! Reorder queue: batches leave in the order in which they were read, whichever threads worked on them.
//!
//! Each batch gets a [`Sequence`] when it is read. Workers complete batches out of order. The thread that
//! holds the consumer processes them in order. A batch that is submitted early is parked, and its thread
//! continues with a free batch; so no thread waits while there are free batches.

use super::workers::spin_wait;
use casemate_wire::invariant::OrBroken;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Items that one thread processes in a row. After that, the next thread that submits waits and takes over,
/// because each thread has other work, too.
const MAX_CONSECUTIVE: usize = 8;

/// Queue in which a consumer `C` processes items `I` in the order of their [`Sequence`]s.
pub(super) struct ReorderQueue<C, I> {
    /// Number of the next [`Sequence`]. Outside of the lock, which every thread that submits holds for a
    /// moment.
    next_sequence: AtomicU64,
    /// Number of the item whose turn it is once no thread holds the consumer. A hint, read without the lock.
    now_serving: AtomicU64,
    state: Mutex<QueueState<C, I>>,
    /// Notified when a thread returns the consumer.
    turn_ended: Condvar,
}

struct QueueState<C, I> {
    /// Number of the item whose turn it is.
    next: u64,
    /// `None` while a thread holds the consumer.
    consumer: Option<Box<C>>,
    /// Items that were submitted before their turn.
    parked: Vec<Parked<I>>,
    /// Numbers whose [`Sequence`] was dropped before its turn.
    skipped: Vec<u64>,
    /// Items for threads that park theirs.
    free_list: Vec<I>,
    /// Whether the thread with the consumer has processed [`MAX_CONSECUTIVE`] items: the next item is not
    /// parked.
    wants_handover: bool,
    /// Threads that wait for their turn. Usually there are none, and a notification is a system call.
    waiting: usize,
}

/// An item that was submitted before its turn.
struct Parked<I> {
    /// Number of its [`Sequence`].
    number: u64,
    item: I,
}

/// Place of one item in the order, and the right to submit it. All later items wait for this one. If it is
/// dropped because its thread panics, its turn is skipped.
#[must_use]
pub(super) struct Sequence<'q, C, I> {
    queue: &'q ReorderQueue<C, I>,
    number: u64,
}

impl<C, I> ReorderQueue<C, I> {
    /// A queue in which as many items can be parked as there are free ones.
    pub(super) fn new(consumer: C, free_list: Vec<I>) -> Self {
        let state = QueueState {
            next: 0,
            consumer: Some(Box::new(consumer)),
            parked: Vec::with_capacity(free_list.len()),
            skipped: Vec::new(),
            free_list,
            wants_handover: false,
            waiting: 0,
        };
        let (next_sequence, now_serving) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { next_sequence, now_serving, state: Mutex::new(state), turn_ended: Condvar::new() }
    }

    /// The place of the next item.
    pub(super) fn sequence(&self) -> Sequence<'_, C, I> {
        Sequence { queue: self, number: self.next_sequence.fetch_add(1, Ordering::Relaxed) }
    }

    /// Submits an item. `process` is called with the consumer and the item when its turn has
    /// come, by the caller or by the thread that holds the consumer then. The caller may process parked items
    /// of other threads, too. On return, `item` is an item that the caller can reuse.
    pub(super) fn submit(
        &self,
        sequence: Sequence<'_, C, I>,
        item: &mut I,
        process: impl Fn(&mut C, &mut I),
    ) {
        let number = sequence.into_number();
        let mut state = self.lock();
        if !state.is_next(number) {
            if state.park(number, item) {
                return;
            }
            drop(state);
            state = self.wait_for_turn(number);
        }
        let mut consumer = ConsumerGuard::begin(self, state);
        consumer.run(|consumer| process(consumer, item));
        while let Some(next) = consumer.next_parked() {
            consumer.recycle(mem::replace(item, next));
            consumer.run(|consumer| process(consumer, item));
        }
    }

    /// Waits for the turn of `sequence` and calls `act` with the consumer; then calls `process` with the
    /// items that were parked meanwhile.
    pub(super) fn run_in_order(
        &self,
        sequence: Sequence<'_, C, I>,
        act: impl FnOnce(&mut C),
        process: impl Fn(&mut C, &mut I),
    ) {
        let mut consumer = ConsumerGuard::begin(self, self.wait_for_turn(sequence.into_number()));
        consumer.run(act);
        while let Some(mut item) = consumer.next_parked() {
            consumer.run(|consumer| process(consumer, &mut item));
            consumer.recycle(item);
        }
    }

    /// Calls `act` with the consumer between two turns.
    pub(super) fn with_consumer<A>(&self, act: impl FnOnce(&mut C) -> A) -> A {
        let mut state = self.lock();
        loop {
            if let Some(consumer) = &mut state.consumer {
                return act(consumer);
            }
            state = self.wait_while(state, |state| state.consumer.is_none());
        }
    }

    /// Skips the turn of a [`Sequence`] that was dropped. No thread processes the items that are parked
    /// directly behind that turn, so they are discarded, as after an item whose processing panics.
    #[cold]
    fn skip(&self, number: u64) {
        let mut state = self.lock();
        if !state.is_next(number) {
            return state.skipped.push(number);
        }
        state.discard_parked();
        self.now_serving.store(state.next, Ordering::Relaxed);
        if state.waiting > 0 {
            self.turn_ended.notify_all();
        }
    }

    fn wait_for_turn(&self, number: u64) -> MutexGuard<'_, QueueState<C, I>> {
        spin_wait(|| (self.now_serving.load(Ordering::Relaxed) == number).then_some(()));
        self.wait_while(self.lock(), |state| !state.is_next(number))
    }

    fn wait_while<'q>(
        &'q self,
        mut state: MutexGuard<'q, QueueState<C, I>>,
        condition: impl Fn(&QueueState<C, I>) -> bool,
    ) -> MutexGuard<'q, QueueState<C, I>> {
        if condition(&state) {
            state.waiting = state.waiting.saturating_add(1);
            let waited = self.turn_ended.wait_while(state, |state| condition(state));
            state = waited.unwrap_or_else(PoisonError::into_inner);
            state.waiting = state.waiting.checked_sub(1).or_broken("this thread is counted as waiting", 0);
        }
        state
    }

    fn lock(&self) -> MutexGuard<'_, QueueState<C, I>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C, I> QueueState<C, I> {
    fn is_next(&self, number: u64) -> bool {
        self.next == number && self.consumer.is_some()
    }

    /// Parks an item and replaces it with a free one. Returns whether that was possible.
    fn park(&mut self, number: u64, item: &mut I) -> bool {
        let free = if self.wants_handover { None } else { self.free_list.pop() };
        let swapped = free.map(|free| mem::replace(item, free));
        let is_parked = swapped.is_some();
        self.parked.extend(swapped.map(|item| Parked { number, item }));
        is_parked
    }

    /// Ends a turn. Returns the parked item of the next turn.
    fn advance(&mut self) -> Option<I> {
        self.next = self.next.wrapping_add(1);
        while let Some(index) = self.skipped.iter().position(|number| *number == self.next) {
            self.skipped.swap_remove(index);
            self.next = self.next.wrapping_add(1);
        }
        let index = self.parked.iter().position(|parked| parked.number == self.next)?;
        Some(self.parked.swap_remove(index).item)
    }

    /// Ends a turn and discards the items that are parked for the turns directly behind it.
    fn discard_parked(&mut self) {
        while let Some(item) = self.advance() {
            self.free_list.push(item);
        }
    }
}

impl<C, I> Sequence<'_, C, I> {
    /// The number, without skipping the turn.
    fn into_number(self) -> u64 {
        let number = self.number;
        mem::forget(self);
        number
    }
}

impl<C, I> Drop for Sequence<'_, C, I> {
    fn drop(&mut self) {
        self.queue.skip(self.number);
    }
}

/// Exclusive use of the consumer by one thread.
struct ConsumerGuard<'q, C, I> {
    queue: &'q ReorderQueue<C, I>,
    /// `None` once it is returned to the queue.
    consumer: Option<Box<C>>,
    /// Items processed so far.
    processed: usize,
}

impl<'q, C, I> ConsumerGuard<'q, C, I> {
    fn begin(queue: &'q ReorderQueue<C, I>, mut state: MutexGuard<'q, QueueState<C, I>>) -> Self {
        Self { queue, consumer: state.consumer.take(), processed: 0 }
    }

    fn run(&mut self, act: impl FnOnce(&mut C)) {
        if let Some(consumer) = self.consumer.as_mut().or_report("a turn has the consumer until its end") {
            act(consumer);
        }
        self.processed = self.processed.saturating_add(1);
    }

    /// Ends the turn of one item and returns the item that is parked for the next turn. Without such an item,
    /// the consumer returns to the queue.
    fn next_parked(&mut self) -> Option<I> {
        let mut state = self.queue.lock();
        let next = state.advance();
        match next {
            Some(_) => state.wants_handover = self.processed >= MAX_CONSECUTIVE,
            None => self.end(&mut state),
        }
        next
    }

    fn recycle(&self, item: I) {
        self.queue.lock().free_list.push(item);
    }

    fn end(&mut self, state: &mut QueueState<C, I>) {
        state.consumer = self.consumer.take();
        state.wants_handover = false;
        self.queue.now_serving.store(state.next, Ordering::Relaxed);
        if state.waiting > 0 {
            self.queue.turn_ended.notify_all();
        }
    }
}

/// Returns the consumer also after a panic; then the parked items behind the failed one are discarded.
impl<C, I> Drop for ConsumerGuard<'_, C, I> {
    fn drop(&mut self) {
        if self.consumer.is_some() {
            let mut state = self.queue.lock();
            state.discard_parked();
            self.end(&mut state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrayvec::ArrayVec;
    use std::thread;
    use std::time::Duration;

    /// Submits 64 items, the last ones first, to a consumer that records their numbers. Returns the record.
    fn submit_in_reverse(free: usize) -> Vec<u64> {
        let queue = ReorderQueue::new(Vec::new(), vec![0; free]);
        let sequences: Vec<_> = (0..64).map(|_| queue.sequence()).collect();
        thread::scope(|scope| {
            for (number, sequence) in sequences.into_iter().enumerate().rev() {
                let (queue, mut item) = (&queue, number as u64);
                scope.spawn(move || {
                    thread::sleep(Duration::from_micros(item * 7 % 50));
                    queue.submit(sequence, &mut item, |record, item| record.push(*item));
                });
            }
        });
        let state = queue.state.lock().unwrap();
        assert_eq!((state.parked.len(), state.free_list.len(), state.waiting), (0, free, 0));
        drop(state);
        queue.with_consumer(|record| record.clone())
    }

    #[test]
    fn items_are_processed_in_sequence_order() {
        for free in [0, 1, 3, 64] {
            assert_eq!(submit_in_reverse(free), (0..64).collect::<Vec<_>>(), "{free} free items");
        }
    }

    #[test]
    fn an_early_item_is_parked_and_its_thread_gets_a_free_one() {
        let queue = ReorderQueue::new(Vec::new(), vec!["free"]);
        let [first, second, third] = [0; 3].map(|_| queue.sequence());
        let process = |record: &mut Vec<&str>, item: &mut &'static str| record.push(item);
        let mut item = "second";
        queue.submit(second, &mut item, process);
        assert_eq!((item, queue.with_consumer(|record| record.len())), ("free", 0), "submit did not wait");
        item = "first";
        queue.submit(first, &mut item, process);
        assert_eq!(item, "second", "the parked item was processed after the first one");
        queue.run_in_order(third, |record| record.push("third"), process);
        assert_eq!(queue.with_consumer(|record| record.clone()), ["first", "second", "third"]);
    }

    #[test]
    fn a_thread_hands_over_after_max_consecutive_items() {
        let count = MAX_CONSECUTIVE + 2;
        let queue = ReorderQueue::new(Vec::new(), vec![0; count + 1]);
        let sequences: Vec<_> = (0..count).map(|_| queue.sequence()).collect();
        for sequence in sequences.into_iter().rev() {
            queue.submit(sequence, &mut 0, |parks_more: &mut Vec<bool>, _| {
                parks_more.push(!queue.lock().wants_handover)
            });
        }
        let parks_more = queue.with_consumer(|parks_more| parks_more.clone());
        assert_eq!(parks_more, (0..count).map(|done| done < MAX_CONSECUTIVE).collect::<Vec<_>>());
        assert!(!queue.lock().wants_handover, "the next thread starts from zero");
        queue.lock().wants_handover = true;
        assert!(!queue.lock().park(99, &mut 1));
        assert_eq!(queue.lock().free_list.len(), count + 1);
    }

    #[test]
    fn a_panic_while_processing_ends_the_turn() {
        let queue = ReorderQueue::new(0, vec![7]);
        let [first, second, third] = [0; 3].map(|_| queue.sequence());
        queue.submit(second, &mut 2, |_, _| ());
        let panics = || queue.submit(first, &mut 1, |_, _| panic!("on purpose"));
        assert!(thread::scope(|scope| scope.spawn(panics).join()).is_err());
        queue.submit(third, &mut 3, |sum, item| *sum += *item);
        assert_eq!(queue.with_consumer(|sum| *sum), 3, "the item parked behind the failed one is discarded");
    }

    #[test]
    fn a_dropped_sequence_skips_its_turn() {
        let queue = ReorderQueue::new(Vec::new(), vec![0; 4]);
        let process = |record: &mut Vec<u64>, item: &mut u64| record.push(*item);
        let mut sequences: ArrayVec<_, 8> = (0..8).map(|_| queue.sequence()).collect();
        // Before their turns, in any order.
        drop(sequences.remove(3));
        drop(sequences.remove(1));
        drop(sequences.remove(1));
        for sequence in sequences.drain(..) {
            let number = sequence.number;
            queue.submit(sequence, &mut { number }, process);
        }
        assert_eq!(queue.with_consumer(|record| record.clone()), [0, 4, 5, 6, 7]);
        assert!(queue.lock().skipped.is_empty());
    }

    /// Items behind a batch whose thread panicked before it submitted the batch.
    #[test]
    fn a_panic_before_the_turn_blocks_no_other_thread() {
        let queue = ReorderQueue::new(Vec::new(), vec![0; 4]);
        let process = |record: &mut Vec<u64>, item: &mut u64| record.push(*item);
        let (first, second, third) = (queue.sequence(), queue.sequence(), queue.sequence());
        thread::scope(|scope| {
            let waits = scope.spawn(|| queue.run_in_order(third, |record| record.push(2), process));
            queue.submit(second, &mut 1, process);
            let panics = scope.spawn(move || {
                let _sequence = first;
                panic!("on purpose");
            });
            assert!(panics.join().is_err());
            assert!(waits.join().is_ok());
        });
        let record = queue.with_consumer(|record| record.clone());
        assert_eq!(record, [2], "the item parked behind the failed one is discarded");
        queue.submit(queue.sequence(), &mut 3, process);
        let state = queue.lock();
        assert_eq!((state.parked.len(), state.free_list.len(), state.next), (0, 4, 4));
    }
}
