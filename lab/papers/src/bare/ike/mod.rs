//! Cost of IKEv2 messages for each key exchange group (figure 11 of the paper). Both peers are in memory, and
//! one handshake runs at a time.

mod handshake;

use super::micros;
use crate::Context;
use casemate_crypto::{KexMethod, Provider, Providers};
use casemate_linux::process::SystemRng;
use casemate_measure::report::{
    Axis, Bound, Claim, Figure, Finding, Part, Point, Samples, Series, Shape, Skipped, Table,
};
use casemate_measure::stats::{LEAST_ROUNDS, Spread};
use casemate_testbed::{Error, Result};
use handshake::{INIT_STEPS, STEPS, handshake};
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// Limits of the number of handshakes per case. The available time decides within them.
const ROUNDS: RangeInclusive<usize> = LEAST_ROUNDS..=101;
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
    Ok(vec![Part { skipped, ..part(&costs) }])
}

/// Returns every supported combination of group and provider, and the groups without a provider.
fn cases() -> Result<(Vec<Case>, Vec<Skipped>)> {
    let all: [&'static dyn Provider; 2] = [&casemate_aws_lc::AWS_LC, &casemate_rustcrypto::RUSTCRYPTO];
    let mut rng = SystemRng::new().map_err(Error::context("random numbers"))?;
    let (mut cases, mut skipped) = (Vec::new(), Vec::new());
    // IKE does not negotiate ML-KEM yet.
    for method in KexMethod::ALL.into_iter().filter(|method| !method.is_kem()) {
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
        KexMethod::MlKem512 => "ML-KEM-512".into(),
        KexMethod::MlKem768 => "ML-KEM-768".into(),
        KexMethod::MlKem1024 => "ML-KEM-1024".into(),
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

/// Exchange to which a message belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Init,
    Auth,
}

fn part(costs: &[Cost]) -> Part {
    let rounds = costs.first().and_then(|cost| cost.steps.first()).map_or(0, Vec::len);
    Part {
        title: "IKEv2 message processing time".into(),
        text: format!(
            "Both peers run in memory without sockets. Every handshake has new engines, a pre-shared \
                 key, AES-128-CBC, HMAC-SHA1-96 and PRF-HMAC-SHA1 as in the paper, and one Child SA. \
                 {rounds} handshakes per case, in turns; medians. {EXTENT} The paper's figure has no \
                 numbers, so only shapes can be compared. The paper does not say which groups it \
                 measured.",
        ),
        figures: providers(costs).into_iter().map(|provider| figure(costs, provider)).collect(),
        tables: vec![table(costs)],
        findings: [dearer(costs), grows(costs)].into_iter().flatten().collect(),
        samples: costs.iter().flat_map(samples).collect(),
        ..Part::default()
    }
}

const EXTENT: &str = "The calls that create the first request or process a message of IKE_SA_INIT count \
     as IKE_SA_INIT, and those that process a message of IKE_AUTH count as IKE_AUTH. The time of an \
     exchange is the sum of both peers. All key exchange arithmetic, two computations per peer, is \
     therefore part of IKE_SA_INIT.";

impl Cost {
    /// Time of both peers in each round, in microseconds.
    fn times(&self, kind: Kind) -> Vec<f64> {
        let (init, auth) = self.steps.split_at(INIT_STEPS);
        let steps = if kind == Kind::Init { init } else { auth };
        let rounds = steps.first().map_or(0, Vec::len);
        let sum = |round: usize| steps.iter().filter_map(|step| step.get(round)).sum();
        (0..rounds).map(sum).collect()
    }

    /// Spread of the middle half of these times.
    fn of(&self, kind: Kind) -> Option<Spread> {
        Spread::interquartile(self.times(kind))
    }

    /// Cost of IKE_SA_INIT minus cost of IKE_AUTH in each round, in microseconds.
    fn differences(&self) -> Vec<f64> {
        self.times(Kind::Init).iter().zip(self.times(Kind::Auth)).map(|(init, auth)| init - auth).collect()
    }

    /// Cost of IKE_SA_INIT minus cost of IKE_AUTH, in microseconds.
    fn difference(&self) -> Option<f64> {
        Some(self.of(Kind::Init)?.median - self.of(Kind::Auth)?.median)
    }
}

fn providers(costs: &[Cost]) -> Vec<&'static str> {
    let mut names: Vec<_> = costs.iter().map(|cost| cost.case.provider.name()).collect();
    names.dedup();
    names
}

fn figure(costs: &[Cost], provider: &str) -> Figure {
    let of: Vec<&Cost> = costs.iter().filter(|cost| cost.case.provider.name() == provider).collect();
    let series = [("IKE_SA_INIT", Kind::Init), ("IKE_AUTH", Kind::Auth)].map(|(name, kind)| {
        let points = of.iter().enumerate().filter_map(|(place, cost)| {
            let Spread { median, min: least, max: most, .. } = cost.of(kind)?;
            Some(Point::with_range(place as f64, median, least, most))
        });
        Series::ours(name, Shape::Bars, points)
    });
    Figure {
        title: format!("As figure 11: processing time of IKEv2 messages, provider {provider}"),
        caption: "Sum of both peers for each exchange. The paper has MODP groups only; the curves are in \
             use today."
            .into(),
        x: Axis::names(
            "key exchange group; a number is the length of a MODP prime in bits",
            of.iter().map(|cost| group_name(cost.case.method).replace("MODP-", "")),
        ),
        y: Axis::log("microseconds a handshake"),
        series: series.into(),
    }
}

fn table(costs: &[Cost]) -> Table {
    let first = ["Group".to_owned(), "Algorithms of".to_owned()];
    let last = ["IKE_SA_INIT, both sides", "IKE_AUTH, both sides"];
    let columns = STEPS.iter().chain(&last).map(|name| format!("{name}, µs"));
    let row = |cost: &Cost| {
        let steps = cost.steps.iter().map(|step| Spread::of(step.iter().copied()));
        let sums = [Kind::Init, Kind::Auth].map(|kind| cost.of(kind));
        let cells = steps
            .chain(sums)
            .map(|spread| spread.map_or_else(|| "-".into(), |spread| format!("{:.0}", spread.median)));
        let names = [group_name(cost.case.method), cost.case.provider.name().to_owned()];
        names.into_iter().chain(cells).collect()
    };
    Table {
        title: "What each call costs".into(),
        columns: first.into_iter().chain(columns).collect(),
        rows: costs.iter().map(row).collect(),
    }
}

fn is_modp(cost: &&Cost) -> bool {
    cost.case.method.modp_prime().is_some()
}

/// First claim of the paper about figure 11.
fn dearer(costs: &[Cost]) -> Option<Finding> {
    let ratio = |cost: &Cost| Spread::of_ratios(cost.times(Kind::Init), cost.times(Kind::Auth));
    let ratios: Vec<Spread> = costs.iter().filter(is_modp).filter_map(ratio).collect();
    let median = |ratio: &Spread| ratio.median;
    let modp = Spread::of(ratios.iter().map(median))?;
    let curves = costs.iter().filter(|cost| !is_modp(cost)).filter_map(ratio);
    let curves = Spread::of(curves.map(|ratio| ratio.median))?;
    let ours = format!(
        "{:.0} to {:.0} times as much with MODP groups, {:.1} to {:.0} times with curves",
        modp.min, modp.max, curves.min, curves.max
    );
    Some(INIT_DEARER.judge(ours, &ratios))
}

const INIT_DEARER: Claim<'static> = Claim {
    what: "messages of IKE_SA_INIT cost more than those of IKE_AUTH",
    paper: "so with every MODP group",
    holds: Bound::Above(1.0),
    agrees: "With a pre-shared key, IKE_AUTH needs no public-key arithmetic: only a PRF over a few hundred \
             bytes, and one message is sealed and opened per peer.",
    differs: "Something other than the key exchange dominates IKE_AUTH with one of the groups.",
};

