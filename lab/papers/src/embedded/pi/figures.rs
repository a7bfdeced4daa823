//! What was counted, drawn like the paper's figures.

use super::{HOME, Run};
use crate::embedded::figures::{PAPERS, bytes};
use crate::embedded::flow::{FLOWS, Flow};
use crate::embedded::protection::Suite;
use casemate_report::{Axis, Figure, Point, Samples, Series, Shape, Table};

impl Run {
    /// Instructions of the device for a transaction, or for a byte.
    pub(super) fn cost(&self, suite: Suite, flow: Flow, size: usize) -> Option<f64> {
        let is = |cell: &&super::Cell| (cell.suite, cell.flow, cell.size) == (suite, flow, size);
        self.cells.iter().find(is).map(super::Cell::cost)
    }

    /// What figures show: instructions for a transaction, or bytes for a thousand instructions.
    fn pace(&self, suite: Suite, flow: Flow, size: usize) -> Option<f64> {
        let cost = self.cost(suite, flow, size)?;
        Some(if flow.is_latency() { cost } else { 1e3 / cost })
    }

    /// Every count.
    pub(super) fn samples(&self) -> Vec<Samples> {
        let of = |cell: &super::Cell| {
            let (unit, value) = match cell.flow.is_latency() {
                true => ("instructions a transaction", cell.cost()),
                false => ("instructions for 1,000 bytes", 1e3 * cell.cost()),
            };
            Samples {
                name: format!("{HOME}, {}, {}, {}: instructions", cell.suite, cell.flow, bytes(cell.size)),
                unit: unit.into(),
                repeated: false,
                values: vec![value],
            }
        };
        self.cells.iter().map(of).collect()
    }

    fn line(&self, name: String, value: impl Fn(usize) -> Option<f64>) -> Series {
        let points = self.order.sizes.iter().filter_map(|size| Some(Point::at(*size as f64, value(*size)?)));
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
    if flow.is_latency() { "instructions for a transaction" } else { "bytes for 1,000 instructions" }
}

/// The paper's figure, with instructions where it has time.
fn pace(run: &Run, flow: Flow) -> Figure {
    let series =
        run.order.suites.iter().map(|suite| run.line(suite.to_string(), |size| run.pace(*suite, flow, size)));
    Figure {
        title: format!("{}, {HOME}", flow.title()),
        caption: "Instructions of the device's processor, and no time. Both axes are logarithmic.".into(),
        x: sizes(),
        y: Axis::log(unit(flow)),
        series: series.collect(),
    }
}

/// What would be left of the throughput if instructions were the only limit.
fn share(run: &Run, flow: Flow) -> Figure {
    let ours = run.order.suites.iter().map(|suite| {
        run.line(suite.to_string(), |size| {
            Some(run.pace(*suite, flow, size)? / run.pace(Suite::Plain, flow, size)?)
        })
    });
    let said = PAPERS.map(|(_, name, share)| {
        let points = run.order.sizes.iter().map(|size| Point::at(*size as f64, share));
        Series::paper(name, Shape::Line, points)
    });
    Figure {
        title: format!("{}, as a share of that without IPsec, {HOME}", flow.title()),
        caption: "What is left where the instructions of stack and IPsec are the only limit. The paper's device had a driver besides.".into(),
        x: sizes(),
        y: Axis::linear("share of the throughput without IPsec"),
        series: ours.chain(said).collect(),
    }
}

/// The numbers of the figures.
pub(super) fn tables(run: &Run) -> Vec<Table> {
    FLOWS.map(|flow| table(run, flow)).into()
}

fn table(run: &Run, flow: Flow) -> Table {
    let sizes = &run.order.sizes;
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
        title: format!("{}, {HOME}", flow.title()),
        columns: columns.collect(),
        rows: run.order.suites.iter().map(row).collect(),
    }
}
