//! What the next header of a flow needs although nothing has changed.
//!
//! Between two packets of a quiet flow, many packets of others may be lost or overtaken. The decompressor
//! cannot know to which flows they belong, and does not restore a packet with few bits of the MSN then. And
//! any context may be lost, with all feedback about it.

use core::time::Duration;

/// What the next header of a flow needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeaderNeed {
    /// As few bytes as possible.
    Small,
    /// Enough bits of the MSN for many missing packets.
    ManyBits,
    /// Everything: no number of bits is enough.
    Ir,
}

/// Limits of the distance between two packets of a flow, in packets of the SA: the least, and that at first.
const MIN_LIMIT: u64 = 14;
const MAX_LIMIT: u64 = 128;

/// Distances up to this multiple of the limit need [`HeaderNeed::ManyBits`], larger ones an IR header.
const MANY_BITS: u64 = 4;

/// The limit falls at most once in this number of packets, because one outage may concern many flows.
const FALL_INTERVAL: u64 = 512;

/// The limit rises after this number of packets without a fall.
const RISE_INTERVAL: u64 = 1 << 18;

/// The limit for small headers. It falls with each context that is lost.
#[derive(Debug)]
pub(super) struct Spacing {
    limit: u64,
    /// Packet at which the limit has changed.
    since: u64,
}

impl Spacing {
    pub(super) const fn new() -> Self {
        Self { limit: MAX_LIMIT, since: 0 }
    }

    /// What a header needs after this distance. `packet` is the number of its packet.
    pub(super) fn need(&mut self, distance: u64, packet: u64) -> HeaderNeed {
        if packet.saturating_sub(self.since) >= RISE_INTERVAL {
            *self = Self { limit: self.limit.saturating_mul(2).min(MAX_LIMIT), since: packet };
        }
        match distance {
            _ if distance <= self.limit => HeaderNeed::Small,
            _ if distance <= self.limit.saturating_mul(MANY_BITS) => HeaderNeed::ManyBits,
            _ => HeaderNeed::Ir,
        }
    }

    /// Notes that the decompressor has lost the context of a flow with this distance.
    pub(super) fn on_loss(&mut self, distance: u64, packet: u64) {
        // Packets missed in a flow that is hardly ever interrupted are its own.
        if distance <= MIN_LIMIT || (self.since > 0 && packet.saturating_sub(self.since) < FALL_INTERVAL) {
            return;
        }
        let limit = (self.limit >> 1).max(MIN_LIMIT);
        *self = Self { limit, since: packet };
    }
}

/// Headers after which an IR header is repeated while the decompressor has sent no feedback, at first and at
/// most.
const FIRST_INTERVAL: u32 = 64;
const MAX_INTERVAL: u32 = 256;

/// Time after which an IR header is repeated even if the decompressor sends feedback, and the least number of
/// headers between two of them.
const PERIOD: Duration = Duration::from_secs(5);
const MIN_HEADERS: u32 = 16;

/// The refreshes of a flow.
#[derive(Debug)]
pub(super) struct Refresh {
    /// Headers since the last IR header, and when that was sent.
    headers: u32,
    since: Duration,
    /// Headers between two refreshes without feedback.
    interval: u32,
    has_feedback: bool,
}

impl Refresh {
    pub(super) const fn new() -> Self {
        Self { headers: 0, since: Duration::ZERO, interval: FIRST_INTERVAL, has_feedback: false }
    }

    /// Whether the next header has to be an IR header.
    pub(super) fn is_due(&self, now: Duration) -> bool {
        let is_time = self.headers >= MIN_HEADERS && now.saturating_sub(self.since) >= PERIOD;
        is_time || (!self.has_feedback && self.headers >= self.interval)
    }

    pub(super) const fn on_feedback(&mut self) {
        self.has_feedback = true;
    }

    /// Notes that a header was sent.
    pub(super) fn sent(&mut self, is_ir: bool, now: Duration) {
        if !is_ir {
            self.headers = self.headers.saturating_add(1);
            return;
        }
        if self.headers >= self.interval {
            self.interval = self.interval.saturating_mul(2).min(MAX_INTERVAL);
        }
        (self.headers, self.since) = (0, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn limits_fall_with_losses_and_rise_again() {
        let mut spacing = Spacing::new();
        let needs = |spacing: &mut Spacing, packet| {
            [14, 20, 40, 60, 100, 300, 600].map(|distance| spacing.need(distance, packet))
        };
        use HeaderNeed::{Ir, ManyBits, Small};
        let first = [Small, Small, Small, Small, Small, ManyBits, Ir];
        assert_eq!(needs(&mut spacing, 1), first);
        spacing.on_loss(14, 100);
        assert_eq!(needs(&mut spacing, 100), first);
        // One outage of many flows.
        (100..200).for_each(|packet| spacing.on_loss(40, packet));
        assert_eq!(needs(&mut spacing, 200), [Small, Small, Small, Small, ManyBits, Ir, Ir]);
        (1..10).for_each(|n| spacing.on_loss(40, n * 2_000));
        assert_eq!(needs(&mut spacing, 20_000), [Small, ManyBits, ManyBits, Ir, Ir, Ir, Ir]);
        (1..20).for_each(|n| assert_eq!(spacing.need(1, 20_000 + n * RISE_INTERVAL), Small));
        assert_eq!(needs(&mut spacing, 6_000_000), first);
    }

    /// Sends headers and returns the numbers of the refreshes.
    fn refreshes(refresh: &mut Refresh, headers: u32, interval: Duration) -> Vec<u32> {
        let is_refreshed = |header: &u32| {
            let now = interval * *header;
            let is_due = refresh.is_due(now);
            refresh.sent(is_due, now);
            is_due
        };
        (0..headers).filter(is_refreshed).collect()
    }

    #[test]
    fn refreshes_become_rare_and_depend_on_time_with_feedback() {
        let mut refresh = Refresh::new();
        assert_eq!(refreshes(&mut refresh, 1_000, Duration::ZERO), [64, 193, 450, 707, 964]);
        refresh.on_feedback();
        assert!(refreshes(&mut refresh, 100_000, Duration::ZERO).is_empty());
        let mut refresh = Refresh::new();
        refresh.on_feedback();
        assert_eq!(refreshes(&mut refresh, 800, Duration::from_millis(20)), [250, 500, 750]);
        // A flow with a packet in 10 seconds still has small headers most of the time.
        let mut refresh = Refresh::new();
        refresh.on_feedback();
        assert_eq!(refreshes(&mut refresh, 50, Duration::from_secs(10)), [16, 33]);
    }
}
