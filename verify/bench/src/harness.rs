//! Measures loads against each other in turns.

use std::time::{Duration, Instant};

/// Something to be timed.
pub(crate) trait Load {
    /// Does the work once and says how long that took, preparation left out, and of how many operations it consisted.
    fn run(&mut self) -> (Duration, u32);
}

/// The samples of one load, in nanoseconds an operation, one for each round.
pub(crate) struct Series(Vec<f64>);

/// How long and how often to measure.
#[derive(Clone, Copy)]
pub(crate) struct Effort {
    /// Rounds; each gives every load one turn.
    pub(crate) rounds: usize,
    /// What a turn takes, preparation left out.
    pub(crate) turn: Duration,
}

/// Times `work`.
#[inline]
pub(crate) fn time(work: impl FnOnce()) -> Duration {
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
pub(crate) fn measure(loads: &mut [Box<dyn Load + '_>], effort: Effort) -> Vec<Series> {
    let mut all: Vec<Series> = loads.iter().map(|_| Series(Vec::with_capacity(effort.rounds))).collect();
    for round in 0..effort.rounds {
        for step in 0..loads.len() {
            // Each round begins with another load, so that none always runs after the same one.
            let turn = (round + step) % loads.len();
            all[turn].0.push(sample(&mut *loads[turn], effort.turn));
        }
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
    /// The median.
    pub(crate) fn median(&self) -> f64 {
        median(self.0.clone())
    }

    /// The median of the differences to `base`, round by round.
    pub(crate) fn over(&self, base: &Series) -> f64 {
        median(self.0.iter().zip(&base.0).map(|(own, base)| own - base).collect())
    }

    /// The median of the ratios to `base`, round by round.
    pub(crate) fn times(&self, base: &Series) -> f64 {
        median(self.0.iter().zip(&base.0).map(|(own, base)| own / base).collect())
    }
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
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
