//! The ordered sets: of triples of words, and of byte strings with two words.

use alloc::boxed::Box;
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

    /// The lowest entry that is not below `from`.
    pub fn first_from(&self, from: [u64; 3]) -> Option<[u64; 3]> {
        self.0.range(from..).next().copied()
    }

    /// All entries in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = [u64; 3]> {
        self.0.iter().copied()
    }

    /// The entries that are not below `from`, in ascending order.
    pub fn iter_from(&self, from: [u64; 3]) -> impl Iterator<Item = [u64; 3]> {
        self.0.range(from..).copied()
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

/// A value of the index.
type Value = [u64; 2];

/// An ordered set of pairs of a byte string and a value.
#[derive(Debug, Clone, Default)]
pub struct ByteIndex(BTreeSet<(Box<[u8]>, Value)>);

impl ByteIndex {
    /// An empty index.
    pub const fn new() -> Self {
        Self(BTreeSet::new())
    }

    /// Adds an entry. Returns `false` if it exists.
    pub fn insert(&mut self, key: &[u8], value: Value) -> bool {
        self.0.insert((key.into(), value))
    }

    /// Removes an entry. Returns `false` if it does not exist.
    pub fn remove(&mut self, key: &[u8], value: Value) -> bool {
        self.0.remove(&(key.into(), value))
    }

    /// All values of a key, in ascending order.
    pub fn get_all<'a>(&'a self, key: &[u8]) -> impl Iterator<Item = Value> + use<'a> {
        let key: Box<[u8]> = key.into();
        let from = (key.clone(), [0; 2]);
        let known = self.0.range(from..).take_while(move |(known, _)| *known == key);
        known.map(|(_, value)| *value)
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the index is empty.
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
        assert_eq!(
            (index.first_from([0; 3]), index.first_from([1, 5, 9])),
            (Some([1, 5, 8]), Some([1, 5, 9]))
        );
        assert_eq!((index.first_from([2, 0, 2]), index.len()), (None, 4));
    }

    #[test]
    fn keys_with_a_common_prefix_are_distinct() {
        let mut names = ByteIndex::new();
        for (key, value) in [("a", [2, 0]), ("ab", [1, 0]), ("a", [1, 9]), ("b", [0, 0])] {
            assert!(names.insert(key.as_bytes(), value));
        }
        assert!(!names.insert(b"ab", [1, 0]));
        let of = |names: &ByteIndex, key: &str| names.get_all(key.as_bytes()).collect::<Vec<_>>();
        assert_eq!(of(&names, "a"), [[1, 9], [2, 0]]);
        assert_eq!(of(&names, "ab"), [[1, 0]]);
        assert_eq!(of(&names, ""), [[0; 2]; 0]);
        assert!(names.remove(b"a", [1, 9]) && !names.remove(b"a", [1, 9]));
        assert_eq!((of(&names, "a"), names.len()), ([[2, 0]].into(), 3));
    }
}
