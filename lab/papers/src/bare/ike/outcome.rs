//! The cost of both kinds of messages against the group, as the paper draws it.

use super::handshake::{INIT, STEPS};
use super::{Cost, group};
use casemate_measure::spread::Spread;
use casemate_report::{Axis, Figure, Finding, Part, Point, Samples, Series, Shape, Table};

/// One kind of message.
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
            "Both sides in memory, without sockets: IKE_SA_INIT and IKE_AUTH between engines of which each is new, with a pre-shared key, AES-128-CBC, HMAC-SHA1-96 and PRF-HMAC-SHA1 as in \
             the paper, and one Child SA. {rounds} handshakes of each kind, in turns; medians. {EXTENT} The paper's figure has no numbers in its text, so that shapes are compared \
             and not heights; which of its groups it measured is not said.",
        ),
        figures: providers(costs).into_iter().map(|provider| figure(costs, provider)).collect(),
        tables: vec![table(costs)],
        findings: [dearer(costs), grows(costs)].into_iter().flatten().collect(),
        samples: costs.iter().flat_map(samples).collect(),
        ..Part::default()
    }
}

const EXTENT: &str = "A call belongs to IKE_SA_INIT if it makes the first request or takes a message of IKE_SA_INIT in, and to IKE_AUTH if it takes a message of that in; the \
     time of a kind is that of both sides. All arithmetic of the key exchange, two computations on each side, falls into IKE_SA_INIT so.";

impl Cost {
    /// Of both sides, in microseconds.
    fn of(&self, kind: Kind) -> Option<Spread> {
        let (init, auth) = self.steps.split_at(INIT);
        let steps = if kind == Kind::Init { init } else { auth };
        let rounds = steps.first()?.len();
        let sum = |round: usize| steps.iter().filter_map(|step| step.get(round)).sum();
        Spread::of_middle_half((0..rounds).map(sum))
    }

    /// How much more the one kind costs than the other.
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
            let Spread { median, least, most } = cost.of(kind)?;
            Some(Point::between(place as f64, median, least, most))
        });
        Series::ours(name, Shape::Bars, points)
    });
    Figure {
        title: format!("As figure 11: processing time of IKEv2 messages, algorithms of {provider}"),
        caption: "Both sides together, for each kind of message. The paper has MODP groups alone; the curves are those that are used today.".into(),
        x: Axis::names(
            "key exchange group; a number is the length of a MODP group's prime in bits",
            of.iter().map(|cost| group(cost.case.method).replace("MODP-", "")),
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
        let names = [group(cost.case.method), cost.case.provider.name().to_owned()];
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

/// The paper's first sentence on figure 11.
fn dearer(costs: &[Cost]) -> Option<Finding> {
    let ratio = |cost: &Cost| Some(cost.of(Kind::Init)?.median / cost.of(Kind::Auth)?.median);
    let ratios = Spread::of(costs.iter().filter(is_modp).filter_map(ratio))?;
    let curves = Spread::of(costs.iter().filter(|cost| !is_modp(cost)).filter_map(ratio))?;
    Some(super::super::outcome::finding(
        "messages of IKE_SA_INIT cost more than those of IKE_AUTH",
        "so with every MODP group",
        format!(
            "{:.0} to {:.0} times as much with MODP groups, {:.1} to {:.0} times with curves",
            ratios.least, ratios.most, curves.least, curves.most
        ),
        ratios.least > 1.0,
        "With a pre-shared key IKE_AUTH has no arithmetic of large numbers: a PRF over a few hundred bytes, and one message sealed and opened on each side.",
    ))
}

/// Its second.
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
    Some(super::super::outcome::finding(
        "the difference grows with the size of the MODP group (1,536 to 8,192 bits)",
        "it becomes significant as keys get larger",
        ours,
        rows.iter().all(|(_, differences)| differences.is_sorted()),
        "A multiplication takes the square of the prime's length, and the exponent becomes longer too (RFC 3526 section 8). Curves of the same strength, which \
         the paper does not have, cost a small part of it: see the table.",
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
