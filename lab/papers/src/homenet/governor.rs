//! CPU frequency governors: section 6 of the paper (figure 10).

use super::scenario::{Aes, Mode, Scenario};
use super::sweep::{QUANTITIES, Quantity, Sweep, few_mtus};
use super::testbed::Testbed;
use crate::Context;
use casemate_measure::report::{Axis, Bound, Claim, Figure, Finding, Part, Point, Samples, Series, Shape};
use casemate_measure::stats::Spread;
use casemate_testbed::Result;
use casemate_testbed::governor::Governors;

const CBC: Scenario = Scenario::of(Mode::Cbc, Aes::Instructions);

/// Measurements with one governor.
struct Governed {
    governor: String,
    sweep: Sweep,
}

pub(super) fn run(context: &Context) -> Result<Vec<Part>> {
    let governors = Governors::detect()?;
    let names = governor_order(governors.available(), governors.current());
    let share = context.time / u32::try_from(names.len().max(1)).unwrap_or(u32::MAX);
    let testbed = Testbed::new(context)?;
    let context = Context { time: share, ..context.clone() };
    let governing = governors.take_control()?;
    let mut measured: Vec<Governed> = Vec::new();
    for name in names {
        governing.set(&name)?;
        let sweep = Sweep::run(&context, &testbed, &[CBC], few_mtus(context.quick));
        measured.push(Governed { governor: name, sweep });
    }
    drop(governing);
    Ok(vec![part(&measured)])
}

/// Order of the governors. The base is first: the paper's, or the machine's current one if the paper's is not
/// available. `userspace` does not change the frequency by itself and is skipped.
fn governor_order(available: &[String], current: &str) -> Vec<String> {
    let base = if available.iter().any(|name| name == PAPER_GOVERNOR) { PAPER_GOVERNOR } else { current };
    let others = available.iter().filter(|name| *name != base && *name != "userspace").cloned();
    std::iter::once(base.to_owned()).chain(others).collect()
}

const PAPER_GOVERNOR: &str = "ondemand";

fn part(measured: &[Governed]) -> Part {
    Part {
        title: "Frequency governors".into(),
        text: format!("{TEXT} {}", measured.first().map(|first| first.sweep.effort()).unwrap_or_default()),
        figures: QUANTITIES.iter().filter_map(|quantity| figure(measured, *quantity)).collect(),
        tables: Vec::new(),
        findings: finding(measured).into_iter().collect(),
        samples: measured.iter().flat_map(named_samples).collect(),
        skipped: measured.iter().flat_map(|governed| governed.sweep.skipped.clone()).collect(),
    }
}

fn named_samples(governed: &Governed) -> impl Iterator<Item = Samples> {
    let samples = governed.sweep.samples().into_iter();
    samples.map(|samples| Samples { name: format!("{}: {}", governed.governor, samples.name), ..samples })
}

/// Ratio of each round to a round of the base. The rounds of two governors have nothing in common.
fn ratio(own: &Sweep, base: &Sweep, mtu: u32, quantity: Quantity) -> Option<Spread> {
    Spread::of_ratios(own.costs(CBC, mtu, quantity), base.costs(CBC, mtu, quantity))
}

fn figure(measured: &[Governed], quantity: Quantity) -> Option<Figure> {
    let (Governed { governor: base_name, sweep: base }, others) = measured.split_first()?;
    let series = others.iter().map(|Governed { governor, sweep }| {
        let points = sweep.mtus.iter().filter_map(|mtu| {
            let Spread { median, min: least, max: most, .. } = ratio(sweep, base, *mtu, quantity)?;
            Some(Point::with_range(f64::from(*mtu), median, least, most))
        });
        Series::ours(governor, Shape::Line, points)
    });
    Some(Figure {
        title: format!("Figure 10, governors over {base_name}: {}", quantity.name()),
        caption: "Below 1 is better than the base. The governors were measured one after the other.".into(),
        x: Axis::linear("MTU of the link, bytes"),
        y: Axis::linear(format!("{}, ratio to {base_name}", quantity.name())),
        series: series.collect(),
    })
}

fn finding(measured: &[Governed]) -> Option<Finding> {
    let (Governed { governor: base_name, sweep: base }, others) = measured.split_first()?;
    let fixed = &others.iter().find(|governed| governed.governor == "performance")?.sweep;
    let mtu = fixed.mtus.last()?;
    let [elapsed, cpu] =
        [Quantity::Elapsed, Quantity::Cpu].map(|quantity| ratio(fixed, base, *mtu, quantity));
    let (elapsed, cpu) = (elapsed?, cpu?);
    let ours = format!(
        "performance takes {} times the time and {} times the CPU time of {base_name}, with an MTU of {mtu}",
        elapsed.text(2),
        cpu.text(2)
    );
    Some(FIXED.judge(ours, &[cpu]))
}

const FIXED: Claim<'static> = Claim {
    what: "a fixed, high frequency",
    paper: "saves CPU time against ondemand; a governor costs most with small packets",
    holds: Bound::Below(0.95),
    agrees: "A governor that follows the load reacts after some milliseconds. The paper recommends both a fixed \
             frequency and the governor `conservative`, which is a contradiction.",
    differs: "This processor changes its frequency fast, or by itself.",
};

const TEXT: &str = "Each available governor was set for all processors in turn, and a download with CBC \
     and HMAC-SHA1 was measured. The original governors were then restored.";

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_measure::report::Agreement;

    #[test]
    fn base_governor_comes_first_and_userspace_is_skipped() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let modern = names(&["performance", "schedutil", "userspace"]);
        assert_eq!(governor_order(&modern, "schedutil"), ["schedutil", "performance"]);
        let old = names(&["powersave", "ondemand"]);
        assert_eq!(governor_order(&old, "powersave"), ["ondemand", "powersave"]);
    }

    #[test]
    fn governor_ratios_are_relative_to_the_base() {
        let sweep = |cost: f64| Sweep::with(&[CBC], &[180, 1_500], move |_, _| cost);
        let measured = [("ondemand", 10.0), ("performance", 8.0)]
            .map(|(governor, cost)| Governed { governor: governor.into(), sweep: sweep(cost) });
        let part = part(&measured);
        assert_eq!(part.findings[0].agreement, Agreement::Agrees);
        assert!((part.figures[0].series[0].points[0].y - 0.8).abs() < 1e-9);
        assert!(part.samples.iter().any(|samples| samples.name.starts_with("performance: CBC")));
    }
}
