//! CoDel (RFC 8289): drops packets at the head of a queue whose delay stays high for too long.
//!
//! CoDel depends on the waiting time of items and not on their number, so one setting fits engines of any
//! speed. Each flow has its own CoDel state, as in RFC 8290: a flow that fills its queue loses its own
//! packets.

use crate::CodelParams;
use casemate_sa::Instant;
use core::time::Duration;

/// The drop rate of the previous dropping state is reused if that state ended at most this many intervals ago
/// (RFC 8289 section 4.3).
const MEMORY: u32 = 16;

/// CoDel state of one queue.
#[derive(Debug, Default)]
pub(crate) struct Codel {
    /// Time from which the queue counts as standing, if its delay stays above the target.
    standing_from: Option<Instant>,
    is_dropping: bool,
    drop_next: Instant,
    /// Drops in this dropping state; they determine the drop rate.
    count: u32,
    last_count: u32,
}

impl Codel {
    /// Whether to drop the item that was just removed from the head of the queue. The item `waited` in the
    /// queue; `is_last` means that at most the bytes of the largest item remain.
    #[inline]
    pub(crate) fn drops(
        &mut self,
        codel: &CodelParams,
        now: Instant,
        waited: Duration,
        is_last: bool,
    ) -> bool {
        // RFC 8289 section 4.2: below the target, or with less than one packet left, the queue does not
        // stand.
        if waited < codel.target || is_last {
            self.standing_from = None;
            self.is_dropping = false;
            return false;
        }
        let standing_from = *self.standing_from.get_or_insert(now.after(codel.interval));
        if now < standing_from || (self.is_dropping && now < self.drop_next) {
            return false;
        }
        if self.is_dropping {
            self.count = self.count.saturating_add(1);
            self.drop_next = self.drop_next.after(self.pause(codel));
        } else {
            self.begin(codel, now);
        }
        true
    }

    fn begin(&mut self, codel: &CodelParams, now: Instant) {
        self.is_dropping = true;
        let recent = now.since(self.drop_next) < codel.interval.saturating_mul(MEMORY);
        let more = self.count.saturating_sub(self.last_count);
        self.count = if recent && more > 1 { more } else { 1 };
        self.last_count = self.count;
        self.drop_next = now.after(self.pause(codel));
    }

    /// RFC 8289 section 4.3: the interval, divided by the square root of the number of drops.
    fn pause(&self, codel: &CodelParams) -> Duration {
        let micros = u64::try_from(codel.interval.as_micros()).unwrap_or(u64::MAX);
        let square = micros.saturating_mul(micros).checked_div(self.count.into()).unwrap_or(u64::MAX);
        Duration::from_micros(square.isqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    const PARAMS: CodelParams =
        CodelParams { target: Duration::from_millis(5), interval: Duration::from_millis(100) };

    /// Times of the drops in milliseconds, for one item every 100 microseconds between the milliseconds
    /// `from` and `to`.
    fn drops(codel: &mut Codel, from: u64, to: u64, waited: u64) -> Vec<u64> {
        let looks = (from * 10..to * 10).map(|tenth| Instant::from_micros(tenth * 100));
        let waited = Duration::from_millis(waited);
        looks
            .filter(|now| codel.drops(&PARAMS, *now, waited, false))
            .map(|now| now.as_micros() / 1_000)
            .collect()
    }

    #[test]
    fn drops_start_after_an_interval_and_become_more_frequent() {
        let mut codel = Codel::default();
        // At 100, then 100/sqrt(1), 100/sqrt(2), 100/sqrt(3), 100/sqrt(4) and 100/sqrt(5) milliseconds later.
        assert_eq!(drops(&mut codel, 0, 450, 6), vec![100, 200, 270, 328, 378, 423]);
    }

    #[test]
    fn a_queue_that_empties_in_time_drops_nothing() {
        let mut codel = Codel::default();
        assert_eq!(drops(&mut codel, 0, 1_000, 4), vec![]);
        for burst in 0..20 {
            assert_eq!(drops(&mut codel, burst * 110, burst * 110 + 99, 50), vec![]);
            assert_eq!(drops(&mut codel, burst * 110 + 99, burst * 110 + 100, 0), vec![]);
        }
        let late = Duration::from_secs(9);
        assert!(
            (0..1_000).all(|ms| !codel.drops(&PARAMS, Instant::from_millis(ms), late, true)),
            "the last item"
        );
    }

    #[test]
    fn the_drop_rate_survives_a_short_pause() {
        let mut codel = Codel::default();
        let before = drops(&mut codel, 0, 1_000, 6).len();
        assert_eq!(drops(&mut codel, 1_000, 1_001, 0), vec![]);
        // After an interval, dropping resumes with the drops that the previous state added, as less than 16
        // intervals have passed.
        let after = drops(&mut codel, 1_001, 1_250, 6);
        assert!(after.len() > 3, "{before} drops, then {after:?}");
        let mut codel = Codel::default();
        drops(&mut codel, 0, 1_000, 6);
        assert_eq!(drops(&mut codel, 1_000, 1_001, 0), vec![]);
        assert_eq!(
            drops(&mut codel, 4_000, 4_250, 6),
            vec![4_100, 4_200],
            "after 16 intervals, it starts anew"
        );
    }
}
