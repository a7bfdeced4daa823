//! Security Association Database (RFC 4301 section 4.4.2).
//!
//! Two slabs hold the outbound and the inbound SAs. An inbound packet finds its SA by destination, protocol
//! and SPI. An outbound packet has the slot from the flow cache. A [`SaId`] contains the generation of the
//! slot, so the ID of a removed SA never refers to a later SA in the same slot.

mod changes;
mod outbound;

use crate::sa::{AddrPair, PacketFormat, SaIn, SaOut};
use crate::slab::{Full, Slab, SlotKey};
use crate::spd::{KeyedHash, Template};
use alloc::collections::BTreeSet;
use casemate_sa::table::MapKey;
use casemate_sa::{Instant, Mode, Protocol, Spi};
use casemate_wire::flow::{FlowKey, FragmentKind};
use casemate_wire::invariant::OrBroken;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::net::IpAddr;
use hashbrown::HashTable;
use outbound::{OutboundEntry, OutboundIndex};

/// Direction of an SA or of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Packets that leave, to be protected.
    Outbound,
    /// Packets that arrive protected.
    Inbound,
}

/// Identifier of one SA. It is not used again after the SA is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SaId {
    direction: Direction,
    slot: u32,
    generation: u32,
}

impl MapKey for SaId {
    fn words(self) -> [u64; 2] {
        [self.direction as u64, u64::from(self.slot) << 32 | u64::from(self.generation)]
    }
}

impl SaId {
    pub(crate) const fn new(direction: Direction, slot: u32, generation: u32) -> Self {
        Self { direction, slot, generation }
    }

    pub(crate) const fn slot(self) -> u32 {
        self.slot
    }

    /// The direction of the SA.
    pub const fn direction(self) -> Direction {
        self.direction
    }
}

impl fmt::Display for SaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arrow = match self.direction {
            Direction::Outbound => "out",
            Direction::Inbound => "in",
        };
        write!(f, "{arrow}{}.{}", self.slot, self.generation)
    }
}

/// Key of the inbound index: destination, protocol and SPI (RFC 4301 section 4.1: a manual SPI is unique only
/// with its destination). Three words, so that hashing and comparing are cheap.
#[derive(Debug, Clone, Copy, Eq)]
pub(crate) struct SaLookupKey {
    dst: [u64; 2],
    /// IP version, protocol, SPI.
    rest: u64,
}

// Word by word: a memory comparison of a new key would load wider words than were stored, and stall.
impl PartialEq for SaLookupKey {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        let (Self { dst: [a, b], rest: c }, Self { dst: [x, y], rest: z }) = (*self, *other);
        (a ^ x) | (b ^ y) | (c ^ z) == 0
    }
}

impl Hash for SaLookupKey {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { dst: [a, b], rest } = *self;
        [a, b, rest].into_iter().for_each(|word| state.write_u64(word));
    }
}

impl SaLookupKey {
    /// Matches no SA.
    pub(crate) const NONE: Self = Self { dst: [0; 2], rest: 0 };

    /// Protocol and SPI; `None` for [`SaLookupKey::NONE`].
    pub(crate) fn header(&self) -> Option<(Protocol, u32)> {
        let protocol = match (self.rest >> 32) as u8 {
            50 => Protocol::Esp,
            51 => Protocol::Ah,
            _ => return None,
        };
        Some((protocol, self.rest as u32))
    }

    #[inline]
    pub(crate) fn new(spi: u32, protocol: Protocol, dst: IpAddr) -> Self {
        let (bits, version) = match dst {
            IpAddr::V4(dst) => (u128::from(dst.to_bits()), 4),
            IpAddr::V6(dst) => (dst.to_bits(), 6),
        };
        let rest = version << 40 | u64::from(protocol.number()) << 32 | u64::from(spi);
        Self { dst: [(bits >> 64) as u64, bits as u64], rest }
    }
}

/// Entry of the inbound index; half a cache line.
#[repr(align(32))]
pub(crate) struct IndexEntry {
    pub(crate) lookup_key: SaLookupKey,
    pub(crate) slot: u32,
    pub(crate) format: PacketFormat,
}

/// Why an SA was not added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SadError {
    /// The limit is reached.
    Full,
    /// An SA with this SPI, protocol and destination exists.
    Duplicate,
}

impl From<Full> for SadError {
    fn from(Full: Full) -> Self {
        Self::Full
    }
}

