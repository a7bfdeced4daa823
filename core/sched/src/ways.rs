//! Which queue a flow is in: so that flows which have packets waiting seldom share one.
//!
//! A flow belongs to one set of eight queues, and takes one of them that nobody uses. With a plain hash, one of so many small
//! flows would always be behind a large one; here that takes eight busy flows in its set. The idea is that of CAKE
//! (Høiland-Jørgensen and others, "Piece of CAKE", 2018); unlike there, a flow whose packets wait is never sent elsewhere, so its
//! order holds whatever happens.

use alloc::boxed::Box;
use alloc::vec;

/// Queues of a set.
const WAYS: u32 = 8;

/// Who is in which queue.
#[derive(Debug)]
pub(crate) struct Ways {
    sets: Box<[Set]>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Set {
    /// The flow that each queue was last given to.
    owners: [u32; WAYS as usize],
    /// Queues in which others wait too, one bit each. While they do they find no other queue: order would suffer.
    shared: u8,
}

impl Ways {
    /// For so many queues, rounded up to whole sets.
    pub(crate) fn new(queues: u16) -> Self {
        Self { sets: vec![Set::default(); usize::from(queues).div_ceil(WAYS as usize)].into_boxed_slice() }
    }

    /// How many queues there are.
    pub(crate) fn queues(&self) -> u32 {
        u32::try_from(self.sets.len()).unwrap_or(u32::MAX).saturating_mul(WAYS)
    }

    /// The queue of a flow that has something to put into it. `is_empty` says of a queue whether nothing waits there.
    #[inline]
    pub(crate) fn queue_of(&mut self, flow: u32, is_empty: impl Fn(u32) -> bool) -> u32 {
        // The upper half of a product instead of a division.
        let at = u64::from(flow).saturating_mul(self.sets.len() as u64) >> 32;
        let first = (at as u32).saturating_mul(WAYS);
        let Some(set) = self.sets.get_mut(at as usize) else { return first };
        first.saturating_add(set.way_of(flow, |way| is_empty(first.saturating_add(way))))
    }
}

impl Set {
    #[inline]
    fn way_of(&mut self, flow: u32, is_empty: impl Fn(u32) -> bool) -> u32 {
        let home = flow & WAYS.saturating_sub(1);
        // Where most are: one look instead of eight.
        if self.owners.get(home as usize) == Some(&flow) {
            return home;
        }
        if let Some(way) = (0..WAYS).zip(self.owners).find_map(|(way, owner)| (owner == flow).then_some(way))
        {
            return way;
        }
        let bit = 1u8.checked_shl(home).unwrap_or(0);
        let waits_at_home = self.shared & bit != 0 && !is_empty(home);
        let mut ways = core::iter::once(home).chain(0..WAYS);
        let found = if waits_at_home { None } else { ways.find(|way| is_empty(*way)) };
        let Some(way) = found else {
            self.shared |= bit;
            return home;
        };
        if let Some(owner) = self.owners.get_mut(way as usize) {
            *owner = flow;
        }
        if way == home {
            self.shared &= !bit;
        }
        way
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet, VecDeque};
    use std::vec::Vec;

    #[test]
    fn flows_have_queues_of_their_own_while_there_are_any() {
        let mut ways = Ways::new(8);
        assert_eq!(ways.queues(), 8);
        let mut taken = BTreeSet::new();
        // All have the same home.
        for n in 1..=8 {
            let queue = ways.queue_of(n << 3, |queue| !taken.contains(&queue));
            assert!(taken.insert(queue));
        }
        assert_eq!(ways.queue_of(9 << 3, |_| false), 0, "the ninth is at home");
        assert_eq!(
            ways.queue_of(9 << 3, |queue| queue == 5),
            0,
            "and stays while it may have something there"
        );
        assert_eq!(
            ways.queue_of(10 << 3 | 1, |queue| queue == 5),
            5,
            "another may have the queue that is free"
        );
        assert_eq!(ways.queue_of(9 << 3, |queue| queue == 0 || queue == 6), 0);
        assert_eq!(ways.queue_of(11 << 3, |queue| queue == 6), 6, "nobody shares now");
        assert_eq!(Ways::new(9).queues(), 16);
        assert_eq!(Ways::new(u16::MAX).queues(), 65_536);
    }

    proptest! {
        /// Twelve flows for eight queues: in whatever order queues are served, each flow's packets leave as they came.
        #[test]
        fn a_flow_keeps_its_order(steps in prop::collection::vec((0u32..12, any::<bool>()), 1..600)) {
            let mut ways = Ways::new(8);
            let mut queues: Vec<VecDeque<(u32, usize)>> = (0..8).map(|_| VecDeque::new()).collect();
            let mut last: BTreeMap<u32, usize> = BTreeMap::new();
            for (number, (n, push)) in steps.into_iter().enumerate() {
                if push {
                    // Some share a home.
                    let flow = n % 12 + 8 * (n % 3);
                    let queue = ways.queue_of(flow, |queue| queues[queue as usize].is_empty());
                    queues[queue as usize].push_back((flow, number));
                } else if let Some((flow, number)) = queues[n as usize % 8].pop_front() {
                    prop_assert!(last.insert(flow, number).is_none_or(|before| before < number));
                }
            }
        }
    }
}
