//! A table of slots for SAs and policies. A slot gets a new generation when it is reused.

use alloc::vec::Vec;
use casemate_wire::invariant::OrBroken;

/// There are no more slot numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full;

/// A slot and the generation of its value: together they never occur twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlotKey {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// Generations are separate from the values, so that they cost four bytes whatever the alignment of the
/// values.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    values: Vec<Option<T>>,
    generations: Vec<u32>,
    /// Slots without a value. A slot that has used all its generations is not among them and is never reused.
    free: Vec<u32>,
}

/// Minimum growth of a table, in slots.
const LEAST_GROWTH: usize = 4;

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self { values: Vec::new(), generations: Vec::new(), free: Vec::new() }
    }

    /// Number of used slots, including those that are never reused.
    pub(crate) fn len(&self) -> usize {
        let used = self.values.len().checked_sub(self.free.len());
        used.or_broken("a table has no more free slots than slots", self.values.len())
    }

    /// Whether no slot has a value.
    pub(crate) fn is_empty(&self) -> bool {
        self.values.iter().all(Option::is_none)
    }

    /// Stores `value`.
    pub(crate) fn insert(&mut self, value: T) -> Result<SlotKey, Full> {
        if let Some(slot) = self.free.pop()
            && let Some(place) = self.values.get_mut(slot as usize).or_report("a free slot exists")
        {
            *place = Some(value);
            return Ok(SlotKey { slot, generation: self.generation(slot) });
        }
        let slot = u32::try_from(self.values.len()).map_err(|_| Full)?;
        if self.values.len() == self.values.capacity() {
            // Grow by a quarter: with many SAs, doubling would waste up to half of the memory.
            let more = (self.values.len() / 4).max(LEAST_GROWTH);
            self.values.reserve_exact(more);
            self.generations.reserve_exact(more);
        }
        self.values.push(Some(value));
        self.generations.push(0);
        Ok(SlotKey { slot, generation: 0 })
    }

    pub(crate) fn remove(&mut self, slot: u32, generation: u32) -> Option<T> {
        let known = self.generations.get_mut(slot as usize).filter(|known| **known == generation)?;
        let value = self.values.get_mut(slot as usize)?.take()?;
        // A slot that has used all its generations is never reused, so that no ID occurs twice.
        if let Some(next) = generation.checked_add(1) {
            *known = next;
            self.free.push(slot);
        }
        Some(value)
    }

    #[inline]
    pub(crate) fn slot(&self, slot: u32) -> Option<&T> {
        self.values.get(slot as usize)?.as_ref()
    }

    #[inline]
    pub(crate) fn slot_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.values.get_mut(slot as usize)?.as_mut()
    }

    pub(crate) fn get(&self, slot: u32, generation: u32) -> Option<&T> {
        self.slot(slot).filter(|_| self.generation(slot) == generation)
    }

    pub(crate) fn get_mut(&mut self, slot: u32, generation: u32) -> Option<&mut T> {
        let known = *self.generations.get(slot as usize)?;
        self.slot_mut(slot).filter(|_| known == generation)
    }

    /// The generation of an existing slot.
    pub(crate) fn generation(&self, slot: u32) -> u32 {
        self.generations.get(slot as usize).copied().or_broken("a slot has a generation", 0)
    }

    /// All values with slot and generation, by slot.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, u32, &T)> {
        let slots = (0u32..).zip(&self.generations).zip(&self.values);
        slots.filter_map(|((slot, generation), value)| Some((slot, *generation, value.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reused_slot_has_a_new_generation() {
        let mut slab = Slab::new();
        let SlotKey { slot, generation } = slab.insert('a').unwrap();
        assert_eq!(slab.remove(slot, generation), Some('a'));
        assert_eq!(slab.remove(slot, generation), None);
        let again = slab.insert('b').unwrap();
        assert_eq!(again.slot, slot);
        assert_ne!(again.generation, generation);
        assert!(slab.get_mut(slot, generation).is_none());
        assert_eq!(slab.len(), 1);
    }

    /// An ID must not be reused even when a slot has used all its generations.
    #[test]
    fn slot_without_generations_is_never_reused() {
        let mut slab = Slab::new();
        let slot = slab.insert('a').unwrap().slot;
        slab.generations[0] = u32::MAX;
        assert_eq!(slab.remove(slot, u32::MAX), Some('a'));
        assert_eq!(slab.insert('b'), Ok(SlotKey { slot: 1, generation: 0 }));
        assert_eq!((slab.len(), slab.iter().count()), (2, 1));
    }
}
