//! A table whose slots are reused under a new generation.

use alloc::vec::Vec;

/// All slots are taken, and no more can be numbered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full;

pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// Slots by which a table grows at least.
const LEAST_GROWTH: usize = 4;

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len().saturating_sub(self.free.len())
    }

    /// Stores `value`; answers its slot and generation.
    pub(crate) fn insert(&mut self, value: T) -> Result<(u32, u32), Full> {
        if let Some(slot) = self.free.pop()
            && let Some(place) = self.slots.get_mut(slot as usize)
        {
            place.value = Some(value);
            return Ok((slot, place.generation));
        }
        let slot = u32::try_from(self.slots.len()).map_err(|_| Full)?;
        if self.slots.len() == self.slots.capacity() {
            // By a quarter: half of a doubled table of many SAs would lie empty.
            self.slots.reserve_exact((self.slots.len() / 4).max(LEAST_GROWTH));
        }
        self.slots.push(Slot { generation: 0, value: Some(value) });
        Ok((slot, 0))
    }

    pub(crate) fn remove(&mut self, slot: u32, generation: u32) -> Option<T> {
        let place = self.slots.get_mut(slot as usize).filter(|place| place.generation == generation)?;
        let value = place.value.take()?;
        // A slot that has used up its generations is never handed out again, so that no name comes twice.
        if let Some(next) = generation.checked_add(1) {
            place.generation = next;
            self.free.push(slot);
        }
        Some(value)
    }

    #[inline]
    pub(crate) fn slot(&self, slot: u32) -> Option<&T> {
        self.slots.get(slot as usize)?.value.as_ref()
    }

    #[inline]
    pub(crate) fn slot_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.slots.get_mut(slot as usize)?.value.as_mut()
    }

    pub(crate) fn get(&self, slot: u32, generation: u32) -> Option<&T> {
        self.slots.get(slot as usize).filter(|place| place.generation == generation)?.value.as_ref()
    }

    pub(crate) fn get_mut(&mut self, slot: u32, generation: u32) -> Option<&mut T> {
        self.slots.get_mut(slot as usize).filter(|place| place.generation == generation)?.value.as_mut()
    }

    pub(crate) fn generation(&self, slot: u32) -> u32 {
        self.slots.get(slot as usize).map_or(0, |place| place.generation)
    }

    /// Every value with its slot and generation, lowest slot first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, u32, &T)> {
        (0u32..)
            .zip(&self.slots)
            .filter_map(|(slot, place)| Some((slot, place.generation, place.value.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reused_slot_has_a_new_name() {
        let mut slab = Slab::new();
        let (slot, generation) = slab.insert('a').unwrap();
        assert_eq!(slab.remove(slot, generation), Some('a'));
        assert_eq!(slab.remove(slot, generation), None);
        let (again, newer) = slab.insert('b').unwrap();
        assert_eq!(again, slot);
        assert_ne!(newer, generation);
        assert!(slab.get_mut(slot, generation).is_none());
        assert_eq!(slab.len(), 1);
    }
}
