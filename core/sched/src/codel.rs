//! CoDel (RFC 8289): drops at the head of a queue what shows that the queue has been standing.
//!
//! It goes by the time that items have waited and not by their number, so one setting serves engines of any speed. Each flow
//! has its own, as in RFC 8290: a flow that fills its queue pays with its own packets.

use crate::Patience;
use casemate_sa::Instant;
use core::time::Duration;

/// Drops go on as they were if the last ones are no longer ago than this many intervals (RFC 8289 section 4.3).
const MEMORY: u32 = 16;

/// The control loop of one queue.
#[derive(Debug, Default)]
pub(crate) struct Codel {
    /// When the queue counts as standing, if it goes on as now.
    standing_from: Option<Instant>,
    is_dropping: bool,
    drop_next: Instant,
    /// Drops of this dropping state, by which they come faster.
    count: u32,
    last_count: u32,
}

impl Codel {
    /// Whether the item that was just taken from the head is to be dropped. It has `waited` so long, and `is_last` says that
    /// no more than the largest item's bytes remain behind it.
    #[inline]
    pub(crate) fn drops(
        &mut self,
        patience: &Patience,
        now: Instant,
        waited: Duration,
        is_last: bool,
    ) -> bool {
        // RFC 8289 section 4.2: below the target, or with less than one packet's worth left, the queue does not stand.
        if waited < patience.target || is_last {
            self.standing_from = None;
            self.is_dropping = false;
            return false;
        }
        let standing_from = *self.standing_from.get_or_insert(now.after(patience.interval));
        if now < standing_from || (self.is_dropping && now < self.drop_next) {
            return false;
        }
        if self.is_dropping {
            self.count = self.count.saturating_add(1);
            self.drop_next = self.drop_next.after(self.pause(patience));
        } else {
            self.begin(patience, now);
        }
        true
    }

    fn begin(&mut self, patience: &Patience, now: Instant) {
        self.is_dropping = true;
        let recent = now.since(self.drop_next) < patience.interval.saturating_mul(MEMORY);
        let more = self.count.saturating_sub(self.last_count);
        self.count = if recent && more > 1 { more } else { 1 };
        self.last_count = self.count;
        self.drop_next = now.after(self.pause(patience));
    }

    /// RFC 8289 section 4.3: the interval, divided by the square root of the drops so far.
    fn pause(&self, patience: &Patience) -> Duration {
        let micros = u64::try_from(patience.interval.as_micros()).unwrap_or(u64::MAX);
        let square = micros.saturating_mul(micros).checked_div(self.count.into()).unwrap_or(u64::MAX);
        Duration::from_micros(square.isqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    const PATIENCE: Patience =
        Patience { target: Duration::from_millis(5), interval: Duration::from_millis(100) };

    /// Milliseconds at which items are dropped, if one is looked at each 100 microseconds from `from` to `to` milliseconds.
    fn drops(codel: &mut Codel, from: u64, to: u64, waited: u64) -> Vec<u64> {
        let looks = (from * 10..to * 10).map(|tenth| Instant::from_micros(tenth * 100));
        let waited = Duration::from_millis(waited);
        looks
            .filter(|now| codel.drops(&PATIENCE, *now, waited, false))
            .map(|now| now.as_micros() / 1_000)
            .collect()
    }

    #[test]
    fn drops_begin_after_an_interval_and_come_faster() {
        let mut codel = Codel::default();
        // 100, then 100/sqrt(1), 100/sqrt(2), 100/sqrt(3), 100/sqrt(4), 100/sqrt(5) later.
        assert_eq!(drops(&mut codel, 0, 450, 6), vec![100, 200, 270, 328, 378, 423]);
    }

    #[test]
    fn a_queue_that_empties_in_time_loses_nothing() {
        let mut codel = Codel::default();
        assert_eq!(drops(&mut codel, 0, 1_000, 4), vec![]);
        for burst in 0..20 {
            assert_eq!(drops(&mut codel, burst * 110, burst * 110 + 99, 50), vec![]);
            assert_eq!(drops(&mut codel, burst * 110 + 99, burst * 110 + 100, 0), vec![]);
        }
        let late = Duration::from_secs(9);
        assert!(
            (0..1_000).all(|ms| !codel.drops(&PATIENCE, Instant::from_millis(ms), late, true)),
            "the last one"
        );
    }

    #[test]
    fn it_remembers_how_fast_it_dropped() {
        let mut codel = Codel::default();
        let before = drops(&mut codel, 0, 1_000, 6).len();
        assert_eq!(drops(&mut codel, 1_000, 1_001, 0), vec![]);
        // After an interval it goes on with what the last state added to its count, less than 16 intervals later.
        let after = drops(&mut codel, 1_001, 1_250, 6);
        assert!(after.len() > 3, "{before} drops, then {after:?}");
        let mut codel = Codel::default();
        drops(&mut codel, 0, 1_000, 6);
        assert_eq!(drops(&mut codel, 1_000, 1_001, 0), vec![]);
        assert_eq!(drops(&mut codel, 4_000, 4_250, 6), vec![4_100, 4_200], "longer ago: from the beginning");
    }
}
