//! Cost of the messages of both exchanges against the group, as in the paper.

use super::handshake::{INIT_STEPS, STEPS};
use super::{Cost, group_name};
use casemate_measure::report::{Axis, Figure, Finding, Part, Point, Samples, Series, Shape, Table};
use casemate_measure::stats::Spread;

/// Exchange to which a message belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Init,
    Auth,
}

pub(super) fn part(costs: &[Cost]) -> Part {
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
    /// Time of both peers in microseconds.
    fn of(&self, kind: Kind) -> Option<Spread> {
        let (init, auth) = self.steps.split_at(INIT_STEPS);
        let steps = if kind == Kind::Init { init } else { auth };
        let rounds = steps.first()?.len();
        let sum = |round: usize| steps.iter().filter_map(|step| step.get(round)).sum();
        Spread::interquartile((0..rounds).map(sum))
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
            let Spread { median, min: least, max: most } = cost.of(kind)?;
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
    let ratio = |cost: &Cost| Some(cost.of(Kind::Init)?.median / cost.of(Kind::Auth)?.median);
    let ratios = Spread::of(costs.iter().filter(is_modp).filter_map(ratio))?;
    let curves = Spread::of(costs.iter().filter(|cost| !is_modp(cost)).filter_map(ratio))?;
    Some(super::super::results::finding(
        "messages of IKE_SA_INIT cost more than those of IKE_AUTH",
        "so with every MODP group",
        format!(
            "{:.0} to {:.0} times as much with MODP groups, {:.1} to {:.0} times with curves",
            ratios.min, ratios.max, curves.min, curves.max
        ),
        ratios.min > 1.0,
        "With a pre-shared key, IKE_AUTH needs no public-key arithmetic: only a PRF over a few hundred \
             bytes, and one message is sealed and opened per peer.",
    ))
}

/// Second claim of the paper about figure 11.
fn grows(costs: &[Cost]) -> Option<Finding> {
    let of = |provider: &str| -> Vec<f64> {
        let own = costs.iter().filter(is_modp).filter(|cost| cost.case.provider.name() == provider);
        own.filter_map(Cost::difference).collect()
    };
    let rows: Vec<(&str, Vec<f64>)> =
        providers(costs).into_iter().map(|provider| (provider, of(provider))).collect();
    let texts = rows.iter().filter_map(|(provider, differences)| {
        let (first, last) = (differences.first()?, differences.last()?);
        Some(format!("{provider}: from {:.1} to {:.1} ms", first / 1e3, last / 1e3))
    });
    let ours = texts.collect::<Vec<_>>().join("; ");
    Some(super::super::results::finding(
        "the difference grows with the size of the MODP group (1,536 to 8,192 bits)",
        "it becomes significant as keys get larger",
        ours,
        rows.iter().all(|(_, differences)| differences.is_sorted()),
        "The cost of a multiplication is quadratic in the length of the prime, and the exponent grows, \
             too (RFC 3526 section 8). Curves of the same strength, which the paper does not have, cost a \
             small part of that: see the table.",
    ))
}

fn samples(cost: &Cost) -> Vec<Samples> {
    let named = STEPS.iter().zip(&cost.steps);
    named
        .map(|(step, values)| {
            Samples::repeated(format!("{}, {step}", cost.case.name()), "µs", values.clone())
        })
        .collect()
}
