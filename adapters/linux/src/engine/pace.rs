//! How long a batch may be so that what comes meanwhile waits little, whatever the suite and the processor.

use casemate_sa::Instant;
use std::time::Duration;

/// What a batch should take, from when it is read to when the next one is.
const TARGET: Duration = Duration::from_micros(400);
/// A packet at least.
const LEAST: usize = 1_500;
/// More would hardly make longer trains.
const MOST: usize = 32 << 10;
/// A batch too long, or not long enough, changes the bound by one part of so many. So it settles where half of them are too long: what a
/// batch takes while somebody else has the processor counts as once, however long it is.
const STEP: usize = 8;

/// Learns how many bytes a batch may have.
#[derive(Debug)]
pub(super) struct Pace {
    room: usize,
    /// When the last batch was read, if others waited behind it: then the next one is read when it is done.
    last: Option<Instant>,
}

impl Pace {
    /// Begins with little: it grows within milliseconds, and the other way round the first batches would be the longest.
    pub(super) const fn new() -> Self {
        Self { room: LEAST, last: None }
    }

    /// How many bytes a batch may have that is read now.
    pub(super) fn room(&mut self, now: Instant) -> usize {
        if let Some(last) = self.last.take() {
            let step = self.room / STEP;
            let room = match now.since(last) > TARGET {
                true => self.room.saturating_sub(step),
                false => self.room.saturating_add(step),
            };
            self.room = room.clamp(LEAST, MOST);
        }
        self.room
    }

    /// The same as a number of packets of the usual length.
    pub(super) fn packets(&mut self, now: Instant) -> usize {
        self.room(now).div_ceil(LEAST)
    }

    /// The batch that was read now leaves others waiting.
    pub(super) fn leave_waiting(&mut self, now: Instant) {
        self.last = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The room after many batches, each of which takes as long as `micros` says for its bytes.
    fn settled(micros: impl Fn(usize, usize) -> u64) -> usize {
        let (mut pace, mut now) = (Pace::new(), Instant::ZERO);
        for round in 0..200 {
            let room = pace.room(now);
            pace.leave_waiting(now);
            now = now.after(Duration::from_micros(micros(round, room)));
        }
        pace.room
    }

    #[test]
    fn a_slow_suite_gets_short_batches_and_a_fast_one_long_ones() {
        assert_eq!(settled(|_, bytes| bytes as u64 / 400), MOST);
        assert_eq!(settled(|_, bytes| bytes as u64 / 3), LEAST);
        let room = settled(|_, bytes| bytes as u64 / 20);
        assert!((6_000..10_000).contains(&room), "{room}");
    }

    #[test]
    fn a_processor_that_is_taken_away_now_and_then_changes_little() {
        let room = settled(|round, bytes| if round % 8 == 0 { 4_000 } else { bytes as u64 / 400 });
        assert_eq!(room.max(MOST - MOST / 4), room);
    }

    #[test]
    fn pauses_say_nothing() {
        let mut pace = Pace::new();
        for second in 0..50 {
            assert_eq!(pace.room(Instant::from_secs(second)), LEAST);
        }
    }
}
