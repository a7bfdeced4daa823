//! What batches pass one after the other, in the order in which they got their tickets, whichever threads bring them.
//!
//! Whoever comes before its turn leaves what it brings and takes a spare in its stead: whoever is in the place sees to it when its
//! turn has come. So nobody waits at a door while there are spares.

use super::awake;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// How many items somebody sees to in a row. Who comes then waits, and takes over: each thread has other things to do, too.
const IN_A_ROW: usize = 8;

/// A place that items pass in the order of tickets.
pub(super) struct Door<T, I> {
    /// The number of the next ticket. Beside the lock, which is held for a moment by everybody who comes or goes.
    next_ticket: AtomicU64,
    /// Whose turn it is once nobody is in the place. A hint, read without the lock.
    serving: AtomicU64,
    turns: Mutex<Turns<T, I>>,
    passed: Condvar,
}

struct Turns<T, I> {
    /// Whose turn it is.
    next: u64,
    /// Nothing while somebody is in it.
    place: Option<Box<T>>,
    /// What was left here before its turn, with its ticket's number.
    left: Vec<(u64, I)>,
    /// The numbers of tickets that were dropped before their turn.
    skipped: Vec<u64>,
    spares: Vec<I>,
    /// Whether who is in the place wants to go.
    is_tired: bool,
    /// How many wait for their turn. Mostly nobody does, and to call them is a system call.
    waiting: usize,
}

/// The right to pass a door once. All that come later wait for it. A ticket that is dropped, because its thread panics, skips its
/// turn.
#[must_use]
pub(super) struct Ticket<'d, T, I> {
    door: &'d Door<T, I>,
    number: u64,
}

impl<T, I> Door<T, I> {
    /// A door to `place`, where so many items can be left as there are spares.
    pub(super) fn new(place: T, spares: Vec<I>) -> Self {
        let turns = Turns {
            next: 0,
            place: Some(Box::new(place)),
            left: Vec::with_capacity(spares.len()),
            skipped: Vec::new(),
            spares,
            is_tired: false,
            waiting: 0,
        };
        let (next_ticket, serving) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { next_ticket, serving, turns: Mutex::new(turns), passed: Condvar::new() }
    }

    /// The next ticket.
    pub(super) fn ticket(&self) -> Ticket<'_, T, I> {
        Ticket { door: self, number: self.next_ticket.fetch_add(1, Ordering::Relaxed) }
    }

    /// Has `see_to` done with an item in the place when the ticket's turn has come, by the caller or by whoever is there then; with other
    /// items that were left meanwhile, too. Afterwards `item` is one to go on with, of which nothing is wanted any more.
    pub(super) fn bring(&self, ticket: Ticket<'_, T, I>, item: &mut I, see_to: impl Fn(&mut T, &mut I)) {
        let number = ticket.spend();
        let mut turns = self.lock();
        if !turns.is_turn_of(number) {
            if turns.exchange(number, item) {
                return;
            }
            drop(turns);
            turns = self.wait_for(number);
        }
        let mut turn = Turn::begin(self, turns);
        turn.act(|place| see_to(place, item));
        while let Some(next) = turn.following() {
            turn.spare(mem::replace(item, next));
            turn.act(|place| see_to(place, item));
        }
    }

    /// Waits for the ticket's turn and does something in the place; then `see_to` with the items that were left meanwhile.
    pub(super) fn pass(
        &self,
        ticket: Ticket<'_, T, I>,
        act: impl FnOnce(&mut T),
        see_to: impl Fn(&mut T, &mut I),
    ) {
        let mut turn = Turn::begin(self, self.wait_for(ticket.spend()));
        turn.act(act);
        while let Some(mut item) = turn.following() {
            turn.act(|place| see_to(place, &mut item));
            turn.spare(item);
        }
    }

    /// Does something in the place between two turns.
    pub(super) fn visit<A>(&self, act: impl FnOnce(&mut T) -> A) -> A {
        let mut turns = self.lock();
        loop {
            if let Some(place) = &mut turns.place {
                return act(place);
            }
            turns = self.wait_while(turns, |turns| turns.place.is_none());
        }
    }

    /// A ticket was dropped. No thread is there to see to what was left directly behind its turn: it is given up, as behind an item
    /// that fails.
    #[cold]
    fn skip(&self, number: u64) {
        let mut turns = self.lock();
        if !turns.is_turn_of(number) {
            return turns.skipped.push(number);
        }
        turns.give_up();
        self.serving.store(turns.next, Ordering::Relaxed);
        if turns.waiting > 0 {
            self.passed.notify_all();
        }
    }

    fn wait_for(&self, number: u64) -> MutexGuard<'_, Turns<T, I>> {
        awake::until(|| (self.serving.load(Ordering::Relaxed) == number).then_some(()));
        self.wait_while(self.lock(), |turns| !turns.is_turn_of(number))
    }

    fn wait_while<'d>(
        &'d self,
        mut turns: MutexGuard<'d, Turns<T, I>>,
        holds: impl Fn(&Turns<T, I>) -> bool,
    ) -> MutexGuard<'d, Turns<T, I>> {
        if holds(&turns) {
            turns.waiting = turns.waiting.saturating_add(1);
            let waited = self.passed.wait_while(turns, |turns| holds(turns));
            turns = waited.unwrap_or_else(PoisonError::into_inner);
            turns.waiting = turns.waiting.saturating_sub(1);
        }
        turns
    }

    fn lock(&self) -> MutexGuard<'_, Turns<T, I>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T, I> Turns<T, I> {
    fn is_turn_of(&self, number: u64) -> bool {
        self.next == number && self.place.is_some()
    }

    /// Takes an item and gives a spare for it, if there is one; answers whether.
    fn exchange(&mut self, number: u64, item: &mut I) -> bool {
        let spare = if self.is_tired { None } else { self.spares.pop() };
        let swapped = spare.map(|spare| mem::replace(item, spare));
        let is_taken = swapped.is_some();
        self.left.extend(swapped.map(|item| (number, item)));
        is_taken
    }

    /// Ends a turn; answers what was left for the next.
    fn advance(&mut self) -> Option<I> {
        self.next = self.next.wrapping_add(1);
        while let Some(at) = self.skipped.iter().position(|number| *number == self.next) {
            self.skipped.swap_remove(at);
            self.next = self.next.wrapping_add(1);
        }
        let at = self.left.iter().position(|(number, _)| *number == self.next)?;
        Some(self.left.swap_remove(at).1)
    }

    /// Ends a turn without anybody to see to what was left for the next ones.
    fn give_up(&mut self) {
        while let Some(item) = self.advance() {
            self.spares.push(item);
        }
    }
}

