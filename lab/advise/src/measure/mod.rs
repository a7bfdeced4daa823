//! Costs of suites on this machine: nanoseconds per packet through the data path of `casemate run`.
//!
//! All suites are screened; then the best suites and the best of each family are measured with every
//! provider.

mod costs;
mod key_exchange;

use crate::goal::{Goal, UseCase};
use crate::rank::ScoredSuite;
use crate::suites::{Candidate, family};
use casemate_crypto::{AesBits, CipherAlg, EspSuite, MacAlg, MacKind, Provider};
use casemate_measure::harness::{self, Workload};
pub use costs::{Costs, Samples};
use costs::{Operation, WorkSpec, workload};
pub use key_exchange::{KexCost, measure_key_exchanges};
use std::time::Duration;

/// Packet lengths that are measured besides those of the mix, for the fitted line.
const GRID_SIZES: [usize; 5] = [64, 256, 576, 1_024, 1_420];
/// Number of suites that become finalists regardless of their family.
const TOP_CANDIDATES: usize = 4;
/// The suite that RFC 8221 sections 5 and 6 require of every implementation, besides AES-GCM.
const MOST_COMMON: EspSuite =
    EspSuite::Separate(CipherAlg::AesCbc(AesBits::B128), MacAlg::standard(MacKind::HmacSha256));
/// Share of the screening in the whole measurement, for the progress.
const SCREENING_SHARE: f64 = 0.2;
/// Maximum number of runs of a screened workload.
const SCREENING_RUNS: usize = 4;
/// Time after which no further run of a screened workload starts.
const SCREENING_TIME: Duration = Duration::from_millis(1);

/// Time budget of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Time for the finalists. A slow machine takes longer, because of the minimum number of rounds.
    pub budget: Duration,
    /// Minimum number of rounds.
    pub min_rounds: usize,
    /// Maximum number of rounds.
    pub max_rounds: usize,
    /// Minimum duration of a turn.
    pub turn: Duration,
}

impl Budget {
    /// About ten seconds in total.
    pub const USUAL: Self = Self {
        budget: Duration::from_secs(8),
        min_rounds: 5,
        max_rounds: 25,
        turn: Duration::from_micros(100),
    };
    /// One or two seconds, for a first impression and for tests.
    pub const QUICK: Self = Self {
        budget: Duration::from_secs(1),
        min_rounds: 5,
        max_rounds: 9,
        turn: Duration::from_micros(20),
    };
}

/// Parameters of a measurement.
pub struct Session<'s> {
    /// Providers, the preferred one first.
    pub providers: &'s [&'static dyn Provider],
    /// Packets and path of the user.
    pub use_case: &'s UseCase,
    /// Goal of the user.
    pub goal: Goal,
    /// Time budget.
    pub budget: Budget,
    /// How many times slower the simulated processor is.
    pub slowdown: f64,
}

/// Measured costs.
#[derive(Debug, Clone, Default)]
pub struct Measurements {
    /// Screening of all candidates: too few samples for a ranking, but enough to select finalists.
    pub screening: Vec<Costs>,
    /// Finalists with all providers. All of them have the same rounds.
    pub finalists: Vec<Costs>,
    /// Finalists with each provider alone, in the same rounds.
    pub per_provider: Vec<Costs>,
    /// Candidates that no provider supports.
    pub unsupported: Vec<EspSuite>,
}

/// Name for all providers in their default order.
const ALL_PROVIDERS: &str = "casemate";

