//! Flow cache: remembers what was decided for a flow (RFC 4301 section 4.4.1, "SPD cache").
//!
//! Fixed size, set-associative; asked for each packet by `outbound` and `inbound`, before the policy table. Every entry
//! carries the epoch in which it was decided and answers in no other, so a change of policy needs no flush. Compares
//! whole keys: a stranger who floods it with flows causes misses, never a wrong answer.

use super::hash::KeyedHash;
use alloc::boxed::Box;
use alloc::vec;
use casemate_wire::flow::FlowKey;

/// Entries that a flow may be in.
const WAYS: usize = 4;
/// One gigabyte on its own; also what a 32-bit address space still holds.
const MAX_SETS: usize = 1 << 22;

/// A cache from flows to decisions.
#[derive(Debug)]
pub struct FlowCache<V> {
    /// A power of two of them.
    sets: Box<[Set<V>]>,
    mask: u64,
    hash: KeyedHash,
    /// The entry that answered last: traffic comes in bursts of one flow, which then need no hash.
    recent: Option<Entry<V>>,
    /// Chooses the entry that gives way.
    turn: usize,
}

type Set<V> = [Option<Entry<V>>; WAYS];

/// One cache line, for values of up to 16 bytes that leave `Option` a niche.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Entry<V> {
    flow: FlowKey,
    epoch: u64,
    value: V,
}

impl<V: Copy> FlowCache<V> {
    /// An empty cache of `entries`, rounded up to a power of two, at least 4. Takes 64 bytes for each at once. `seed`
    /// should be random: it keeps collisions unpredictable.
    pub fn new(entries: usize, seed: u64) -> Self {
        let sets = entries.div_ceil(WAYS).clamp(1, MAX_SETS).next_power_of_two();
        let mask = u64::try_from(sets).unwrap_or(u64::MAX).saturating_sub(1);
        let sets = vec![[None; WAYS]; sets].into_boxed_slice();
        Self { sets, mask, hash: KeyedHash::new(seed), recent: None, turn: 0 }
    }

    /// What was decided for the flow in this epoch, if it is still known.
    #[inline(always)]
    pub fn get(&mut self, flow: &FlowKey, epoch: u64) -> Option<V> {
        let is_it = |entry: &&Entry<V>| entry.flow == *flow && entry.epoch == epoch;
        if let Some(entry) = self.recent.as_ref().filter(is_it) {
            return Some(entry.value);
        }
        let at = self.set_of(flow)?;
        let found = self.sets.get(at)?.iter().find_map(|way| way.as_ref().filter(is_it))?;
        self.recent = Some(*found);
        Some(found.value)
    }

    /// Remembers a decision, in place of another one if need be.
    pub fn insert(&mut self, flow: &FlowKey, epoch: u64, value: V) {
        self.turn = self.turn.wrapping_add(1);
        let turn = self.turn & (WAYS - 1);
        let Some(set) = self.set_of(flow).and_then(|set| self.sets.get_mut(set)) else { return };
        let same = set.iter().position(|way| way.is_some_and(|entry| entry.flow == *flow));
        let dead = || set.iter().position(|way| way.is_none_or(|entry| entry.epoch != epoch));
        let way = same.or_else(dead).unwrap_or(turn);
        let entry = Some(Entry { flow: *flow, epoch, value });
        if let Some(way) = set.get_mut(way) {
            *way = entry;
        }
        // Another decision for the same flow must not be remembered beside this one.
        self.recent = entry;
    }

    /// How many entries it has room for.
    pub fn capacity(&self) -> usize {
        self.sets.len().saturating_mul(WAYS)
    }

    #[inline]
    fn set_of(&self, flow: &FlowKey) -> Option<usize> {
        usize::try_from(self.hash.of(flow) & self.mask).ok()
    }
}

#[cfg(test)]
mod tests;
