//! Security Association Database (RFC 4301 section 4.4.2).
//!
//! Two slabs, outbound and inbound. Inbound packets find their SA by destination, protocol and SPI; outbound packets come
//! with the slot, because the flow cache holds it. A [`SaId`] carries the slot's generation, so the name of a removed SA
//! never reaches its successor.

mod outbound;

use crate::SaPath;
use crate::sa_in::{Gate, SaIn};
use crate::sa_out::SaOut;
use crate::slab::{Full, Slab};
use crate::spd::{Template, hash::KeyedHash};
use alloc::collections::BTreeSet;
use casemate_sa::{Instant, Mode, Protocol, Spi};
use casemate_tables::Key;
use casemate_wire::flow::{FlowKey, Fragment};
use core::fmt;
use core::hash::{Hash, Hasher};
use core::net::IpAddr;
use hashbrown::HashTable;
use outbound::{Leaving, OutboundIndex};

/// Which way packets go: out into protection, or in from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// To be protected.
    Outbound,
    /// Arriving protected.
    Inbound,
}

/// Names one SA; never names another one after it was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SaId {
    direction: Direction,
    slot: u32,
    generation: u32,
}

impl Key for SaId {
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

    /// Its direction.
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

/// What an inbound packet shows of its SA (RFC 4301 section 4.1: a manual SPI is unique only with its destination). Three
/// words: cheap to hash and to compare.
#[derive(Debug, Clone, Copy, Eq)]
pub(crate) struct Arrival {
    dst: [u64; 2],
    /// IP version, protocol, SPI.
    rest: u64,
}

// Word by word: a memory comparison would load one that was just made in wider pieces than it was stored, and stall.
impl PartialEq for Arrival {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        let (Self { dst: [a, b], rest: c }, Self { dst: [x, y], rest: z }) = (*self, *other);
        (a ^ x) | (b ^ y) | (c ^ z) == 0
    }
}

impl Hash for Arrival {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { dst: [a, b], rest } = *self;
        [a, b, rest].into_iter().for_each(|word| state.write_u64(word));
    }
}

impl Arrival {
    /// Names nothing.
    pub(crate) const NONE: Self = Self { dst: [0; 2], rest: 0 };

    /// Protocol and SPI; `None` of [`Arrival::NONE`].
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

/// What the inbound index knows of an SA; half a cache line.
#[repr(align(32))]
pub(crate) struct Known {
    pub(crate) arrival: Arrival,
    pub(crate) slot: u32,
    pub(crate) gate: Gate,
}

/// Why an SA was not added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotAdded {
    /// The limit is reached.
    Full,
    /// There is one with this SPI, protocol and destination.
    Duplicate,
}

impl From<Full> for NotAdded {
    fn from(Full: Full) -> Self {
        Self::Full
    }
}

/// The tables. The inbound index holds whole keys and what is enough to turn a packet away, so that a look-up touches no
/// SA: with many SAs each touch waits for memory. A batch finds all its slots first and then visits the SAs together.
pub(crate) struct Sad {
    out: Slab<SaOut>,
    inn: Slab<SaIn>,
    /// Inbound slots.
    arrivals: HashTable<Known>,
    leaving: OutboundIndex,
    /// Where inbound SAs come from: hash of the address, slot.
    peers: BTreeSet<[u64; 3]>,
    hash: KeyedHash,
    limit: usize,
    added: u64,
}

impl Sad {
    pub(crate) fn new(limit: usize, seed: u64) -> Self {
        Self {
            out: Slab::new(),
            inn: Slab::new(),
            arrivals: HashTable::new(),
            leaving: OutboundIndex::default(),
            peers: BTreeSet::new(),
            hash: KeyedHash::new(seed),
            limit,
            added: 0,
        }
    }

