//! Figures 5 to 8: latency and throughput against the size of messages, in both directions.

use super::flow::{FLOWS, Flow};
use super::ground::{Ground, Home, Subject};
use super::protection::{SUITES, Suite};
use super::sweep::{Grid, Quantity, Sweep};
use super::{findings, lwip};
use crate::Context;
use casemate_measure::spread::Spread;
use casemate_report::{Axis, Figure, LeftOut, Part, Point, Series, Shape, Table};
use casemate_stage::Result;
use std::path::PathBuf;

/// What the paper says that AH and ESP leave of the throughput without IPsec.
pub(super) const PAPERS: [(Suite, &str, f64); 2] =
    [(Suite::AhMd5, "paper, AH", 0.67), (Suite::EspTripleDes, "paper, ESP", 0.30)];

/// With smoltcp as the device's stack.
pub(super) fn with_smoltcp(context: &Context) -> Result<Vec<Part>> {
    parts(context, Home::Library, None)
}

/// With lwIP, where the program with it is installed.
pub(super) fn with_lwip(context: &Context) -> Result<Vec<Part>> {
    match lwip::program(&context.program) {
        Ok(program) => parts(context, Home::Lwip, Some(program)),
        Err(why) => Ok(vec![left_out(context, "figures 5 to 8 with lwIP", why)]),
    }
}

fn left_out(context: &Context, what: &str, why: String) -> Part {
    context.progress.say(&format!("left out: {what}: {why}"));
    let out = LeftOut { what: what.into(), why, failed: false };
    Part { title: what.into(), left_out: vec![out], ..Part::default() }
}

fn parts(context: &Context, home: Home, lwip: Option<PathBuf>) -> Result<Vec<Part>> {
    let ground = Ground::new(context, lwip)?;
    let (suites, sizes, rounds): (&[Suite], &[usize], usize) = match context.quick {
        true => (&SHORT, &[1, 256, 1_360, 8_192], 3),
        false => (&SUITES, &[1, 64, 256, 1_024, 1_360, 4_096, 16_384], 5),
    };
    let grid = Grid {
        subjects: suites.iter().map(|suite| Subject { home, suite: *suite }).collect(),
        flows: FLOWS.into(),
        sizes: sizes.into(),
        rounds,
    };
    let sweep = grid.measure(context, &ground);
    Ok(vec![part(home, &sweep)])
}

/// The rows of the short form.
const SHORT: [Suite; 5] = [Suite::Plain, Suite::Unused, Suite::AhMd5, Suite::EspTripleDes, Suite::Gcm];

/// What is reported of a device.
pub(super) fn part(home: Home, sweep: &Sweep) -> Part {
    let mut figures = Vec::new();
    for flow in FLOWS {
        figures.push(pace(sweep, home, flow));
        if !flow.is_latency() {
            figures.push(share(sweep, home, flow));
        }
    }
    figures.push(cpu(sweep, home));
    Part {
        title: format!("Latency and throughput, {home} with the kernel's stack"),
        text: format!("{TEXT} {}", sweep.effort()),
        figures,
        tables: FLOWS.map(|flow| table(sweep, home, flow)).into(),
        findings: findings::of(home, sweep),
        samples: sweep.samples(),
        left_out: sweep.left_out.clone(),
    }
}

const TEXT: &str = "The device and the host are joined by a cable (a TAP interface). Latency is one divided by the rate of transactions: a message \
    there, and one of the same size back, over one TCP connection, as netperf's TCP_RR does it; whoever a figure begins with sends first. Throughput is \
    TCP's, sent message by message, as TCP_STREAM does it, and counted by whoever receives. Segments carry 1,360 bytes in every row. AH and ESP are in \
    transport mode with manual keys. The host protects with this program's gateway, on the same processors: the device's own part is its CPU time.";

fn subjects(sweep: &Sweep, home: Home) -> Vec<Subject> {
    sweep.grid.subjects.iter().copied().filter(|subject| subject.home == home).collect()
}

fn sizes() -> Axis {
    Axis::log("size of a message, bytes")
}

