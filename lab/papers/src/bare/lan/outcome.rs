//! Times as the paper draws them.

use super::findings::findings;
use super::measure::{Measured, Quantity, Times};
use super::protection::{ALL, Protection};
use super::server::{KINDS, Kind};
use casemate_report::{Axis, Figure, Part, Point, Samples, Series, Shape, Table};

pub(super) fn part(measured: &Measured) -> Part {
    let (rounds, plan) = (measured.rounds, &measured.plan);
    let effort = format!(
        "{rounds} rounds in which all took turns of {} echoes of each size and {} pages; medians, and lines over the middle half of the samples.",
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

const GROUND: &str = "A client, this machine's Linux with `casemate run`, asks three servers over a virtual Ethernet: the firmware under QEMU, a Linux kernel with its own ESP under QEMU \
     (IP addresses, SAs and a small web server, nothing else), and this machine's Linux with `casemate run` and the same web server. ESP with AES-128-CBC and HMAC-SHA1-96 as in the \
     paper, and with AES-128-GCM; the firmware's keys come from IKEv2, the others' are manual. An echo request goes out when the one before is answered; each page is fetched over a connection of its own.";
const COMPARE: &str = "Firmware and emulated Linux may be compared: the same QEMU without hardware virtualisation, machine, processor and network card, and the same client. They may not \
     be compared with Linux on this machine, whose processor is not emulated, and which is here to show what client and gateway take by themselves. The paper's machines were real, and its client and servers were on a \
     100 Mb/s hub: times are not compared with it, only which is longer. An emulated processor favours whoever executes fewer instructions; neither cache misses nor \
     the cost of a system call are as on a real one.";

fn figures(measured: &Measured) -> Vec<Figure> {
    let emulated = [Kind::Firmware, Kind::Guest];
    let papers = [Protection::None, Protection::Transport, Protection::Tunnel];
    let mut all = vec![
        ping(measured, "As figure 8: ICMP response time, emulated machines", &emulated, &papers),
        ping(measured, "Today's suite, emulated machines", &emulated, &[Protection::None, Protection::Today]),
        ping(measured, "The same, this machine's Linux", &[Kind::Host], &ALL),
        http(measured, "As figure 9: HTTP connection time", Quantity::Connection),
        http(measured, "As figure 10: HTTP response time, a page of 3.5 KB", Quantity::Response),
    ];
    all.retain(|figure| figure.series.iter().any(|series| !series.points.is_empty()));
    all
}

fn ping(measured: &Measured, title: &str, kinds: &[Kind], protections: &[Protection]) -> Figure {
    let pairs = kinds.iter().flat_map(|kind| protections.iter().map(|protection| (*kind, *protection)));
    let series = pairs.filter(|(kind, _)| measured.has(*kind)).map(|(kind, protection)| {
        let points = measured.plan.sizes.iter().filter_map(|size| {
            let spread = measured.spread(kind, protection, Quantity::Echo(*size))?;
            Some(Point::between(*size as f64, spread.median, spread.least, spread.most))
        });
        Series::ours(format!("{}: {protection}", kind.name()), Shape::Line, points)
    });
    Figure {
        title: title.into(),
        caption: "From the request to the answer, seen by the client.".into(),
        x: Axis::linear("payload of the request in bytes"),
        y: Axis::linear("microseconds"),
        series: series.collect(),
    }
}

fn http(measured: &Measured, title: &str, quantity: Quantity) -> Figure {
    let series = KINDS.into_iter().filter(|kind| measured.has(*kind)).map(|kind| {
        let points = ALL.into_iter().enumerate().filter_map(|(place, protection)| {
            let spread = measured.spread(kind, protection, quantity)?;
            Some(Point::between(place as f64, spread.median, spread.least, spread.most))
        });
        Series::ours(kind.name(), Shape::Bars, points)
    });
    Figure {
        title: title.into(),
        caption: "Seen by the client; each page over a connection of its own.".into(),
        x: Axis::names("protection", ALL.map(|protection| protection.to_string())),
        y: Axis::linear("microseconds"),
        series: series.collect(),
    }
}

fn echoes(measured: &Measured) -> Table {
    let sizes = &measured.plan.sizes;
    let columns = sizes.iter().map(|size| format!("{size} bytes, µs"));
    table(measured, "ICMP response time", columns, |kind, protection| {
        sizes.iter().map(|size| cell(measured, kind, protection, Quantity::Echo(*size))).collect()
    })
}

fn pages(measured: &Measured) -> Table {
    let columns = ["Connection, µs", "Response, µs"].map(String::from);
    table(measured, "HTTP, a page of 3.5 KB", columns, |kind, protection| {
        [Quantity::Connection, Quantity::Response]
            .map(|quantity| cell(measured, kind, protection, quantity))
            .into()
    })
}

fn table(
    measured: &Measured,
    title: &str,
    columns: impl IntoIterator<Item = String>,
    cells: impl Fn(Kind, Protection) -> Vec<String>,
) -> Table {
    let kinds = KINDS.into_iter().filter(|kind| measured.has(*kind));
    let rows = kinds.flat_map(|kind| ALL.map(|protection| (kind, protection))).map(|(kind, protection)| {
        let names = [kind.name().to_owned(), protection.to_string()];
        names.into_iter().chain(cells(kind, protection)).collect()
    });
    let first = ["Server", "Protection"].map(String::from);
    Table { title: title.into(), columns: first.into_iter().chain(columns).collect(), rows: rows.collect() }
}

fn cell(measured: &Measured, kind: Kind, protection: Protection, quantity: Quantity) -> String {
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
