//! Cost of IKEv2 messages for each key exchange group (figure 11 of the paper). Both peers are in memory, and
//! one handshake runs at a time.

mod handshake;
mod results;

use super::micros;
use crate::Context;
use casemate_crypto::{KexMethod, Provider, Providers};
use casemate_linux::process::SystemRng;
use casemate_measure::report::{Part, Skipped};
use casemate_testbed::{Error, Result};
use handshake::{STEPS, handshake};
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// Limits of the number of handshakes per case. The available time decides within them.
const ROUNDS: RangeInclusive<usize> = 1..=101;
/// From this duration on, the state of the caches does not affect a handshake.
const SLOW: Duration = Duration::from_millis(10);
/// Share of the step's time that the rounds may use.
const BUDGET: f64 = 0.85;

/// A key exchange group and the provider that implements it.
#[derive(Clone, Copy)]
struct Case {
    provider: &'static dyn Provider,
    method: KexMethod,
}

/// Measured cost of a case.
struct Cost {
    case: Case,
    /// Samples of each step in microseconds, one per round.
    steps: [Vec<f64>; STEPS.len()],
}

pub(super) fn run(context: &Context) -> Result<Vec<Part>> {
    let (cases, skipped) = cases()?;
    let mut costs: Vec<Cost> =
        cases.into_iter().map(|case| Cost { case, steps: [const { Vec::new() }; STEPS.len()] }).collect();
    let (start, budget) = (Instant::now(), context.time.mul_f64(BUDGET));
    context.progress.set_total(ROUNDS.end() * costs.len());
    for round in 0..*ROUNDS.end() {
        if round >= *ROUNDS.start() && start.elapsed() > budget {
            break;
        }
        for cost in &mut costs {
            context.progress.advance(&cost.case.name());
            cost.run_once()?;
        }
        // Each round begins with a different case, so that no case always follows the same one.
        costs.rotate_left(1);
    }
    costs.sort_by_key(|cost| (cost.case.provider.name(), order(cost.case.method)));
    Ok(vec![Part { skipped, ..results::part(&costs) }])
}

/// Returns every supported combination of group and provider, and the groups without a provider.
fn cases() -> Result<(Vec<Case>, Vec<Skipped>)> {
    let all: [&'static dyn Provider; 2] = [&casemate_aws_lc::AWS_LC, &casemate_rustcrypto::RUSTCRYPTO];
    let mut rng = SystemRng::new().map_err(Error::context("random numbers"))?;
    let (mut cases, mut skipped) = (Vec::new(), Vec::new());
    for method in KexMethod::ALL {
        let mut has = |provider: &dyn Provider| Providers(&[provider]).kex(method, &mut rng).is_ok();
        let providers: Vec<_> = all.into_iter().filter(|provider| has(*provider)).collect();
        if providers.is_empty() {
            skipped.push(Skipped {
                what: method.to_string(),
                why: "no provider has it".into(),
                failed: false,
            });
        }
        cases.extend(providers.into_iter().map(|provider| Case { provider, method }));
    }
    Ok((cases, skipped))
}

/// Sort key: MODP groups by size, as in the paper, then the curves.
const fn order(method: KexMethod) -> (bool, usize) {
    (method.modp_prime().is_none(), method.shared_len())
}

impl Case {
    fn name(self) -> String {
        format!("{}, {}", group_name(self.method), self.provider.name())
    }
}

/// Short usual name.
fn group_name(method: KexMethod) -> String {
    match method {
        KexMethod::EcpP256 => "P-256".into(),
        KexMethod::EcpP384 => "P-384".into(),
        KexMethod::EcpP521 => "P-521".into(),
        KexMethod::X25519 => "X25519".into(),
        KexMethod::X448 => "X448".into(),
        modp => format!("MODP-{}", modp.public_len() * 8),
    }
}

impl Cost {
    /// Measures one handshake. An unmeasured handshake precedes a short one, because the other cases have
    /// evicted the caches.
    fn run_once(&mut self) -> Result<()> {
        let failed = || Error::new(format!("{}: the handshake does not complete", self.case.name()));
        let mut times = handshake(self.case).ok_or_else(failed)?;
        if times.iter().sum::<Duration>() < SLOW {
            times = handshake(self.case).ok_or_else(failed)?;
        }
        for (samples, time) in self.steps.iter_mut().zip(times) {
            samples.push(micros(time));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_supported_group_establishes_a_child_sa() {
        let (cases, skipped) = cases().unwrap();
        for case in &cases {
            let times = handshake(*case).unwrap_or_else(|| panic!("{}", case.name()));
            assert!(times.iter().all(|time| *time > Duration::ZERO), "{}: {times:?}", case.name());
        }
        assert_eq!((cases.len(), skipped.len()), (20, 1));
    }
}