/// Second claim of the paper about figure 11.
fn grows(costs: &[Cost]) -> Option<Finding> {
    let of = |provider: &'static str| -> Vec<&Cost> {
        costs.iter().filter(is_modp).filter(|cost| cost.case.provider.name() == provider).collect()
    };
    let rows: Vec<(&str, Vec<&Cost>)> =
        providers(costs).into_iter().map(|provider| (provider, of(provider))).collect();
    let texts = rows.iter().filter_map(|(provider, costs)| {
        let (first, last) = (costs.first()?.difference()?, costs.last()?.difference()?);
        Some(format!("{provider}: from {:.1} to {:.1} ms", first / 1e3, last / 1e3))
    });
    let ours = texts.collect::<Vec<_>>().join("; ");
    let steps = rows.iter().flat_map(|(_, costs)| costs.windows(2)).filter_map(|pair| match pair {
        [smaller, larger] => Spread::of_ratios(larger.differences(), smaller.differences()),
        _ => None,
    });
    Some(DIFFERENCE_GROWS.judge(ours, &steps.collect::<Vec<_>>()))
}

const DIFFERENCE_GROWS: Claim<'static> = Claim {
    what: "the difference grows with the size of the MODP group (1,536 to 8,192 bits)",
    paper: "it becomes significant as keys get larger",
    holds: Bound::Above(1.0),
    agrees: "The cost of a multiplication is quadratic in the length of the prime, and the exponent grows, \
             too (RFC 3526 section 8). Curves of the same strength, which the paper does not have, cost a \
             small part of that: see the table.",
    differs: "A larger group is not dearer than the next smaller one.",
};

fn samples(cost: &Cost) -> Vec<Samples> {
    let named = STEPS.iter().zip(&cost.steps);
    named
        .map(|(step, values)| {
            Samples::repeated(format!("{}, {step}", cost.case.name()), "µs", values.clone())
        })
        .collect()
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
        let skipped: Vec<&str> = skipped.iter().map(|skipped| &*skipped.what).collect();
        assert_eq!(
            (cases.len(), skipped),
            (20, vec!["1024-bit MODP Group", "brainpoolP256r1", "brainpoolP384r1", "Curve448"])
        );
    }
}
