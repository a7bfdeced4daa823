//! Rate limit for messages that any sender of packets can cause.

use crate::Instant;

/// One token. The unit of credit is one microsecond at a rate of one message per second.
const TOKEN: u64 = 1_000_000;

/// Token bucket: a burst, then a number of messages per second (RFC 1812 section 4.3.2.8, RFC 4443 section 2.4
/// (f), RFC 7296 section 2.21.4).
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
