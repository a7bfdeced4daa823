//! The ways to an outbound SA other than its slot: by what a policy's template says, and by what an ICMP error quotes.
//!
//! Ordered trees, because very many SAs may be between the same two addresses: of peers behind one NAT, or of one peer.
//! Paths are held as keyed hashes, so whoever asks compares the addresses.

use alloc::collections::BTreeSet;
use casemate_sa::{Protocol, Spi};

/// What is known of an outbound SA without looking at it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Leaving {
    /// Hash of its two addresses.
    pub(super) path: u64,
    /// The peer's port, if it is encapsulated in UDP; peers behind one NAT differ in it.
    pub(super) port: Option<u16>,
    pub(super) spi: Spi,
    pub(super) protocol: Protocol,
    pub(super) reqid: u32,
    pub(super) slot: u32,
}

/// All outbound SAs.
#[derive(Debug, Default)]
pub(super) struct OutboundIndex {
    /// In this order: path, name, slot.
    names: BTreeSet<Words>,
    /// In this order: reqid, path, slot.
    reqids: BTreeSet<Words>,
}

/// What entries are ordered by. The same in every tree of the data path, so that there is one kind of tree in its code.
type Words = [u64; 3];

impl Leaving {
    fn name(&self) -> Words {
        [self.path, name(self.port, self.spi.get(), self.protocol.number()), self.slot.into()]
    }

    fn reqid(&self) -> Words {
        [self.reqid.into(), self.path, self.slot.into()]
    }
}

/// In this order: port, SPI, protocol. No packet goes to port 0.
fn name(port: Option<u16>, spi: u32, protocol: u8) -> u64 {
    u64::from(port.unwrap_or_default()) << 40 | u64::from(spi) << 8 | u64::from(protocol)
}

/// The slots of the entries from `first` to `last` with any slot.
fn slots(tree: &BTreeSet<Words>, first: [u64; 2], last: [u64; 2]) -> impl Iterator<Item = u32> {
    let ([a, b], [x, y]) = (first, last);
    tree.range([a, b, 0]..=[x, y, u64::MAX]).map(|[.., slot]| *slot as u32)
}

impl OutboundIndex {
    pub(super) fn insert(&mut self, sa: &Leaving) {
        self.names.insert(sa.name());
        self.reqids.insert(sa.reqid());
    }

    pub(super) fn remove(&mut self, sa: &Leaving) {
        self.names.remove(&sa.name());
        self.reqids.remove(&sa.reqid());
    }

    /// Slots on a path.
    pub(super) fn on_path(&self, path: u64) -> impl Iterator<Item = u32> {
        slots(&self.names, [path, 0], [path, u64::MAX])
    }

    /// Slots with the names of an SA: there is one more only if hashes collide.
    pub(super) fn named(
        &self,
        path: u64,
        port: Option<u16>,
        (protocol, spi): (Protocol, Spi),
    ) -> impl Iterator<Item = u32> {
        let name = name(port, spi.get(), protocol.number());
        slots(&self.names, [path, name], [path, name])
    }

    /// Slots with a reqid.
    pub(super) fn with_reqid(&self, reqid: u32) -> impl Iterator<Item = u32> {
        slots(&self.reqids, [reqid.into(), 0], [reqid.into(), u64::MAX])
    }

    /// Slots with a reqid, on a path.
    pub(super) fn with_reqid_on_path(&self, reqid: u32, path: u64) -> impl Iterator<Item = u32> {
        slots(&self.reqids, [reqid.into(), path], [reqid.into(), path])
    }
}

#[cfg(test)]
impl OutboundIndex {
    /// Whether nothing is left of SAs that were removed.
    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty() && self.reqids.is_empty()
    }
}
