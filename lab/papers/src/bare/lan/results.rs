//! Figures and tables of the measured times.

use super::findings::findings;
use super::measure::{Measurements, Quantity, Times};
use super::protection::{ALL, Protection};
use super::server::{KINDS, ServerKind};
use casemate_measure::report::{Axis, Figure, Part, Point, Samples, Series, Shape, Table};

pub(super) fn part(measured: &Measurements) -> Part {
    let (rounds, plan) = (measured.rounds, &measured.plan);
    let effort = format!(
        "{rounds} rounds with {} echoes of each size and {} pages per turn; medians, and lines over the \
             middle half of the samples.",
        plan.echoes, plan.pages
    );
    Part {
        title: "Ping and HTTP, firmware against Linux".into(),
        text: format!("{GROUND} {COMPARE} {effort}"),
        figures: figures(measured),
        tables: vec![echoes(measured), pages(measured)],
        findings: findings(measured),
        samples: measured.times.iter().map(samples).collect(),
        ..Part::default()
    }
}

const GROUND: &str = "A client, Linux on this machine with `casemate run`, sends requests to three \
     servers over a veth pair: the firmware under QEMU, a Linux kernel with its own ESP under QEMU (with \
     IP addresses, SAs and a small web server only), and Linux on this machine with `casemate run` and \
     the same web server. ESP uses AES-128-CBC with HMAC-SHA1-96 as in the paper, and AES-128-GCM. The \
     keys of the firmware come from IKEv2, the others are manual. The client sends an echo request after \
     the previous reply, and opens a new connection for each page.";
const COMPARE: &str = "Firmware and emulated Linux are comparable: they have the same QEMU without \
     hardware virtualisation, machine, processor, network card and client. They are not comparable with \
     Linux on this machine, whose processor is not emulated; it shows the cost of client and gateway. The \
     paper used real machines on a 100 Mb/s hub, so only the order of the times is compared with it. An \
     emulated processor favours the system that executes fewer instructions; cache misses and the cost of \
     system calls differ from those of a real one.";

fn figures(measured: &Measurements) -> Vec<Figure> {
    let emulated = [ServerKind::Firmware, ServerKind::Guest];
    let papers = [Protection::None, Protection::Transport, Protection::Tunnel];
    let mut all = vec![
        ping(measured, "As figure 8: ICMP response time, emulated machines", &emulated, &papers),
        ping(measured, "Modern suite, emulated machines", &emulated, &[Protection::None, Protection::Modern]),
        ping(measured, "As figure 8, Linux on this machine", &[ServerKind::Host], &ALL),
        http(measured, "As figure 9: HTTP connection time", Quantity::Connection),
        http(measured, "As figure 10: HTTP response time, a page of 3.5 KB", Quantity::Response),
    ];
    all.retain(|figure| figure.series.iter().any(|series| !series.points.is_empty()));
    all
}

fn ping(measured: &Measurements, title: &str, kinds: &[ServerKind], protections: &[Protection]) -> Figure {
    let pairs = kinds.iter().flat_map(|kind| protections.iter().map(|protection| (*kind, *protection)));
    let series = pairs.filter(|(kind, _)| measured.has(*kind)).map(|(kind, protection)| {
        let points = measured.plan.sizes.iter().filter_map(|size| {
            let spread = measured.spread(kind, protection, Quantity::Echo(*size))?;
            Some(Point::with_range(*size as f64, spread.median, spread.min, spread.max))
        });
        Series::ours(format!("{}: {protection}", kind.name()), Shape::Line, points)
    });
    Figure {
        title: title.into(),
        caption: "Time from the request to the reply, measured by the client.".into(),
        x: Axis::linear("payload of the request in bytes"),
        y: Axis::linear("microseconds"),
        series: series.collect(),
    }
}

fn http(measured: &Measurements, title: &str, quantity: Quantity) -> Figure {
    let series = KINDS.into_iter().filter(|kind| measured.has(*kind)).map(|kind| {
        let points = ALL.into_iter().enumerate().filter_map(|(place, protection)| {
            let spread = measured.spread(kind, protection, quantity)?;
            Some(Point::with_range(place as f64, spread.median, spread.min, spread.max))
        });
        Series::ours(kind.name(), Shape::Bars, points)
    });
    Figure {
        title: title.into(),
        caption: "Measured by the client, with a new connection for each page.".into(),
        x: Axis::names("protection", ALL.map(|protection| protection.to_string())),
        y: Axis::linear("microseconds"),
        series: series.collect(),
    }
}

fn echoes(measured: &Measurements) -> Table {
    let sizes = &measured.plan.sizes;
    let columns = sizes.iter().map(|size| format!("{size} bytes, µs"));
    table(measured, "ICMP response time", columns, |kind, protection| {
        sizes.iter().map(|size| cell(measured, kind, protection, Quantity::Echo(*size))).collect()
    })
}

fn pages(measured: &Measurements) -> Table {
    let columns = ["Connection, µs", "Response, µs"].map(String::from);
    table(measured, "HTTP, a page of 3.5 KB", columns, |kind, protection| {
        [Quantity::Connection, Quantity::Response]
            .map(|quantity| cell(measured, kind, protection, quantity))
            .into()
    })
}

fn table(
    measured: &Measurements,
    title: &str,
    columns: impl IntoIterator<Item = String>,
    cells: impl Fn(ServerKind, Protection) -> Vec<String>,
) -> Table {
    let kinds = KINDS.into_iter().filter(|kind| measured.has(*kind));
    let rows = kinds.flat_map(|kind| ALL.map(|protection| (kind, protection))).map(|(kind, protection)| {
        let names = [kind.name().to_owned(), protection.to_string()];
        names.into_iter().chain(cells(kind, protection)).collect()
    });
    let first = ["Server", "Protection"].map(String::from);
    Table { title: title.into(), columns: first.into_iter().chain(columns).collect(), rows: rows.collect() }
}

fn cell(measured: &Measurements, kind: ServerKind, protection: Protection, quantity: Quantity) -> String {
    let spread = measured.spread(kind, protection, quantity);
    spread.map_or_else(|| "-".into(), |spread| format!("{:.0}", spread.median))
}

fn samples(times: &Times) -> Samples {
    let Times { kind, protection, quantity, rounds } = times;
    let what = match quantity {
        Quantity::Echo(size) => format!("echo of {size} bytes"),
        Quantity::Connection => "HTTP connection".into(),
        Quantity::Response => "HTTP response".into(),
    };
    let values = rounds.iter().flatten().copied().collect();
    Samples::repeated(format!("{}, {protection}, {what}", kind.name()), "µs", values)
}
