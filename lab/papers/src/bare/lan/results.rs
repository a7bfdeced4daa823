//! Figures and tables of the measured times, and the claims of the paper about figures 8 to 10 next to the
//! results here. The interquartile range of the ratios of all rounds decides about a claim.

use super::protection::{ALL, Protection};
use super::server::{KINDS, ServerKind};
use super::{Measurements, Quantity, Scenario, Times};
use casemate_measure::report::{
    Axis, Bound, Claim, Figure, Finding, Part, Point, Samples, Series, Shape, Table,
};
use casemate_measure::stats::{LinearFit, Spread};

pub(super) fn part(measured: &Measurements) -> Part {
    let tables = [echoes(measured), pages(measured)];
    Part {
        title: title(measured).into(),
        text: text_of(measured),
        figures: figures(measured),
        tables: tables.into_iter().filter(|table| !table.rows.is_empty()).collect(),
        findings: findings(measured),
        samples: measured.times.iter().map(samples).collect(),
        ..Part::default()
    }
}

/// Title that names only servers that were measured.
fn title(measured: &Measurements) -> &'static str {
    let emulated = measured_of(measured);
    if emulated.contains(&ServerKind::Firmware) {
        "Ping and HTTP, firmware against Linux"
    } else if emulated.contains(&ServerKind::Guest) {
        "Ping and HTTP, Linux under QEMU and Linux on this machine"
    } else {
        "Ping and HTTP, Linux on this machine"
    }
}

/// Description of the measurement. It mentions only servers that were measured.
fn text_of(measured: &Measurements) -> String {
    let kinds: Vec<ServerKind> = KINDS.into_iter().filter(|kind| measured.has(*kind)).collect();
    let servers: Vec<&str> = kinds.iter().map(|kind| description(*kind)).collect();
    let keys = match (measured.has(ServerKind::Firmware), kinds.len()) {
        (false, _) => "The keys are manual.",
        (true, 1) => "The keys come from IKEv2.",
        (true, _) => "The keys of the firmware come from IKEv2, the others are manual.",
    };
    let compare = match measured_of(measured)[..] {
        [] => "",
        [_] => NOT_COMPARABLE,
        _ => COMPARABLE,
    };
    let (rounds, plan) = (measured.rounds, &measured.plan);
    let effort = format!(
        "{rounds} rounds with {} echoes of each size and {} pages per turn; medians, and lines over the \
         middle half of the samples.",
        plan.echoes, plan.pages
    );
    let these = if servers.len() == 1 { "this server" } else { "these servers" };
    let texts = [
        &format!("{CLIENT} {these}: {}.", servers.join("; ")),
        SUITES,
        keys,
        REQUESTS,
        compare,
        PAPER,
        &effort,
    ];
    texts.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ")
}

const fn description(kind: ServerKind) -> &'static str {
    match kind {
        ServerKind::Firmware => "the firmware under QEMU",
        ServerKind::Guest => {
            "a Linux kernel with its own ESP under QEMU (with IP addresses, SAs and a small web server only)"
        }
        ServerKind::Host => "Linux on this machine with `casemate run` and a small web server",
    }
}

const CLIENT: &str =
    "A client, Linux on this machine with `casemate run`, sends requests over virtual links to";
const SUITES: &str = "ESP uses AES-128-CBC with HMAC-SHA1-96 as in the paper, and AES-128-GCM.";
const REQUESTS: &str = "The client sends an echo request after the previous reply, and opens a new \
     connection for each page.";
const COMPARABLE: &str = "Firmware and emulated Linux are comparable: they have the same QEMU without \
     hardware virtualisation, machine, processor, network card and client. They are not comparable with \
     Linux on this machine, whose processor is not emulated; it shows the cost of client and gateway. An \
     emulated processor favours the system that executes fewer instructions; cache misses and the cost of \
     system calls differ from those of a real one.";
const NOT_COMPARABLE: &str = "The emulated machine is not comparable with Linux on this machine, whose \
     processor is not emulated.";