impl Session<'_> {
    /// Measures the candidates. `report_progress` receives the completed share, from 0 to 1.
    pub fn measure(&self, candidates: &[Candidate], mut report_progress: impl FnMut(f64)) -> Measurements {
        let mut sizes: Vec<usize> = self.use_case.mix.sizes().collect();
        let all: Vec<SuiteWithProviders<'_>> =
            candidates.iter().map(|candidate| self.with_all_providers(candidate.suite)).collect();
        let count = all.len() as f64;
        let glance = |(index, combination): (usize, &SuiteWithProviders<'_>)| {
            report_progress(index as f64 / count * SCREENING_SHARE);
            self.screen(combination, &sizes)
        };
        let first_look: Vec<Costs> = all.iter().enumerate().filter_map(glance).collect();
        let has = |suite| first_look.iter().any(|costs| costs.suite == suite);
        let missing = all.iter().map(|combination| combination.suite).filter(|suite| !has(*suite)).collect();
        let combinations: Vec<SuiteWithProviders<'_>> = self
            .select_finalists(candidates, &first_look)
            .into_iter()
            .flat_map(|suite| {
                std::iter::once(self.with_all_providers(suite)).chain(self.with_each_provider(suite))
            })
            .collect();
        sizes.extend(GRID_SIZES);
        sizes.sort_unstable();
        sizes.dedup();
        let found = self.costs(&combinations, &sizes, |share| {
            report_progress(SCREENING_SHARE + share * (1.0 - SCREENING_SHARE))
        });
        let (finalists, alone) = found.into_iter().partition(|costs| costs.provider == ALL_PROVIDERS);
        Measurements { screening: first_look, finalists, per_provider: alone, unsupported: missing }
    }

    fn with_all_providers(&self, suite: EspSuite) -> SuiteWithProviders<'_> {
        SuiteWithProviders { suite, name: ALL_PROVIDERS, providers: self.providers }
    }

    fn with_each_provider(&self, suite: EspSuite) -> impl Iterator<Item = SuiteWithProviders<'_>> {
        self.providers.chunks(1).filter_map(move |alone| {
            let [provider] = alone else { return None };
            Some(SuiteWithProviders { suite, name: provider.name(), providers: alone })
        })
    }

    /// Selects the finalists: the best suites, the best of each family, the best mandatory one, and the one
    /// that every peer has.
    fn select_finalists(&self, candidates: &[Candidate], first_look: &[Costs]) -> Vec<EspSuite> {
        let scored = |candidate| ScoredSuite::new(candidate, first_look, self.goal, self.use_case);
        let mut scored: Vec<ScoredSuite> = candidates.iter().filter_map(scored).collect();
        scored.sort_by(ScoredSuite::compare);
        let mut chosen: Vec<EspSuite> = Vec::new();
        for (rank, scored) in scored.iter().enumerate() {
            let is_new = chosen.iter().all(|suite| family(*suite) != family(scored.suite));
            if rank < TOP_CANDIDATES || is_new {
                chosen.push(scored.suite);
            }
        }
        let common = scored.iter().find(|scored| scored.is_mandatory()).map(|scored| scored.suite);
        let most_common = scored.iter().map(|scored| scored.suite).find(|suite| *suite == MOST_COMMON);
        for suite in common.into_iter().chain(most_common) {
            if !chosen.contains(&suite) {
                chosen.push(suite);
            }
        }
        chosen
    }

    /// Screens one suite with the fastest of a few runs.
    fn screen(&self, combination: &SuiteWithProviders<'_>, sizes: &[usize]) -> Option<Costs> {
        let mut loads = combination.workloads(sizes, self.goal.batch())?;
        let nanos: Vec<f64> = loads.iter_mut().map(|load| quickest(&mut **load)).collect();
        let samples = sizes.iter().zip(nanos.chunks(2)).filter_map(|(size, pair)| {
            let [seal, open] = pair else { return None };
            Some(Samples { size: *size, seal: vec![*seal], open: vec![*open] })
        });
        Some(self.costs_of(combination, samples.collect()))
    }

    /// Measures all suites in turns. Combinations without a provider are omitted.
    fn costs(
        &self,
        combinations: &[SuiteWithProviders<'_>],
        sizes: &[usize],
        report_progress: impl FnMut(f64),
    ) -> Vec<Costs> {
        let mut loads: Vec<Box<dyn Workload + '_>> = Vec::new();
        let mut present = Vec::new();
        for combination in combinations {
            if let Some(of_one) = combination.workloads(sizes, self.goal.batch()) {
                loads.extend(of_one);
                present.push(combination);
            }
        }
        let Budget { budget, min_rounds, max_rounds, turn } = self.budget;
        let rounds = min_rounds..=max_rounds;
        let series = harness::measure_within(&mut loads, turn, budget, rounds, report_progress);
        let of_one = |(combination, series): (&&SuiteWithProviders<'_>, &[harness::Series])| {
            let samples = sizes.iter().zip(series.chunks(2)).filter_map(|(size, pair)| {
                let [seal, open] = pair else { return None };
                Some(Samples { size: *size, seal: seal.samples().to_vec(), open: open.samples().to_vec() })
            });
            self.costs_of(combination, samples.collect())
        };
        present.iter().zip(series.chunks(sizes.len() * 2)).map(of_one).collect()
    }

    fn costs_of(&self, combination: &SuiteWithProviders<'_>, samples: Vec<Samples>) -> Costs {
        Costs { suite: combination.suite, provider: combination.name.into(), samples }.slowed(self.slowdown)
    }
}

/// Nanoseconds per operation in the fastest of a few runs.
fn quickest(load: &mut dyn Workload) -> f64 {
    let (mut best, mut spent) = (f64::INFINITY, Duration::ZERO);
    for _ in 0..SCREENING_RUNS {
        let (time, operations) = load.run();
        best = best.min(time.as_secs_f64() * 1e9 / f64::from(operations));
        spent += time;
        if spent > SCREENING_TIME {
            break;
        }
    }
    best
}

/// A suite and the providers that implement it.
struct SuiteWithProviders<'p> {
    suite: EspSuite,
    name: &'static str,
    providers: &'p [&'static dyn Provider],
}

impl<'p> SuiteWithProviders<'p> {
    /// Workloads for sealing and opening of each packet length.
    fn workloads(&self, sizes: &[usize], batch: usize) -> Option<Vec<Box<dyn Workload + 'p>>> {
        let of_size = |size: &usize| {
            [Operation::Seal, Operation::Open].map(|operation| {
                workload(WorkSpec { suite: self.suite, operation, size: *size, batch }, self.providers)
            })
        };
        sizes.iter().flat_map(of_size).collect()
    }
}
