//! Which suite is measured how long: first all of them a little, then the best ones, and the best of each kind, with every provider.

use super::costs::{Costs, Samples};
use super::load::{Way, Work, load};
use crate::goal::{Goal, UseCase};
use crate::rank::Spot;
use crate::suites::{Candidate, family};
use casemate_crypto::{EspSuite, Provider};
use casemate_measure::harness::{self, Load};
use std::time::Duration;

/// Lengths that are measured besides those of the mix, so that a line can be drawn through all.
const GRID: [usize; 5] = [64, 256, 576, 1_024, 1_420];
/// So many of the first look are measured again, whatever kind they are.
const NEAR: usize = 4;
/// What the first look is of the whole, for whoever watches.
const FIRST_SHARE: f64 = 0.2;
/// The first look at a load is so many runs at most, and no more once they took so long together.
const GLANCES: (usize, Duration) = (4, Duration::from_millis(1));

/// How long to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// What the thorough measurement should take. A slow machine needs longer for its fewest rounds.
    pub budget: Duration,
    /// Fewest and most rounds of it.
    pub rounds: (usize, usize),
    /// What a turn takes at least.
    pub turn: Duration,
}

impl Effort {
    /// Some ten seconds in all.
    pub const USUAL: Self =
        Self { budget: Duration::from_secs(8), rounds: (5, 25), turn: Duration::from_micros(100) };
    /// A second or two: for a first impression, and for tests.
    pub const QUICK: Self =
        Self { budget: Duration::from_secs(1), rounds: (5, 9), turn: Duration::from_micros(20) };
}

/// What is measured, and for what.
pub struct Session<'s> {
    /// The providers as the program uses them, the preferred one first.
    pub providers: &'s [&'static dyn Provider],
    /// What the packets are.
    pub use_case: &'s UseCase,
    /// What is wanted.
    pub goal: Goal,
    /// How long.
    pub effort: Effort,
    /// How many times as slow the processor is that is asked about.
    pub slower: f64,
}

/// What was measured.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// Of the first look at each candidate: too few samples to rank, enough to choose.
    pub first_look: Vec<Costs>,
    /// The finalists, with the providers as the program uses them. All have the same rounds.
    pub finalists: Vec<Costs>,
    /// The finalists with each provider alone, in the same rounds.
    pub alone: Vec<Costs>,
    /// Candidates that no provider here has.
    pub missing: Vec<EspSuite>,
}

/// The name of all providers together, as the program uses them.
const TOGETHER: &str = "casemate";

