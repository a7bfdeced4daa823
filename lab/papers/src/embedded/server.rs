//! One stack server for all applications, against a stack in each: what the paper planned to study.

use super::figures::{bytes, line, table};
use super::flow::{FLOWS, Flow};
use super::ground::{Ground, Home, Subject};
use super::protection::Suite;
use super::sweep::{Grid, Quantity, Sweep};
use crate::Context;
use casemate_report::{Axis, Figure, Part, Table};
use casemate_stage::Result;

const HOMES: [Home; 2] = [Home::Library, Home::Server];
const SUITES: [Suite; 2] = [Suite::Unused, Suite::Gcm];

/// The step.
pub(super) fn run(context: &Context) -> Result<Vec<Part>> {
    let ground = Ground::new(context, None)?;
    let (sizes, rounds): (&[usize], usize) = match context.quick {
        true => (&[1, 1_024, 8_192], 3),
        false => (&[1, 64, 1_024, 4_096, 16_384], 5),
    };
    let subjects = SUITES.into_iter().flat_map(|suite| HOMES.map(|home| Subject { home, suite }));
    let grid = Grid { subjects: subjects.collect(), flows: FLOWS.into(), sizes: sizes.into(), rounds };
    let sweep = grid.measure(context, &ground);
    Ok(vec![part(&sweep)])
}

fn part(sweep: &Sweep) -> Part {
    let tables = HOMES.into_iter().flat_map(|home| FLOWS.map(|flow| table(sweep, home, flow)));
    Part {
        title: "One stack server, and a stack in each application".into(),
        text: format!("{TEXT} {}", sweep.effort()),
        figures: FLOWS.map(|flow| figure(sweep, flow)).into(),
        tables: std::iter::once(costs(sweep)).chain(tables).collect(),
        samples: sweep.samples(),
        left_out: sweep.left_out.clone(),
        ..Part::default()
    }
}

const TEXT: &str = "The paper names it as future work: one stack with IPsec in a process of its own, which applications call, instead of a stack that is \
    linked to each of them. The library is smoltcp in the application; the server is `casemate stack`, also with smoltcp, and the application calls it \
    through memory that the two share. The paper has no numbers, so that nothing agrees or differs. The server's keys come from IKE, the library's are manual. The \
    server's sockets have congestion control (Reno), and keep short segments back while others are on their way (Nagle); the library's have neither for \
    questions and answers, as small devices do it.";

fn figure(sweep: &Sweep, flow: Flow) -> Figure {
    let series = sweep.grid.subjects.iter().map(|subject| {
        line(sweep, subject.to_string(), |size| sweep.spread(*subject, flow, size, Quantity::Pace))
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

/// What a server costs, as a multiple.
fn costs(sweep: &Sweep) -> Table {
    let sizes =
        [sweep.grid.sizes.first(), sweep.grid.sizes.last()].map(|size| size.copied().unwrap_or_default());
    let mut rows = Vec::new();
    for suite in SUITES {
        for flow in FLOWS {
            let pair = [Home::Server, Home::Library].map(|home| Subject { home, suite });
            let cell = |size: usize, quantity: Quantity| {
                let ratio = sweep.ratio(pair, flow, size, quantity);
                ratio.map_or_else(|| "-".into(), |ratio| ratio.text(2))
            };
            let cells = [Quantity::Pace, Quantity::Cpu]
                .into_iter()
                .flat_map(|quantity| sizes.map(|size| cell(size, quantity)));
            let kind = if flow.is_latency() { "latency" } else { "throughput" };
            rows.push(std::iter::once(format!("{suite}; {kind}, {flow}")).chain(cells).collect());
        }
    }
    let columns = std::iter::once("Row".into()).chain(
        ["", "CPU time, "].into_iter().flat_map(|what| sizes.map(|size| format!("{what}{}", bytes(size)))),
    );
    Table { title: "The server, as a multiple of the library".into(), columns: columns.collect(), rows }
}
