//! The answer: what was found, what follows, and what would change it. As text here and in `text`, as JSON in `json`.

mod json;
mod text;

use crate::as_if::AsIf;
use crate::goal::{Goal, UseCase};
use crate::measure::{Costs, Found, KexCost};
use crate::probe::Device;
use crate::rank::Place;
use crate::rules::Filter;
use crate::settings::Settings;
use crate::suites::Sorted;
use crate::thorough::Thorough;
use casemate_crypto::EspSuite;
use casemate_measure::spread::Spread;

/// Everything that there is to say.
pub struct Answer {
    /// What the device is.
    pub device: Device,
    /// What another one was taken to be.
    pub as_if: AsIf,
    /// Providers in order, and why others are not there.
    pub providers: Vec<String>,
    /// What was wanted.
    pub goal: Goal,
    /// For which packets.
    pub use_case: UseCase,
    /// Rules in force.
    pub filter: Filter,
    /// What became of each suite before anything was measured.
    pub sorted: Sorted,
    /// What was measured.
    pub found: Found,
    /// The finalists in order. Never empty.
    pub places: Vec<Place>,
    /// Key exchanges, cheapest first.
    pub kex: Vec<KexCost>,
    /// What follows.
    pub settings: Settings,
    /// What was found end to end, or why nothing was, if that was asked for.
    pub thorough: Option<Result<Thorough, String>>,
    /// What was measured besides and would change the answer, or would not: whole sentences.
    pub besides: Vec<String>,
}

impl Answer {
    /// The suite that is advised.
    pub fn first(&self) -> Option<EspSuite> {
        self.places.first().map(|place| place.spot.suite)
    }

    /// What would change the answer.
    pub fn changes(&self) -> Vec<String> {
        let runner_up = self.places.get(1).map(runner_up);
        let faster =
            self.places.iter().filter(|place| place.behind < 0.0 && place.spot.admitted.status.is_leaving());
        let leaving = faster.map(|place| {
            let Place { spot, behind, .. } = place;
            format!(
                "{} is {} better, and on its way out: {} ({}). Only for a peer that knows nothing newer.",
                spot.suite,
                percent(-behind),
                spot.admitted.status,
                spot.admitted.source
            )
        });
        let providers = self.other_providers();
        runner_up.into_iter().chain(leaving.take(1)).chain(providers).chain(self.besides.clone()).collect()
    }

    /// What the first suite costs with each provider alone, where that differs.
    fn other_providers(&self) -> Option<String> {
        if self.goal.is_exact() {
            return None;
        }
        let first = self.places.first()?;
        let of_first = self.found.alone.iter().filter(|costs| costs.suite == first.spot.suite);
        let alone: Vec<String> = of_first
            .filter_map(|costs| {
                let times = self.median(costs)? / first.spot.median;
                Some(format!("{} {times:.2}", costs.provider))
            })
            .collect();
        (alone.len() > 1).then(|| {
            format!(
                "Another provider of algorithms: {} costs, against 1.00 as the program runs: {}.",
                first.spot.suite,
                alone.join(", ")
            )
        })
    }

    fn median(&self, costs: &Costs) -> Option<f64> {
        Spread::of(self.goal.scores(costs, &self.use_case)).map(|spread| spread.median)
    }
}

fn runner_up(second: &Place) -> String {
    let suite = second.spot.suite;
    if second.is_tied && second.behind.abs() < 0.5 {
        format!(
            "{suite} cannot be told from the first by what was measured; the order of the two follows from the rules."
        )
    } else {
        format!("{suite} is second, {} behind.", percent(second.behind))
    }
}

/// A share, for people.
fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}
