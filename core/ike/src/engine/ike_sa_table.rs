//! Table of all IKE SAs of a host, with indexes by ID, SPI, connection and time.

use crate::config::Connection;
use crate::state::{IkeSa, State};
use crate::{DownReason, IkeSaId};
use alloc::boxed::Box;
use alloc::sync::Arc;
use casemate_sa::Instant;
use casemate_sa::table::{ByteIndex, OrderedMap, WordSet};
use casemate_wire::ike::IkeSpi;
use casemate_wire::invariant::OrBroken;
use core::net::{IpAddr, SocketAddr};

/// The IKE SAs and their indexes. To change the state of an IKE SA, [`take`](Self::take) it and
/// [`put_back`](Self::put_back) it: that keeps the indexes up to date.
pub(crate) struct IkeSaTable {
    sas: OrderedMap<IkeSaId, Box<IkeSa>>,
    /// By our SPI.
    by_spi: OrderedMap<u64, IkeSaId>,
    /// Half-open IKE SAs that peers started, by [`half_open_key`]: finds repeated requests.
    half_open: ByteIndex,
    /// Half-open IKE SAs of each source, by [`quota_source`].
    sources: OrderedMap<u128, HalfOpenUse>,
    /// Bytes of messages that all half-open IKE SAs hold.
    half_open_bytes: usize,
    /// IDs of replaced IKE SAs, oldest first.
    replaced: WordSet,
    /// Entries (address of the connection in memory, IKE SA). Half-open IKE SAs are left out.
    by_connection: WordSet,
    /// Entries (time, IKE SA) of the next timeouts.
    timers: WordSet,
    scheduled: OrderedMap<IkeSaId, Instant>,
}

/// Bytes for which every source gets room while there is any: enough for one half-open IKE SA with a key of
/// ML-KEM-1024.
const LITTLE: usize = 4_096;
/// Bytes for which a source gets room before the last eighth is left, where all may hold 256 times as much or
/// more: enough for one EAP conversation with TLS and chains of certificates.
#[cfg(feature = "eap")]
const CONVERSATION: usize = 64 << 10;

/// Half-open IKE SAs of one source.
#[derive(Clone, Copy, Default)]
struct HalfOpenUse {
    count: usize,
    /// Bytes of messages that they hold.
    bytes: usize,
}

/// Index keys of an IKE SA when it was taken out.
pub(crate) struct IndexKeys {
    own_spi: IkeSpi,
    half_open: Option<HalfOpenEntry>,
    connection_entry: Option<[u64; 3]>,
}

/// Index keys of a half-open IKE SA.
struct HalfOpenEntry {
    key: HalfOpenKey,
    source: u128,
    /// Bytes of messages that it holds.
    bytes: usize,
}

impl HalfOpenEntry {
    fn of(sa: &IkeSa) -> Option<Self> {
        let remote = sa.common.path.remote;
        sa.is_half_open().then(|| Self {
            key: half_open_key(remote, sa.common.spi_i),
            source: quota_source(remote.ip()),
            bytes: sa.half_open_bytes(),
        })
    }
}

impl IndexKeys {
    /// Whether the IKE SA was half-open and started by the peer.
    pub(crate) const fn is_half_open(&self) -> bool {
        self.half_open.is_some()
    }
}

impl IkeSaTable {
    /// Returns an empty table.
    pub(crate) fn new() -> Self {
        Self {
            sas: OrderedMap::default(),
            by_spi: OrderedMap::default(),
            half_open: ByteIndex::new(),
            sources: OrderedMap::default(),
            half_open_bytes: 0,
            replaced: WordSet::new(),
            by_connection: WordSet::new(),
            timers: WordSet::new(),
            scheduled: OrderedMap::default(),
        }
    }

