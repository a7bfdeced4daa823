//! Figures 5 to 8: latency and throughput against message size, in both directions.

use super::findings;
use super::flow::{FLOWS, Flow};
use super::protection::{SUITES, Suite};
use super::sweep::{Grid, Quantity, Sweep};
use super::testbed::{Case, StackKind, Testbed};
use crate::{Artifact, Context};
use casemate_measure::report::{Axis, Figure, Part, Point, Series, Shape, Table};
use casemate_measure::stats::{LEAST_ROUNDS, Spread};
use casemate_testbed::Result;
use std::path::PathBuf;

/// Shares of the throughput that remain with AH and ESP, according to the paper.
pub(super) const PAPER_SHARES: [(Suite, &str, f64); 2] =
    [(Suite::AhMd5, "paper, AH", 0.67), (Suite::EspTripleDes, "paper, ESP", 0.30)];

/// Measures a device with smoltcp.
pub(super) fn with_smoltcp(context: &Context) -> Result<Vec<Part>> {
    parts(context, StackKind::Library, None)
}

/// Measures a device with lwIP.
pub(super) fn with_lwip(context: &Context) -> Result<Vec<Part>> {
    let program = context.artifact(Artifact::Lwip)?;
    parts(context, StackKind::Lwip, Some(program.into()))
}

fn parts(context: &Context, stack: StackKind, lwip: Option<PathBuf>) -> Result<Vec<Part>> {
    let testbed = Testbed::new(context, lwip)?;
    let (suites, sizes): (&[Suite], &[usize]) = match context.quick {
        true => (&QUICK_SUITES, &[1, 256, 1_360, 8_192]),
        false => (&SUITES, &[1, 64, 256, 1_024, 1_360, 4_096, 16_384]),
    };
    let grid = Grid {
        cases: suites.iter().map(|suite| Case { stack, suite: *suite }).collect(),
        flows: FLOWS.into(),
        sizes: sizes.into(),
        rounds: LEAST_ROUNDS,
    };
    let sweep = grid.measure(context, &testbed);
    Ok(vec![part(stack, &sweep)])
}

/// Rows of the short form.
const QUICK_SUITES: [Suite; 5] = [Suite::Plain, Suite::Unused, Suite::AhMd5, Suite::EspTripleDes, Suite::Gcm];

/// Part of the report about one device.
pub(super) fn part(stack: StackKind, sweep: &Sweep) -> Part {
    let mut figures = Vec::new();
    for flow in FLOWS {
        figures.push(performance_figure(sweep, stack, flow));
        if !flow.is_latency() {
            figures.push(share_figure(sweep, stack, flow));
        }
    }
    figures.push(cpu_figure(sweep, stack));
    Part {
        title: format!("Latency and throughput, {stack} with the kernel's stack"),
        text: format!("{TEXT} {}", sweep.effort()),
        figures,
        tables: FLOWS.map(|flow| table(sweep, stack, flow)).into(),
        findings: findings::of(stack, sweep),
        samples: sweep.samples(),
        skipped: sweep.skipped.clone(),
    }
}

const TEXT: &str = "A cable (TAP interface) connects device and host. Latency is the reciprocal of the \
     transaction rate: a message and a reply of the same size over one TCP connection, as in netperf's \
     TCP_RR. The side named first in the title of a figure sends first. Throughput is that of TCP, sent \
     message by message as in TCP_STREAM, and counted by the receiver. Segments carry 1,360 bytes in \
     every row. AH and ESP are in transport mode with manual keys. The host uses a Casemate gateway on \
     the same processors. The device's own share is its CPU time.";

fn cases(sweep: &Sweep, stack: StackKind) -> Vec<Case> {
    sweep.grid.cases.iter().copied().filter(|case| case.stack == stack).collect()
}

fn sizes() -> Axis {
    Axis::log("size of a message, bytes")
}

