//! An ordered set of triples of words.

use alloc::collections::BTreeSet;

/// An ordered set of triples of words. The first word is compared first. Unused words are 0.
#[derive(Debug, Clone, Default)]
pub struct WordSet(BTreeSet<[u64; 3]>);

impl WordSet {
    /// An empty set.
    pub const fn new() -> Self {
        Self(BTreeSet::new())
    }

    /// Adds an entry. Returns `false` if it exists.
    pub fn insert(&mut self, entry: [u64; 3]) -> bool {
        self.0.insert(entry)
    }

    /// Removes an entry. Returns `false` if it does not exist.
    pub fn remove(&mut self, entry: [u64; 3]) -> bool {
        self.0.remove(&entry)
    }

    /// Whether the set contains an entry.
    pub fn contains(&self, entry: [u64; 3]) -> bool {
        self.0.contains(&entry)
    }

    /// The lowest entry.
    pub fn first(&self) -> Option<[u64; 3]> {
        self.0.first().copied()
    }

    /// All entries in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = [u64; 3]> {
        self.0.iter().copied()
    }

    /// The entries with this first word.
    pub fn with_first(&self, first: u64) -> impl Iterator<Item = [u64; 3]> {
        self.between([first, 0, 0], [first, u64::MAX, u64::MAX])
    }

    /// The entries with these first two words.
    pub fn with_first_two(&self, [first, second]: [u64; 2]) -> impl Iterator<Item = [u64; 3]> {
        self.between([first, second, 0], [first, second, u64::MAX])
    }

    fn between(&self, first: [u64; 3], last: [u64; 3]) -> impl Iterator<Item = [u64; 3]> {
        self.0.range(first..=last).copied()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn entries_are_found_by_first_words() {
        let mut index = WordSet::new();
        for entry in [[2, 0, 1], [1, 5, 9], [1, 4, 7], [1, 5, 8], [1, u64::MAX, u64::MAX]] {
            assert!(index.insert(entry));
        }
        assert!(!index.insert([2, 0, 1]));
        let with = index.with_first(1).map(|[.., last]| last).collect::<Vec<_>>();
        assert_eq!(with, [7, 8, 9, u64::MAX]);
        let with_both = index.with_first_two([1, 5]).map(|[.., last]| last).collect::<Vec<_>>();
        assert_eq!(with_both, [8, 9]);
        assert!(index.remove([1, 4, 7]) && !index.remove([1, 4, 7]) && !index.contains([1, 4, 7]));
        assert_eq!((index.first(), index.len()), (Some([1, 5, 8]), 4));
    }
}
