//! Events of the data path: audit records, lifetimes, missing SAs.
//!
//! A ring of fixed size holds the events until they are read. If the ring is full, new events are counted as
//! lost. Audit records, which any sender can cause, take at most half of the ring, so that a flood of them
//! cannot displace lifetimes and missing SAs.

use crate::DropReason;
use crate::sad::SaId;
use crate::spd::PolicyId;
use alloc::vec::Vec;
use casemate_sa::{Instant, Protocol, UdpEncap};
use casemate_wire::flow::FlowKey;
use core::net::IpAddr;

/// An event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A drop that the RFCs require an audit record for.
    Audit(Audit),
    /// An SA reached its soft lifetime: replace it.
    SoftLifetime(SaId),
    /// An SA reached its hard lifetime: it passes no more packets.
    HardLifetime(SaId),
    /// A packet needs an SA that does not exist (the ACQUIRE of RFC 2367).
    Acquire {
        /// The policy that demands the SA.
        policy: PolicyId,
        /// The flow of the first such packet.
        flow: FlowKey,
    },
}

/// An audit record with the fields of RFC 4303 sections 3.4.2 to 3.4.4 and RFC 4301 section 5.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Audit {
    /// Time of the drop.
    pub at: Instant,
    /// Why the packet was dropped.
    pub reason: DropReason,
    /// Source address, if it could be parsed.
    pub src: Option<IpAddr>,
    /// Destination address, likewise.
    pub dst: Option<IpAddr>,
    /// The ESP or AH header, if there is one.
    pub header: Option<AuditedHeader>,
    /// UDP ports, if the packet came in UDP.
    pub udp: Option<UdpEncap>,
    /// Flow label, for IPv6.
    pub flow_label: Option<u32>,
}

/// Fields of an ESP or AH header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditedHeader {
    /// ESP or AH.
    pub protocol: Protocol,
    /// Security parameters index.
    pub spi: u32,
    /// Sequence number; for extended sequence numbers, the lower 32 bits.
    pub seq: u32,
}

/// The ring of unread events.
#[derive(Debug)]
pub(crate) struct Events {
    ring: Vec<Event>,
    limit: usize,
    /// Index of the oldest event.
    oldest: usize,
    lost: u64,
    /// Number of unread audit records.
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

    /// Number of events that did not fit.
    pub(crate) const fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Direction;

    #[test]
    fn full_ring_keeps_the_oldest_events() {
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
    fn audit_records_use_half_of_the_ring() {
        let reason = DropReason::NoSa;
        let audit = Audit {
            at: Instant::ZERO,
            reason,
            src: None,
            dst: None,
            header: None,
            udp: None,
            flow_label: None,
        };
        let soft = Event::SoftLifetime(SaId::new(Direction::Outbound, 1, 0));
        let mut events = Events::new(8);
        for _ in 0..3 {
            (0..100).for_each(|_| events.push(Event::Audit(audit)));
            events.push(soft);
            let read: Vec<Event> = core::iter::from_fn(|| events.pop()).collect();
            assert_eq!(read.iter().filter(|event| matches!(event, Event::Audit(_))).count(), 4);
            assert_eq!(read.last(), Some(&soft));
        }
        assert_eq!(events.lost(), 3 * 96, "lost events are counted");
    }
}
