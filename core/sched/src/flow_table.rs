//! Assignment of flows to queues, so that backlogged flows seldom share a queue.
//!
//! A flow belongs to one set of eight queues and gets an unused queue of the set. With a plain hash, some
//! small flows would always share a queue with a large flow; here, that takes eight busy flows in one set.
//! The idea comes from CAKE (Høiland-Jørgensen and others, "Piece of CAKE", 2018). Unlike in CAKE, a
//! backlogged flow never moves to another queue, so it always keeps its order.

use alloc::boxed::Box;
use alloc::vec;
use casemate_wire::invariant::OrBroken;

/// Queues per set.
const QUEUES_PER_SET: u32 = 8;

/// The set-associative table of flows.
#[derive(Debug)]
pub(crate) struct FlowTable {
    sets: Box<[Set]>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Set {
    /// The flow to which each queue was last assigned.
    owners: [u32; QUEUES_PER_SET as usize],
    /// One bit per queue: whether other flows wait there as well. As long as they do, they get no other
    /// queue, to keep their order.
    shared: u8,
}

impl FlowTable {
    /// Creates a table of `queues` queues, rounded up to whole sets.
    pub(crate) fn new(queues: u16) -> Self {
        Self {
            sets: vec![Set::default(); usize::from(queues).div_ceil(QUEUES_PER_SET as usize)]
                .into_boxed_slice(),
        }
    }

    /// Number of queues.
    pub(crate) fn queues(&self) -> u32 {
        u32::try_from(self.sets.len()).unwrap_or(u32::MAX).saturating_mul(QUEUES_PER_SET)
    }

    /// Returns the queue of a flow that has an item to queue. `is_empty` returns whether a queue is empty.
    #[inline]
    pub(crate) fn queue_of(&mut self, flow: u32, is_empty: impl Fn(u32) -> bool) -> u32 {
        // The upper half of a product replaces a division.
        let at = u64::from(flow).saturating_mul(self.sets.len() as u64) >> 32;
        let first = (at as u32).saturating_mul(QUEUES_PER_SET);
        let set = self.sets.get_mut(at as usize).or_report("the upper half of the product selects a set");
        let Some(set) = set else { return first };
        first.saturating_add(set.queue_in_set(flow, |queue| is_empty(first.saturating_add(queue))))
    }
}

impl Set {
    #[inline]
    fn queue_in_set(&mut self, flow: u32, is_empty: impl Fn(u32) -> bool) -> u32 {
        let preferred = flow & QUEUES_PER_SET.saturating_sub(1);
        // Fast path for most flows: one comparison instead of eight.
        if self.owners.get(preferred as usize) == Some(&flow) {
            return preferred;
        }
        if let Some(queue) =
            (0..QUEUES_PER_SET).zip(self.owners).find_map(|(queue, owner)| (owner == flow).then_some(queue))
        {
            return queue;
        }
        let bit = 1u8.checked_shl(preferred).unwrap_or(0);
        let waits_in_preferred = self.shared & bit != 0 && !is_empty(preferred);
        let mut candidates = core::iter::once(preferred).chain(0..QUEUES_PER_SET);
        let found = if waits_in_preferred { None } else { candidates.find(|queue| is_empty(*queue)) };
        let Some(queue) = found else {
            self.shared |= bit;
            return preferred;
        };
        if let Some(owner) = self.owners.get_mut(queue as usize).or_report("a set has this queue") {
            *owner = flow;
        }
        if queue == preferred {
            self.shared &= !bit;
        }
        queue
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet, VecDeque};
    use std::vec::Vec;

    #[test]
    fn flows_get_separate_queues_while_any_are_free() {
        let mut table = FlowTable::new(8);
        assert_eq!(table.queues(), 8);
        let mut taken = BTreeSet::new();
        // All these flows prefer the same queue.
        for n in 1..=8 {
            let queue = table.queue_of(n << 3, |queue| !taken.contains(&queue));
            assert!(taken.insert(queue));
        }
        assert_eq!(table.queue_of(9 << 3, |_| false), 0, "the ninth flow gets its preferred queue");
        assert_eq!(
            table.queue_of(9 << 3, |queue| queue == 5),
            0,
            "it stays there while it may have packets there"
        );
        assert_eq!(table.queue_of(10 << 3 | 1, |queue| queue == 5), 5, "another flow may get the free queue");
        assert_eq!(table.queue_of(9 << 3, |queue| queue == 0 || queue == 6), 0);
        assert_eq!(table.queue_of(11 << 3, |queue| queue == 6), 6, "no flow shares the queue now");
        assert_eq!(FlowTable::new(9).queues(), 16);
        assert_eq!(FlowTable::new(u16::MAX).queues(), 65_536);
    }

    proptest! {
        /// Twelve flows for eight queues: in whatever order the queues are served, each flow keeps its packet
        /// order.
        #[test]
        fn a_flow_keeps_its_order(steps in prop::collection::vec((0u32..12, any::<bool>()), 1..600)) {
            let mut table = FlowTable::new(8);
            let mut queues: Vec<VecDeque<(u32, usize)>> = (0..8).map(|_| VecDeque::new()).collect();
            let mut last: BTreeMap<u32, usize> = BTreeMap::new();
            for (number, (n, push)) in steps.into_iter().enumerate() {
                if push {
                    // Some flows prefer the same queue.
                    let flow = n % 12 + 8 * (n % 3);
                    let queue = table.queue_of(flow, |queue| queues[queue as usize].is_empty());
                    queues[queue as usize].push_back((flow, number));
                } else if let Some((flow, number)) = queues[n as usize % 8].pop_front() {
                    prop_assert!(last.insert(flow, number).is_none_or(|before| before < number));
                }
            }
        }
    }
}
