//! A set of words.

use alloc::collections::BTreeSet;

/// What entries of an [`Index`] are and are ordered by, the first word first. Words that are not needed are 0.
pub type Words = [u64; 3];

/// An ordered set of entries.
#[derive(Debug, Clone, Default)]
pub struct Index(BTreeSet<Words>);

impl Index {
    /// Without entries.
    pub const fn new() -> Self {
        Self(BTreeSet::new())
    }

    /// Adds an entry. False if it is there already.
    pub fn insert(&mut self, entry: Words) -> bool {
        self.0.insert(entry)
    }

    /// Removes an entry. False if it is not there.
    pub fn remove(&mut self, entry: Words) -> bool {
        self.0.remove(&entry)
    }

    /// Whether an entry is there.
    pub fn contains(&self, entry: Words) -> bool {
        self.0.contains(&entry)
    }

    /// The lowest entry.
    pub fn first(&self) -> Option<Words> {
        self.0.first().copied()
    }

    /// Every entry, the lowest first.
    pub fn iter(&self) -> impl Iterator<Item = Words> {
        self.0.iter().copied()
    }

    /// The entries with this first word.
    pub fn with(&self, first: u64) -> impl Iterator<Item = Words> {
        self.between([first, 0, 0], [first, u64::MAX, u64::MAX])
    }

    /// The entries with these first two words.
    pub fn with_both(&self, [first, second]: [u64; 2]) -> impl Iterator<Item = Words> {
        self.between([first, second, 0], [first, second, u64::MAX])
    }

    fn between(&self, first: Words, last: Words) -> impl Iterator<Item = Words> {
        self.0.range(first..=last).copied()
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes every entry.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn entries_are_found_by_their_first_words() {
        let mut index = Index::new();
        for entry in [[2, 0, 1], [1, 5, 9], [1, 4, 7], [1, 5, 8], [1, u64::MAX, u64::MAX]] {
            assert!(index.insert(entry));
        }
        assert!(!index.insert([2, 0, 1]));
        let with = index.with(1).map(|[.., last]| last).collect::<Vec<_>>();
        assert_eq!(with, [7, 8, 9, u64::MAX]);
        let with_both = index.with_both([1, 5]).map(|[.., last]| last).collect::<Vec<_>>();
        assert_eq!(with_both, [8, 9]);
        assert!(index.remove([1, 4, 7]) && !index.remove([1, 4, 7]) && !index.contains([1, 4, 7]));
        assert_eq!((index.first(), index.len()), (Some([1, 5, 8]), 4));
    }
}
