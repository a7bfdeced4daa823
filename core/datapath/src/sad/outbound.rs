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
    /// In this order: path, port, SPI, protocol, slot.
    names: BTreeSet<(u64, u16, u32, u8, u32)>,
    /// In this order: reqid, path, slot.
    reqids: BTreeSet<(u32, u64, u32)>,
}

impl Leaving {
    const fn name(&self) -> (u64, u16, u32, u8, u32) {
        (self.path, number(self.port), self.spi.get(), self.protocol.number(), self.slot)
    }

    const fn reqid(&self) -> (u32, u64, u32) {
        (self.reqid, self.path, self.slot)
    }
}

/// No packet goes to port 0.
const fn number(port: Option<u16>) -> u16 {
    match port {
        Some(port) => port,
        None => 0,
    }
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
        let range = (path, 0, 0, 0, 0)..=(path, u16::MAX, u32::MAX, u8::MAX, u32::MAX);
        self.names.range(range).map(|(.., slot)| *slot)
    }

    /// Slots on a path, to a port.
    pub(super) fn to_port(&self, path: u64, port: Option<u16>) -> impl Iterator<Item = u32> {
        let port = number(port);
        self.names
            .range((path, port, 0, 0, 0)..=(path, port, u32::MAX, u8::MAX, u32::MAX))
            .map(|(.., slot)| *slot)
    }

    /// Slots with the names of an SA: there is one more only if hashes collide.
    pub(super) fn named(
        &self,
        path: u64,
        port: Option<u16>,
        (protocol, spi): (Protocol, Spi),
    ) -> impl Iterator<Item = u32> {
        let (port, spi, protocol) = (number(port), spi.get(), protocol.number());
        self.names
            .range((path, port, spi, protocol, 0)..=(path, port, spi, protocol, u32::MAX))
            .map(|(.., slot)| *slot)
    }

    /// Slots with a reqid.
    pub(super) fn with_reqid(&self, reqid: u32) -> impl Iterator<Item = u32> {
        self.reqids.range((reqid, 0, 0)..=(reqid, u64::MAX, u32::MAX)).map(|(.., slot)| *slot)
    }

    /// Slots with a reqid, on a path.
    pub(super) fn with_reqid_on_path(&self, reqid: u32, path: u64) -> impl Iterator<Item = u32> {
        self.reqids.range((reqid, path, 0)..=(reqid, path, u32::MAX)).map(|(.., slot)| *slot)
    }
}

#[cfg(test)]
impl OutboundIndex {
    /// Whether nothing is left of SAs that were removed.
    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty() && self.reqids.is_empty()
    }
}