    /// Adds an IKE SA.
    pub(crate) fn insert(&mut self, mut sa: IkeSa) {
        let id = sa.common.id;
        self.by_spi.insert(sa.common.own_spi().0, id);
        if let Some(HalfOpenEntry { key, source, bytes }) = HalfOpenEntry::of(&sa) {
            self.half_open.insert(&key, [id.0, 0]);
            let HalfOpenUse { count, .. } = self.half_open_use(source);
            self.set_half_open_use(source, count.saturating_add(1), 0, bytes);
        }
        connection_entry(&sa).map(|entry| self.by_connection.insert(entry));
        self.schedule(&mut sa);
        self.sas.insert(id, sa.into());
    }

    /// Takes an IKE SA out. Separate from [`put_back`](Self::put_back), so that the code of both exists once
    /// and not once for each operation of an IKE SA.
    pub(crate) fn take(&mut self, id: IkeSaId) -> Option<(IkeSa, IndexKeys)> {
        let sa = *self.sas.remove(id)?;
        let half_open = HalfOpenEntry::of(&sa);
        let entry = connection_entry(&sa);
        let own_spi = sa.common.own_spi();
        Some((sa, IndexKeys { own_spi, half_open, connection_entry: entry }))
    }

    /// Puts an IKE SA back and updates the indexes. Does not keep a closed IKE SA: returns it with the
    /// reason.
    pub(crate) fn put_back(&mut self, mut sa: IkeSa, before: IndexKeys) -> Option<(IkeSa, DownReason)> {
        if let Some(HalfOpenEntry { key, source, bytes }) = before.half_open {
            let HalfOpenUse { count, .. } = self.half_open_use(source);
            let mut left = count;
            if !sa.is_half_open() {
                self.half_open.remove(&key, [sa.common.id.0, 0]);
                left = count.checked_sub(1).or_broken_default("half-open IKE SAs are counted by source");
            }
            self.set_half_open_use(source, left, bytes, sa.half_open_bytes());
        }
        let own_spi = sa.common.own_spi();
        if own_spi != before.own_spi {
            self.by_spi.remove(before.own_spi.0);
            self.by_spi.insert(own_spi.0, sa.common.id);
        }
        let new_entry = connection_entry(&sa);
        if let Some(known) = before.connection_entry.filter(|_| new_entry != before.connection_entry) {
            self.by_connection.remove(known);
        }
        new_entry.map(|entry| self.by_connection.insert(entry));
        match sa.is_replaced() {
            true => self.replaced.insert([sa.common.id.0, 0, 0]),
            false => self.replaced.remove([sa.common.id.0, 0, 0]),
        };
        if let State::Closed(reason) = sa.state {
            self.by_spi.remove(sa.common.own_spi().0);
            self.unschedule(sa.common.id);
            return Some((sa, reason));
        }
        self.schedule(&mut sa);
        self.sas.insert(sa.common.id, sa.into());
        None
    }

    fn schedule(&mut self, sa: &mut IkeSa) {
        sa.update_timers();
        let (id, due) = (sa.common.id, sa.next_timeout());
        if self.scheduled.get(id).copied() == due {
            return;
        }
        self.unschedule(id);
        if let Some(at) = due {
            self.scheduled.insert(id, at);
            self.timers.insert(timer_entry(at, id));
        }
    }

    fn unschedule(&mut self, id: IkeSaId) {
        if let Some(at) = self.scheduled.remove(id) {
            self.timers.remove(timer_entry(at, id));
        }
    }

    /// Rebuilds the index by connection after the connections were replaced.
    pub(crate) fn rebuild_connection_index(&mut self) {
        self.by_connection.clear();
        for sa in self.sas.values() {
            connection_entry(sa).map(|entry| self.by_connection.insert(entry));
        }
    }

    /// Returns an IKE SA.
    pub(crate) fn get(&self, id: IkeSaId) -> Option<&IkeSa> {
        self.sas.get(id).map(|sa| &**sa)
    }

    /// Returns an IKE SA for changes that no index depends on.
    pub(crate) fn get_mut(&mut self, id: IkeSaId) -> Option<&mut IkeSa> {
        self.sas.get_mut(id).map(|sa| &mut **sa)
    }