const PAPER: &str = "The paper used real machines on a 100 Mb/s hub, so only the order of the times is \
     compared with it.";

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
    let scenarios = kinds.iter().filter(|kind| measured.has(**kind)).flat_map(|kind| {
        protections.iter().map(|protection| Scenario { server: *kind, protection: *protection })
    });
    let series = scenarios.map(|scenario| {
        let points = measured.plan.sizes.iter().filter_map(|size| {
            let spread = measured.spread(scenario, Quantity::Echo(*size))?;
            Some(Point::with_range(*size as f64, spread.median, spread.min, spread.max))
        });
        let name = format!("{}: {}", scenario.server.name(), scenario.protection);
        Series::ours(name, Shape::Line, points)
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
            let spread = measured.spread(Scenario { server: kind, protection }, quantity)?;
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
    table(measured, "ICMP response time", columns, |scenario| {
        sizes.iter().map(|size| cell(measured, scenario, Quantity::Echo(*size))).collect()
    })
}

fn pages(measured: &Measurements) -> Table {
    let columns = ["Connection, µs", "Response, µs"].map(String::from);
    table(measured, "HTTP, a page of 3.5 KB", columns, |scenario| {
        [Quantity::Connection, Quantity::Response].map(|quantity| cell(measured, scenario, quantity)).into()
    })
}

fn table(
    measured: &Measurements,
    title: &str,
    columns: impl IntoIterator<Item = String>,
    cells: impl Fn(Scenario) -> Vec<String>,
) -> Table {
    let kinds = KINDS.into_iter().filter(|kind| measured.has(*kind));
    let scenarios = kinds.flat_map(|server| ALL.map(|protection| Scenario { server, protection }));
    let rows = scenarios.map(|scenario| {
        let names = [scenario.server.name().to_owned(), scenario.protection.to_string()];
        names.into_iter().chain(cells(scenario)).collect()
    });
    let first = ["Server", "Protection"].map(String::from);
    Table { title: title.into(), columns: first.into_iter().chain(columns).collect(), rows: rows.collect() }
}

fn cell(measured: &Measurements, scenario: Scenario, quantity: Quantity) -> String {
    let spread = measured.spread(scenario, quantity);
    spread.map_or_else(|| "-".into(), |spread| format!("{:.0}", spread.median))
}

fn samples(times: &Times) -> Samples {
    let Times { scenario, quantity, rounds } = times;
    let what = match quantity {
        Quantity::Echo(size) => format!("echo of {size} bytes"),
        Quantity::Connection => "HTTP connection".into(),
        Quantity::Response => "HTTP response".into(),
    };
    let values = rounds.iter().flatten().copied().collect();
    Samples::repeated(format!("{scenario}, {what}"), "µs", values)
}

/// Servers that may be compared with each other.
const EMULATED: [ServerKind; 2] = [ServerKind::Firmware, ServerKind::Guest];
/// Protections of the paper.
const ESP: [Protection; 2] = [Protection::Transport, Protection::Tunnel];
const PAPERS: [Protection; 3] = [Protection::None, Protection::Transport, Protection::Tunnel];
/// Times whose ratio is below this count as equal.
const SAME: f64 = 1.1;

pub(super) fn findings(measured: &Measurements) -> Vec<Finding> {
    let pings = sizes(measured);
    let all = [
        doubles(measured),
        modes_alike(measured, &PING_MODES, &pings),
        grows(measured),
        Some(BOTH_BARE.not_measured(match measured.has(ServerKind::Firmware) {
            true => "The firmware answers echo requests but sends none.",
            false => NO_BARE_MACHINE,
        })),
        beside_linux(measured, &BARE_PING, &pings),
        beside_linux(measured, &BARE_PAGE, &[Quantity::Response]),
        beside_linux(measured, &BARE_CONNECTION, &[Quantity::Connection]),
        modes_alike(measured, &PAGE_MODES, &[Quantity::Connection, Quantity::Response]),
    ];
    all.into_iter().flatten().collect()
}

/// Reason why a claim about the bare machine is not decided, on a page that mentions no firmware.
const NO_BARE_MACHINE: &str = "No bare machine was measured.";
/// Ratios that count as equal.
const EQUAL: Bound = Bound::Within(1.0 / SAME, SAME);

const DOUBLES: Claim<'static> = Claim {
    what: "ping: IPsec more than doubles the response time",
    paper: "by more than 100 % in all cases",
    holds: Bound::Above(2.0),
    agrees: "The client causes part of the cost of IPsec: packets go from its kernel to its gateway, which is a \
             program, and back. Linux on this machine shows the cost of two such gateways. The rest is ESP on \
             the emulated machine.",
    differs: "The emulation makes everything else slow, too, so the share of IPsec is smaller than on the \
              paper's machines.",
};
const PING_MODES: Claim<'static> = Claim {
    what: "ping: transport and tunnel mode take equally long",
    paper: "the difference is negligible, and transport mode is not always faster",
    holds: EQUAL,
    agrees: "A tunnel adds 20 bytes to a packet. Within 10 % the times count as equal.",
    differs: "A tunnel adds 20 bytes to a packet, and a header that is written and checked. Here that is more \
              than 10 % of the time.",
};
const BOTH_BARE: Claim<'static> = Claim {
    what: "ping: it is fastest between two bare machines, and independent of the size",
    paper: "so, with and without IPsec",
    holds: Bound::Below(1.0),
    agrees: "",
    differs: "",
};
const BARE_PING: Claim<'static> = Claim {
    what: "ping: a Linux client waits longer for the bare machine than for Linux",
    paper: "so, which surprised the authors",
    holds: Bound::Above(1.0),
    agrees: "The paper does not explain why its bare machine was slower for a Linux client; between two bare \
             machines it was fastest.",
    differs: "While there is traffic, the firmware polls its network card. It needs neither interrupts nor \
              system calls, and replies in the iteration in which it has received the request.",
};
const BARE_PAGE: Claim<'static> = Claim {
    what: "HTTP: the bare machine's response time is shorter than that of Linux",
    paper: "so, with and without IPsec",
    holds: Bound::Below(1.0),
    agrees: "The firmware needs neither interrupts nor system calls, and Linux has to wake a process for each \
             request, here a small single-process web server, in the paper Apache 2.2.",
    differs: "Under emulation, the firmware's portable ciphers and checksums outweigh what it saves in \
              interrupts and system calls.",
};
const BARE_CONNECTION: Claim<'static> = Claim {
    what: "HTTP: the connection time is about the same",
    paper: "so; the paper attributes it to the client",
    holds: EQUAL,
    agrees: "A connection takes one round trip, most of which is spent in the client and the network.",
    differs: "A connection takes one round trip. In a real network the shares of the client and the hub \
              outweigh that of the server; under emulation the server's share is largest.",
};
const PAGE_MODES: Claim<'static> = Claim {
    what: "HTTP: transport and tunnel mode take equally long",
    paper: "the difference is negligible",
    holds: EQUAL,
    agrees: "The page takes three packets in either mode. Within 10 % the times count as equal.",
    differs: "The page takes three packets in either mode, and each is processed with another header in \
              tunnel mode. Here that is more than 10 % of the time.",
};

