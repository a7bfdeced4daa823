//! Measures loads against each other in turns.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// Something to be timed.
pub trait Load {
    /// Does the work once and says how long that took, preparation left out, and of how many operations it consisted.
    fn run(&mut self) -> (Duration, u32);
}

/// The samples of one load, in nanoseconds an operation, one for each round.
pub struct Series(Vec<f64>);

/// How long and how often to measure.
#[derive(Clone, Copy)]
pub struct Effort {
    /// Rounds; each gives every load one turn.
    pub rounds: usize,
    /// What a turn takes, preparation left out.
    pub turn: Duration,
}

/// Times `work`.
#[inline]
pub fn time(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    timed(work);
    start.elapsed()
}

/// A function of its own, so that callgrind can be told to count what happens in it.
#[inline(never)]
fn timed(work: impl FnOnce()) {
    work();
}

/// Measures all loads.
pub fn measure(loads: &mut [Box<dyn Load + '_>], effort: Effort) -> Vec<Series> {
    measure_and_tell(loads, effort, |_| {})
}

/// Measures all loads in so many rounds as fit into `budget`, judged by the first round, but at least and at most so many. Tells after
/// each turn which share of the turns is over.
pub fn measure_within(
    loads: &mut [Box<dyn Load + '_>],
    turn: Duration,
    budget: Duration,
    rounds: RangeInclusive<usize>,
    mut tell: impl FnMut(f64),
) -> Vec<Series> {
    let start = Instant::now();
    let mut all =
        measure_and_tell(loads, Effort { rounds: 1, turn }, |share| tell(share / *rounds.end() as f64));
    let fit = budget.as_secs_f64() / start.elapsed().as_secs_f64().max(f64::MIN_POSITIVE);
    let rounds = (fit as usize).clamp(*rounds.start(), *rounds.end());
    let rest = Effort { rounds: rounds.saturating_sub(1), turn };
    let more =
        measure_and_tell(loads, rest, |share| tell((1.0 + share * rest.rounds as f64) / rounds as f64));
    for (series, more) in all.iter_mut().zip(more) {
        series.0.extend(more.0);
    }
    all
}

fn measure_and_tell(
    loads: &mut [Box<dyn Load + '_>],
    effort: Effort,
    mut tell: impl FnMut(f64),
) -> Vec<Series> {
    let (mut over, turns) = (0.0, (loads.len() * effort.rounds) as f64);
    let mut all: Vec<Series> = loads.iter().map(|_| Series(Vec::with_capacity(effort.rounds))).collect();
    let mut pairs: Vec<_> = loads.iter_mut().zip(&mut all).collect();
    for _ in 0..effort.rounds {
        for (load, series) in &mut pairs {
            series.0.push(sample(&mut ***load, effort.turn));
            over += 1.0;
            tell(over / turns);
        }
        // Each round begins with another load, so that none always runs after the same one.
        let first = usize::from(!pairs.is_empty());
        pairs.rotate_left(first);
    }
    all
}

/// One turn. The same work goes before it unmeasured, because the others' turns have emptied the caches.
fn sample(load: &mut (dyn Load + '_), turn: Duration) -> f64 {
    spend(load, turn);
    let (spent, operations) = spend(load, turn);
    spent.as_secs_f64() * 1e9 / f64::from(operations)
}

/// Runs the load for as long as a turn is.
fn spend(load: &mut (dyn Load + '_), turn: Duration) -> (Duration, u32) {
    let (mut spent, mut operations) = (Duration::ZERO, 0);
    while spent < turn {
        let (time, count) = load.run();
        spent += time;
        operations += count;
    }
    (spent, operations)
}

impl Series {
    /// The samples, one for each round.
    pub fn samples(&self) -> &[f64] {
        &self.0
    }

    /// The median.
    pub fn median(&self) -> f64 {
        median(self.0.clone())
    }

    /// The median of the differences to `base`, round by round.
    pub fn over(&self, base: &Series) -> f64 {
        median(self.0.iter().zip(&base.0).map(|(own, base)| own - base).collect())
    }

    /// The median of the ratios to `base`, round by round.
    pub fn times(&self, base: &Series) -> f64 {
        median(self.0.iter().zip(&base.0).map(|(own, base)| own / base).collect())
    }
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Claims to take so many nanoseconds for each of ten operations, each time a quarter more.
    struct Slowing(f64);

    impl Load for Slowing {
        fn run(&mut self) -> (Duration, u32) {
            let time = Duration::from_secs_f64(self.0 * 10.0 / 1e9);
            self.0 *= 1.25;
            (time, 10)
        }
    }

    #[test]
    fn as_many_rounds_as_fit_and_every_turn_is_told() {
        let rounds = |budget| {
            let mut loads: Vec<Box<dyn Load>> = vec![Box::new(Slowing(1000.0)), Box::new(Slowing(3000.0))];
            let (mut told, turn) = (Vec::new(), Duration::from_nanos(1));
            let series = measure_within(&mut loads, turn, budget, 3..=5, |share| told.push(share));
            assert!(told.is_sorted() && told.last() == Some(&1.0), "{told:?}");
            assert_eq!(told.len(), 2 * series[1].samples().len());
            series[1].samples().len()
        };
        assert_eq!((rounds(Duration::ZERO), rounds(Duration::from_secs(60))), (3, 5));
    }

    #[test]
    fn what_slows_down_together_keeps_its_ratio() {
        let mut loads: Vec<Box<dyn Load>> = vec![Box::new(Slowing(1000.0)), Box::new(Slowing(3000.0))];
        let series = measure(&mut loads, Effort { rounds: 5, turn: Duration::from_nanos(1) });
        // The second run of each turn counts: number 1, 3, 5, 7 and 9, of which 5 is the middle.
        let slowed = 1.25f64.powi(5);
        assert!((series[0].median() - 1000.0 * slowed).abs() < 0.3);
        assert!((series[1].times(&series[0]) - 3.0).abs() < 1e-3);
        assert!((series[1].over(&series[0]) - 2000.0 * slowed).abs() < 0.6);
    }
}
