//! What the paper says of figures 8 to 10, and what came out here. A claim is judged by the middle half of the ratios of all rounds.

use super::measure::{Measured, Quantity};
use super::protection::Protection;
use super::server::Kind;
use crate::verdict::verdict;
use casemate_measure::fit::Line;
use casemate_measure::spread::Spread;
use casemate_report::{Agreement, Finding};

/// Those that may be compared.
const EMULATED: [Kind; 2] = [Kind::Firmware, Kind::Guest];
/// The paper's protections.
const ESP: [Protection; 2] = [Protection::Transport, Protection::Tunnel];
const PAPERS: [Protection; 3] = [Protection::None, Protection::Transport, Protection::Tunnel];
/// Times closer than this are called the same, as a ratio.
const SAME: f64 = 1.1;

/// What is said of one claim.
struct Claim {
    what: &'static str,
    paper: &'static str,
    why: &'static str,
}

pub(super) fn findings(measured: &Measured) -> Vec<Finding> {
    let pings = sizes(measured);
    let alike = |ratio: f64| (1.0 / SAME..=SAME).contains(&ratio);
    let all = [
        doubles(measured),
        modes_alike(measured, &PING_MODES, &pings),
        grows(measured),
        Some(BOTH_BARE.not_measured("the firmware asks nobody: it answers echo requests and sends none")),
        beside_linux(measured, &BARE_PING, &pings, |ratio| ratio > 1.0),
        beside_linux(measured, &BARE_PAGE, &[Quantity::Response], |ratio| ratio < 1.0),
        beside_linux(measured, &BARE_CONNECTION, &[Quantity::Connection], alike),
        modes_alike(measured, &PAGE_MODES, &[Quantity::Connection, Quantity::Response]),
    ];
    all.into_iter().flatten().collect()
}

const DOUBLES: Claim = Claim {
    what: "ping: IPsec more than doubles the response time",
    paper: "by more than 100 % in all cases",
    why: "Part of what IPsec adds is the client's: packets go from its kernel to its gateway, a program, and back. Linux on this machine shows what two such gateways add; \
          the rest is ESP on the emulated machine.",
};
const PING_MODES: Claim = Claim {
    what: "ping: transport and tunnel mode take the same",
    paper: "the difference is negligible, and transport mode not always faster",
    why: "A tunnel adds 20 bytes to a packet. Called the same within 10 %.",
};
const GROWS: Claim = Claim {
    what: "ping: the response time of Linux grows with the payload",
    paper: "it does, on a hub of 100 Mb/s",
    why: "Without protection a virtual Ethernet copies a packet in no time that depends on its length, where 100 Mb/s took 77 µs for 960 bytes, there and again back. With ESP what grows is the work \
          of cipher and MAC.",
};
const BOTH_BARE: Claim = Claim {
    what: "ping: between two bare machines it takes least, and does not depend on size",
    paper: "so, with and without IPsec",
    why: "Both ends would have to be bare machines.",
};
const BARE_PING: Claim = Claim {
    what: "ping: a Linux client waits longer for the bare machine than for Linux",
    paper: "so, which surprised the authors",
    why: "The firmware polls its network card while there is traffic, has neither interrupts nor system calls on the way, and answers in the round in which it has taken the \
          request. The paper does not know why its bare machine was slower for a Linux client: between two bare machines it was the fastest.",
};
const BARE_PAGE: Claim = Claim {
    what: "HTTP: the bare machine's response time is shorter than that of Linux",
    paper: "so, with and without IPsec",
    why: "As for ping; besides, Linux has a process to wake for each request, and here a small web server of one process where the paper had Apache 2.2.",
};
const BARE_CONNECTION: Claim = Claim {
    what: "HTTP: the connection time is about the same",
    paper: "so; it is said to be the client's",
    why: "To connect is one round trip: on a real network the client's part and the hub's outweigh the server's, and under emulation the server's is the greatest.",
};
const PAGE_MODES: Claim = Claim {
    what: "HTTP: transport and tunnel mode take the same",
    paper: "the difference is negligible",
    why: "The page takes three packets in either mode. Called the same within 10 %.",
};

