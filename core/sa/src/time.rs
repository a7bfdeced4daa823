//! Time, lifetimes and rate limits. Callers read their own monotonic clock and pass the time as an argument.

use core::time::Duration;

/// A point on the caller's monotonic clock, in microseconds since an origin of the caller's choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

impl Instant {
    /// The origin.
    pub const ZERO: Self = Self(0);

    /// `micros` microseconds after the origin.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// `millis` milliseconds after the origin.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000))
    }

    /// `secs` seconds after the origin.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000))
    }

    /// Microseconds since the origin.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Time since `earlier`; zero if `earlier` is later, so that a clock that jumps back does no harm.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// This instant plus `duration`; saturates.
    pub const fn after(self, duration: Duration) -> Self {
        // Avoids the 128-bit arithmetic of `Duration::as_micros`, which is much code on a small processor.
        let micros =
            duration.as_secs().saturating_mul(1_000_000).saturating_add(duration.subsec_micros() as u64);
        Self(self.0.saturating_add(micros))
    }
}

/// Bounds of an SA's lifetime (RFC 4301 section 4.4.2.1); `None` is unbounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bounds {
    /// Bytes of the packets that the SA protected or opened.
    pub bytes: Option<u64>,
    /// Packets that the SA protected or opened.
    pub packets: Option<u64>,
    /// Time since the SA was added.
    pub since_added: Option<Duration>,
    /// Time since the SA was first used.
    pub since_used: Option<Duration>,
}

impl Bounds {
    /// No bounds.
    pub const NONE: Self = Self { bytes: None, packets: None, since_added: None, since_used: None };
}

/// Lifetime of an SA: soft bounds raise an event, hard bounds end the SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lifetime {
    /// Reaching one of these raises an event once: rekey the SA.
    pub soft: Bounds,
    /// Reaching one of these ends the SA: it drops all further packets.
    pub hard: Bounds,
}

impl Lifetime {
    /// An SA that lives until it is removed or its sequence numbers are exhausted.
    pub const UNBOUNDED: Self = Self { soft: Bounds::NONE, hard: Bounds::NONE };
}

/// One token. The unit of credit is one microsecond at a rate of one message per second.
const TOKEN: u64 = 1_000_000;

/// Token bucket: a burst, then a number of messages per second (RFC 1812 section 4.3.2.8, RFC 4443 section
/// 2.4 (f), RFC 7296 section 2.21.4).
#[derive(Debug, Clone)]
pub struct RateLimiter {
    per_second: u32,
    full: u64,
    credit: u64,
    counted_at: Instant,
}

impl RateLimiter {
    /// A full bucket of `burst` messages that gains `per_second` messages per second.
    pub const fn new(per_second: u32, burst: u32) -> Self {
        let full = TOKEN.saturating_mul(burst as u64);
        Self { per_second, full, credit: full, counted_at: Instant::ZERO }
    }

    /// Whether a message may be sent now. If so, it counts as sent.
    pub fn allow(&mut self, now: Instant) -> bool {
        let elapsed = now.as_micros().saturating_sub(self.counted_at.as_micros());
        let gained = elapsed.saturating_mul(self.per_second.into());
        self.credit = self.credit.saturating_add(gained).min(self.full);
        self.counted_at = self.counted_at.max(now);
        let rest = self.credit.checked_sub(TOKEN);
        self.credit = rest.unwrap_or(self.credit);
        rest.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burst_then_rate() {
        let mut limiter = RateLimiter::new(10, 3);
        let start = Instant::from_secs(50);
        let sent = |limiter: &mut RateLimiter, now| (0..20).filter(|_| limiter.allow(now)).count();
        assert_eq!(sent(&mut limiter, start), 3);
        assert_eq!(sent(&mut limiter, Instant::from_millis(50_099)), 0);
        assert_eq!(sent(&mut limiter, Instant::from_millis(50_100)), 1);
        assert_eq!(sent(&mut limiter, Instant::from_secs(60)), 3, "never more than the burst");
        // Ten seconds in small steps: fractions of a token are not lost.
        let steps = (0..10_000u64).filter(|ms| limiter.allow(Instant::from_millis(60_000 + ms))).count();
        assert_eq!(steps, 99);
    }

    #[test]
    fn clock_jumping_back_adds_no_credit() {
        let mut limiter = RateLimiter::new(1, 1);
        assert!(limiter.allow(Instant::from_secs(100)));
        assert!(!limiter.allow(Instant::from_secs(50)));
        assert!(!limiter.allow(Instant::from_secs(100)));
        assert!(limiter.allow(Instant::from_secs(101)));
    }

    #[test]
    fn zero_rate_and_zero_burst() {
        assert!(!RateLimiter::new(0, 0).allow(Instant::from_secs(1)));
        assert!(!RateLimiter::new(u32::MAX, 0).allow(Instant::from_micros(u64::MAX)));
    }
}
