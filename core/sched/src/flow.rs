//! Which packets belong together: those of one flow keep their order.

use casemate_sa::Spi;
use casemate_wire::dscp::Dscp;
use casemate_wire::flow::{FlowKey, Fragment};
use core::fmt;
use core::hash::{Hash, Hasher};
use foldhash::SharedSeed;
use foldhash::fast::FoldHasher;

/// From a packet's selectors to the number of its flow.
///
/// Keyed, so that a stranger cannot choose addresses that share a queue with somebody else's. It is no cryptographic PRF; whoever
/// guesses the seed gains that two flows share their turn.
#[derive(Clone)]
pub struct FlowHash {
    start: u64,
    seeds: SharedSeed,
}

impl FlowHash {
    /// The hash function for `seed`, which should be random and secret.
    pub const fn new(seed: u64) -> Self {
        Self { start: seed, seeds: SharedSeed::from_u64(seed) }
    }

    /// The flow of a packet with these selectors. A protected packet shows no more than its SA: give its `spi`.
    ///
    /// Only the first fragment of a datagram has ports, so fragments go by addresses and protocol. The DSCP makes no other flow:
    /// packets that differ in their drop precedence keep their order (RFC 2597 section 2).
    #[inline]
    pub fn of(&self, key: &FlowKey, spi: Option<Spi>) -> u32 {
        let mut hasher = FoldHasher::with_seed(self.start, &self.seeds);
        if key.fragment() == Fragment::Whole {
            key.with_dscp(Dscp::DEFAULT).hash(&mut hasher);
        } else {
            (key.src_bits(), key.dst_bits(), key.proto()).hash(&mut hasher);
        }
        hasher.write_u32(spi.map_or(0, Spi::get));
        // The upper bits: the better half of a product.
        (hasher.finish() >> 32) as u32
    }
}

impl fmt::Debug for FlowHash {
    /// Without the seed: whoever knows it can make collisions.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FlowHash")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    fn key(host: u8, port: u16) -> FlowKey {
        FlowKey::v4(Ipv4Addr::new(10, 0, 0, host), Ipv4Addr::new(10, 9, 9, 9), 17, (port, 5060))
    }

    #[test]
    fn a_flow_has_one_number_and_the_seed_decides_which() {
        let (a, b) = (FlowHash::new(1), FlowHash::new(2));
        assert_eq!(a.of(&key(1, 1000), None), a.of(&key(1, 1000), None));
        assert_ne!(a.of(&key(1, 1000), None), b.of(&key(1, 1000), None));
    }

    #[test]
    fn every_selector_and_the_spi_tell_flows_apart() {
        let hash = FlowHash::new(7);
        let spis = [None, Spi::new(256), Spi::new(257)];
        let flows: Vec<u32> = (1..=10)
            .flat_map(|host| (1000..1010).map(move |port| key(host, port)))
            .flat_map(|key| spis.map(|spi| hash.of(&key, spi)))
            .collect();
        assert_eq!(flows.iter().collect::<BTreeSet<_>>().len(), 300);
        // Well spread over few queues too: with 8 queues, each gets some 37 of 300.
        let mut queues = [0; 8];
        flows.iter().for_each(|flow| queues[(flow >> 29) as usize] += 1);
        assert!(queues.iter().all(|n| (15..70).contains(n)), "{queues:?}");
    }

    #[test]
    fn the_code_point_makes_no_other_flow() {
        let (hash, key) = (FlowHash::new(7), key(1, 1000));
        for dscp in (0..64).filter_map(Dscp::new) {
            assert_eq!(hash.of(&key.with_dscp(dscp), None), hash.of(&key, None));
        }
    }

    /// Two fragments of a UDP datagram, of which the first shows ports.
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
        assert_eq!(hash.of(&first, None), hash.of(&later, None));
    }
}