/// The tables. The inbound index contains whole keys, and enough to reject a packet, so that a look-up does
/// not access the SA: with many SAs each access waits for memory. A batch looks up all its slots first and
/// then accesses the SAs together.
pub(crate) struct Sad {
    outbound: Slab<SaOut>,
    inbound: Slab<SaIn>,
    /// Slots of the inbound SAs.
    inbound_index: HashTable<IndexEntry>,
    outbound_index: OutboundIndex,
    /// Source addresses of inbound SAs: hash of the address, slot.
    peers: BTreeSet<[u64; 3]>,
    hash: KeyedHash,
    limit: usize,
    last_serial: u64,
}

impl Sad {
    pub(crate) fn new(limit: usize, seed: u64) -> Self {
        Self {
            outbound: Slab::new(),
            inbound: Slab::new(),
            inbound_index: HashTable::new(),
            outbound_index: OutboundIndex::default(),
            peers: BTreeSet::new(),
            hash: KeyedHash::new(seed),
            limit,
            last_serial: 0,
        }
    }

    fn check_room(&self) -> Result<(), SadError> {
        if self.outbound.len().saturating_add(self.inbound.len()) < self.limit {
            Ok(())
        } else {
            Err(SadError::Full)
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.outbound.is_empty() && self.inbound.is_empty()
    }

    pub(crate) fn add_outbound(&mut self, mut sa: SaOut) -> Result<SaId, SadError> {
        self.check_room()?;
        let port = sa.encapsulation.encap.map(|encap| encap.dst_port);
        if self.find_outbound(sa.path(), port, sa.protocol, sa.spi).is_some() {
            return Err(SadError::Duplicate);
        }
        self.last_serial = self.last_serial.saturating_add(1);
        sa.serial = self.last_serial;
        let SlotKey { slot, generation } = self.outbound.insert(sa)?;
        self.index_outbound(slot, OutboundIndex::insert);
        Ok(SaId::new(Direction::Outbound, slot, generation))
    }

    /// Adds an outbound SA to the index or removes it.
    fn index_outbound(&mut self, slot: u32, change: fn(&mut OutboundIndex, &OutboundEntry)) {
        let Some(sa) = self.outbound.slot(slot).or_report("an SA in the index exists") else { return };
        let (path, port) = (self.hash.of(&sa.path()), sa.encapsulation.encap.map(|encap| encap.dst_port));
        let SaOut { spi, protocol, reqid, .. } = *sa;
        change(&mut self.outbound_index, &OutboundEntry { path, port, spi, protocol, reqid, slot });
    }

    pub(crate) fn add_inbound(&mut self, sa: SaIn) -> Result<SaId, SadError> {
        self.check_room()?;
        let (lookup_key, format, src) = (sa.lookup_key(), sa.format, sa.src);
        if self.find_inbound(&lookup_key).is_some() {
            return Err(SadError::Duplicate);
        }
        let SlotKey { slot, generation } = self.inbound.insert(sa)?;
        self.peers.insert(self.peer_key(src, slot));
        let keyed = &self.hash;
        let entry = IndexEntry { lookup_key, slot, format };
        self.inbound_index.insert_unique(keyed.of(&lookup_key), entry, |entry| keyed.of(&entry.lookup_key));
        Ok(SaId::new(Direction::Inbound, slot, generation))
    }

    /// Key in `peers` of an inbound SA with this source address.
    fn peer_key(&self, src: IpAddr, slot: u32) -> [u64; 3] {
        [self.hash.of(&src), slot.into(), 0]
    }

    /// Whether an inbound SA has this source address.
    pub(crate) fn is_peer(&self, addr: IpAddr) -> bool {
        let hash = self.hash.of(&addr);
        let slots = self.peers.range([hash, 0, 0]..=[hash, u64::MAX, 0]);
        slots.into_iter().any(|[_, slot, _]| self.inbound.slot(*slot as u32).is_some_and(|sa| sa.src == addr))
    }

    pub(crate) fn last_used(&self, id: SaId) -> Option<Instant> {
        match id.direction {
            Direction::Inbound => self.inbound.get(id.slot, id.generation)?.state.meter.last_used,
            Direction::Outbound => self.outbound.get(id.slot, id.generation)?.meter.last_used,
        }
    }

    /// The inbound SA with this key.
    #[inline]
    pub(crate) fn find_inbound(&self, lookup_key: &SaLookupKey) -> Option<&IndexEntry> {
        self.inbound_index.find(self.hash.of(lookup_key), |entry| entry.lookup_key == *lookup_key)
    }

    /// The outbound SA that matches a policy's template and whose own selector matches `flow`, or may match
    /// it if `flow` is a fragment. Of several, the one with the lowest [`SaOut::dscp_rank`], and then the
    /// one that was added first. In transport mode a template without addresses means `packet_addrs`, the
    /// addresses of the packet.
    pub(crate) fn resolve(
        &self,
        template: &Template,
        packet_addrs: AddrPair,
        flow: Option<&FlowKey>,
    ) -> Option<u32> {
        let visible = flow.map(|flow| flow.common_to_all_fragments());
        let accepts_flow = |sa: &SaOut| match (&sa.selector, &visible) {
            (Some(selector), Some(flow)) if flow.fragment() == FragmentKind::Whole => selector.matches(flow),
            (Some(selector), Some(flow)) => selector.may_match(flow),
            _ => true,
        };
        let path = match template.mode {
            Mode::Transport => {
                let AddrPair { src, dst } = packet_addrs;
                Some(AddrPair { src: template.src.unwrap_or(src), dst: template.dst.unwrap_or(dst) })
            }
            Mode::Tunnel => template.src.zip(template.dst).map(|(src, dst)| AddrPair { src, dst }),
        };
        let is_between = |sa: &SaOut| path.is_none_or(|path| sa.path() == path);
        let is_usable = |sa: &SaOut| is_between(sa) && sa.matches_template(template) && accepts_flow(sa);
        let oldest = |slots: &mut dyn Iterator<Item = u32>| {
            let sas = slots.filter_map(|slot| Some((slot, self.outbound.slot(slot)?)));
            let usable = sas.filter(|(_, sa)| is_usable(sa));
            usable.min_by_key(|(_, sa)| (sa.dscp_rank(flow), sa.serial)).map(|(slot, _)| slot)
        };
        // A reqid of 0 matches any SA.
        match (template.reqid, path.map(|path| self.hash.of(&path))) {
            (0, Some(path)) => oldest(&mut self.outbound_index.on_path(path)),
            (0, None) => oldest(&mut self.outbound.iter().map(|(slot, ..)| slot)),
            (reqid, Some(path)) => oldest(&mut self.outbound_index.with_reqid_on_path(reqid, path)),
            (reqid, None) => oldest(&mut self.outbound_index.with_reqid(reqid)),
        }
    }

    /// The slot of the outbound SA with these addresses, protocol and SPI, and with this destination port if
    /// it is encapsulated in UDP.
    pub(crate) fn find_outbound(
        &self,
        path: AddrPair,
        port: Option<u16>,
        protocol: Protocol,
        spi: Spi,
    ) -> Option<u32> {
        let mut slots = self.outbound_index.named(self.hash.of(&path), port, protocol, spi);
        slots.find(|&slot| self.outbound.slot(slot).is_some_and(|sa| sa.path() == path))
    }

    pub(crate) fn inbound_ref(&self, slot: u32) -> Option<&SaIn> {
        self.inbound.slot(slot)
    }

    pub(crate) fn outbound_ref(&self, slot: u32) -> Option<&SaOut> {
        self.outbound.slot(slot)
    }

    #[inline]
    pub(crate) fn outbound(&mut self, slot: u32) -> Option<&mut SaOut> {
        self.outbound.slot_mut(slot)
    }

    #[inline]
    pub(crate) fn inbound(&mut self, slot: u32) -> Option<&mut SaIn> {
        self.inbound.slot_mut(slot)
    }

    pub(crate) fn outbound_by_id(&mut self, id: SaId) -> Option<&mut SaOut> {
        self.outbound.get_mut(id.slot, id.generation).filter(|_| id.direction == Direction::Outbound)
    }

    #[inline]
    pub(crate) fn inbound_by_id(&mut self, id: SaId) -> Option<&mut SaIn> {
        self.inbound.get_mut(id.slot, id.generation).filter(|_| id.direction == Direction::Inbound)
    }

    pub(crate) fn id_of(&self, direction: Direction, slot: u32) -> SaId {
        let generation = match direction {
            Direction::Outbound => self.outbound.generation(slot),
            Direction::Inbound => self.inbound.generation(slot),
        };
        SaId::new(direction, slot, generation)
    }

    pub(crate) fn iter_outbound(&self) -> impl Iterator<Item = (SaId, &SaOut)> {
        self.outbound
            .iter()
            .map(|(slot, generation, sa)| (SaId::new(Direction::Outbound, slot, generation), sa))
    }

    pub(crate) fn iter_inbound(&self) -> impl Iterator<Item = (SaId, &SaIn)> {
        self.inbound
            .iter()
            .map(|(slot, generation, sa)| (SaId::new(Direction::Inbound, slot, generation), sa))
    }
}

#[cfg(test)]
mod tests;
