//! Values by number.

use crate::Index;
use alloc::vec::Vec;

/// What a value is found by: up to 128 bits.
pub trait Key: Copy {
    /// The number, its upper half first. Different keys of one type have different words.
    fn words(self) -> [u64; 2];
}

impl Key for u32 {
    fn words(self) -> [u64; 2] {
        [0, self.into()]
    }
}

impl Key for u64 {
    fn words(self) -> [u64; 2] {
        [0, self]
    }
}

impl Key for u128 {
    fn words(self) -> [u64; 2] {
        [(self >> 64) as u64, self as u64]
    }
}

/// Values in the order of their keys. A value that is large is better boxed: all of them move when the table grows.
#[derive(Debug, Clone)]
pub struct Table<K, V> {
    /// In this order: key, place.
    places: Index,
    values: Vec<Option<V>>,
    /// Places without a value.
    free: Vec<usize>,
    keys: core::marker::PhantomData<K>,
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self { places: Index::new(), values: Vec::new(), free: Vec::new(), keys: core::marker::PhantomData }
    }
}

impl Index {
    /// The last word of the entry with these first two. Not inlined: it would be there once for each kind of value.
    #[inline(never)]
    fn place(&self, key: [u64; 2]) -> Option<usize> {
        let [.., place] = self.with_both(key).next()?;
        usize::try_from(place).ok()
    }
}

impl<K: Key, V> Table<K, V> {
    /// The value of a key.
    pub fn get(&self, key: K) -> Option<&V> {
        self.values.get(self.places.place(key.words())?)?.as_ref()
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, key: K) -> Option<&mut V> {
        self.values.get_mut(self.places.place(key.words())?)?.as_mut()
    }

    /// Whether a key has a value.
    pub fn contains(&self, key: K) -> bool {
        self.places.place(key.words()).is_some()
    }

    /// Gives a key its value. Answers the one that it had.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        if let Some(known) = self.get_mut(key) {
            return Some(core::mem::replace(known, value));
        }
        let place = self.free.pop().unwrap_or(self.values.len());
        match self.values.get_mut(place) {
            Some(free) => *free = Some(value),
            None => self.values.push(Some(value)),
        }
        let [upper, lower] = key.words();
        self.places.insert([upper, lower, place as u64]);
        None
    }

    /// Takes the value of a key out.
    pub fn remove(&mut self, key: K) -> Option<V> {
        let [upper, lower] = key.words();
        let place = self.places.place([upper, lower])?;
        self.places.remove([upper, lower, place as u64]);
        self.free.push(place);
        self.values.get_mut(place)?.take()
    }

    /// Every value, that of the lowest key first.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        let places = self.places.iter().filter_map(|[.., place]| usize::try_from(place).ok());
        places.filter_map(|place| self.values.get(place)?.as_ref())
    }

    /// Every value, in no order, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.values.iter_mut().flatten()
    }

    /// How many values there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Removes every value.
    pub fn clear(&mut self) {
        self.places.clear();
        self.values.clear();
        self.free.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum Step {
        Insert(u128, u8),
        Remove(u128),
        Change(u128, u8),
        Clear,
    }

    fn step() -> impl Strategy<Value = Step> {
        // Few keys, whose halves matter both.
        let key = || (0..4_u128, 0..4_u128).prop_map(|(upper, lower)| upper << 64 | lower);
        prop_oneof![
            8 => (key(), any::<u8>()).prop_map(|(key, value)| Step::Insert(key, value)),
            6 => key().prop_map(Step::Remove),
            2 => (key(), any::<u8>()).prop_map(|(key, value)| Step::Change(key, value)),
            1 => Just(Step::Clear),
        ]
    }

    proptest! {
        #[test]
        fn a_table_is_a_map(steps in proptest::collection::vec(step(), 0..200)) {
            let (mut table, mut map) = (Table::default(), BTreeMap::new());
            for step in steps {
                match step {
                    Step::Insert(key, value) => prop_assert_eq!(table.insert(key, value), map.insert(key, value)),
                    Step::Remove(key) => prop_assert_eq!(table.remove(key), map.remove(&key)),
                    Step::Change(key, value) => {
                        table.get_mut(key).into_iter().for_each(|known| *known = value);
                        map.entry(key).and_modify(|known| *known = value);
                    }
                    Step::Clear => {
                        table.clear();
                        map.clear();
                    }
                }
                prop_assert!(table.values().eq(map.values()));
                prop_assert!(map.iter().all(|(key, value)| table.get(*key) == Some(value)));
                prop_assert_eq!((table.len(), table.values_mut().count()), (map.len(), map.len()));
            }
            // Places are used again.
            prop_assert!(table.values.len() <= 16);
        }
    }
}