    /// Returns the IKE SA with this SPI of ours.
    pub(crate) fn get_by_spi(&self, own: IkeSpi) -> Option<&IkeSa> {
        self.get(*self.by_spi.get(own.0)?)
    }

    /// Finds the half-open IKE SA that a peer started from `remote` with this SPI.
    pub(crate) fn find_half_open(&self, spi: IkeSpi, remote: SocketAddr) -> Option<IkeSaId> {
        self.half_open.get_all(&half_open_key(remote, spi)).next().map(|[id, _]| IkeSaId(id))
    }

    /// Number of half-open IKE SAs that peers started from a source.
    pub(crate) fn half_open_from(&self, source: u128) -> usize {
        self.half_open_use(source).count
    }

    /// Bytes of messages that all half-open IKE SAs hold.
    pub(crate) const fn half_open_bytes(&self) -> usize {
        self.half_open_bytes
    }

    /// Number of bytes that half-open IKE SAs of a source may hold in addition, if all may hold `most`.
    pub(crate) fn half_open_room(&self, source: u128, most: usize) -> usize {
        let own = self.half_open_use(source).bytes;
        room_of_source(self.half_open_bytes.saturating_sub(own), most).saturating_sub(own)
    }

    /// Counts the bytes that a half-open IKE SA holds after [`get_mut`](Self::get_mut), and held `before`.
    pub(crate) fn count_half_open_bytes(&mut self, id: IkeSaId, before: usize) {
        if let Some(HalfOpenEntry { source, bytes, .. }) = self.get(id).and_then(HalfOpenEntry::of) {
            let HalfOpenUse { count, .. } = self.half_open_use(source);
            self.set_half_open_use(source, count, before, bytes);
        }
    }

    fn half_open_use(&self, source: u128) -> HalfOpenUse {
        self.sources.get(source).copied().unwrap_or_default()
    }

    /// Sets the number of half-open IKE SAs of a source, one of which now holds `after` bytes and not
    /// `before`.
    fn set_half_open_use(&mut self, source: u128, count: usize, before: usize, after: usize) {
        let changed = |bytes: usize| bytes.saturating_sub(before).saturating_add(after);
        self.half_open_bytes = changed(self.half_open_bytes);
        let bytes = changed(self.half_open_use(source).bytes);
        match count {
            0 => drop(self.sources.remove(source)),
            _ => drop(self.sources.insert(source, HalfOpenUse { count, bytes })),
        }
    }

    /// Number of IKE SAs that are not replaced.
    pub(crate) fn current_count(&self) -> usize {
        self.sas.len().saturating_sub(self.replaced.len())
    }

    /// Oldest replaced IKE SA.
    pub(crate) fn oldest_replaced(&self) -> Option<IkeSaId> {
        self.replaced.first().map(|[id, ..]| IkeSaId(id))
    }

    /// IKE SAs of a connection that accept requests for Child SAs, oldest first.
    pub(crate) fn of_connection(&self, connection: &Arc<Connection>) -> impl Iterator<Item = &IkeSa> {
        let ids = self.by_connection.with_first(connection_key(connection));
        ids.filter_map(|[_, id, _]| self.get(IkeSaId(id)))
    }

    /// The IKE SAs from this one on, oldest first.
    pub(crate) fn values_from(&self, from: IkeSaId) -> impl Iterator<Item = &IkeSa> {
        self.sas.values_from(from).map(|sa| &**sa)
    }

    /// Every IKE SA, oldest first.
    pub(crate) fn values(&self) -> impl Iterator<Item = &IkeSa> {
        self.sas.values().map(|sa| &**sa)
    }

