//! What the messages of IKEv2 cost with each key exchange group (figure 11 of the paper): both sides in memory, a handshake at a time.

mod handshake;
mod outcome;

use super::micros;
use crate::Context;
use casemate_crypto::{KexMethod, Provider, Providers};
use casemate_linux::rng::SystemRng;
use casemate_report::{LeftOut, Part};
use casemate_stage::{Error, Result};
use handshake::{STEPS, handshake};
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// How many handshakes of each kind are measured: as many as there is time for, within these bounds.
const ROUNDS: RangeInclusive<usize> = 1..=101;
/// A handshake that takes so long does not notice where the caches were before.
const LONG: Duration = Duration::from_millis(10);
/// What part of the step's time the rounds may take.
const BUDGET: f64 = 0.85;

/// A group, and whose algorithms are used.
#[derive(Clone, Copy)]
struct Case {
    provider: &'static dyn Provider,
    method: KexMethod,
}

/// What its handshakes cost.
struct Cost {
    case: Case,
    /// Microseconds of each step, one for each round.
    steps: [Vec<f64>; STEPS.len()],
}

pub(super) fn run(context: &Context) -> Result<Vec<Part>> {
    let (cases, left_out) = cases()?;
    let mut costs: Vec<Cost> =
        cases.into_iter().map(|case| Cost { case, steps: [const { Vec::new() }; STEPS.len()] }).collect();
    let (begun, budget) = (Instant::now(), context.time.mul_f64(BUDGET));
    context.progress.expect(ROUNDS.end() * costs.len());
    for round in 0..*ROUNDS.end() {
        if round >= *ROUNDS.start() && begun.elapsed() > budget {
            break;
        }
        for cost in &mut costs {
            context.progress.next(&cost.case.name());
            cost.turn()?;
        }
        // Each round begins with another one, so that none always runs after the same.
        costs.rotate_left(1);
    }
    costs.sort_by_key(|cost| (cost.case.provider.name(), order(cost.case.method)));
    Ok(vec![Part { left_out, ..outcome::part(&costs) }])
}

/// Every group of every provider, and the groups that none has.
fn cases() -> Result<(Vec<Case>, Vec<LeftOut>)> {
    let all: [&'static dyn Provider; 2] = [&casemate_aws_lc::AWS_LC, &casemate_rustcrypto::RUSTCRYPTO];
    let mut rng = SystemRng::new().map_err(Error::in_front("random numbers"))?;
    let (mut cases, mut left_out) = (Vec::new(), Vec::new());
    for method in KexMethod::ALL {
        let mut has = |provider: &dyn Provider| Providers(&[provider]).kex(method, &mut rng).is_ok();
        let providers: Vec<_> = all.into_iter().filter(|provider| has(*provider)).collect();
        if providers.is_empty() {
            left_out.push(LeftOut {
                what: method.to_string(),
                why: "no provider has it".into(),
                failed: false,
            });
        }
        cases.extend(providers.into_iter().map(|provider| Case { provider, method }));
    }
    Ok((cases, left_out))
}

/// MODP groups by size, as in the paper, then the curves.
const fn order(method: KexMethod) -> (bool, usize) {
    (method.modp_prime().is_none(), method.shared_len())
}

impl Case {
    fn name(self) -> String {
        format!("{}, {}", group(self.method), self.provider.name())
    }
}

/// The usual name, short.
fn group(method: KexMethod) -> String {
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
    /// One handshake that is measured. If it is short the same goes before it unmeasured, because the others' turns have emptied the
    /// caches.
    fn turn(&mut self) -> Result<()> {
        let failed = || Error::new(format!("{}: the handshake does not come to its end", self.case.name()));
        let mut times = handshake(self.case).ok_or_else(failed)?;
        if times.iter().sum::<Duration>() < LONG {
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
    fn every_group_that_a_provider_has_makes_a_child_sa() {
        let (cases, left_out) = cases().unwrap();
        for case in &cases {
            let times = handshake(*case).unwrap_or_else(|| panic!("{}", case.name()));
            assert!(times.iter().all(|time| *time > Duration::ZERO), "{}: {times:?}", case.name());
        }
        assert_eq!((cases.len(), left_out.len()), (20, 1));
    }
}