impl Session<'_> {
    /// Measures. `tell` hears the share that is done, from 0 to 1.
    pub fn measure(&self, candidates: &[Candidate], mut tell: impl FnMut(f64)) -> Found {
        let mut sizes: Vec<usize> = self.use_case.mix.sizes().collect();
        let all: Vec<Entrant<'_>> =
            candidates.iter().map(|candidate| self.together(candidate.suite)).collect();
        let count = all.len() as f64;
        let glance = |(index, entrant): (usize, &Entrant<'_>)| {
            tell(index as f64 / count * FIRST_SHARE);
            self.glance(entrant, &sizes)
        };
        let first_look: Vec<Costs> = all.iter().enumerate().filter_map(glance).collect();
        let has = |suite| first_look.iter().any(|costs| costs.suite == suite);
        let missing = all.iter().map(|entrant| entrant.suite).filter(|suite| !has(*suite)).collect();
        let entrants: Vec<Entrant<'_>> = self
            .choose(candidates, &first_look)
            .into_iter()
            .flat_map(|suite| std::iter::once(self.together(suite)).chain(self.each_alone(suite)))
            .collect();
        sizes.extend(GRID);
        sizes.sort_unstable();
        sizes.dedup();
        let found = self.costs(&entrants, &sizes, |share| tell(FIRST_SHARE + share * (1.0 - FIRST_SHARE)));
        let (finalists, alone) = found.into_iter().partition(|costs| costs.provider == TOGETHER);
        Found { first_look, finalists, alone, missing }
    }

    fn together(&self, suite: EspSuite) -> Entrant<'_> {
        Entrant { suite, name: TOGETHER, providers: self.providers }
    }

    fn each_alone(&self, suite: EspSuite) -> impl Iterator<Item = Entrant<'_>> {
        self.providers.chunks(1).filter_map(move |alone| {
            let [provider] = alone else { return None };
            Some(Entrant { suite, name: provider.name(), providers: alone })
        })
    }

    /// The finalists: the best ones, the best of each kind, and the best that every peer has.
    fn choose(&self, candidates: &[Candidate], first_look: &[Costs]) -> Vec<EspSuite> {
        let spot = |candidate| Spot::of(candidate, first_look, self.goal, self.use_case);
        let mut spots: Vec<Spot> = candidates.iter().filter_map(spot).collect();
        spots.sort_by(Spot::before);
        let mut chosen: Vec<EspSuite> = Vec::new();
        for (rank, spot) in spots.iter().enumerate() {
            let is_new = chosen.iter().all(|suite| family(*suite) != family(spot.suite));
            if rank < NEAR || is_new {
                chosen.push(spot.suite);
            }
        }
        let common = spots.iter().find(|spot| spot.is_common()).map(|spot| spot.suite);
        chosen.extend(common.filter(|suite| !chosen.contains(suite)));
        chosen
    }

    /// A short look at one suite: the quickest of a few runs.
    fn glance(&self, entrant: &Entrant<'_>, sizes: &[usize]) -> Option<Costs> {
        let mut loads = entrant.loads(sizes, self.goal.batch())?;
        let nanos: Vec<f64> = loads.iter_mut().map(|load| quickest(&mut **load)).collect();
        let samples = sizes.iter().zip(nanos.chunks(2)).filter_map(|(size, pair)| {
            let [seal, open] = pair else { return None };
            Some(Samples { size: *size, seal: vec![*seal], open: vec![*open] })
        });
        Some(self.costs_of(entrant, samples.collect()))
    }

    /// Measures these, all in turns. Who has not got a suite gives nothing.
    fn costs(&self, entrants: &[Entrant<'_>], sizes: &[usize], tell: impl FnMut(f64)) -> Vec<Costs> {
        let mut loads: Vec<Box<dyn Load + '_>> = Vec::new();
        let mut present = Vec::new();
        for entrant in entrants {
            if let Some(of_one) = entrant.loads(sizes, self.goal.batch()) {
                loads.extend(of_one);
                present.push(entrant);
            }
        }
        let Effort { budget, rounds: (fewest, most), turn } = self.effort;
        let series = harness::measure_within(&mut loads, turn, budget, fewest..=most, tell);
        let of_one = |(entrant, series): (&&Entrant<'_>, &[harness::Series])| {
            let samples = sizes.iter().zip(series.chunks(2)).filter_map(|(size, pair)| {
                let [seal, open] = pair else { return None };
                Some(Samples { size: *size, seal: seal.samples().to_vec(), open: open.samples().to_vec() })
            });
            self.costs_of(entrant, samples.collect())
        };
        present.iter().zip(series.chunks(sizes.len() * 2)).map(of_one).collect()
    }

    fn costs_of(&self, entrant: &Entrant<'_>, samples: Vec<Samples>) -> Costs {
        Costs { suite: entrant.suite, provider: entrant.name.into(), samples }.slowed(self.slower)
    }
}

/// Nanoseconds for an operation, in the quickest of a few runs.
fn quickest(load: &mut dyn Load) -> f64 {
    let (most, enough) = GLANCES;
    let (mut best, mut spent) = (f64::INFINITY, Duration::ZERO);
    for _ in 0..most {
        let (time, operations) = load.run();
        best = best.min(time.as_secs_f64() * 1e9 / f64::from(operations));
        spent += time;
        if spent > enough {
            break;
        }
    }
    best
}

/// A suite with whoever serves it.
struct Entrant<'p> {
    suite: EspSuite,
    name: &'static str,
    providers: &'p [&'static dyn Provider],
}

impl<'p> Entrant<'p> {
    /// Sealing and opening, for each length.
    fn loads(&self, sizes: &[usize], batch: usize) -> Option<Vec<Box<dyn Load + 'p>>> {
        let of_size = |size: &usize| {
            [Way::Seal, Way::Open]
                .map(|way| load(Work { suite: self.suite, way, size: *size, batch }, self.providers))
        };
        sizes.iter().flat_map(of_size).collect()
    }
}
