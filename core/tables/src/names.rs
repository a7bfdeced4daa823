//! A set of names, each with words.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;

/// Two numbers that stand behind a name.
type Behind = [u64; 2];

/// An ordered set of entries that begin with bytes.
#[derive(Debug, Clone, Default)]
pub struct Names(BTreeSet<(Box<[u8]>, Behind)>);

impl Names {
    /// Without entries.
    pub const fn new() -> Self {
        Self(BTreeSet::new())
    }

    /// Adds an entry. False if it is there already.
    pub fn insert(&mut self, name: &[u8], behind: Behind) -> bool {
        self.0.insert((name.into(), behind))
    }

    /// Removes an entry. False if it is not there.
    pub fn remove(&mut self, name: &[u8], behind: Behind) -> bool {
        self.0.remove(&(name.into(), behind))
    }

    /// What stands behind a name, the lowest first.
    pub fn of<'a>(&'a self, name: &[u8]) -> impl Iterator<Item = Behind> + use<'a> {
        let name: Box<[u8]> = name.into();
        let from = (name.clone(), [0; 2]);
        let known = self.0.range(from..).take_while(move |(known, _)| *known == name);
        known.map(|(_, behind)| *behind)
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
    fn a_name_is_not_the_beginning_of_another_one() {
        let mut names = Names::new();
        for (name, behind) in [("a", [2, 0]), ("ab", [1, 0]), ("a", [1, 9]), ("b", [0, 0])] {
            assert!(names.insert(name.as_bytes(), behind));
        }
        assert!(!names.insert(b"ab", [1, 0]));
        let of = |names: &Names, name: &str| names.of(name.as_bytes()).collect::<Vec<_>>();
        assert_eq!(of(&names, "a"), [[1, 9], [2, 0]]);
        assert_eq!(of(&names, "ab"), [[1, 0]]);
        assert_eq!(of(&names, ""), [[0; 2]; 0]);
        assert!(names.remove(b"a", [1, 9]) && !names.remove(b"a", [1, 9]));
        assert_eq!((of(&names, "a"), names.len()), ([[2, 0]].into(), 3));
    }
}
