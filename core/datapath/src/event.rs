//! Events for whoever runs the data path: audit records, lifetimes, missing SAs.
//!
//! Kept in a ring of fixed size until they are read; when it is full the newest is counted as lost and forgotten. Audit records, which
//! any stranger's packet can cause, take at most half of it, so that a flood of them hides no lifetime and no missing SA.

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
    /// Audit records among those that were not read.
    audits: usize,
}

impl Events {
    pub(crate) fn new(limit: usize) -> Self {
        Self { ring: Vec::with_capacity(limit), limit, oldest: 0, lost: 0, audits: 0 }
    }

    pub(crate) fn push(&mut self, event: Event) {
        if matches!(event, Event::Audit(_)) {
            if self.audits >= self.limit.div_ceil(2) {
                self.lost = self.lost.saturating_add(1);
                return;
            }
            self.audits = self.audits.saturating_add(1);
        }
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
            Some(event) => {
                self.oldest = self.oldest.saturating_add(1);
                self.audits = self.audits.saturating_sub(usize::from(matches!(event, Event::Audit(_))));
            }
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

    #[test]
    fn audit_records_leave_room_for_the_rest() {
        let reason = DropReason::NoSa;
        let audit = Audit { at: Instant::ZERO, reason, src: None, dst: None, header: None, flow_label: None };
        let soft = Event::SoftLifetime(SaId::new(Direction::Outbound, 1, 0));
        let mut events = Events::new(8);
        for _ in 0..3 {
            (0..100).for_each(|_| events.push(Event::Audit(audit)));
            events.push(soft);
            let read: Vec<Event> = core::iter::from_fn(|| events.pop()).collect();
            assert_eq!(read.iter().filter(|event| matches!(event, Event::Audit(_))).count(), 4);
            assert_eq!(read.last(), Some(&soft));
        }
        assert_eq!(events.lost(), 3 * 96, "and they are counted");
    }
}
