//! The last items of a sequence, in a ring: nothing moves when an item is added.

/// The last items, `N` at most.
#[derive(Debug)]
pub(crate) struct Recent<T, const N: usize> {
    /// The newest item is at `newest`. Older ones follow, also from the start again.
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
        self.newest = self.newest.checked_sub(1).unwrap_or(N.saturating_sub(1));
        if let Some(slot) = self.items.get_mut(self.newest) {
            *slot = item;
        }
        self.len = self.len.saturating_add(1).min(N);
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn the_newest_items_are_kept_in_order() {
        let mut recent = Recent::<u32, 5>::new();
        let mut model = Vec::<u32>::new();
        assert!(recent.newest().is_none());
        for number in 1..200 {
            recent.push(number);
            model.insert(0, number);
            model.truncate(5);
            assert!(recent.iter().eq(&model), "{model:?}");
            assert_eq!(recent.newest(), model.first());
        }
    }
}
