//! What batches pass one after the other, in the order in which they got their tickets, whichever threads bring them.

use super::awake;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A place that is entered in the order of tickets.
pub(super) struct Door<T> {
    /// The number of the next ticket. Beside the lock, which is held for as long as somebody is in the place.
    next_ticket: AtomicU64,
    /// Whose turn it is. A hint, read without the lock.
    serving: AtomicU64,
    turns: Mutex<Turns<T>>,
    passed: Condvar,
}

struct Turns<T> {
    /// Whose turn it is.
    next: u64,
    /// How many wait for their turn. Mostly nobody does, and to call them is a system call.
    waiting: usize,
    place: T,
}

/// The right to pass a door once. Whoever has one has to use it: all that come later wait for it.
#[derive(Debug)]
#[must_use]
pub(super) struct Ticket(u64);

impl<T> Door<T> {
    pub(super) fn new(place: T) -> Self {
        let turns = Mutex::new(Turns { next: 0, waiting: 0, place });
        Self { next_ticket: AtomicU64::new(0), serving: AtomicU64::new(0), turns, passed: Condvar::new() }
    }

    /// The next ticket.
    pub(super) fn ticket(&self) -> Ticket {
        Ticket(self.next_ticket.fetch_add(1, Ordering::Relaxed))
    }

    /// Waits for the ticket's turn and does something in the place.
    pub(super) fn pass<A>(&self, Ticket(number): Ticket, act: impl FnOnce(&mut T) -> A) -> A {
        awake::until(|| (self.serving.load(Ordering::Relaxed) == number).then_some(()));
        let mut turns = self.lock();
        if turns.next != number {
            turns.waiting = turns.waiting.saturating_add(1);
            let waited = self.passed.wait_while(turns, |turns| turns.next != number);
            turns = waited.unwrap_or_else(PoisonError::into_inner);
            turns.waiting = turns.waiting.saturating_sub(1);
        }
        let mut turn = Turn { turns, door: self };
        act(&mut turn.turns.place)
    }

    /// Does something in the place between two turns.
    pub(super) fn visit<A>(&self, act: impl FnOnce(&mut T) -> A) -> A {
        act(&mut self.lock().place)
    }

    fn lock(&self) -> MutexGuard<'_, Turns<T>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends a turn, however it ends.
struct Turn<'d, T> {
    turns: MutexGuard<'d, Turns<T>>,
    door: &'d Door<T>,
}

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        self.turns.next = self.turns.next.wrapping_add(1);
        self.door.serving.store(self.turns.next, Ordering::Relaxed);
        if self.turns.waiting > 0 {
            self.door.passed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn batches_pass_in_the_order_of_their_tickets() {
        let door = Door::new(Vec::new());
        let tickets: Vec<_> = (0..64).map(|_| door.ticket()).collect();
        thread::scope(|scope| {
            for (number, ticket) in tickets.into_iter().enumerate().rev() {
                let door = &door;
                scope.spawn(move || {
                    thread::sleep(Duration::from_micros(number as u64 * 7 % 50));
                    door.pass(ticket, |passed| passed.push(number));
                });
            }
        });
        assert_eq!(door.visit(|passed| passed.clone()), (0..64).collect::<Vec<_>>());
    }

    #[test]
    fn a_turn_that_fails_is_over() {
        let door = Door::new(0);
        let (first, second) = (door.ticket(), door.ticket());
        let failed = thread::scope(|scope| scope.spawn(|| door.pass(first, |_| panic!("on purpose"))).join());
        assert!(failed.is_err());
        assert_eq!(door.pass(second, |place| *place), 0);
    }
}
