//! Where the peers of Child SAs are.

use casemate_ike::ChildId;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::ops::RangeInclusive;

/// The peers, each as long as it has a Child SA.
#[derive(Debug, Default)]
pub(super) struct Peers {
    of_child: HashMap<ChildId, IpAddr>,
    counts: BTreeMap<IpAddr, usize>,
}

impl Peers {
    /// A Child SA with a peer; `true` if it is the peer's first one.
    pub(super) fn add(&mut self, child: ChildId, peer: IpAddr) -> bool {
        self.remove(child);
        self.of_child.insert(child, peer);
        let count = self.counts.entry(peer).or_default();
        *count = count.saturating_add(1);
        *count == 1
    }

    /// A Child SA is gone.
    pub(super) fn remove(&mut self, child: ChildId) {
        let Some(peer) = self.of_child.remove(&child) else { return };
        let Some(count) = self.counts.get_mut(&peer) else { return };
        *count = count.saturating_sub(1);
        if *count == 0 {
            self.counts.remove(&peer);
        }
    }

    /// The peers with these addresses.
    pub(super) fn within(&self, addresses: RangeInclusive<IpAddr>) -> impl Iterator<Item = IpAddr> {
        self.counts.range(addresses).map(|(peer, _)| *peer)
    }
}
