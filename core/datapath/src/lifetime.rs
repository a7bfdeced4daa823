//! Accounting of an SA against its lifetime (RFC 4301 section 4.4.2.1).

use crate::esp::MAX_BATCH;
use alloc::boxed::Box;
use casemate_sa::{Bounds, Instant, Lifetime};

/// Use of an SA so far, and its bounds.
#[derive(Debug, Clone)]
pub struct Meter {
    /// Packets sealed or opened.
    pub packets: u64,
    /// Bytes of those packets, before protection or after its removal: the same on both sides of an SA.
    pub bytes: u64,
    /// When the SA was added.
    pub added: Instant,
    /// When the SA was first used.
    pub first_used: Option<Instant>,
    /// When the SA was last used.
    pub last_used: Option<Instant>,
    /// [`AbsoluteBounds::NEVER`] after the soft lifetime was reached, so that it is reported once.
    soft: AbsoluteBounds,
    hard: AbsoluteBounds,
    /// `None` for an unbounded lifetime, which most SAs have.
    lifetime: Option<Box<Lifetime>>,
}

/// Bounds in absolute values, so that a check needs three comparisons.
#[derive(Debug, Clone, Copy)]
struct AbsoluteBounds {
    packets: u64,
    bytes: u64,
    at: Instant,
}

static UNBOUNDED: Lifetime = Lifetime::UNBOUNDED;

impl AbsoluteBounds {
    /// No bounds.
    const NEVER: Self = Self { packets: u64::MAX, bytes: u64::MAX, at: Instant::from_micros(u64::MAX) };

    fn new(bounds: &Bounds, added: Instant) -> Self {
        Self {
            packets: bounds.packets.unwrap_or(Self::NEVER.packets),
            bytes: bounds.bytes.unwrap_or(Self::NEVER.bytes),
            at: bounds.since_added.map_or(Self::NEVER.at, |after| added.after(after)),
        }
    }

    /// Starts the time since first use.
    fn start(&mut self, bounds: &Bounds, now: Instant) {
        if let Some(after) = bounds.since_used {
            self.at = self.at.min(now.after(after));
        }
    }

    #[inline]
    fn is_reached(&self, packets: u64, bytes: u64, now: Instant) -> bool {
        packets >= self.packets || bytes >= self.bytes || now >= self.at
    }
}

/// The hard lifetime has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Expired;

impl Meter {
    pub(crate) fn new(lifetime: Lifetime, now: Instant) -> Self {
        Self {
            packets: 0,
            bytes: 0,
            added: now,
            first_used: None,
            last_used: None,
            soft: AbsoluteBounds::new(&lifetime.soft, now),
            hard: AbsoluteBounds::new(&lifetime.hard, now),
            lifetime: Some(lifetime).filter(|lifetime| *lifetime != UNBOUNDED).map(Box::new),
        }
    }

    /// The bounds of the SA.
    pub fn lifetime(&self) -> &Lifetime {
        self.lifetime.as_deref().unwrap_or(&UNBOUNDED)
    }

    /// Whether the SA may still be used.
    #[inline]
    pub(crate) fn check(&self, now: Instant) -> Result<(), Expired> {
        if self.hard.is_reached(self.packets, self.bytes, now) { Err(Expired) } else { Ok(()) }
    }

    /// Whether a batch of packets will reach no hard bound.
    pub(crate) fn is_far_from_end(&self) -> bool {
        const PACKETS: u64 = MAX_BATCH as u64;
        const BYTES: u64 = PACKETS * u16::MAX as u64;
        // The first packet starts the time since first use.
        (self.first_used.is_some() || self.lifetime.is_none())
            && self.packets.saturating_add(PACKETS) < self.hard.packets
            && self.bytes.saturating_add(BYTES) < self.hard.bytes
    }

    /// Counts one or more packets. Returns `true` once, when the soft lifetime is reached.
    #[inline]
    pub(crate) fn count(&mut self, packets: u64, bytes: u64, now: Instant) -> bool {
        if self.first_used.is_none() {
            self.first_used = Some(now);
            if let Some(lifetime) = &self.lifetime {
                self.soft.start(&lifetime.soft, now);
                self.hard.start(&lifetime.hard, now);
            }
        }
        self.last_used = Some(now);
        // Cannot wrap: each packet has its own 64-bit sequence number.
        self.packets = self.packets.wrapping_add(packets);
        self.bytes = self.bytes.saturating_add(bytes);
        let is_reached = self.soft.is_reached(self.packets, self.bytes, now);
        if is_reached {
            self.soft = AbsoluteBounds::NEVER;
        }
        is_reached
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    #[test]
    fn soft_bound_is_reported_once_and_hard_bound_ends() {
        let lifetime = Lifetime {
            soft: Bounds { packets: Some(2), ..Bounds::NONE },
            hard: Bounds { bytes: Some(300), ..Bounds::NONE },
        };
        let mut meter = Meter::new(lifetime, Instant::ZERO);
        assert!(!meter.count(1, 100, Instant::ZERO));
        assert!(meter.count(1, 100, Instant::ZERO));
        assert!(!meter.count(1, 99, Instant::ZERO));
        assert_eq!(meter.check(Instant::ZERO), Ok(()));
        meter.count(1, 1, Instant::ZERO);
        assert_eq!(meter.check(Instant::ZERO), Err(Expired));
    }

    #[test]
    fn time_bounds_start_when_added_and_when_first_used() {
        let secs = |n| Some(Duration::from_secs(n));
        let hard = Bounds { since_added: secs(100), since_used: secs(10), ..Bounds::NONE };
        let mut meter = Meter::new(Lifetime { soft: Bounds::NONE, hard }, Instant::from_secs(1));
        assert_eq!(meter.check(Instant::from_secs(50)), Ok(()));
        meter.count(1, 1, Instant::from_secs(50));
        assert_eq!(meter.check(Instant::from_secs(59)), Ok(()));
        assert_eq!(meter.check(Instant::from_secs(60)), Err(Expired));
        let unused = Meter::new(Lifetime { soft: Bounds::NONE, hard }, Instant::from_secs(1));
        assert_eq!(unused.check(Instant::from_secs(101)), Err(Expired));
    }
}
