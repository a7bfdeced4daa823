//! An ordered multimap from byte strings to pairs of words.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;

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
