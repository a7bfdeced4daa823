//! Figures of ratios against the MTU, as in the paper, and tables of the costs.

use super::scenario::Scenario;
use super::sweep::{QUANTITIES, Quantity, Sweep};
use casemate_measure::report::{Axis, Figure, Point, Series, Shape, Table};
use casemate_measure::stats::Spread;

/// A line of a figure: name, scenario, and base scenario.
pub(super) type Line = (String, Scenario, Scenario);

/// Texts of a figure.
pub(super) struct Labels<'w> {
    /// Title, such as `Figure 8: tunnel mode`.
    pub(super) title: &'w str,
    /// Description of the ratio.
    pub(super) ratio: &'w str,
    pub(super) caption: &'w str,
}

/// Returns one figure for elapsed time and one for CPU time. `paper` returns the numbers of the paper.
pub(super) fn figures(
    sweep: &Sweep,
    words: &Labels<'_>,
    lines: &[Line],
    paper: impl Fn(Quantity) -> Vec<Series>,
) -> Vec<Figure> {
    let figure = |quantity: Quantity| Figure {
        title: format!("{}: {}", words.title, quantity.name()),
        caption: words.caption.into(),
        x: Axis::linear("MTU of the link, bytes"),
        y: Axis::linear(format!("{}, {}", quantity.name(), words.ratio)),
        series: lines.iter().map(|line| series(sweep, line, quantity)).chain(paper(quantity)).collect(),
    };
    QUANTITIES.map(figure).into()
}

fn series(sweep: &Sweep, (name, own, base): &Line, quantity: Quantity) -> Series {
    let points = sweep.mtus.iter().filter_map(|mtu| {
        let Spread { median, min: least, max: most, .. } = sweep.ratio(*own, *base, *mtu, quantity)?;
        Some(Point::with_range(f64::from(*mtu), median, least, most))
    });
    Series::ours(name, Shape::Line, points)
}

/// A range that the paper states in words, for these MTUs.
pub(super) fn paper_range(
    name: &str,
    mtus: impl IntoIterator<Item = f64>,
    [least, most]: [f64; 2],
) -> Series {
    let points = mtus.into_iter().map(|mtu| Point::with_range(mtu, f64::midpoint(least, most), least, most));
    Series::paper(name, Shape::Line, points)
}

/// Table of the cost of a million bytes in each scenario.
pub(super) fn costs(sweep: &Sweep, title: &str, scenarios: &[Scenario]) -> Table {
    let columns = ["Setting".to_owned()].into_iter().chain(
        QUANTITIES
            .iter()
            .flat_map(|quantity| sweep.mtus.iter().map(|mtu| format!("{}, MTU {mtu}", quantity.name()))),
    );
    let row = |scenario: &Scenario| {
        let cells = QUANTITIES.iter().flat_map(|quantity| {
            sweep.mtus.iter().map(|mtu| {
                sweep.cost(*scenario, *mtu, *quantity).map_or_else(|| "-".into(), |cost| cost.text(1))
            })
        });
        std::iter::once(scenario.to_string()).chain(cells).collect()
    };
    Table {
        title: format!("{title}: milliseconds per million bytes"),
        columns: columns.collect(),
        rows: scenarios.iter().map(row).collect(),
    }
}