impl<T, I> Ticket<'_, T, I> {
    /// Its number, for the only use of it.
    fn spend(self) -> u64 {
        let number = self.number;
        mem::forget(self);
        number
    }
}

impl<T, I> Drop for Ticket<'_, T, I> {
    fn drop(&mut self) {
        self.door.skip(self.number);
    }
}

/// Somebody in the place.
struct Turn<'d, T, I> {
    door: &'d Door<T, I>,
    /// Until it is left.
    place: Option<Box<T>>,
    /// How many items were seen to.
    done: usize,
}

impl<'d, T, I> Turn<'d, T, I> {
    fn begin(door: &'d Door<T, I>, mut turns: MutexGuard<'d, Turns<T, I>>) -> Self {
        Self { door, place: turns.place.take(), done: 0 }
    }

    fn act(&mut self, act: impl FnOnce(&mut T)) {
        if let Some(place) = &mut self.place {
            act(place);
        }
        self.done = self.done.saturating_add(1);
    }

    /// Ends the turn of one item; answers the next that was left. Without one the place is left.
    fn following(&mut self) -> Option<I> {
        let mut turns = self.door.lock();
        let next = turns.advance();
        match next {
            Some(_) => turns.is_tired = self.done >= IN_A_ROW,
            None => self.leave(&mut turns),
        }
        next
    }

    fn spare(&self, item: I) {
        self.door.lock().spares.push(item);
    }

    fn leave(&mut self, turns: &mut Turns<T, I>) {
        turns.place = self.place.take();
        turns.is_tired = false;
        self.door.serving.store(turns.next, Ordering::Relaxed);
        if turns.waiting > 0 {
            self.door.passed.notify_all();
        }
    }
}

