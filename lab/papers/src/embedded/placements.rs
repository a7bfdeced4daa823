//! Two placements of IPsec in lwIP, compared: inside IP, as the paper's authors chose, and below IP, as the
//! package was that they started from (figures 1 and 2 of the paper).

use super::figures::{bytes, line, table};
use super::flow::{FLOWS, Flow};
use super::protection::Suite;
use super::sweep::{Grid, Quantity, Sweep};
use super::testbed::{Case, StackKind, Testbed};
use crate::{Artifact, Context};
use casemate_measure::report::{Axis, Bound, Claim, Figure, Finding, Part, Table};
use casemate_measure::stats::{LEAST_ROUNDS, Spread};
use casemate_testbed::Result;

const STACKS: [StackKind; 2] = [StackKind::Lwip, StackKind::LwipBelow];
const SUITES: [Suite; 2] = [Suite::AhMd5, Suite::Gcm];
const TITLE: &str = "IPsec inside IP and below IP";

/// Runs the step in the full form.
pub(super) fn run(context: &Context) -> Result<Vec<Part>> {
    if context.quick {
        return Ok(Vec::new());
    }
    let program = context.artifact(Artifact::Lwip)?;
    let testbed = Testbed::new(context, Some(program.into()))?;
    let cases = SUITES.into_iter().flat_map(|suite| STACKS.map(|stack| Case { stack, suite }));
    let grid = Grid {
        cases: cases.collect(),
        flows: FLOWS.into(),
        sizes: vec![1, 256, 1_360, 16_384],
        rounds: LEAST_ROUNDS,
    };
    Ok(vec![part(&grid.measure(context, &testbed))])
}

fn part(sweep: &Sweep) -> Part {
    let tables = STACKS.into_iter().flat_map(|stack| FLOWS.map(|flow| table(sweep, stack, flow)));
    Part {
        title: TITLE.into(),
        text: format!("{TEXT} {}", sweep.effort()),
        figures: FLOWS.map(|flow| figure(sweep, flow)).into(),
        tables: std::iter::once(ratios(sweep)).chain(tables).collect(),
        findings: finding(sweep).into_iter().collect(),
        samples: sweep.samples(),
        skipped: sweep.skipped.clone(),
    }
}

const TEXT: &str = "The paper's authors started from a package between IP and the link layer (its figure 1), \
     which had to fragment by itself, and moved IPsec inside IP (its figure 2). They did not measure the \
     difference. Here the same lwIP runs with Casemate in either place.";

fn figure(sweep: &Sweep, flow: Flow) -> Figure {
    let series = sweep.grid.cases.iter().map(|case| {
        line(sweep, case.to_string(), |size| sweep.spread(*case, flow, size, Quantity::Performance))
    });
    let (kind, y) = match flow.is_latency() {
        true => ("Latency", Axis::log("latency, µs")),
        false => ("Throughput", Axis::log("throughput, Mb/s")),
    };
    Figure {
        title: format!("Placements of figures 1 and 2: {kind}, {flow}"),
        caption: "The paper has no such figure.".into(),
        x: Axis::log("size of a message, bytes"),
        y,
        series: series.collect(),
    }
}

/// Values below IP relative to those inside IP.
fn ratio(sweep: &Sweep, suite: Suite, flow: Flow, size: usize, quantity: Quantity) -> Option<Spread> {
    let [inside, below] = STACKS.map(|stack| Case { stack, suite });
    sweep.ratio([below, inside], flow, size, quantity)
}

fn ratios(sweep: &Sweep) -> Table {
    let sizes =
        [sweep.grid.sizes.first(), sweep.grid.sizes.last()].map(|size| size.copied().unwrap_or_default());
    let rows = SUITES.into_iter().flat_map(|suite| FLOWS.map(|flow| (suite, flow))).map(|(suite, flow)| {
        let cell = |size, quantity| {
            ratio(sweep, suite, flow, size, quantity).map_or_else(|| "-".into(), |ratio| ratio.text(2))
        };
        let cells = [Quantity::Performance, Quantity::Cpu]
            .into_iter()
            .flat_map(|quantity| sizes.map(|size| cell(size, quantity)));
        let kind = if flow.is_latency() { "latency" } else { "throughput" };
        std::iter::once(format!("{suite}; {kind}, {flow}")).chain(cells).collect()
    });
    let columns =
        ["", "CPU time, "].into_iter().flat_map(|what| sizes.map(|size| format!("{what}{}", bytes(size))));
    Table {
        title: "Below IP relative to inside IP".into(),
        columns: std::iter::once("Row".into()).chain(columns).collect(),
        rows: rows.collect(),
    }
}

const SAME: Claim<'static> = Claim {
    what: "IPsec inside IP and below IP take the same CPU time",
    paper: "not measured; inside IP was chosen to use its fragmentation",
    holds: Bound::Within(0.9, 1.1),
    agrees: "The same code runs in either place. Within 10 % the times count as equal.",
    differs: "The places differ in what lwIP does with a packet before and after: its routes and headers.",
};

fn finding(sweep: &Sweep) -> Option<Finding> {
    let size = sweep.grid.sizes.last().copied()?;
    let of = |suite| ratio(sweep, suite, Flow::DeviceSends, size, Quantity::Cpu);
    let ratios = SUITES.map(of).into_iter().collect::<Option<Vec<Spread>>>()?;
    let texts: Vec<String> = SUITES
        .iter()
        .zip(&ratios)
        .map(|(suite, ratio)| format!("{suite}: {} times", ratio.text(2)))
        .collect();
    let ours = format!("below IP {}, while the device sends {}", texts.join(", "), bytes(size));
    Some(SAME.judge(ours, &ratios))
}