fn sizes(measured: &Measurements) -> Vec<Quantity> {
    measured.plan.sizes.iter().map(|size| Quantity::Echo(*size)).collect()
}

fn measured_of(measured: &Measurements) -> Vec<ServerKind> {
    EMULATED.into_iter().filter(|kind| measured.has(*kind)).collect()
}

/// Formats a ratio, such as `firmware, emulated: 1.80 times (1.60-2.00)`.
fn text(name: &str, ratio: Spread) -> (String, Spread) {
    (format!("{name}: {} times", ratio.text(2)), ratio)
}

/// Returns the finding about a claim, given ratios with their texts; `None` without ratios.
fn judged(claim: &Claim<'_>, ratios: Vec<(String, Spread)>) -> Option<Finding> {
    let (texts, ratios): (Vec<String>, Vec<Spread>) = ratios.into_iter().unzip();
    (!ratios.is_empty()).then(|| claim.judge(texts.join("; "), &ratios))
}

fn doubles(measured: &Measurements) -> Option<Finding> {
    let scenarios = measured_of(measured)
        .into_iter()
        .flat_map(|server| ESP.map(|protection| Scenario { server, protection }));
    let ratios = scenarios.filter_map(|esp| {
        let clear = Scenario { protection: Protection::None, ..esp };
        Some(text(&esp.to_string(), measured.ratio(esp, clear, &sizes(measured))?))
    });
    judged(&DOUBLES, ratios.collect())
}

fn modes_alike(measured: &Measurements, claim: &Claim<'_>, quantities: &[Quantity]) -> Option<Finding> {
    let ratios = measured_of(measured).into_iter().filter_map(|server| {
        let [tunnel, transport] =
            [Protection::Tunnel, Protection::Transport].map(|protection| Scenario { server, protection });
        let ratio = measured.ratio(tunnel, transport, quantities)?;
        Some(text(&format!("tunnel over transport, {}", server.name()), ratio))
    });
    judged(claim, ratios.collect())
}

