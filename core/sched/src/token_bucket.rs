//! Token bucket: rate limit for the low-latency class.

use crate::Cap;
use casemate_sa::Instant;

/// A token bucket. One token is one byte; tokens arrive at a constant rate, up to a burst. An item may put
/// the bucket into debt, so in any `t` seconds at most `burst + rate * t` bytes plus one item pass.
#[derive(Debug)]
pub(crate) struct TokenBucket {
    cap: Cap,
    /// Millionths of a token: a rate in bytes per second is also a rate in these units per microsecond.
    level: i64,
    filled: Instant,
}

const MICRO: i64 = 1_000_000;

impl TokenBucket {
    /// Creates a full bucket.
    pub(crate) fn new(cap: Cap) -> Self {
        Self { cap, level: full(cap), filled: Instant::ZERO }
    }

    /// Whether an item may pass now.
    #[inline]
    pub(crate) fn has_tokens(&mut self, now: Instant) -> bool {
        let micros = i64::try_from(now.since(self.filled).as_micros()).unwrap_or(i64::MAX);
        if micros > 0 {
            let rate = i64::try_from(self.cap.rate).unwrap_or(i64::MAX);
            self.level = self.level.saturating_add(rate.saturating_mul(micros)).min(full(self.cap));
            self.filled = now;
        }
        self.level > 0
    }

    /// Removes the tokens for an item of `bytes`.
    #[inline]
    pub(crate) fn take(&mut self, bytes: u32) {
        self.level = self.level.saturating_sub(i64::from(bytes).saturating_mul(MICRO));
    }
}

fn full(cap: Cap) -> i64 {
    i64::from(cap.burst).saturating_mul(MICRO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    #[test]
    fn tokens_accumulate_up_to_the_burst() {
        let mut bucket = TokenBucket::new(Cap { rate: 1_000, burst: 500 });
        let at = Instant::from_micros;
        bucket.take(500);
        assert!(!bucket.has_tokens(at(0)));
        assert!(!bucket.has_tokens(at(0)), "no tokens without elapsed time");
        assert!(bucket.has_tokens(at(1)), "a thousandth of a token is enough");
        bucket.take(1_000);
        assert!(!bucket.has_tokens(at(999_000)));
        assert!(bucket.has_tokens(at(1_001_000)));
        assert!(bucket.has_tokens(Instant::from_secs(1 << 40)));
        bucket.take(500);
        assert!(!bucket.has_tokens(Instant::from_secs(1 << 40)), "at most the burst");
        assert!(!bucket.has_tokens(at(5)), "the clock goes backwards");
    }

    proptest! {
        /// Holds for every time interval, regardless of how often the bucket is queried.
        #[test]
        fn no_interval_gets_more_than_the_cap(
            rate in 1u64..1_000_000_000,
            burst in 1u32..200_000,
            steps in prop::collection::vec((0u64..20_000, 1u32..66_000), 1..150),
        ) {
            let mut bucket = TokenBucket::new(Cap { rate, burst });
            let (mut now, mut went) = (Instant::ZERO, Vec::new());
            for (wait, len) in steps {
                now = now.after(core::time::Duration::from_micros(wait));
                if bucket.has_tokens(now) {
                    bucket.take(len);
                    went.push((now, len));
                }
            }
            for (at, (from, _)) in went.iter().enumerate() {
                let mut bytes = 0;
                for (to, len) in &went[at..] {
                    let allowed =
                        u128::from(burst) + u128::from(rate) * to.since(*from).as_micros() / 1_000_000;
                    prop_assert!(
                        bytes <= allowed,
                        "{} bytes passed before the last item, {} allowed",
                        bytes,
                        allowed
                    );
                    bytes += u128::from(*len);
                }
            }
        }
    }
}
