//! Measures several workloads in turns, so that a disturbance of the machine affects all of them.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// Work that can be timed.
pub trait Workload {
    /// Does the work once. Returns the elapsed time without preparation, and the number of operations.
    fn run(&mut self) -> (Duration, u32);
}

/// Samples of one workload in nanoseconds per operation, one sample per round.
pub struct Series(Vec<f64>);

/// How often and how long to measure each workload.
#[derive(Clone, Copy)]
pub struct Schedule {
    /// Number of rounds. Every workload gets one turn per round.
    pub rounds: usize,
    /// Minimum duration of a turn, without preparation.
    pub turn: Duration,
}

/// Returns how long `work` takes.
#[inline]
pub fn time(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    timed(work);
    start.elapsed()
}

/// A separate function, so that callgrind can be told to count only the instructions in it.
#[inline(never)]
fn timed(work: impl FnOnce()) {
    work();
}

/// Measures all workloads.
pub fn measure(loads: &mut [Box<dyn Workload + '_>], effort: Schedule) -> Vec<Series> {
    measure_with_progress(loads, effort, |_| {})
}

/// Measures all workloads in as many rounds as fit into `budget`, within the limits `rounds`. The first round
/// decides how many fit. After each turn, `report_progress` receives the share of the turns that is done.
pub fn measure_within(
    loads: &mut [Box<dyn Workload + '_>],
    turn: Duration,
    budget: Duration,
    rounds: RangeInclusive<usize>,
    mut report_progress: impl FnMut(f64),
) -> Vec<Series> {
    let start = Instant::now();
    let mut all = measure_with_progress(loads, Schedule { rounds: 1, turn }, |share| {
        report_progress(share / *rounds.end() as f64)
    });
    let fit = budget.as_secs_f64() / start.elapsed().as_secs_f64().max(f64::MIN_POSITIVE);
    let rounds = (fit as usize).clamp(*rounds.start(), *rounds.end());
    let rest = Schedule { rounds: rounds.saturating_sub(1), turn };
    let more = measure_with_progress(loads, rest, |share| {
        report_progress((1.0 + share * rest.rounds as f64) / rounds as f64)
    });
    for (series, more) in all.iter_mut().zip(more) {
        series.0.extend(more.0);
    }
    all
}

fn measure_with_progress(
    loads: &mut [Box<dyn Workload + '_>],
    effort: Schedule,
    mut report_progress: impl FnMut(f64),
) -> Vec<Series> {
    let (mut over, turns) = (0.0, (loads.len() * effort.rounds) as f64);
    let mut all: Vec<Series> = loads.iter().map(|_| Series(Vec::with_capacity(effort.rounds))).collect();
    let mut pairs: Vec<_> = loads.iter_mut().zip(&mut all).collect();
    for _ in 0..effort.rounds {
        for (load, series) in &mut pairs {
            series.0.push(sample(&mut ***load, effort.turn));
            over += 1.0;
            report_progress(over / turns);
        }
        // Each round begins with a different workload, so that no workload always follows the same one.
        let first = usize::from(!pairs.is_empty());
        pairs.rotate_left(first);
    }
    all
}

/// Measures one turn. An unmeasured turn precedes it, because the other workloads have evicted the caches.
fn sample(load: &mut (dyn Workload + '_), turn: Duration) -> f64 {
    run_for(load, turn);
    let (spent, operations) = run_for(load, turn);
    spent.as_secs_f64() * 1e9 / f64::from(operations)
}

/// Runs the workload repeatedly until `turn` has elapsed.
fn run_for(load: &mut (dyn Workload + '_), turn: Duration) -> (Duration, u32) {
    let (mut spent, mut operations) = (Duration::ZERO, 0);
    while spent < turn {
        let (time, count) = load.run();
        spent += time;
        operations += count;
    }
    (spent, operations)
}

impl Series {
    /// Samples, one per round.
    pub fn samples(&self) -> &[f64] {
        &self.0
    }

    /// Median of the samples.
    pub fn median(&self) -> f64 {
        median(self.0.clone())
    }

    /// Median of the per-round differences to `base`.
    pub fn difference_to(&self, base: &Series) -> f64 {
        median(self.0.iter().zip(&base.0).map(|(own, base)| own - base).collect())
    }

    /// Median of the per-round ratios to `base`.
    pub fn ratio_to(&self, base: &Series) -> f64 {
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

    /// Reports this many nanoseconds for each of ten operations, and a quarter more on every run.
    struct Slowing(f64);

    impl Workload for Slowing {
        fn run(&mut self) -> (Duration, u32) {
            let time = Duration::from_secs_f64(self.0 * 10.0 / 1e9);
            self.0 *= 1.25;
            (time, 10)
        }
    }

    #[test]
    fn rounds_fit_the_budget_and_every_turn_is_reported() {
        let rounds = |budget| {
            let mut loads: Vec<Box<dyn Workload>> =
                vec![Box::new(Slowing(1000.0)), Box::new(Slowing(3000.0))];
            let (mut reported, turn) = (Vec::new(), Duration::from_nanos(1));
            let series = measure_within(&mut loads, turn, budget, 3..=5, |share| reported.push(share));
            assert!(reported.is_sorted() && reported.last() == Some(&1.0), "{reported:?}");
            assert_eq!(reported.len(), 2 * series[1].samples().len());
            series[1].samples().len()
        };
        assert_eq!((rounds(Duration::ZERO), rounds(Duration::from_secs(60))), (3, 5));
    }

    #[test]
    fn a_common_slowdown_keeps_the_ratio() {
        let mut loads: Vec<Box<dyn Workload>> = vec![Box::new(Slowing(1000.0)), Box::new(Slowing(3000.0))];
        let series = measure(&mut loads, Schedule { rounds: 5, turn: Duration::from_nanos(1) });
        // The second run of each turn counts: runs 1, 3, 5, 7 and 9. Run 5 is the median.
        let slowed = 1.25f64.powi(5);
        assert!((series[0].median() - 1000.0 * slowed).abs() < 0.3);
        assert!((series[1].ratio_to(&series[0]) - 3.0).abs() < 1e-3);
        assert!((series[1].difference_to(&series[0]) - 2000.0 * slowed).abs() < 0.6);
    }
}
