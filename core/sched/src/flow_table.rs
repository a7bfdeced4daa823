//! Flows: which packets belong to one flow, and which queue it gets, so that backlogged flows seldom share
//! one.
//!
//! A flow belongs to one set of eight queues and gets an unused queue of the set. With a plain hash, some
//! small flows would always share a queue with a large flow; here, that takes eight busy flows in one set.
//! The idea comes from CAKE (Høiland-Jørgensen and others, "Piece of CAKE", 2018). Unlike in CAKE, a
//! backlogged flow never moves to another queue, so it always keeps its order.

use alloc::boxed::Box;
use alloc::vec;
use casemate_sa::Spi;
use casemate_wire::dscp::Dscp;
use casemate_wire::flow::{FlowKey, FragmentKind};
use casemate_wire::invariant::OrBroken;
use core::fmt;
use core::hash::{Hash, Hasher};
use foldhash::SharedSeed;
use foldhash::fast::FoldHasher;

/// Queues per set.
const QUEUES_PER_SET: u32 = 8;

/// Maps the selectors of a packet to a flow number.
///
/// The hash is keyed, so that an attacker cannot choose addresses that share a queue with another flow. It is
/// not a cryptographic PRF: an attacker who guesses the seed can make two flows share a queue, and no more.
#[derive(Clone)]
pub struct FlowHash {
    start: u64,
    seeds: SharedSeed,
}

impl FlowHash {
    /// Creates the hash function for `seed`, which should be random and secret.
    pub const fn new(seed: u64) -> Self {
        Self { start: seed, seeds: SharedSeed::from_u64(seed) }
    }

    /// Returns the flow number of a packet with these selectors. For ESP and AH, only the SA is visible: pass
    /// its `spi`.
    ///
    /// Only the first fragment of a datagram has ports, so fragments are hashed by addresses and protocol.
    /// The DSCP does not affect the flow: packets with different drop precedence must keep their order (RFC
    /// 2597 section 2).
    #[inline]
    pub fn hash(&self, key: &FlowKey, spi: Option<Spi>) -> u32 {
        let mut hasher = FoldHasher::with_seed(self.start, &self.seeds);
        if key.fragment() == FragmentKind::Whole {
            key.with_dscp(Dscp::DEFAULT).hash(&mut hasher);
        } else {
            (key.src_bits(), key.dst_bits(), key.proto()).hash(&mut hasher);
        }
        hasher.write_u32(spi.map_or(0, Spi::get));
        // The upper bits are the better half of a product.
        (hasher.finish() >> 32) as u32
    }
}

impl fmt::Debug for FlowHash {
    /// Omits the seed, with which an attacker could create collisions.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FlowHash")
    }
}

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
    use casemate_wire::flow::FlowPorts;
    use core::net::Ipv4Addr;
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

    fn key(host: u8, port: u16) -> FlowKey {
        FlowKey::v4(Ipv4Addr::new(10, 0, 0, host), Ipv4Addr::new(10, 9, 9, 9), 17, FlowPorts::new(port, 5060))
    }

    #[test]
    fn the_flow_number_depends_on_the_seed() {
        let (a, b) = (FlowHash::new(1), FlowHash::new(2));
        assert_eq!(a.hash(&key(1, 1000), None), a.hash(&key(1, 1000), None));
        assert_ne!(a.hash(&key(1, 1000), None), b.hash(&key(1, 1000), None));
    }

    #[test]
    fn every_selector_and_the_spi_distinguish_flows() {
        let hash = FlowHash::new(7);
        let spis = [None, Spi::new(256), Spi::new(257)];
        let flows: Vec<u32> = (1..=10)
            .flat_map(|host| (1000..1010).map(move |port| key(host, port)))
            .flat_map(|key| spis.map(|spi| hash.hash(&key, spi)))
            .collect();
        assert_eq!(flows.iter().collect::<BTreeSet<_>>().len(), 300);
        // The flows also spread well over few queues: with 8 queues, each gets about 37 of 300.
        let mut queues = [0; 8];
        flows.iter().for_each(|flow| queues[(flow >> 29) as usize] += 1);
        assert!(queues.iter().all(|n| (15..70).contains(n)), "{queues:?}");
    }

    #[test]
    fn the_dscp_does_not_change_the_flow() {
        let (hash, key) = (FlowHash::new(7), key(1, 1000));
        for dscp in (0..64).filter_map(Dscp::new) {
            assert_eq!(hash.hash(&key.with_dscp(dscp), None), hash.hash(&key, None));
        }
    }

    /// Two fragments of a UDP datagram; only the first shows ports.
    #[test]
    fn fragments_of_a_datagram_are_one_flow() {
        let mut first = [0; 44];
        first[..20].copy_from_slice(&[0x45, 0, 0, 44, 0, 1, 0x20, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        first[20..24].copy_from_slice(&[0x13, 0xc4, 0x13, 0xc4]);
        let mut later = first;
        later[6..8].copy_from_slice(&[0, 3]);
        let (first, later) = (FlowKey::parse(&first).unwrap(), FlowKey::parse(&later).unwrap());
        assert_ne!(first.ports(), later.ports());
        let hash = FlowHash::new(7);
        assert_eq!(hash.hash(&first, None), hash.hash(&later, None));
    }
}
