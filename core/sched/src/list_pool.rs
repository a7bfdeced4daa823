//! Linked lists of queued items in a preallocated pool, so that queueing an item allocates nothing.

use alloc::boxed::Box;
use casemate_wire::invariant::{self, OrBroken};

/// A fixed number of slots. Each slot holds a value and the index of the next slot in its list, or is free.
#[derive(Debug)]
pub(crate) struct ListPool<V> {
    slots: Box<[Slot<V>]>,
    free: Option<u32>,
}

#[derive(Debug)]
enum Slot<V> {
    Free { next: Option<u32> },
    Taken { value: V, next: Option<u32> },
}

/// A first-in, first-out list in a pool.
#[derive(Debug, Default)]
pub(crate) struct List {
    first: Option<u32>,
    last: Option<u32>,
}

impl List {
    pub(crate) const fn is_empty(&self) -> bool {
        self.first.is_none()
    }
}

impl<V> ListPool<V> {
    pub(crate) fn new(slots: u32) -> Self {
        let next = |slot: u32| slot.checked_add(1).filter(|next| *next < slots);
        let free = |slot| Slot::Free { next: next(slot) };
        Self { slots: (0..slots).map(free).collect(), free: (slots > 0).then_some(0) }
    }

    /// Appends `value` to `list`. Returns `value` if no slot is free.
    #[inline]
    pub(crate) fn push(&mut self, list: &mut List, value: V) -> Result<(), V> {
        let Some(at) = self.free else { return Err(value) };
        let slot = self.slots.get_mut(at as usize).or_report("the free list contains slots of the pool");
        let Some(slot) = slot else { return Err(value) };
        let Slot::Free { next } = *slot else {
            invariant::report("the free list contains free slots");
            return Err(value);
        };
        self.free = next;
        *slot = Slot::Taken { value, next: None };
        match list.last.and_then(|last| self.slots.get_mut(last as usize)) {
            Some(Slot::Taken { next, .. }) => *next = Some(at),
            _ => list.first = Some(at),
        }
        list.last = Some(at);
        Ok(())
    }

    /// Removes and returns the first value of `list`.
    #[inline]
    pub(crate) fn pop(&mut self, list: &mut List) -> Option<V> {
        let at = list.first?;
        let slot = self.slots.get_mut(at as usize).or_report("a list contains slots of the pool")?;
        let Slot::Taken { value, next } = core::mem::replace(slot, Slot::Free { next: self.free }) else {
            invariant::report("a list contains taken slots");
            return None;
        };
        self.free = Some(at);
        list.first = next;
        if next.is_none() {
            list.last = None;
        }
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[test]
    fn an_empty_pool_rejects_items() {
        let (mut pool, mut list) = (ListPool::new(0), List::default());
        assert_eq!(pool.push(&mut list, 1), Err(1));
        assert_eq!(pool.pop(&mut list), None);
    }

    proptest! {
        /// Compared with lists that grow.
        #[test]
        fn lists_share_the_slots(steps in prop::collection::vec((0usize..3, any::<bool>()), 1..200)) {
            let mut pool = ListPool::new(5);
            let mut lists = [List::default(), List::default(), List::default()];
            let mut models = [VecDeque::new(), VecDeque::new(), VecDeque::new()];
            for (number, (list, push)) in steps.into_iter().enumerate() {
                if push {
                    let fits = models.iter().map(VecDeque::len).sum::<usize>() < 5;
                    prop_assert_eq!(
                        pool.push(&mut lists[list], number),
                        if fits { Ok(()) } else { Err(number) }
                    );
                    if fits {
                        models[list].push_back(number);
                    }
                } else {
                    prop_assert_eq!(pool.pop(&mut lists[list]), models[list].pop_front());
                }
                prop_assert_eq!(lists[list].is_empty(), models[list].is_empty());
            }
        }
    }
}