/// Figure of the paper.
fn performance_figure(sweep: &Sweep, stack: StackKind, flow: Flow) -> Figure {
    let y = match flow.is_latency() {
        true => Axis::log("latency, µs"),
        false => Axis::log("throughput, Mb/s"),
    };
    let series = cases(sweep, stack).into_iter().map(|case| {
        line(sweep, case.suite.to_string(), |size| sweep.spread(case, flow, size, Quantity::Performance))
    });
    Figure {
        title: format!("{}, {stack}", flow.title()),
        caption: "The paper does not print the numbers of its curves. Both axes are logarithmic.".into(),
        x: sizes(),
        y,
        series: series.collect(),
    }
}

/// Throughput relative to that without IPsec.
fn share_figure(sweep: &Sweep, stack: StackKind, flow: Flow) -> Figure {
    let base = Case { stack, suite: Suite::Plain };
    let ours = cases(sweep, stack).into_iter().map(|case| {
        line(sweep, case.suite.to_string(), |size| {
            sweep.ratio([case, base], flow, size, Quantity::Performance)
        })
    });
    let papers = PAPER_SHARES.map(|(_, name, share)| {
        let points = sweep.grid.sizes.iter().map(|size| Point::at(*size as f64, share));
        Series::paper(name, Shape::Line, points)
    });
    Figure {
        title: format!("{}, relative to no IPsec, {stack}", flow.title()),
        caption: "The paper states the shares for AH and ESP in words: two thirds and three tenths.".into(),
        x: sizes(),
        y: Axis::linear("throughput relative to no IPsec"),
        series: ours.chain(papers).collect(),
    }
}

/// CPU time of the device, which the paper announces but does not show.
fn cpu_figure(sweep: &Sweep, stack: StackKind) -> Figure {
    let flow = Flow::HostSends;
    let series = cases(sweep, stack).into_iter().map(|case| {
        line(sweep, case.suite.to_string(), |size| sweep.spread(case, flow, size, Quantity::Cpu))
    });
    Figure {
        title: format!("CPU time of the device while the host sends, {stack}"),
        caption: "The paper announces CPU utilisation but does not show it. If the device's processor is \
             the bottleneck, as on a Raspberry Pi, the throughput is the reciprocal of this time."
            .into(),
        x: sizes(),
        y: Axis::log("CPU time for 1,000 bytes, µs"),
        series: series.collect(),
    }
}

/// Formats a number of bytes, such as `1 byte`.
pub(super) fn bytes(count: usize) -> String {
    format!("{count} byte{}", if count == 1 { "" } else { "s" })
}

/// A line over all message sizes.
pub(super) fn line(sweep: &Sweep, name: String, value: impl Fn(usize) -> Option<Spread>) -> Series {
    let points = sweep.grid.sizes.iter().filter_map(|size| {
        let Spread { median, min: least, max: most, .. } = value(*size)?;
        Some(Point::with_range(*size as f64, median, least, most))
    });
    Series::ours(name, Shape::Line, points)
}

/// Numbers of a figure, and the CPU time of the device for the longest message.
pub(super) fn table(sweep: &Sweep, stack: StackKind, flow: Flow) -> Table {
    let unit = Quantity::Performance.unit(flow);
    let sizes = &sweep.grid.sizes;
    let columns = std::iter::once("Row".to_owned())
        .chain(sizes.iter().map(|size| format!("{}, {unit}", bytes(*size))))
        .chain(sizes.last().map(|size| format!("CPU, {}, {}", bytes(*size), Quantity::Cpu.unit(flow))));
    let row = |case: Case| {
        let cell = |size: usize, quantity: Quantity, digits| {
            let spread = sweep.spread(case, flow, size, quantity);
            spread.map_or_else(|| "-".into(), |spread| spread.text(digits))
        };
        let values = sizes.iter().map(|size| cell(*size, Quantity::Performance, 0));
        let cpu = sizes.last().map(|size| cell(*size, Quantity::Cpu, 2));
        std::iter::once(case.suite.to_string()).chain(values).chain(cpu).collect()
    };
    Table {
        title: format!("{}, {stack}", flow.title()),
        columns: columns.collect(),
        rows: cases(sweep, stack).into_iter().map(row).collect(),
    }
}
