//! The last items of a sequence, in a ring: nothing moves when an item is added.

/// The last items, `N` at most.
#[derive(Debug)]
pub(crate) struct Recent<T, const N: usize> {
    /// The newest item is at `newest`. Older ones follow, also from the start again. Places that are not used
    /// contain copies of items, if there are any.
    items: [T; N],
    newest: usize,
    len: usize,
}

impl<T: Copy + Default, const N: usize> Recent<T, N> {
    /// No items.
    pub(crate) fn new() -> Self {
        Self { items: [T::default(); N], newest: 0, len: 0 }
    }

    /// Adds an item. If there are `N`, the oldest one is forgotten.
    pub(crate) fn push(&mut self, item: T) {
        if self.is_empty() {
            self.items = [item; N];
        }
        self.newest = self.newest.checked_sub(1).unwrap_or(N.saturating_sub(1));
        if let Some(slot) = self.items.get_mut(self.newest) {
            *slot = item;
        }
        self.len = self.len.saturating_add(1).min(N);
    }

    /// Forgets all items but the newest `len`.
    pub(crate) fn truncate(&mut self, len: usize) {
        let kept = self.len.min(len);
        let Some(newest) = self.newest().copied() else { return };
        let (start, end) = self.items.split_at_mut_checked(self.newest).unwrap_or_default();
        end.iter_mut().chain(start).skip(kept).for_each(|slot| *slot = newest);
        self.len = kept;
    }

    /// The newest item.
    pub(crate) fn newest(&self) -> Option<&T> {
        self.iter().next()
    }

    /// The items, the newest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        let (start, end) = self.items.split_at_checked(self.newest).unwrap_or_default();
        let first = end.get(..self.len).unwrap_or(end);
        let wrapped = start.get(..self.len.saturating_sub(first.len())).unwrap_or(start);
        first.iter().chain(wrapped)
    }

    /// The items in any order, some of them more than once. This is faster than [`iter`](Self::iter), because
    /// the number of items hardly ever varies.
    pub(crate) fn in_any_order(&self) -> &[T] {
        if self.is_empty() { &[] } else { &self.items }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn the_newest_items_are_kept_in_order() {
        let mut recent = Recent::<u32, 5>::new();
        let mut model = Vec::<u32>::new();
        assert!(recent.is_empty() && recent.newest().is_none() && recent.in_any_order().is_empty());
        for number in 1..200 {
            recent.push(number);
            model.insert(0, number);
            model.truncate(5);
            if number % 7 == 0 {
                let len = (number % 4) as usize + 1;
                recent.truncate(len);
                model.truncate(len);
            }
            assert!(recent.iter().eq(&model), "{model:?}");
            let items = recent.in_any_order();
            assert!(model.iter().all(|item| items.contains(item)), "{model:?} {items:?}");
            assert!(items.iter().all(|item| model.contains(item)), "{model:?} {items:?}");
            assert_eq!((recent.newest(), recent.is_empty()), (model.first(), false));
        }
    }
}
