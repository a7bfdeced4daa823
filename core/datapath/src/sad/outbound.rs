//! Index of outbound SAs: by the fields of a policy's template, and by the fields that an ICMP error quotes.
//!
//! Ordered trees, because very many SAs may have the same two addresses: peers behind one NAT, or several SAs
//! with one peer. The index contains keyed hashes of the addresses, so callers must compare the addresses
//! themselves.

use alloc::collections::BTreeSet;
use casemate_sa::{Protocol, Spi};

/// The indexed fields of an outbound SA.
#[derive(Debug, Clone, Copy)]
pub(super) struct OutboundEntry {
    /// Hash of source and destination.
    pub(super) path: u64,
    /// The peer's UDP port with encapsulation. It differs between peers behind one NAT.
    pub(super) port: Option<u16>,
    pub(super) spi: Spi,
    pub(super) protocol: Protocol,
    pub(super) reqid: u32,
    pub(super) slot: u32,
}

/// The index of all outbound SAs.
#[derive(Debug, Default)]
pub(super) struct OutboundIndex {
    /// Path, ID (port, SPI, protocol), slot.
    names: BTreeSet<TreeKey>,
    /// Reqid, path, slot.
    reqids: BTreeSet<TreeKey>,
}

/// Type of all tree entries in the data path, so that the code contains one kind of tree.
type TreeKey = [u64; 3];

impl OutboundEntry {
    fn name(&self) -> TreeKey {
        [self.path, name(self.port, self.spi.get(), self.protocol.number()), self.slot.into()]
    }

    fn reqid(&self) -> TreeKey {
        [self.reqid.into(), self.path, self.slot.into()]
    }
}

/// Port, SPI and protocol in one word. Port 0 means no encapsulation, because no packet has destination port
/// 0.
fn name(port: Option<u16>, spi: u32, protocol: u8) -> u64 {
    u64::from(port.unwrap_or_default()) << 40 | u64::from(spi) << 8 | u64::from(protocol)
}

/// The slots of all entries from `first` to `last`.
fn slots(tree: &BTreeSet<TreeKey>, first: [u64; 2], last: [u64; 2]) -> impl Iterator<Item = u32> {
    let ([a, b], [x, y]) = (first, last);
    tree.range([a, b, 0]..=[x, y, u64::MAX]).map(|[.., slot]| *slot as u32)
}

impl OutboundIndex {
    pub(super) fn insert(&mut self, sa: &OutboundEntry) {
        self.names.insert(sa.name());
        self.reqids.insert(sa.reqid());
    }

    pub(super) fn remove(&mut self, sa: &OutboundEntry) {
        self.names.remove(&sa.name());
        self.reqids.remove(&sa.reqid());
    }

    /// Slots of the SAs on a path.
    pub(super) fn on_path(&self, path: u64) -> impl Iterator<Item = u32> {
        slots(&self.names, [path, 0], [path, u64::MAX])
    }

    /// Slots of the SAs with this path, port, protocol and SPI. Several only if hashes collide.
    pub(super) fn named(
        &self,
        path: u64,
        port: Option<u16>,
        protocol: Protocol,
        spi: Spi,
    ) -> impl Iterator<Item = u32> {
        let name = name(port, spi.get(), protocol.number());
        slots(&self.names, [path, name], [path, name])
    }

    /// Slots of the SAs with a reqid.
    pub(super) fn with_reqid(&self, reqid: u32) -> impl Iterator<Item = u32> {
        slots(&self.reqids, [reqid.into(), 0], [reqid.into(), u64::MAX])
    }

    /// Slots of the SAs with a reqid on a path.
    pub(super) fn with_reqid_on_path(&self, reqid: u32, path: u64) -> impl Iterator<Item = u32> {
        slots(&self.reqids, [reqid.into(), path], [reqid.into(), path])
    }
}

#[cfg(test)]
impl OutboundIndex {
    /// Whether removed SAs left no entry behind.
    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty() && self.reqids.is_empty()
    }
}