fn grows(measured: &Measurements) -> Option<Finding> {
    let guest = |protection| Scenario { server: ServerKind::Guest, protection };
    let line = |protection: Protection| {
        let point = |size: &usize| {
            let time = measured.spread(guest(protection), Quantity::Echo(*size))?.median;
            Some((*size as f64, time))
        };
        LinearFit::fit(&measured.plan.sizes.iter().filter_map(point).collect::<Vec<_>>())
    };
    let lines = PAPERS.map(|protection| Some((protection, line(protection)?)));
    let lines = lines.into_iter().collect::<Option<Vec<_>>>()?;
    let texts: Vec<String> = lines
        .iter()
        .map(|(protection, line)| {
            format!("{protection}: {:.0} µs and {:.3} per byte", line.intercept, line.slope)
        })
        .collect();
    // Growth by less than 5 % over the measured sizes is not visible in a figure.
    let [short, long] = [*measured.plan.sizes.first()?, *measured.plan.sizes.last()?].map(Quantity::Echo);
    let ratio = |protection| measured.growth(guest(protection), short, long);
    let ratios = PAPERS.map(ratio).into_iter().collect::<Option<Vec<Spread>>>()?;
    Some(GROWS.judge(texts.join("; "), &ratios))
}

const GROWS: Claim<'static> = Claim {
    what: "ping: the response time of Linux grows with the payload",
    paper: "it does, on a 100 Mb/s hub",
    holds: Bound::Above(1.05),
    agrees: "The cost of cipher and MAC grows with the payload, and so does that of copying.",
    differs: "Without protection, a veth pair copies a packet in a time that hardly depends on its length, \
              whereas a 100 Mb/s link took 77 µs for 960 bytes in each direction and again for the reply.",
};

/// Compares the firmware with emulated Linux for all protections of the paper.
fn beside_linux(measured: &Measurements, claim: &Claim<'_>, quantities: &[Quantity]) -> Option<Finding> {
    let ratios = PAPERS.into_iter().filter_map(|protection| {
        let [firmware, guest] =
            [ServerKind::Firmware, ServerKind::Guest].map(|server| Scenario { server, protection });
        let ratio = measured.ratio(firmware, guest, quantities)?;
        Some(text(&format!("firmware over Linux, {protection}"), ratio))
    });
    let why = match measured.has(ServerKind::Firmware) {
        true => "No Linux under QEMU was measured.",
        false => NO_BARE_MACHINE,
    };
    judged(claim, ratios.collect()).or_else(|| Some(claim.not_measured(why)))
}

#[cfg(test)]
mod tests {
    use super::super::Plan;
    use super::*;

    /// Measurements of these servers, one sample of every quantity.
    fn measured(kinds: &[ServerKind]) -> Measurements {
        let plan = Plan::of(true);
        let quantities: Vec<Quantity> = [Quantity::Connection, Quantity::Response]
            .into_iter()
            .chain(plan.sizes.iter().copied().map(Quantity::Echo))
            .collect();
        let scenarios =
            kinds.iter().flat_map(|server| ALL.map(|protection| Scenario { server: *server, protection }));
        let times = scenarios.flat_map(|scenario| {
            quantities.iter().map(move |quantity| Times {
                scenario,
                quantity: *quantity,
                rounds: vec![vec![9.0]; 5],
            })
        });
        Measurements { times: times.collect(), plan, rounds: 5, skipped: Vec::new() }
    }

    #[test]
    fn page_mentions_only_servers_that_were_measured() {
        let page = |kinds: &[ServerKind]| {
            let part = part(&measured(kinds));
            let figures = part.figures.iter().map(|figure| format!("{}\n{}\n", figure.title, figure.caption));
            let findings = part.findings.iter().map(|finding| format!("{finding:?}\n"));
            let lines = figures.chain(findings).collect::<String>();
            format!("{}\n{}\n{lines}", part.title, part.text)
        };
        let host = page(&[ServerKind::Host]);
        for word in ["firmware", "Firmware", "emulated", "QEMU"] {
            assert!(!host.contains(word), "{word}: {host}");
        }
        assert!(host.contains("to this server: Linux") && host.contains(NO_BARE_MACHINE), "{host}");
        let firmware = page(&[ServerKind::Firmware, ServerKind::Host]);
        assert!(
            firmware.contains("not comparable") && firmware.contains("No Linux under QEMU"),
            "{firmware}"
        );
        let guest = page(&[ServerKind::Guest, ServerKind::Host]);
        assert!(!guest.contains("firmware") && guest.contains(NO_BARE_MACHINE), "{guest}");
        let all = page(&KINDS);
        assert!(all.contains("firmware against Linux") && all.contains("are comparable"), "{all}");
        assert!(all.contains("As figure 8: ") && all.contains("As figure 9") && all.contains("As figure 10"));
        let nothing = part(&measured(&[]));
        assert_eq!((nothing.figures.len(), nothing.tables.len()), (0, 0));
    }
}
