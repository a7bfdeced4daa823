//! Events for whoever runs the data path: audit records, lifetimes, missing SAs.
//!
//! Kept in a ring of fixed size until they are read; when it is full the newest is counted as lost and forgotten.

use crate::DropReason;
use crate::sad::SaId;
use crate::spd::PolicyId;
use alloc::vec::Vec;
use casemate_sa::{Instant, Protocol};
use casemate_wire::flow::FlowKey;
use core::net::IpAddr;

/// Something that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A drop that the RFCs want audited.
    Audit(Audit),
    /// An SA reached its soft lifetime: time to replace it.
    SoftLifetime(SaId),
    /// An SA reached its hard lifetime: it passes no more packets.
    HardLifetime(SaId),
    /// A packet needs an SA that is not there (the ACQUIRE of RFC 2367).
    Acquire {
        /// The policy that demands it.
        policy: PolicyId,
        /// The packet that asked first.
        flow: FlowKey,
    },
}

/// An audit record: what RFC 4303 sections 3.4.2 to 3.4.4 and RFC 4301 section 5 want in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Audit {
    /// When.
    pub at: Instant,
    /// Why the packet was dropped.
    pub reason: DropReason,
    /// Source address, as far as it could be read.
    pub src: Option<IpAddr>,
    /// Destination address, likewise.
    pub dst: Option<IpAddr>,
    /// Protocol, SPI and sequence number of the ESP or AH header, if there is one.
    pub header: Option<(Protocol, u32, u32)>,
    /// Flow label, for IPv6.
    pub flow_label: Option<u32>,
}

/// The ring.
#[derive(Debug)]
pub(crate) struct Events {
    ring: Vec<Event>,
    limit: usize,
    /// Where the oldest is.
    oldest: usize,
    lost: u64,
}

impl Events {
    pub(crate) fn new(limit: usize) -> Self {
        Self { ring: Vec::with_capacity(limit), limit, oldest: 0, lost: 0 }
    }

    pub(crate) fn push(&mut self, event: Event) {
        if self.oldest > 0 && self.ring.len() == self.limit {
            self.ring.drain(..self.oldest);
            self.oldest = 0;
        }
        if self.ring.len() < self.limit {
            self.ring.push(event);
        } else {
            self.lost = self.lost.saturating_add(1);
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Event> {
        let event = self.ring.get(self.oldest).copied();
        match event {
            Some(_) => self.oldest = self.oldest.saturating_add(1),
            None => {
                self.ring.clear();
                self.oldest = 0;
            }
        }
        event
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ring.len() == self.oldest
    }

    /// How many found the ring full.
    pub(crate) const fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Direction;

    #[test]
    fn keeps_the_oldest_and_counts_the_rest() {
        let event = |n| Event::SoftLifetime(SaId::new(Direction::Outbound, n, 0));
        let mut events = Events::new(2);
        for n in 0..3 {
            events.push(event(n));
        }
        assert!(!events.is_empty());
        assert_eq!((events.pop(), events.lost()), (Some(event(0)), 1));
        events.push(event(3));
        assert_eq!([events.pop(), events.pop()], [Some(event(1)), Some(event(3))]);
        assert!(events.is_empty());
        assert_eq!(events.pop(), None);
    }
}
