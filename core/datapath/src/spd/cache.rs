//! Flow cache: stores the decision for a flow (RFC 4301 section 4.4.1, "SPD cache").
//!
//! The cache has a fixed size and is set-associative. `outbound` and `inbound` look up each packet here
//! before they use the policy table. An entry is valid only in the epoch in which it was stored, so a change
//! of policy needs no flush. Look-ups compare whole keys: an attacker who floods the cache with flows causes
//! misses, never a wrong decision.

use alloc::boxed::Box;
use alloc::vec;
use casemate_wire::flow::FlowKey;
use casemate_wire::invariant::OrBroken;
use core::fmt;
use core::hash::{Hash, Hasher};
use foldhash::SharedSeed;
use foldhash::fast::FoldHasher;

/// Entries per set.
const WAYS: usize = 4;
/// One gigabyte in total, which also fits a 32-bit address space.
const MAX_SETS: usize = 1 << 22;

/// A cache from flows to decisions.
#[derive(Debug)]
pub struct FlowCache<V> {
    /// The number of sets is a power of two.
    sets: Box<[Set<V>]>,
    mask: u64,
    hash: KeyedHash,
    /// The last entry that was found. Traffic comes in bursts of one flow, which then need no hash.
    recent: Option<Entry<V>>,
    /// Selects the entry to replace.
    next_victim: usize,
}

type Set<V> = [Option<Entry<V>>; WAYS];

/// One cache line for values of up to 16 bytes that leave `Option` a niche.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Entry<V> {
    flow: FlowKey,
    epoch: u64,
    value: V,
}

impl<V> Entry<V> {
    #[inline]
    fn is_for(&self, flow: &FlowKey, epoch: u64) -> bool {
        self.flow == *flow && self.epoch == epoch
    }
}

impl<V: Copy> FlowCache<V> {
    /// An empty cache of `entries`, rounded up to a power of two, at least 4. Allocates 64 bytes for each
    /// entry. `seed` should be random, so that collisions are unpredictable.
    pub fn new(entries: usize, seed: u64) -> Self {
        let sets = entries.div_ceil(WAYS).clamp(1, MAX_SETS).next_power_of_two();
        let mask = u64::try_from(sets).unwrap_or(u64::MAX).saturating_sub(1);
        let sets = vec![[None; WAYS]; sets].into_boxed_slice();
        Self { sets, mask, hash: KeyedHash::new(seed), recent: None, next_victim: 0 }
    }

    /// The decision for the flow in this epoch, if the cache has it.
    #[inline(always)]
    pub fn get(&mut self, flow: &FlowKey, epoch: u64) -> Option<&V> {
        if !self.recent.as_ref().is_some_and(|entry| entry.is_for(flow, epoch)) {
            self.find(flow, epoch)?;
        }
        self.recent.as_ref().map(|entry| &entry.value)
    }

    /// Makes the entry for the flow the recent one.
    #[inline]
    fn find(&mut self, flow: &FlowKey, epoch: u64) -> Option<()> {
        let set = self.sets.get(self.set_index(flow)?)?;
        let found = set.iter().find_map(|way| way.as_ref().filter(|entry| entry.is_for(flow, epoch)))?;
        self.recent = Some(*found);
        Some(())
    }

    /// Stores a decision; may replace another entry.
    pub fn insert(&mut self, flow: &FlowKey, epoch: u64, value: V) {
        self.next_victim = self.next_victim.wrapping_add(1);
        let victim = self.next_victim & (WAYS - 1);
        let set = self.set_index(flow).and_then(|set| self.sets.get_mut(set));
        let Some(set) = set.or_report("the mask selects a set") else { return };
        let same = set.iter().position(|way| way.is_some_and(|entry| entry.flow == *flow));
        let stale = || set.iter().position(|way| way.is_none_or(|entry| entry.epoch != epoch));
        let way = same.or_else(stale).unwrap_or(victim);
        let entry = Some(Entry { flow: *flow, epoch, value });
        if let Some(way) = set.get_mut(way).or_report("a set has this way") {
            *way = entry;
        }
        // `recent` must not keep an earlier decision for the same flow.
        self.recent = entry;
    }

    /// Number of entries that fit.
    pub fn capacity(&self) -> usize {
        self.sets.len().saturating_mul(WAYS)
    }

    #[inline]
    fn set_index(&self, flow: &FlowKey) -> Option<usize> {
        usize::try_from(self.hash.of(flow) & self.mask).ok()
    }
}

/// Hash function, one for each seed, for tables in which packets of untrusted senders are looked up.
///
/// The seed is secret, so an attacker cannot prepare addresses that collide. The hash is no cryptographic
/// PRF: use it only where an attacker does not choose the stored keys (policies, SAs), or where a collision
/// costs no more than a cache miss.
#[derive(Clone)]
pub(crate) struct KeyedHash {
    start: u64,
    seeds: SharedSeed,
}

impl KeyedHash {
    /// The hash function for `seed`, which should be random and secret.
    pub(crate) const fn new(seed: u64) -> Self {
        Self { start: seed, seeds: SharedSeed::from_u64(seed) }
    }

    /// The hash of `value`.
    #[inline]
    pub(crate) fn of(&self, value: &impl Hash) -> u64 {
        let mut hasher = FoldHasher::with_seed(self.start, &self.seeds);
        value.hash(&mut hasher);
        hasher.finish()
    }
}

