//! A token bucket: how much may go first.

use crate::Cap;
use casemate_sa::Instant;

/// Tokens of one byte come at a steady rate, up to a burst. What is taken may put the bucket into debt, so over any time of
/// `t` seconds at most `burst + rate * t` bytes and one item go through.
#[derive(Debug)]
pub(crate) struct Bucket {
    cap: Cap,
    /// Millionths of a token, as a rate in bytes a second gives them each microsecond.
    level: i64,
    filled: Instant,
}

const MICRO: i64 = 1_000_000;

impl Bucket {
    /// A full one.
    pub(crate) fn new(cap: Cap) -> Self {
        Self { cap, level: full(cap), filled: Instant::ZERO }
    }

    /// Whether something may go now.
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

    /// Takes the tokens of what went.
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
    fn tokens_come_with_time_and_not_beyond_the_burst() {
        let mut bucket = Bucket::new(Cap { rate: 1_000, burst: 500 });
        let at = Instant::from_micros;
        bucket.take(500);
        assert!(!bucket.has_tokens(at(0)));
        assert!(!bucket.has_tokens(at(0)), "time that stands still gives nothing");
        assert!(bucket.has_tokens(at(1)), "a thousandth of a token is one");
        bucket.take(1_000);
        assert!(!bucket.has_tokens(at(999_000)));
        assert!(bucket.has_tokens(at(1_001_000)));
        assert!(bucket.has_tokens(Instant::from_secs(1 << 40)));
        bucket.take(500);
        assert!(!bucket.has_tokens(Instant::from_secs(1 << 40)), "no more than the burst");
        assert!(!bucket.has_tokens(at(5)), "a clock that goes back");
    }

    proptest! {
        /// Between any two moments, whoever asks as often as he likes.
        #[test]
        fn no_interval_gets_more_than_the_cap(
            rate in 1u64..1_000_000_000,
            burst in 1u32..200_000,
            steps in prop::collection::vec((0u64..20_000, 1u32..66_000), 1..150),
        ) {
            let mut bucket = Bucket::new(Cap { rate, burst });
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
                    let allowed = u128::from(burst) + u128::from(rate) * to.since(*from).as_micros() / 1_000_000;
                    prop_assert!(bytes <= allowed, "{} bytes went where {} may before the last", bytes, allowed);
                    bytes += u128::from(*len);
                }
            }
        }
    }
}