/// The paper's figure.
fn pace(sweep: &Sweep, home: Home, flow: Flow) -> Figure {
    let y = match flow.is_latency() {
        true => Axis::log("latency, µs"),
        false => Axis::log("throughput, Mb/s"),
    };
    let series = subjects(sweep, home).into_iter().map(|subject| {
        line(sweep, subject.suite.to_string(), |size| sweep.spread(subject, flow, size, Quantity::Pace))
    });
    Figure {
        title: format!("{}, {home}", flow.title()),
        caption: "The paper prints no numbers of its curves. Both axes are logarithmic.".into(),
        x: sizes(),
        y,
        series: series.collect(),
    }
}

/// What is left of the throughput.
fn share(sweep: &Sweep, home: Home, flow: Flow) -> Figure {
    let base = Subject { home, suite: Suite::Plain };
    let ours = subjects(sweep, home).into_iter().map(|subject| {
        line(sweep, subject.suite.to_string(), |size| {
            sweep.ratio([subject, base], flow, size, Quantity::Pace)
        })
    });
    let said = PAPERS.map(|(_, name, share)| {
        let points = sweep.grid.sizes.iter().map(|size| Point::at(*size as f64, share));
        Series::paper(name, Shape::Line, points)
    });
    Figure {
        title: format!("{}, as a share of that without IPsec, {home}", flow.title()),
        caption: "The paper says in words what AH and ESP leave: two thirds, and three tenths.".into(),
        x: sizes(),
        y: Axis::linear("share of the throughput without IPsec"),
        series: ours.chain(said).collect(),
    }
}

/// What the paper promised and did not show: the device's CPU time.
fn cpu(sweep: &Sweep, home: Home) -> Figure {
    let flow = Flow::HostSends;
    let series = subjects(sweep, home).into_iter().map(|subject| {
        line(sweep, subject.suite.to_string(), |size| sweep.spread(subject, flow, size, Quantity::Cpu))
    });
    Figure {
        title: format!("CPU time of the device while the host sends, {home}"),
        caption: "The paper announces CPU utilisation and does not show it. Where the device's processor is the limit, as on a Raspberry Pi, \
                  throughput is one divided by this."
            .into(),
        x: sizes(),
        y: Axis::log("CPU time for 1,000 bytes, µs"),
        series: series.collect(),
    }
}

/// Such as `1 byte`.
pub(super) fn bytes(count: usize) -> String {
    format!("{count} byte{}", if count == 1 { "" } else { "s" })
}

/// A line over all sizes.
pub(super) fn line(sweep: &Sweep, name: String, value: impl Fn(usize) -> Option<Spread>) -> Series {
    let points = sweep.grid.sizes.iter().filter_map(|size| {
        let Spread { median, least, most } = value(*size)?;
        Some(Point::between(*size as f64, median, least, most))
    });
    Series::ours(name, Shape::Line, points)
}

/// The numbers of a figure, and the device's CPU time at the longest message.
pub(super) fn table(sweep: &Sweep, home: Home, flow: Flow) -> Table {
    let unit = Quantity::Pace.unit(flow);
    let sizes = &sweep.grid.sizes;
    let columns = std::iter::once("Row".to_owned())
        .chain(sizes.iter().map(|size| format!("{}, {unit}", bytes(*size))))
        .chain(sizes.last().map(|size| format!("CPU, {}, {}", bytes(*size), Quantity::Cpu.unit(flow))));
    let row = |subject: Subject| {
        let cell = |size: usize, quantity: Quantity, digits| {
            let spread = sweep.spread(subject, flow, size, quantity);
            spread.map_or_else(|| "-".into(), |spread| spread.text(digits))
        };
        let paces = sizes.iter().map(|size| cell(*size, Quantity::Pace, 0));
        let cpu = sizes.last().map(|size| cell(*size, Quantity::Cpu, 2));
        std::iter::once(subject.suite.to_string()).chain(paces).chain(cpu).collect()
    };
    Table {
        title: format!("{}, {home}", flow.title()),
        columns: columns.collect(),
        rows: subjects(sweep, home).into_iter().map(row).collect(),
    }
}
