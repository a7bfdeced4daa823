//! Dummy packets (RFC 4303 section 2.6): they hide when real packets flow, and how many.
//!
//! They come at random moments and have random lengths. The moments are those of a Poisson process, which keeps no rhythm
//! that an observer could subtract; one process for all SAs, each of its packets for an SA drawn by lot, is the same as one
//! for each.

use crate::rng::SystemRng;
use casemate_crypto::Rng as _;
use casemate_datapath::SaId;
use casemate_sa::Instant;
use std::num::NonZeroU16;
use std::time::Duration;

/// An IPv4 header with UDP's or ICMP's. The data path makes it longer where that is too short.
const SHORTEST: usize = 28;
/// Who is later than this has been asleep, not busy.
const PAUSE: Duration = Duration::from_secs(1);

/// Which dummy packets are wanted.
#[derive(Debug, Clone)]
pub struct DummyTraffic {
    /// The outbound ESP SAs that carry them.
    pub sas: Vec<SaId>,
    /// How many each of these carries in a second, on average.
    pub per_second: NonZeroU16,
    /// The length of the longest, in bytes before protection.
    pub longest: usize,
}

/// Says when a dummy packet is due, for which SA and how long.
pub(super) struct Dummies {
    sas: Vec<SaId>,
    longest: usize,
    schedule: Schedule,
}

/// Moments of a Poisson process.
struct Schedule {
    /// Mean time between two.
    interval: Duration,
    due: Instant,
}

impl Dummies {
    /// `None` if there is no SA, so that nothing is ever due.
    pub(super) fn new(wanted: DummyTraffic) -> Option<Self> {
        let DummyTraffic { sas, per_second, longest } = wanted;
        let rate = u32::try_from(sas.len()).ok()?.saturating_mul(per_second.get().into());
        let interval = Duration::from_secs(1).checked_div(rate)?;
        Some(Self { sas, longest, schedule: Schedule { interval, due: Instant::ZERO } })
    }

    /// How long until the next one.
    pub(super) fn wait(&self, now: Instant) -> Duration {
        self.schedule.due.since(now)
    }

    /// SA and length of the next one, if its time has come.
    pub(super) fn next(&mut self, now: Instant, rng: &mut SystemRng) -> Option<(SaId, usize)> {
        if !self.schedule.is_due(now, rng) {
            return None;
        }
        let sa = self.sas.get(below(rng, self.sas.len())).copied()?;
        let span = self.longest.saturating_sub(SHORTEST).saturating_add(1);
        Some((sa, SHORTEST.saturating_add(below(rng, span))))
    }
}

impl Schedule {
    /// Whether a moment has come; if so, the next one is drawn.
    fn is_due(&mut self, now: Instant, rng: &mut SystemRng) -> bool {
        if now < self.due {
            return false;
        }
        // After a pause nothing is made up for: a burst would show that there was one.
        let from = if now.since(self.due) > PAUSE { now } else { self.due };
        self.due = from.after(self.interval.mul_f64(exponential(rng)));
        true
    }
}

/// A random number with an exponential distribution of mean 1, at most 23.
fn exponential(rng: &mut SystemRng) -> f64 {
    // In (0, 1], so that the logarithm is finite.
    let uniform = (f64::from(random_u32(rng)) + 1.0) / (f64::from(u32::MAX) + 1.0);
    -uniform.ln()
}

/// A random number below `bound`; 0 if that is 0. The bias is at most `bound` in 2^32.
fn below(rng: &mut SystemRng, bound: usize) -> usize {
    let scaled = u64::from(random_u32(rng)).saturating_mul(bound as u64) >> 32;
    usize::try_from(scaled).unwrap_or(0)
}

/// An observer who could foretell what is drawn would know which packets are dummies.
fn random_u32(rng: &mut SystemRng) -> u32 {
    let mut bytes = [0; 4];
    rng.secret(&mut bytes);
    u32::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(per_second: u32) -> (Schedule, SystemRng) {
        let interval = Duration::from_secs(1) / per_second;
        (Schedule { interval, due: Instant::ZERO }, SystemRng::new().unwrap())
    }

    #[test]
    fn as_many_as_wanted_without_a_rhythm() {
        let (mut schedule, mut rng) = schedule(100);
        let mut gaps = Vec::new();
        let mut last = 0;
        for milli in 0..100_000 {
            while schedule.is_due(Instant::from_millis(milli), &mut rng) {
                gaps.push(milli - last);
                last = milli;
            }
        }
        // 10,000 are expected, with a deviation of 100; ten of these are never met by chance.
        assert!((9_000..11_000).contains(&gaps.len()), "{}", gaps.len());
        // e^-2 of an exponential distribution is beyond twice its mean, and 1 - e^-0.5 below half of it.
        let share = |fits: fn(u64) -> bool| gaps.iter().filter(|gap| fits(**gap)).count() * 100 / gaps.len();
        assert!((10..18).contains(&share(|gap| gap > 20)), "{}", share(|gap| gap > 20));
        assert!((34..46).contains(&share(|gap| gap < 5)), "{}", share(|gap| gap < 5));
    }

    #[test]
    fn nothing_is_made_up_for_after_a_pause() {
        let (mut schedule, mut rng) = schedule(100);
        let late = Instant::from_secs(3_600);
        let burst = std::iter::repeat_with(|| schedule.is_due(late, &mut rng)).take_while(|due| *due).count();
        assert_eq!(burst, 1);
    }

    #[test]
    fn lots_are_drawn_from_the_whole_range() {
        let mut rng = SystemRng::new().unwrap();
        let mut seen = [0; 5];
        for _ in 0..1_000 {
            seen[below(&mut rng, 5)] += 1;
        }
        assert!(seen.iter().all(|count| (100..300).contains(count)), "{seen:?}");
        assert_eq!((below(&mut rng, 1), below(&mut rng, 0)), (0, 0));
    }

    #[test]
    fn without_an_sa_nothing_is_due() {
        let wanted = DummyTraffic { sas: vec![], per_second: NonZeroU16::MIN, longest: 1_400 };
        assert!(Dummies::new(wanted).is_none());
    }
}
