//! Costs of the key exchanges that set up or rekey an IKE SA, by the steps of both sides.

use casemate_crypto::{KexMethod, Provider, Providers};
use casemate_linux::process::SystemRng;
use casemate_measure::harness::{self, Workload, time};
use casemate_measure::stats::Spread;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Measured methods. Larger groups take a large part of a second, and no provider supports Curve448.
const METHODS: [KexMethod; 10] = [
    KexMethod::X25519,
    KexMethod::EcpP256,
    KexMethod::EcpP384,
    KexMethod::EcpP521,
    KexMethod::Modp2048,
    KexMethod::Modp3072,
    KexMethod::Modp4096,
    KexMethod::MlKem512,
    KexMethod::MlKem768,
    KexMethod::MlKem1024,
];

/// Cost of a method. All times are in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KexCost {
    /// Key exchange method.
    pub method: KexMethod,
    /// The initiator generates its public value.
    pub generate: Spread,
    /// The responder computes its public value and the shared secret. ML-KEM: encapsulation.
    pub respond: Spread,
    /// The initiator computes the shared secret. ML-KEM: decapsulation.
    pub agree: Spread,
}

impl KexCost {
    /// Time of the initiator: the least one of the rounds, because other programs only add time.
    pub fn initiator_micros(&self) -> f64 {
        self.generate.min + self.agree.min
    }

    /// Time of the responder, the least one of the rounds.
    pub const fn responder_micros(&self) -> f64 {
        self.respond.min
    }

    /// Time of the side that takes longer.
    pub fn side_micros(&self) -> f64 {
        self.initiator_micros().max(self.responder_micros())
    }

    /// Costs of a method that takes this time on either side.
    #[cfg(test)]
    pub(crate) fn made_up(method: KexMethod, micros: f64) -> Self {
        let spread = |value| Spread { median: value, min: value, max: value, interval: None };
        Self { method, generate: spread(micros / 2.0), respond: spread(micros), agree: spread(micros / 2.0) }
    }
}

/// Time budget and limits of the number of rounds.
const BUDGET: Duration = Duration::from_secs(1);
const ROUNDS: RangeInclusive<usize> = 3..=9;
/// Minimum duration of a turn, in which a fast step is repeated.
const TURN: Duration = Duration::from_micros(200);

/// Measures every method that a provider supports and returns them cheapest first. The times are multiplied
/// by `slower`, the slowdown of the simulated processor.
pub fn measure_key_exchanges(providers: &[&dyn Provider], slower: f64) -> Vec<KexCost> {
    let steps = |method| Step::ALL.map(|step| StepLoad::boxed(method, step, providers));
    let (methods, loads): (Vec<KexMethod>, Vec<_>) = METHODS
        .into_iter()
        .filter_map(|method| Some((method, steps(method).into_iter().collect::<Option<Vec<_>>>()?)))
        .unzip();
    let mut loads: Vec<Box<dyn Workload + '_>> = loads.into_iter().flatten().collect();
    let series = harness::measure_within(&mut loads, TURN, BUDGET, ROUNDS, |_| {});
    let micros = |series: &harness::Series| Spread::of(series.samples().iter().map(|ns| ns / 1e3 * slower));
    let cost = |(method, series): (KexMethod, &[harness::Series])| {
        let [generate, respond, agree] = series else { return None };
        let (generate, respond, agree) = (micros(generate)?, micros(respond)?, micros(agree)?);
        Some(KexCost { method, generate, respond, agree })
    };
    let mut costs: Vec<KexCost> =
        methods.into_iter().zip(series.chunks(Step::ALL.len())).filter_map(cost).collect();
    costs.sort_by(|a, b| a.side_micros().total_cmp(&b.side_micros()));
    costs
}

/// Step of a key exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Generate,
    Respond,
    Agree,
}

impl Step {
    const ALL: [Self; 3] = [Self::Generate, Self::Respond, Self::Agree];
}

/// A step with new random numbers in each run.
struct StepLoad<'p> {
    method: KexMethod,
    step: Step,
    providers: Providers<'p>,
    rng: SystemRng,
    /// Public value of the initiator to which the responder responds.
    initiator: Vec<u8>,
}

impl<'p> StepLoad<'p> {
    /// Returns `None` if no provider supports the method.
    fn boxed(
        method: KexMethod,
        step: Step,
        providers: &'p [&'p dyn Provider],
    ) -> Option<Box<dyn Workload + 'p>> {
        let (providers, mut rng) = (Providers(providers), SystemRng::new().ok()?);
        let initiator = providers.kex(method, &mut rng).ok()?.public().to_vec();
        providers.kex_response(method, &initiator, &mut rng).ok()?;
        Some(Box::new(Self { method, step, providers, rng, initiator }))
    }

    /// Time of the step; `None` if it failed.
    fn run_once(&mut self) -> Option<Duration> {
        let Self { method, step, providers, rng, initiator } = self;
        let mut done = false;
        let spent = match step {
            Step::Generate => time(|| done = providers.kex(*method, rng).is_ok()),
            Step::Respond => time(|| done = providers.kex_response(*method, initiator, rng).is_ok()),
            Step::Agree => {
                let secret = providers.kex(*method, rng).ok()?;
                let response = providers.kex_response(*method, secret.public(), rng).ok()?;
                time(|| done = secret.agree(&response.public).is_ok())
            }
        };
        done.then_some(spent)
    }
}

impl Workload for StepLoad<'_> {
    fn run(&mut self) -> (Duration, u32) {
        self.run_once().map_or((Duration::ZERO, 0), |spent| (spent, 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_of_every_method_is_measured() {
        for (provider, slower) in [
            (&casemate_aws_lc::AWS_LC as &dyn Provider, 1.0),
            (&casemate_rustcrypto::RUSTCRYPTO as &dyn Provider, 1e3),
        ] {
            let costs = measure_key_exchanges(&[provider], slower);
            let has_ml_kem = costs.iter().any(|cost| cost.method == KexMethod::MlKem768);
            // Other crates may enable ML-KEM of the portable provider.
            assert!(has_ml_kem || slower > 1.0);
            assert!(costs.len() >= 7 && costs.is_sorted_by_key(KexCost::side_micros), "{costs:?}");
            for cost in costs {
                for step in [cost.generate, cost.respond, cost.agree] {
                    assert!(step.median > 0.1 * slower && step.median < 1e6 * slower, "{cost:?}");
                }
            }
        }
    }
}