/// However it ended: what was left is not seen to any more when somebody fails.
impl<T, I> Drop for Turn<'_, T, I> {
    fn drop(&mut self) {
        if self.place.is_some() {
            let mut turns = self.door.lock();
            turns.give_up();
            self.leave(&mut turns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrayvec::ArrayVec;
    use std::thread;
    use std::time::Duration;

    /// Brings 64 items, the last ones first, to a place that notes their numbers; answers these.
    fn bring_all(spares: usize) -> Vec<u64> {
        let door = Door::new(Vec::new(), vec![0; spares]);
        let tickets: Vec<_> = (0..64).map(|_| door.ticket()).collect();
        thread::scope(|scope| {
            for (number, ticket) in tickets.into_iter().enumerate().rev() {
                let (door, mut item) = (&door, number as u64);
                scope.spawn(move || {
                    thread::sleep(Duration::from_micros(item * 7 % 50));
                    door.bring(ticket, &mut item, |passed, item| passed.push(*item));
                });
            }
        });
        let state = door.turns.lock().unwrap();
        assert_eq!((state.left.len(), state.spares.len(), state.waiting), (0, spares, 0));
        drop(state);
        door.visit(|passed| passed.clone())
    }

    #[test]
    fn items_pass_in_the_order_of_their_tickets() {
        for spares in [0, 1, 3, 64] {
            assert_eq!(bring_all(spares), (0..64).collect::<Vec<_>>(), "{spares} spares");
        }
    }

    #[test]
    fn who_comes_early_leaves_the_item_and_goes_on_with_a_spare() {
        let door = Door::new(Vec::new(), vec!["spare"]);
        let [first, second, third] = [0; 3].map(|_| door.ticket());
        let see_to = |passed: &mut Vec<&str>, item: &mut &'static str| passed.push(item);
        let mut item = "second";
        door.bring(second, &mut item, see_to);
        assert_eq!((item, door.visit(|passed| passed.len())), ("spare", 0), "and nobody has waited");
        item = "first";
        door.bring(first, &mut item, see_to);
        assert_eq!(item, "second", "which was seen to after the first");
        door.pass(third, |passed| passed.push("third"), see_to);
        assert_eq!(door.visit(|passed| passed.clone()), ["first", "second", "third"]);
    }

    #[test]
    fn who_has_seen_to_many_is_relieved() {
        let count = IN_A_ROW + 2;
        let door = Door::new(Vec::new(), vec![0; count + 1]);
        let tickets: Vec<_> = (0..count).map(|_| door.ticket()).collect();
        for ticket in tickets.into_iter().rev() {
            door.bring(ticket, &mut 0, |takes_more: &mut Vec<bool>, _| {
                takes_more.push(!door.lock().is_tired)
            });
        }
        let takes_more = door.visit(|takes_more| takes_more.clone());
        assert_eq!(takes_more, (0..count).map(|done| done < IN_A_ROW).collect::<Vec<_>>());
        assert!(!door.lock().is_tired, "and who comes next begins anew");
        door.lock().is_tired = true;
        assert!(!door.lock().exchange(99, &mut 1));
        assert_eq!(door.lock().spares.len(), count + 1);
    }

    #[test]
    fn a_turn_that_fails_is_over() {
        let door = Door::new(0, vec![7]);
        let [first, second, third] = [0; 3].map(|_| door.ticket());
        door.bring(second, &mut 2, |_, _| ());
        let fails = || door.bring(first, &mut 1, |_, _| panic!("on purpose"));
        assert!(thread::scope(|scope| scope.spawn(fails).join()).is_err());
        door.bring(third, &mut 3, |place, item| *place += *item);
        assert_eq!(door.visit(|place| *place), 3, "what was left with the one that failed is gone");
    }

    #[test]
    fn a_ticket_that_is_dropped_skips_its_turn() {
        let door = Door::new(Vec::new(), vec![0; 4]);
        let see_to = |passed: &mut Vec<u64>, item: &mut u64| passed.push(*item);
        let mut tickets: ArrayVec<_, 8> = (0..8).map(|_| door.ticket()).collect();
        // Before their turns come, in any order.
        drop(tickets.remove(3));
        drop(tickets.remove(1));
        drop(tickets.remove(1));
        for ticket in tickets.drain(..) {
            let number = ticket.number;
            door.bring(ticket, &mut { number }, see_to);
        }
        assert_eq!(door.visit(|passed| passed.clone()), [0, 4, 5, 6, 7]);
        assert!(door.lock().skipped.is_empty());
    }

    /// What comes after a batch whose thread panicked with the ticket in hand.
    #[test]
    fn a_panic_before_the_turn_holds_up_nobody() {
        let door = Door::new(Vec::new(), vec![0; 4]);
        let see_to = |passed: &mut Vec<u64>, item: &mut u64| passed.push(*item);
        let (first, second, third) = (door.ticket(), door.ticket(), door.ticket());
        thread::scope(|scope| {
            let waits = scope.spawn(|| door.pass(third, |passed| passed.push(2), see_to));
            door.bring(second, &mut 1, see_to);
            let panics = scope.spawn(move || {
                let _ticket = first;
                panic!("on purpose");
            });
            assert!(panics.join().is_err());
            assert!(waits.join().is_ok());
        });
        assert_eq!(
            door.visit(|passed| passed.clone()),
            [2],
            "what was left behind the one that failed is gone"
        );
        door.bring(door.ticket(), &mut 3, see_to);
        let state = door.lock();
        assert_eq!((state.left.len(), state.spares.len(), state.next), (0, 4, 4));
    }
}