impl Claim {
    fn finding(&self, ours: String, agreement: Agreement) -> Finding {
        Finding { what: self.what.into(), paper: self.paper.into(), ours, agreement, why: self.why.into() }
    }

    fn not_measured(&self, ours: &str) -> Finding {
        self.finding(ours.into(), Agreement::NotMeasured)
    }
}

fn sizes(measured: &Measured) -> Vec<Quantity> {
    measured.plan.sizes.iter().map(|size| Quantity::Echo(*size)).collect()
}

fn measured_of(measured: &Measured) -> Vec<Kind> {
    EMULATED.into_iter().filter(|kind| measured.has(*kind)).collect()
}

/// Such as `firmware, emulated: 1.80 times (1.60-2.00)`.
fn text(name: &str, ratio: Spread) -> (String, Spread) {
    (format!("{name}: {} times", ratio.text(2)), ratio)
}

/// A finding from ratios, each with its words; none without any.
fn judged(claim: &Claim, ratios: Vec<(String, Spread)>, holds: impl Fn(f64) -> bool) -> Option<Finding> {
    let (texts, ratios): (Vec<String>, Vec<Spread>) = ratios.into_iter().unzip();
    (!ratios.is_empty()).then(|| claim.finding(texts.join("; "), verdict(&ratios, holds)))
}

fn doubles(measured: &Measured) -> Option<Finding> {
    let pairs = measured_of(measured).into_iter().flat_map(|kind| ESP.map(|esp| (kind, esp)));
    let ratios = pairs.filter_map(|(kind, esp)| {
        let ratio = measured.ratio((kind, esp), (kind, Protection::None), &sizes(measured))?;
        Some(text(&format!("{}, {esp}", kind.name()), ratio))
    });
    judged(&DOUBLES, ratios.collect(), |ratio| ratio > 2.0)
}

fn modes_alike(measured: &Measured, claim: &Claim, quantities: &[Quantity]) -> Option<Finding> {
    let ratios = measured_of(measured).into_iter().filter_map(|kind| {
        let ratio = measured.ratio((kind, Protection::Tunnel), (kind, Protection::Transport), quantities)?;
        Some(text(&format!("tunnel over transport, {}", kind.name()), ratio))
    });
    judged(claim, ratios.collect(), |ratio| (1.0 / SAME..=SAME).contains(&ratio))
}

fn grows(measured: &Measured) -> Option<Finding> {
    let line = |protection: Protection| {
        let point = |size: &usize| {
            let time = measured.spread(Kind::Guest, protection, Quantity::Echo(*size))?.median;
            Some((*size as f64, time))
        };
        Line::through(&measured.plan.sizes.iter().filter_map(point).collect::<Vec<_>>())
    };
    let lines = PAPERS.map(|protection| Some((protection, line(protection)?)));
    let lines = lines.into_iter().collect::<Option<Vec<_>>>()?;
    let texts: Vec<String> = lines
        .iter()
        .map(|(protection, line)| {
            format!("{protection}: {:.0} µs and {:.3} for each byte", line.fixed, line.slope)
        })
        .collect();
    // A twentieth of the whole over the sizes that were measured is seen in no figure.
    let grows = lines.iter().all(|(_, line)| line.slope * 960.0 > 0.05 * line.at(64.0));
    Some(GROWS.finding(texts.join("; "), Agreement::of(grows)))
}

/// The firmware beside Linux, both emulated, in all of the paper's protections.
fn beside_linux(
    measured: &Measured,
    claim: &Claim,
    quantities: &[Quantity],
    holds: impl Fn(f64) -> bool,
) -> Option<Finding> {
    let ratios = PAPERS.into_iter().filter_map(|protection| {
        let ratio = measured.ratio((Kind::Firmware, protection), (Kind::Guest, protection), quantities)?;
        Some(text(&format!("firmware over Linux, {protection}"), ratio))
    });
    judged(claim, ratios.collect(), holds)
        .or_else(|| Some(claim.not_measured("firmware and emulated Linux were not both there")))
}
