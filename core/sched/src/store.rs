//! Places for the items that wait, in linked lists: made once, so nothing is allocated for an item.

use alloc::boxed::Box;

/// A fixed number of places; each holds a value and the place of the next in its list, or is free.
#[derive(Debug)]
pub(crate) struct Store<V> {
    places: Box<[Place<V>]>,
    free: Option<u32>,
}

#[derive(Debug)]
enum Place<V> {
    Free { next: Option<u32> },
    Taken { value: V, next: Option<u32> },
}

/// A list in a store, first in, first out.
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

impl<V> Store<V> {
    pub(crate) fn new(places: u32) -> Self {
        let next = |place: u32| place.checked_add(1).filter(|next| *next < places);
        let free = |place| Place::Free { next: next(place) };
        Self { places: (0..places).map(free).collect(), free: (places > 0).then_some(0) }
    }

    /// Puts `value` at the end of `list`; gives it back if every place is taken.
    #[inline]
    pub(crate) fn push(&mut self, list: &mut List, value: V) -> Result<(), V> {
        let Some(at) = self.free else { return Err(value) };
        let Some(place) = self.places.get_mut(at as usize) else { return Err(value) };
        let Place::Free { next } = *place else { return Err(value) };
        self.free = next;
        *place = Place::Taken { value, next: None };
        match list.last.and_then(|last| self.places.get_mut(last as usize)) {
            Some(Place::Taken { next, .. }) => *next = Some(at),
            _ => list.first = Some(at),
        }
        list.last = Some(at);
        Ok(())
    }

    /// Takes the first value of `list`.
    #[inline]
    pub(crate) fn pop(&mut self, list: &mut List) -> Option<V> {
        let at = list.first?;
        let place = self.places.get_mut(at as usize)?;
        let Place::Taken { value, next } = core::mem::replace(place, Place::Free { next: self.free }) else {
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
    fn a_store_without_places() {
        let (mut store, mut list) = (Store::new(0), List::default());
        assert_eq!(store.push(&mut list, 1), Err(1));
        assert_eq!(store.pop(&mut list), None);
    }

    proptest! {
        /// Against lists that grow.
        #[test]
        fn lists_share_the_places(steps in prop::collection::vec((0usize..3, any::<bool>()), 1..200)) {
            let mut store = Store::new(5);
            let mut lists = [List::default(), List::default(), List::default()];
            let mut models = [VecDeque::new(), VecDeque::new(), VecDeque::new()];
            for (number, (list, push)) in steps.into_iter().enumerate() {
                if push {
                    let fits = models.iter().map(VecDeque::len).sum::<usize>() < 5;
                    prop_assert_eq!(store.push(&mut lists[list], number), if fits { Ok(()) } else { Err(number) });
                    if fits {
                        models[list].push_back(number);
                    }
                } else {
                    prop_assert_eq!(store.pop(&mut lists[list]), models[list].pop_front());
                }
                prop_assert_eq!(lists[list].is_empty(), models[list].is_empty());
            }
        }
    }
}