    /// Every IKE SA in no particular order, for changes that no index depends on.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut IkeSa> {
        self.sas.values_mut().map(|sa| &mut **sa)
    }

    /// Time of the first timeout.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|[at, ..]| Instant::from_micros(at))
    }

    /// IKE SAs whose timeout has expired.
    pub(crate) fn expired(&self, now: Instant) -> impl Iterator<Item = IkeSaId> {
        let due = self.timers.iter().take_while(move |[at, ..]| *at <= now.as_micros());
        due.map(|[_, id, _]| IkeSaId(id))
    }

    /// Number of IKE SAs, including half-open ones.
    pub(crate) fn len(&self) -> usize {
        self.sas.len()
    }

    /// Number of half-open IKE SAs: initiated by peers that are not authenticated yet.
    pub(crate) fn half_open_count(&self) -> usize {
        self.half_open.len()
    }
}

/// Address of a connection in memory. It is unique while an IKE SA holds the connection.
/// Number of bytes that one source may hold if the others hold `others`, and all may hold `most`: half of
/// what the others leave of three quarters. With EAP, the next eighth is for sources with a single
/// conversation. The rest is for sources that hold little.
fn room_of_source(others: usize, most: usize) -> usize {
    let shared = most.saturating_sub(most / 4).saturating_sub(others) / 2;
    let little = LITTLE.min(most.saturating_sub(others));
    #[cfg(feature = "eap")]
    let shared = {
        let left = most.saturating_sub(most / 8).saturating_sub(others);
        shared.max(CONVERSATION.min(most / 256).min(left))
    };
    shared.max(little)
}

fn connection_key(connection: &Arc<Connection>) -> u64 {
    Arc::as_ptr(connection).addr() as u64
}

const fn timer_entry(at: Instant, id: IkeSaId) -> [u64; 3] {
    [at.as_micros(), id.0, 0]
}

/// Source that a quota applies to: an IPv4 address, or the /64 prefix of an IPv6 address, because one host
/// may own a whole prefix.
pub(crate) fn quota_source(addr: IpAddr) -> u128 {
    match addr {
        // An IPv4-mapped address has bits below the upper 64, so it never equals an IPv6 prefix.
        IpAddr::V4(addr) => addr.to_ipv6_mapped().to_bits(),
        IpAddr::V6(addr) => addr.to_bits() >> 64 << 64,
    }
}

/// Address, port and SPI of the peer.
type HalfOpenKey = [u8; 26];

fn half_open_key(peer: SocketAddr, spi: IkeSpi) -> HalfOpenKey {
    let addr = match peer.ip() {
        IpAddr::V4(addr) => addr.to_ipv6_mapped(),
        IpAddr::V6(addr) => addr,
    };
    let parts = [&addr.octets()[..], &peer.port().to_be_bytes(), &spi.0.to_be_bytes()];
    let mut key = [0; size_of::<HalfOpenKey>()];
    for (byte, value) in key.iter_mut().zip(parts.into_iter().flatten()) {
        *byte = *value;
    }
    key
}

/// Entry of the index by connection, if the IKE SA accepts requests for Child SAs.
fn connection_entry(sa: &IkeSa) -> Option<[u64; 3]> {
    let may_be_asked = !matches!(sa.state, State::HalfOpen(_) | State::Closed(_));
    may_be_asked.then(|| [connection_key(&sa.common.connection), sa.common.id.0, 0])
}

#[cfg(all(test, feature = "eap"))]
mod tests {
    use super::*;

    #[test]
    fn a_flood_leaves_room_for_conversations_and_first_requests() {
        let most = 32 << 20;
        let room = |others: usize| room_of_source(others << 20, most);
        assert_eq!((room(0), room(12)), (12 << 20, 6 << 20));
        // Sources with much have three quarters, those with one conversation seven eighths.
        assert_eq!((room(24), room(27)), (CONVERSATION, CONVERSATION));
        assert_eq!((room(28), room(31)), (LITTLE, LITTLE));
        assert_eq!(room(32), 0);
        // A device has 32 KiB, and no EAP.
        let most = 32 << 10;
        assert_eq!(
            [0, 24 << 10, 28 << 10].map(|others| room_of_source(others, most)),
            [12 << 10, LITTLE, LITTLE]
        );
    }
}