    fn check_room(&self) -> Result<(), NotAdded> {
        if self.out.len().saturating_add(self.inn.len()) < self.limit { Ok(()) } else { Err(NotAdded::Full) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.out.is_empty() && self.inn.is_empty()
    }

    pub(crate) fn add_outbound(&mut self, mut sa: SaOut) -> Result<SaId, NotAdded> {
        self.check_room()?;
        let port = sa.framing.encap.map(|encap| encap.dst_port);
        if self.find_outbound(sa.path(), port, (sa.protocol, sa.spi)).is_some() {
            return Err(NotAdded::Duplicate);
        }
        self.added = self.added.saturating_add(1);
        sa.serial = self.added;
        let (slot, generation) = self.out.insert(sa)?;
        self.index_outbound(slot, OutboundIndex::insert);
        Ok(SaId::new(Direction::Outbound, slot, generation))
    }

    /// Puts an outbound SA into the index, or takes it out.
    fn index_outbound(&mut self, slot: u32, change: fn(&mut OutboundIndex, &Leaving)) {
        let Some(sa) = self.out.slot(slot) else { return };
        let (path, port) = (self.hash.of(&sa.path()), sa.framing.encap.map(|encap| encap.dst_port));
        let SaOut { spi, protocol, reqid, .. } = *sa;
        change(&mut self.leaving, &Leaving { path, port, spi, protocol, reqid, slot });
    }

    pub(crate) fn add_inbound(&mut self, sa: SaIn) -> Result<SaId, NotAdded> {
        self.check_room()?;
        let (arrival, gate, src) = (sa.arrival(), sa.gate, sa.src);
        if self.find(&arrival).is_some() {
            return Err(NotAdded::Duplicate);
        }
        let (slot, generation) = self.inn.insert(sa)?;
        self.peers.insert(self.peer(src, slot));
        let keyed = &self.hash;
        let known = Known { arrival, slot, gate };
        self.arrivals.insert_unique(keyed.of(&arrival), known, |known| keyed.of(&known.arrival));
        Ok(SaId::new(Direction::Inbound, slot, generation))
    }

    /// How `peers` knows an inbound SA from this address.
    fn peer(&self, src: IpAddr, slot: u32) -> [u64; 3] {
        [self.hash.of(&src), slot.into(), 0]
    }

    /// Whether an inbound SA comes from this address.
    pub(crate) fn is_peer(&self, addr: IpAddr) -> bool {
        let hash = self.hash.of(&addr);
        let slots = self.peers.range([hash, 0, 0]..=[hash, u64::MAX, 0]);
        slots.into_iter().any(|[_, slot, _]| self.inn.slot(*slot as u32).is_some_and(|sa| sa.src == addr))
    }

    /// Removes the SA; `false` if it is gone already.
    pub(crate) fn remove(&mut self, id: SaId) -> bool {
        match id.direction {
            Direction::Outbound => {
                if self.out.get(id.slot, id.generation).is_none() {
                    return false;
                }
                self.index_outbound(id.slot, OutboundIndex::remove);
                self.out.remove(id.slot, id.generation).is_some()
            }
            Direction::Inbound => {
                let Some(sa) = self.inn.remove(id.slot, id.generation) else { return false };
                self.peers.remove(&self.peer(sa.src, id.slot));
                let found =
                    self.arrivals.find_entry(self.hash.of(&sa.arrival()), |known| known.slot == id.slot);
                found.is_ok_and(|entry| entry.remove().0.slot == id.slot)
            }
        }
    }

    /// Gives an SA other addresses. Inbound SAs are found by their destination, so that one stays.
    pub(crate) fn move_sa(&mut self, id: SaId, path: SaPath) -> bool {
        match id.direction {
            Direction::Inbound => {
                let sa = self.inn.get_mut(id.slot, id.generation).filter(|sa| sa.dst == path.dst);
                let Some(before) = sa.map(|sa| core::mem::replace(&mut sa.src, path.src)) else {
                    return false;
                };
                self.peers.remove(&self.peer(before, id.slot));
                self.peers.insert(self.peer(path.src, id.slot))
            }
            Direction::Outbound => {
                if self.out.get(id.slot, id.generation).is_none() {
                    return false;
                }
                self.index_outbound(id.slot, OutboundIndex::remove);
                let moved = self.out.slot_mut(id.slot).is_some_and(|sa| sa.move_to(path));
                self.index_outbound(id.slot, OutboundIndex::insert);
                moved
            }
        }
    }

    pub(crate) fn last_used(&self, id: SaId) -> Option<Instant> {
        match id.direction {
            Direction::Inbound => self.inn.get(id.slot, id.generation)?.state.meter.last_used,
            Direction::Outbound => self.out.get(id.slot, id.generation)?.meter.last_used,
        }
    }

    /// The inbound SA that an arriving packet names.
    #[inline]
    pub(crate) fn find(&self, arrival: &Arrival) -> Option<&Known> {
        self.arrivals.find(self.hash.of(arrival), |known| known.arrival == *arrival)
    }

    /// The outbound SA that a policy's template accepts and whose own selector takes `flow`, or may take it
    /// if that is a fragment: of those whose [`rank`] is best the one added first. In transport mode a
    /// template without addresses means those of the packet, `path` (source, destination).
    pub(crate) fn resolve(
        &self,
        template: &Template,
        path: (IpAddr, IpAddr),
        flow: Option<&FlowKey>,
    ) -> Option<u32> {
        let shown = flow.map(|flow| flow.of_all_fragments());
        let takes = |sa: &SaOut| match (&sa.selector, &shown) {
            (Some(selector), Some(flow)) if flow.fragment() == Fragment::Whole => selector.matches(flow),
            (Some(selector), Some(flow)) => selector.may_match(flow),
            _ => true,
        };
        let path = match template.mode {
            Mode::Transport => Some((template.src.unwrap_or(path.0), template.dst.unwrap_or(path.1))),
            Mode::Tunnel => template.src.zip(template.dst),
        };
        let is_between = |sa: &SaOut| path.is_none_or(|path| sa.path() == path);
        let serves = |sa: &SaOut| is_between(sa) && sa.is_wanted_by(template) && takes(sa);
        let oldest = |slots: &mut dyn Iterator<Item = u32>| {
            let sas = slots.filter_map(|slot| Some((slot, self.out.slot(slot)?)));
            let serving = sas.filter(|(_, sa)| serves(sa));
            serving.min_by_key(|(_, sa)| (rank(sa, flow), sa.serial)).map(|(slot, _)| slot)
        };
        // A reqid of 0 is any.
        match (template.reqid, path.map(|path| self.hash.of(&path))) {
            (0, Some(path)) => oldest(&mut self.leaving.on_path(path)),
            (0, None) => oldest(&mut self.out.iter().map(|(slot, ..)| slot)),
            (reqid, Some(path)) => oldest(&mut self.leaving.with_reqid_on_path(reqid, path)),
            (reqid, None) => oldest(&mut self.leaving.with_reqid(reqid)),
        }
    }

    /// The slot of the outbound SA between these two addresses, to this port if it is encapsulated, with this name.
    pub(crate) fn find_outbound(
        &self,
        path: (IpAddr, IpAddr),
        port: Option<u16>,
        name: (Protocol, Spi),
    ) -> Option<u32> {
        let mut slots = self.leaving.named(self.hash.of(&path), port, name);
        slots.find(|&slot| self.out.slot(slot).is_some_and(|sa| sa.path() == path))
    }

    pub(crate) fn inbound_ref(&self, slot: u32) -> Option<&SaIn> {
        self.inn.slot(slot)
    }

    pub(crate) fn outbound_ref(&self, slot: u32) -> Option<&SaOut> {
        self.out.slot(slot)
    }

    #[inline]
    pub(crate) fn outbound(&mut self, slot: u32) -> Option<&mut SaOut> {
        self.out.slot_mut(slot)
    }

    #[inline]
    pub(crate) fn inbound(&mut self, slot: u32) -> Option<&mut SaIn> {
        self.inn.slot_mut(slot)
    }

    pub(crate) fn outbound_by_id(&mut self, id: SaId) -> Option<&mut SaOut> {
        self.out.get_mut(id.slot, id.generation).filter(|_| id.direction == Direction::Outbound)
    }

    #[inline]
    pub(crate) fn inbound_by_id(&mut self, id: SaId) -> Option<&mut SaIn> {
        self.inn.get_mut(id.slot, id.generation).filter(|_| id.direction == Direction::Inbound)
    }

    pub(crate) fn id_of(&self, direction: Direction, slot: u32) -> SaId {
        let generation = match direction {
            Direction::Outbound => self.out.generation(slot),
            Direction::Inbound => self.inn.generation(slot),
        };
        SaId::new(direction, slot, generation)
    }

    pub(crate) fn iter_outbound(&self) -> impl Iterator<Item = (SaId, &SaOut)> {
        self.out.iter().map(|(slot, generation, sa)| (SaId::new(Direction::Outbound, slot, generation), sa))
    }

    pub(crate) fn iter_inbound(&self) -> impl Iterator<Item = (SaId, &SaIn)> {
        self.inn.iter().map(|(slot, generation, sa)| (SaId::new(Direction::Inbound, slot, generation), sa))
    }
}

/// How much an SA that serves a packet is for packets like it: the lowest are used. RFC 4301 section 4.4.2.1: code points choose
/// among SAs that match otherwise. One that is meant for others is better than none: nothing is lost while the right one is missing.
fn rank(sa: &SaOut, flow: Option<&FlowKey>) -> u8 {
    match flow {
        Some(flow) if sa.dscp.contains(flow.dscp()) => 0,
        _ if sa.dscp.is_empty() => 1,
        _ => 2,
    }
}

#[cfg(test)]
mod tests;
