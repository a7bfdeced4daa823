//! One stack server for all applications, compared with a stack in each application: future work of the
//! paper.

use super::figures::{bytes, line, table};
use super::flow::{FLOWS, Flow};
use super::protection::Suite;
use super::sweep::{Grid, Quantity, Sweep};
use super::testbed::{Case, StackKind, Testbed};
use crate::Context;
use casemate_measure::report::{Axis, Figure, Part, Table};
use casemate_measure::stats::LEAST_ROUNDS;
use casemate_testbed::Result;

const STACKS: [StackKind; 2] = [StackKind::Library, StackKind::Server];
const SUITES: [Suite; 2] = [Suite::Unused, Suite::Gcm];

/// Runs the step.
pub(super) fn run(context: &Context) -> Result<Vec<Part>> {
    let testbed = Testbed::new(context, None)?;
    let sizes: &[usize] = if context.quick { &[1, 1_024, 8_192] } else { &[1, 64, 1_024, 4_096, 16_384] };
    let cases = SUITES.into_iter().flat_map(|suite| STACKS.map(|stack| Case { stack, suite }));
    let grid =
        Grid { cases: cases.collect(), flows: FLOWS.into(), sizes: sizes.into(), rounds: LEAST_ROUNDS };
    let sweep = grid.measure(context, &testbed);
    Ok(vec![part(&sweep)])
}

fn part(sweep: &Sweep) -> Part {
    let tables = STACKS.into_iter().flat_map(|stack| FLOWS.map(|flow| table(sweep, stack, flow)));
    Part {
        title: "One stack server, and a stack in each application".into(),
        text: format!("{TEXT} {}", sweep.effort()),
        figures: FLOWS.map(|flow| figure(sweep, flow)).into(),
        tables: std::iter::once(costs(sweep)).chain(tables).collect(),
        samples: sweep.samples(),
        skipped: sweep.skipped.clone(),
        ..Part::default()
    }
}

const TEXT: &str = "The paper names as future work one stack with IPsec in a separate process instead of \
     a stack in each application. The library is smoltcp in the application. The server is `casemate \
     stack`, also with smoltcp, which the application calls through shared memory. The paper has no \
     numbers, so there are no findings. The server's keys come from IKE, the library's are manual. The \
     server's sockets use congestion control (Reno) and delay short segments (Nagle); the library uses \
     neither for requests and responses, as is usual on small devices.";

fn figure(sweep: &Sweep, flow: Flow) -> Figure {
    let series = sweep.grid.cases.iter().map(|case| {
        line(sweep, case.to_string(), |size| sweep.spread(*case, flow, size, Quantity::Performance))
    });
    let y = match flow.is_latency() {
        true => Axis::log("latency, µs"),
        false => Axis::log("throughput, Mb/s"),
    };
    let kind = if flow.is_latency() { "Latency" } else { "Throughput" };
    Figure {
        title: format!("{kind}, {flow}"),
        caption: "The paper has no such figure.".into(),
        x: Axis::log("size of a message, bytes"),
        y,
        series: series.collect(),
    }
}

/// Cost of the server relative to the library.
fn costs(sweep: &Sweep) -> Table {
    let sizes =
        [sweep.grid.sizes.first(), sweep.grid.sizes.last()].map(|size| size.copied().unwrap_or_default());
    let mut rows = Vec::new();
    for suite in SUITES {
        for flow in FLOWS {
            let pair = [StackKind::Server, StackKind::Library].map(|stack| Case { stack, suite });
            let cell = |size: usize, quantity: Quantity| {
                let ratio = sweep.ratio(pair, flow, size, quantity);
                ratio.map_or_else(|| "-".into(), |ratio| ratio.text(2))
            };
            let cells = [Quantity::Performance, Quantity::Cpu]
                .into_iter()
                .flat_map(|quantity| sizes.map(|size| cell(size, quantity)));
            let kind = if flow.is_latency() { "latency" } else { "throughput" };
            rows.push(std::iter::once(format!("{suite}; {kind}, {flow}")).chain(cells).collect());
        }
    }
    let columns = std::iter::once("Row".into()).chain(
        ["", "CPU time, "].into_iter().flat_map(|what| sizes.map(|size| format!("{what}{}", bytes(size)))),
    );
    Table { title: "Stack server relative to the library".into(), columns: columns.collect(), rows }
}