impl fmt::Debug for KeyedHash {
    /// Does not print the seed: with the seed, collisions are easy to make.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyedHash")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::CachedAdmission;
    use crate::classify::CachedDecision;
    use crate::spd::test_flows::{later, later_opaque, whole};
    use casemate_wire::flow::FlowPorts;
    use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
    use proptest::prelude::*;
    use std::collections::{HashMap, HashSet};
    use std::vec::Vec;

    fn flow(n: u32) -> FlowKey {
        FlowKey::v4(Ipv4Addr::from_bits(n), Ipv4Addr::LOCALHOST, 17, FlowPorts::new(1, 2))
    }

    #[test]
    fn entry_is_one_cache_line() {
        assert_eq!(size_of::<Option<Entry<CachedDecision>>>(), 64);
        assert_eq!(size_of::<Option<Entry<CachedAdmission>>>(), 64);
    }

    #[test]
    fn sizes_are_powers_of_two() {
        for (requested, capacity) in [(0, 4), (1, 4), (4, 4), (5, 8), (9, 16), (65_536, 65_536)] {
            assert_eq!(FlowCache::<()>::new(requested, 1).capacity(), capacity);
        }
    }

    #[test]
    fn entries_of_another_epoch_are_invalid() {
        let mut cache = FlowCache::new(4, 1);
        cache.insert(&flow(1), 7, 'a');
        assert_eq!(cache.get(&flow(1), 7).copied(), Some('a'));
        assert_eq!(cache.get(&flow(1), 8), None);
        assert_eq!(cache.get(&flow(1), 6), None);
        cache.insert(&flow(1), 8, 'b');
        assert_eq!(cache.get(&flow(1), 8).copied(), Some('b'));
        assert_eq!(cache.get(&flow(1), 7), None);
    }

    /// One set: outdated entries are replaced first, then entries in turn.
    #[test]
    fn outdated_entries_are_replaced_first() {
        let mut cache = FlowCache::new(WAYS, 1);
        for n in 0..4 {
            cache.insert(&flow(n), 0, n);
        }
        assert!((0..4).all(|n| cache.get(&flow(n), 0) == Some(&n)), "a set holds four flows");
        cache.insert(&flow(4), 1, 4);
        cache.insert(&flow(5), 1, 5);
        cache.insert(&flow(5), 1, 55);
        assert_eq!((4..6).filter_map(|n| cache.get(&flow(n), 1).copied()).collect::<Vec<_>>(), [4, 55]);
        assert_eq!((0..4).filter_map(|n| cache.get(&flow(n), 0).copied()).count(), 2);
        for n in 6..100 {
            cache.insert(&flow(n), 1, n);
            assert_eq!(cache.get(&flow(n), 1), Some(&n));
            assert_eq!(
                (4..=n).filter_map(|n| cache.get(&flow(n), 1).copied()).count(),
                WAYS.min(n as usize - 3)
            );
        }
    }

    /// Flows that differ in a single field are distinguished. All of them share one set.
    #[test]
    fn whole_keys_are_compared() {
        let (a, b) = (Ipv4Addr::new(10, 0, 0, 1).into(), Ipv4Addr::new(10, 0, 0, 2).into());
        let v6 = |bits: u128| IpAddr::V6(Ipv6Addr::from_bits(bits));
        let (low_a, low_b, high) = (v6(0x0a00_0001), v6(0x0a00_0002), v6(0x0a00_0001 << 64));
        let flows = [
            whole(a, b, 6, FlowPorts::NONE),
            whole(b, a, 6, FlowPorts::NONE),
            whole(a, a, 6, FlowPorts::NONE),
            whole(a, b, 17, FlowPorts::NONE),
            whole(a, b, 6, FlowPorts::new(1, 0)),
            whole(a, b, 6, FlowPorts::new(0, 1)),
            whole(a, b, 6, FlowPorts::new(256, 0)),
            whole(a, b, 6, FlowPorts::new(0, 256)),
            later(a, b, 6),
            whole(low_a, low_b, 6, FlowPorts::NONE),
            whole(high, low_b, 6, FlowPorts::NONE),
            whole(low_a, high, 6, FlowPorts::NONE),
            later(low_a, low_b, 6),
            later_opaque(low_a, low_b),
        ];
        for known in &flows {
            let mut cache = FlowCache::new(WAYS, 1);
            cache.insert(known, 0, ());
            assert_eq!(flows.iter().filter(|flow| cache.get(flow, 0).is_some()).collect::<Vec<_>>(), [known]);
        }
    }

    #[test]
    fn seed_changes_the_sets() {
        let set = |seed| {
            let cache = FlowCache::<()>::new(1 << 12, seed);
            (0..64).map(|n| cache.set_index(&flow(n)).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(set(1), set(1));
        assert_ne!(set(1), set(2));
        assert!(set(1).iter().collect::<HashSet<_>>().len() > 48, "flows spread over the sets");
    }

    proptest! {
        /// The cache may lose entries, but never returns anything but the last stored value.
        #[test]
        fn never_returns_a_wrong_decision(
            steps in proptest::collection::vec(
                (0..24u32, 0..3u64, proptest::option::of(any::<u16>())), 1..400,
            ),
            entries in 0..40usize,
            seed: u64,
        ) {
            let mut cache = FlowCache::new(entries, seed);
            let mut known = HashMap::new();
            for (n, epoch, value) in steps {
                if let Some(value) = value {
                    cache.insert(&flow(n), epoch, value);
                    known.insert((n, epoch), value);
                    prop_assert_eq!(cache.get(&flow(n), epoch), Some(&value));
                } else if let Some(value) = cache.get(&flow(n), epoch) {
                    prop_assert_eq!(known.get(&(n, epoch)), Some(value));
                }
            }
        }
    }
}
