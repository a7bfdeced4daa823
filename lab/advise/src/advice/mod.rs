//! The advice: measurements, resulting settings, and what would change them. `text` formats it as text,
//! `json` as JSON.

mod text;

use crate::as_if::AsIf;
use crate::end_to_end::EndToEnd;
use crate::goal::{Goal, UseCase};
use crate::measure::{Costs, KexCost, Measurements};
use crate::probe::Device;
use crate::rank::RankedSuite;
use crate::rules::Filter;
use crate::settings::Settings;
use crate::suites::ClassifiedSuites;
use casemate_crypto::EspSuite;
use casemate_measure::stats::Spread;

/// Complete advice.
pub struct Advice {
    /// The device.
    pub device: Device,
    /// Simulated differences of the device.
    pub as_if: AsIf,
    /// Available providers in order of preference, and why others are unavailable.
    pub providers: Vec<String>,
    /// Goal of the user.
    pub goal: Goal,
    /// Packets of the user.
    pub use_case: UseCase,
    /// Rules in force.
    pub filter: Filter,
    /// Classification of all suites before the measurement.
    pub suites: ClassifiedSuites,
    /// Measured costs.
    pub measurements: Measurements,
    /// Finalists, best first. Never empty.
    pub ranking: Vec<RankedSuite>,
    /// Key exchange methods, cheapest first.
    pub kex: Vec<KexCost>,
    /// Recommended settings.
    pub settings: Settings,
    /// Result of the end-to-end measurement or why it failed, if it was requested.
    pub end_to_end: Option<Result<EndToEnd, String>>,
    /// Further sentences about what would or would not change the advice.
    pub notes: Vec<String>,
}

impl Advice {
    /// Recommended suite.
    pub fn first(&self) -> Option<EspSuite> {
        self.ranking.first().map(|place| place.scored.suite)
    }

    /// Sentences about what would change the advice.
    pub fn changes(&self) -> Vec<String> {
        let runner_up = self.ranking.get(1).map(runner_up);
        let faster = self
            .ranking
            .iter()
            .filter(|place| place.gap < 0.0 && place.scored.admitted.status.is_being_phased_out());
        let leaving = faster.map(|place| {
            let RankedSuite { scored, gap: behind, .. } = place;
            format!(
                "{} is {} better, but being phased out: {} ({}). Use it only for a peer that supports \
                     nothing newer.",
                scored.suite,
                percent(-behind),
                scored.admitted.status,
                scored.admitted.source
            )
        });
        let providers = self.other_providers();
        runner_up.into_iter().chain(leaving.take(1)).chain(providers).chain(self.notes.clone()).collect()
    }

    /// Cost of the first suite with each provider alone, if there are several.
    fn other_providers(&self) -> Option<String> {
        if self.goal.is_exact() {
            return None;
        }
        let first = self.ranking.first()?;
        let of_first =
            self.measurements.per_provider.iter().filter(|costs| costs.suite == first.scored.suite);
        let alone: Vec<String> = of_first
            .filter_map(|costs| {
                let times = self.median(costs)? / first.scored.median;
                Some(format!("{} {times:.2}", costs.provider))
            })
            .collect();
        (alone.len() > 1).then(|| {
            format!(
                "Other crypto providers: cost of {} relative to the default order (1.00): {}.",
                first.scored.suite,
                alone.join(", ")
            )
        })
    }

    fn median(&self, costs: &Costs) -> Option<f64> {
        Spread::of(self.goal.scores(costs, &self.use_case)).map(|spread| spread.median)
    }
}

fn runner_up(second: &RankedSuite) -> String {
    let suite = second.scored.suite;
    if second.is_tied && second.gap.abs() < 0.5 {
        format!(
            "{suite} ties with the first within the accuracy of the measurement; the rules decide the \
                 order of the two."
        )
    } else {
        format!("{suite} is second, {} behind the first.", percent(second.gap))
    }
}

/// Formats a share as a percentage.
fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}
