//! Flow hash: packets of one flow keep their order.

use casemate_sa::Spi;
use casemate_wire::dscp::Dscp;
use casemate_wire::flow::{FlowKey, FragmentKind};
use core::fmt;
use core::hash::{Hash, Hasher};
use foldhash::SharedSeed;
use foldhash::fast::FoldHasher;

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
