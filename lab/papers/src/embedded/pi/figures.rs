//! Figures of the counted instructions, like those of the paper.

use super::{DEVICE_NAME, Run};
use crate::embedded::figures::{PAPER_SHARES, bytes};
use crate::embedded::flow::{FLOWS, Flow};
use crate::embedded::protection::Suite;
use casemate_measure::report::{Axis, Figure, Point, Samples, Series, Shape, Table};

impl Run {
    /// Instructions of the device per transaction or per byte.
    pub(super) fn cost(&self, suite: Suite, flow: Flow, size: usize) -> Option<f64> {
        let is = |cell: &&super::Cell| (cell.suite, cell.flow, cell.size) == (suite, flow, size);
        self.cells.iter().find(is).map(super::Cell::cost)
    }

    /// Value in the figures: instructions per transaction, or bytes per thousand instructions.
    fn pace(&self, suite: Suite, flow: Flow, size: usize) -> Option<f64> {
        let cost = self.cost(suite, flow, size)?;
        Some(if flow.is_latency() { cost } else { 1e3 / cost })
    }

    /// All counts.
    pub(super) fn samples(&self) -> Vec<Samples> {
        let of = |cell: &super::Cell| {
            let (unit, value) = match cell.flow.is_latency() {
                true => ("instructions a transaction", cell.cost()),
                false => ("instructions for 1,000 bytes", 1e3 * cell.cost()),
            };
            Samples {
                name: format!(
                    "{DEVICE_NAME}, {}, {}, {}: instructions",
                    cell.suite,
                    cell.flow,
                    bytes(cell.size)
                ),
                unit: unit.into(),
                repeated: false,
                values: vec![value],
            }
        };
        self.cells.iter().map(of).collect()
    }

    fn line(&self, name: String, value: impl Fn(usize) -> Option<f64>) -> Series {
        let points = self.plan.sizes.iter().filter_map(|size| Some(Point::at(*size as f64, value(*size)?)));
        Series::ours(name, Shape::Line, points)
    }
}

/// All figures.
pub(super) fn all(run: &Run) -> Vec<Figure> {
    let mut figures = Vec::new();
    for flow in FLOWS {
        figures.push(pace(run, flow));
        if !flow.is_latency() {
            figures.push(share(run, flow));
        }
    }
    figures
}

fn sizes() -> Axis {
    Axis::log("size of a message, bytes")
}

const fn unit(flow: Flow) -> &'static str {
    if flow.is_latency() { "instructions per transaction" } else { "bytes for 1,000 instructions" }
}

/// Figure of the paper, with instructions instead of time.
fn pace(run: &Run, flow: Flow) -> Figure {
    let series =
        run.plan.suites.iter().map(|suite| run.line(suite.to_string(), |size| run.pace(*suite, flow, size)));
    Figure {
        title: format!("{}, {DEVICE_NAME}", flow.title()),
        caption: "Instructions of the device's processor instead of time. Both axes are logarithmic.".into(),
        x: sizes(),
        y: Axis::log(unit(flow)),
        series: series.collect(),
    }
}

/// Throughput relative to no IPsec, if instructions were the only limit.
fn share(run: &Run, flow: Flow) -> Figure {
    let ours = run.plan.suites.iter().map(|suite| {
        run.line(suite.to_string(), |size| {
            Some(run.pace(*suite, flow, size)? / run.pace(Suite::Plain, flow, size)?)
        })
    });
    let papers = PAPER_SHARES.map(|(_, name, share)| {
        let points = run.plan.sizes.iter().map(|size| Point::at(*size as f64, share));
        Series::paper(name, Shape::Line, points)
    });
    Figure {
        title: format!("{}, relative to no IPsec, {DEVICE_NAME}", flow.title()),
        caption: "Throughput if the instructions of stack and IPsec were the only limit. The paper's \
             device had a driver, too."
            .into(),
        x: sizes(),
        y: Axis::linear("throughput relative to no IPsec"),
        series: ours.chain(papers).collect(),
    }
}

/// Numbers of the figures.
pub(super) fn tables(run: &Run) -> Vec<Table> {
    FLOWS.map(|flow| table(run, flow)).into()
}

fn table(run: &Run, flow: Flow) -> Table {
    let sizes = &run.plan.sizes;
    let columns = std::iter::once("Row".to_owned())
        .chain(sizes.iter().map(|size| format!("{}, {}", bytes(*size), unit(flow))));
    let row = |suite: &Suite| {
        let digits = if flow.is_latency() { 0 } else { 2 };
        let cell = |size: &usize| {
            run.pace(*suite, flow, *size).map_or_else(|| "-".into(), |pace| format!("{pace:.digits$}"))
        };
        std::iter::once(suite.to_string()).chain(sizes.iter().map(cell)).collect()
    };
    Table {
        title: format!("{}, {DEVICE_NAME}", flow.title()),
        columns: columns.collect(),
        rows: run.plan.suites.iter().map(row).collect(),
    }
}
