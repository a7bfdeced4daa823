//! An ordered map with keys of up to 128 bits.

use super::WordSet;
use alloc::vec::Vec;
use casemate_wire::invariant::OrBroken;

/// A key of up to 128 bits.
pub trait MapKey: Copy {
    /// The key as two words, upper half first. Different keys of one type have different words.
    fn words(self) -> [u64; 2];
}

impl MapKey for u32 {
    fn words(self) -> [u64; 2] {
        [0, self.into()]
    }
}

impl MapKey for u64 {
    fn words(self) -> [u64; 2] {
        [0, self]
    }
}

impl MapKey for u128 {
    fn words(self) -> [u64; 2] {
        [(self >> 64) as u64, self as u64]
    }
}

const SLOT_EXISTS: &str = "a map has a slot for each key";

/// A map in the order of its keys. Large values should be boxed: all values move when the map grows.
#[derive(Debug, Clone)]
pub struct OrderedMap<K, V> {
    /// Key, slot.
    slots: WordSet,
    values: Vec<Option<V>>,
    /// Slots without a value.
    free: Vec<usize>,
    keys: core::marker::PhantomData<K>,
}

impl<K, V> Default for OrderedMap<K, V> {
    fn default() -> Self {
        Self { slots: WordSet::new(), values: Vec::new(), free: Vec::new(), keys: core::marker::PhantomData }
    }
}

impl WordSet {
    /// The slot of a key. Not inlined, so that it exists once and not for each type of values.
    #[inline(never)]
    fn slot_of(&self, key: [u64; 2]) -> Option<usize> {
        let [.., slot] = self.with_first_two(key).next()?;
        usize::try_from(slot).ok()
    }
}

impl<K: MapKey, V> OrderedMap<K, V> {
    /// The value of a key.
    pub fn get(&self, key: K) -> Option<&V> {
        self.values.get(self.slots.slot_of(key.words())?).or_report(SLOT_EXISTS)?.as_ref()
    }

    /// The value of a key, mutable.
    pub fn get_mut(&mut self, key: K) -> Option<&mut V> {
        self.values.get_mut(self.slots.slot_of(key.words())?).or_report(SLOT_EXISTS)?.as_mut()
    }

    /// Whether a key has a value.
    pub fn contains(&self, key: K) -> bool {
        self.slots.slot_of(key.words()).is_some()
    }

    /// Sets the value of a key. Returns its former value.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        if let Some(known) = self.get_mut(key) {
            return Some(core::mem::replace(known, value));
        }
        let slot = self.free.pop().unwrap_or(self.values.len());
        match self.values.get_mut(slot) {
            Some(free) => *free = Some(value),
            None => self.values.push(Some(value)),
        }
        let [upper, lower] = key.words();
        self.slots.insert([upper, lower, slot as u64]);
        None
    }

    /// Removes a key and returns its value.
    pub fn remove(&mut self, key: K) -> Option<V> {
        let [upper, lower] = key.words();
        let slot = self.slots.slot_of([upper, lower])?;
        self.slots.remove([upper, lower, slot as u64]);
        self.free.push(slot);
        self.values.get_mut(slot).or_report(SLOT_EXISTS)?.take()
    }

    /// All values in the order of their keys.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        let slots = self.slots.iter().filter_map(|[.., slot]| usize::try_from(slot).ok());
        slots.filter_map(|slot| self.values.get(slot)?.as_ref())
    }

    /// The values of the keys that are not below `from`, in the order of their keys.
    pub fn values_from(&self, from: K) -> impl Iterator<Item = &V> {
        let [upper, lower] = from.words();
        let slots = self.slots.iter_from([upper, lower, 0]);
        let slots = slots.filter_map(|[.., slot]| usize::try_from(slot).ok());
        slots.filter_map(|slot| self.values.get(slot)?.as_ref())
    }

    /// All values in no particular order, mutable.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.values.iter_mut().flatten()
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether the map is empty.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Removes all values.
    pub fn clear(&mut self) {
        self.slots.clear();
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
        // Few keys, which differ in both halves.
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
        fn behaves_like_a_btree_map(steps in proptest::collection::vec(step(), 0..200)) {
            let (mut table, mut map) = (OrderedMap::default(), BTreeMap::new());
            for step in steps {
                match step {
                    Step::Insert(key, value) => {
                        prop_assert_eq!(table.insert(key, value), map.insert(key, value));
                    }
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
                for from in (0..4_u128).map(|upper| upper << 64 | 1) {
                    prop_assert!(table.values_from(from).eq(map.range(from..).map(|(_, value)| value)));
                }
                prop_assert!(map.iter().all(|(key, value)| table.get(*key) == Some(value)));
                prop_assert_eq!((table.len(), table.values_mut().count()), (map.len(), map.len()));
            }
            // Slots are reused.
            prop_assert!(table.values.len() <= 16);
        }
    }
}
