//! Figures of ratios against the MTU, as the paper draws them, and tables of what is in them.

use super::setting::Setting;
use super::sweep::{QUANTITIES, Quantity, Sweep};
use casemate_measure::spread::Spread;
use casemate_report::{Axis, Figure, Point, Series, Shape, Table};

/// A line of a figure: its name, and what is compared with what.
pub(super) type Line = (String, Setting, Setting);

/// What a figure shows beside its lines.
pub(super) struct Words<'w> {
    /// Such as `Figure 8: tunnel mode`.
    pub(super) title: &'w str,
    /// What the ratio is of.
    pub(super) ratio: &'w str,
    pub(super) caption: &'w str,
}

/// One figure for elapsed time and one for CPU time. `paper` is what the paper says in numbers.
pub(super) fn figures(
    sweep: &Sweep,
    words: &Words<'_>,
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
        let Spread { median, least, most } = sweep.ratio(*own, *base, *mtu, quantity)?;
        Some(Point::between(f64::from(*mtu), median, least, most))
    });
    Series::ours(name, Shape::Line, points)
}

/// A range that the paper gives in words, over these MTUs.
pub(super) fn said(name: &str, mtus: impl IntoIterator<Item = f64>, [least, most]: [f64; 2]) -> Series {
    let points = mtus.into_iter().map(|mtu| Point::between(mtu, f64::midpoint(least, most), least, most));
    Series::paper(name, Shape::Line, points)
}

/// What a million bytes took in each setting.
pub(super) fn costs(sweep: &Sweep, title: &str, settings: &[Setting]) -> Table {
    let columns = ["Setting".to_owned()].into_iter().chain(
        QUANTITIES
            .iter()
            .flat_map(|quantity| sweep.mtus.iter().map(|mtu| format!("{}, MTU {mtu}", quantity.name()))),
    );
    let row = |setting: &Setting| {
        let cells = QUANTITIES.iter().flat_map(|quantity| {
            sweep.mtus.iter().map(|mtu| {
                sweep.cost(*setting, *mtu, *quantity).map_or_else(|| "-".into(), |cost| cost.text(1))
            })
        });
        std::iter::once(setting.to_string()).chain(cells).collect()
    };
    Table {
        title: format!("{title}: milliseconds for a million bytes"),
        columns: columns.collect(),
        rows: settings.iter().map(row).collect(),
    }
}
