//! The destinations to which packets were sent lately, and their next hops.

use super::change_monitor::ChangedNeighbour;
use super::next_hop::NextHop;
use casemate_sa::Instant;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::time::Duration;

/// Destinations, at most. Packets to further ones leave through the raw socket.
const MAX_DESTINATIONS: usize = 256;
/// Time for which a next hop is used. Then the raw socket sends a few packets, so that the kernel notices
/// that the neighbour is in use.
const LIFETIME: Duration = Duration::from_secs(1);
/// Packets to a destination within a second that make a look-up worth its cost.
const BUSY: u32 = 32;

/// Destinations with their next hops.
#[derive(Debug)]
pub(super) struct Destinations {
    known: HashMap<IpAddr, Destination>,
    /// When destinations with few packets are forgotten next.
    review_at: Instant,
}

/// A destination.
#[derive(Debug)]
pub(super) struct Destination {
    next_hop: Option<NextHop>,
    /// End of the time in which `next_hop` is used, or in which it is not looked up again.
    until: Instant,
    /// Packets that left through the raw socket since the last review.
    raw_packets: u32,
    /// Number of the last run of which a packet to this destination needs the raw socket.
    raw_run: u64,
}

impl Destinations {
    pub(super) fn new() -> Self {
        Self { known: HashMap::with_capacity(MAX_DESTINATIONS), review_at: Instant::ZERO }
    }

    /// The entry of a destination; a new one if there is room.
    #[inline]
    pub(super) fn entry(&mut self, dst: IpAddr) -> Option<&mut Destination> {
        let has_room = self.known.len() < MAX_DESTINATIONS;
        match self.known.entry(dst) {
            Entry::Occupied(known) => Some(known.into_mut()),
            Entry::Vacant(vacant) => has_room.then(|| vacant.insert(Destination::NEW)),
        }
    }

    /// Whether packets to a destination can be sent to a next hop now, as far as is known.
    #[inline]
    pub(super) fn has_next_hop(&self, now: Instant, dst: IpAddr) -> bool {
        self.known.get(&dst).is_some_and(|destination| destination.valid_next_hop(now).is_some())
    }

    /// Notes that packets of a run need the raw socket, without making an entry for their destination.
    #[inline]
    pub(super) fn note_raw(&mut self, dst: IpAddr, run: u64) {
        if let Some(destination) = self.known.get_mut(&dst) {
            destination.raw_run = run;
        }
    }

    /// Forgets destinations with few packets, once a second, to make room for others.
    #[inline]
    pub(super) fn review(&mut self, now: Instant) {
        if now >= self.review_at {
            self.review_at = now.after(LIFETIME);
            self.known.retain(|_, destination| {
                destination.raw_packets = 0;
                now < destination.until
            });
        }
    }

    /// Forgets all next hops.
    pub(super) fn clear(&mut self) {
        self.known.clear();
    }

    /// Forgets the next hops that use this neighbour.
    pub(super) fn forget(&mut self, changed: ChangedNeighbour) {
        self.known.retain(|_, Destination { next_hop, .. }| {
            next_hop.is_none_or(|hop| hop.ifindex != changed.ifindex || hop.neighbour != changed.addr)
        });
    }

    /// Sends packets to a destination through the raw socket for a while, because sending them here failed.
    pub(super) fn suspend(&mut self, now: Instant, dst: IpAddr) {
        if let Some(destination) = self.known.get_mut(&dst) {
            destination.set_next_hop(now, None);
        }
    }

    /// Forgets one destination.
    #[cfg(test)]
    pub(super) fn remove(&mut self, dst: IpAddr) {
        self.known.remove(&dst);
    }

    /// Number of destinations with a next hop.
    #[cfg(test)]
    pub(super) fn with_next_hop(&self, now: Instant) -> usize {
        self.known.values().filter(|destination| destination.valid_next_hop(now).is_some()).count()
    }
}

impl Destination {
    const NEW: Self = Self { next_hop: None, until: Instant::ZERO, raw_packets: 0, raw_run: 0 };

    /// The next hop, unless a packet of this run needs the raw socket: later ones must not overtake it.
    #[inline]
    pub(super) fn next_hop(&self, now: Instant, run: u64) -> Option<NextHop> {
        self.valid_next_hop(now).filter(|_| self.raw_run != run)
    }

    #[inline]
    fn valid_next_hop(&self, now: Instant) -> Option<NextHop> {
        self.next_hop.filter(|_| now < self.until)
    }

    /// Counts packets of a run that need the raw socket. Returns whether the next hop should be looked up.
    #[inline]
    pub(super) fn add_raw(&mut self, now: Instant, run: u64, packets: usize) -> bool {
        self.raw_run = run;
        self.raw_packets = self.raw_packets.saturating_add(u32::try_from(packets).unwrap_or(u32::MAX));
        self.raw_packets >= BUSY && now >= self.until
    }

    /// Sets what a look-up returned. It is valid for a second.
    pub(super) fn set_next_hop(&mut self, now: Instant, next_hop: Option<NextHop>) {
        (self.next_hop, self.until, self.raw_packets) = (next_hop, now.after(LIFETIME), 0);
    }
}
