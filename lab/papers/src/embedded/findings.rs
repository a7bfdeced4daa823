//! What of figures 5 to 8 agrees with the paper, what does not, and why.

use super::figures::bytes;
use super::flow::Flow;
use super::ground::{Home, Subject};
use super::protection::Suite;
use super::sweep::{Quantity, Sweep};
use crate::verdict::verdict;
use casemate_measure::spread::Spread;
use casemate_report::{Agreement, Finding};

/// Up to so much more is a small increase of latency.
pub(super) const SMALL: f64 = 1.25;
/// Closer than this to each other is a close result.
pub(super) const CLOSE: f64 = 0.15;
/// What the paper says that AH and ESP take of the throughput.
pub(super) const AH: f64 = 0.33;
pub(super) const ESP: f64 = 0.70;

/// Nothing is told from fewer rounds.
const ENOUGH: usize = 2;

/// Of one device.
pub(super) fn of(home: Home, sweep: &Sweep) -> Vec<Finding> {
    let view = View { home, sweep };
    let mut findings = Vec::new();
    findings.extend(view.latency());
    findings.extend(view.direction());
    for flow in [Flow::DeviceSends, Flow::HostSends] {
        findings.extend(view.loss(flow, Suite::AhMd5, AH, LOSS));
        findings.extend(view.loss(flow, Suite::EspTripleDes, ESP, LOSS));
    }
    findings.extend(view.own_loss(Suite::AhMd5, AH));
    findings.extend(view.own_loss(Suite::EspTripleDes, ESP));
    findings.extend(view.sizes());
    findings.extend(view.unused());
    findings.extend(view.today(
        Suite::EspTripleDes,
        "AES instead of 3DES improves ESP",
        "believed, not measured",
        AES,
    ));
    findings.extend(view.today(
        Suite::AhMd5,
        "AH is what a small device can afford, not ESP: today's ESP against the paper's AH",
        "AH is recommended, because ESP degrades the system",
        TODAY,
    ));
    if sweep.rounds() < ENOUGH {
        for finding in &mut findings {
            finding.agreement = Agreement::NotMeasured;
            finding.why = FEW.into();
        }
    }
    findings
}

const FEW: &str = "There was no time for a second round: this machine is too slow, or too busy.";
const LATENCY: &str = "Agrees if the paper's ESP adds no more than a quarter to the latency of the shortest message. The paper's link, driver and processor \
    took so long for a packet that cryptography was hidden; here a packet crosses in microseconds, and two programs, the device's guard and the host's \
    gateway, touch it each way.";
const DIRECTION: &str = "In the paper netperf's end did the waking on a slow driver. Here a transaction is the same two packets, whoever begins.";
const LOSS: &str = "Agrees if no less than half and no more than one and a half times as much is lost. The loss is that of the slowest of three on two or more \
    processors, the device, the host's gateway and the host; the paper's was the device's.";
const OWN: &str = "What would be lost if the device's processor were the only limit, from its CPU time for a byte, both directions; agrees as above. Cryptography \
    is compared with a stack and a driver that cost little here (a system call for a frame), and much on the paper's USB network card.";
const SIZES: &str = "Every message costs a call into the stack, however short it is.";
const UNUSED: &str = "Agrees if throughput lies within 15 % in both directions. Without a policy a packet is looked at once and let pass.";
const AES: &str = "As a multiple, both directions; agrees if it is faster in all rounds. Processors have instructions for AES-GCM, and none for 3DES.";
const TODAY: &str = "As a multiple, both directions; differs if today's ESP (AES-GCM) is at least as fast as AH with HMAC-MD5 in all rounds. One pass of an \
    AEAD costs no more than MD5, so privacy is no longer what has to be given up.";

struct View<'s> {
    home: Home,
    sweep: &'s Sweep,
}

impl View<'_> {
    fn subject(&self, suite: Suite) -> Subject {
        Subject { home: self.home, suite }
    }

    fn pair(&self, suite: Suite, base: Suite) -> [Subject; 2] {
        [self.subject(suite), self.subject(base)]
    }

    fn shortest(&self) -> usize {
        self.sweep.grid.sizes.first().copied().unwrap_or_default()
    }

    fn longest(&self) -> usize {
        self.sweep.grid.sizes.last().copied().unwrap_or_default()
    }

    fn pace(&self, suites: [Suite; 2], flow: Flow, size: usize) -> Option<Spread> {
        let [suite, base] = suites;
        self.sweep.ratio(self.pair(suite, base), flow, size, Quantity::Pace)
    }

    fn finding(&self, what: &str, paper: &str, ours: String, agreement: Agreement, why: &str) -> Finding {
        let what = format!("{what} ({})", self.home);
        Finding { what, paper: paper.into(), ours, agreement, why: why.into() }
    }

    fn latency(&self) -> Option<Finding> {
        let flows = [Flow::HostAsks, Flow::DeviceAsks];
        let of = |suite| {
            let ratio = |flow: &Flow| self.pace([suite, Suite::Plain], *flow, self.shortest());
            flows.iter().map(ratio).collect::<Option<Vec<Spread>>>()
        };
        let (ah, esp) = (of(Suite::AhMd5)?, of(Suite::EspTripleDes)?);
        let text = |ratios: &[Spread]| {
            ratios.iter().map(|ratio| percent(ratio.median - 1.0)).collect::<Vec<_>>().join(", ")
        };
        let ours = format!(
            "AH {}, ESP {} (figure 5, figure 6; messages of {})",
            text(&ah),
            text(&esp),
            bytes(self.shortest())
        );
        let agreement = verdict(&esp, |ratio| ratio <= SMALL);
        Some(self.finding(
            "latency grows with ESP, but negligibly",
            "a small increase, in both directions",
            ours,
            agreement,
            LATENCY,
        ))
    }

    fn direction(&self) -> Option<Finding> {
        let latency =
            |flow| self.sweep.spread(self.subject(Suite::Plain), flow, self.shortest(), Quantity::Pace);
        let (host, device) = (latency(Flow::HostAsks)?, latency(Flow::DeviceAsks)?);
        let (agreement, how) = if device.most < host.least {
            (Agreement::Agrees, "")
        } else if device.median >= host.median * (1.0 + CLOSE) {
            (Agreement::Differs, "it is higher: ")
        } else if device.median >= host.median * (1.0 - CLOSE) {
            (Agreement::Differs, "about the same: ")
        } else {
            (Agreement::NotMeasured, "the rounds contradict each other: ")
        };
        let ours = format!(
            "{how}{:.0} µs where the host asks, {:.0} µs where the device asks",
            host.median, device.median
        );
        Some(self.finding("latency is lower from the device to the host", "yes", ours, agreement, DIRECTION))
    }

    fn loss(&self, flow: Flow, suite: Suite, paper: f64, why: &str) -> Option<Finding> {
        let ratio = self.pace([suite, Suite::Plain], flow, self.longest())?;
        let what = format!("{suite}: throughput, {flow}");
        Some(self.loss_of(&what, &[ratio], paper, why))
    }

    /// By the CPU time of the device.
    fn own_loss(&self, suite: Suite, paper: f64) -> Option<Finding> {
        let ratio = |flow| {
            let [own, base] = self.pair(suite, Suite::Plain);
            // The device's own throughput is one divided by its time.
            self.sweep.ratio([base, own], flow, self.longest(), Quantity::Cpu)
        };
        let ratios = [ratio(Flow::DeviceSends)?, ratio(Flow::HostSends)?];
        let what = format!("{suite}: throughput that the device's CPU time allows");
        Some(self.loss_of(&what, &ratios, paper, OWN))
    }

    fn loss_of(&self, what: &str, ratios: &[Spread], paper: f64, why: &str) -> Finding {
        let agreement = verdict(ratios, |ratio| (0.5..=1.5).contains(&((1.0 - ratio) / paper)));
        let ours: Vec<String> = ratios.iter().map(|ratio| percent(ratio.median - 1.0)).collect();
        self.finding(what, &percent(-paper), ours.join(", "), agreement, why)
    }

    fn sizes(&self) -> Option<Finding> {
        let flows = [Flow::DeviceSends, Flow::HostSends];
        let pace = |size| {
            move |flow: Flow| self.sweep.spread(self.subject(Suite::Plain), flow, size, Quantity::Pace)
        };
        let text = |flow| {
            let (short, long) = (pace(self.shortest())(flow)?, pace(self.longest())(flow)?);
            Some((
                format!(
                    "{:.1} Mb/s with {}, {:.0} with {} ({flow})",
                    short.median,
                    bytes(self.shortest()),
                    long.median,
                    bytes(self.longest())
                ),
                long.least > short.most,
            ))
        };
        let [first, second] = flows.map(text);
        let (first, second) = (first?, second?);
        let ours = format!("{}; {}", first.0, second.0);
        Some(self.finding(
            "throughput is better with large messages",
            "yes",
            ours,
            Agreement::of(first.1 && second.1),
            SIZES,
        ))
    }

    fn unused(&self) -> Option<Finding> {
        let ratio = |flow| self.pace([Suite::Unused, Suite::Plain], flow, self.longest());
        let ratios = [ratio(Flow::DeviceSends)?, ratio(Flow::HostSends)?];
        let ours: Vec<String> = ratios.iter().map(|ratio| percent(ratio.median - 1.0)).collect();
        let agreement = verdict(&ratios, |ratio| (ratio - 1.0).abs() <= CLOSE);
        Some(self.finding(
            "IPsec compiled in and unused costs nothing",
            "a close result",
            ours.join(", "),
            agreement,
            UNUSED,
        ))
    }

    /// AES-GCM against a suite of the paper.
    fn today(&self, base: Suite, what: &str, paper: &str, why: &str) -> Option<Finding> {
        let ratio = |flow| self.pace([Suite::Gcm, base], flow, self.longest());
        let ratios = [ratio(Flow::DeviceSends)?, ratio(Flow::HostSends)?];
        let ours: Vec<String> = ratios.iter().map(|ratio| format!("{:.1} times", ratio.median)).collect();
        let agreement = match base {
            Suite::AhMd5 => verdict(&ratios, |ratio| ratio < 1.0),
            _ => verdict(&ratios, |ratio| ratio > 1.0),
        };
        Some(self.finding(what, paper, ours.join(", "), agreement, why))
    }
}

/// A change with its sign.
pub(super) fn percent(change: f64) -> String {
    format!("{:+.0} %", change * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::flow::{Count, FLOWS};
    use crate::embedded::ground::Outcome;
    use crate::embedded::sweep::Grid;
    use std::time::Duration;

    const SUITES: [Suite; 5] = [Suite::Plain, Suite::Unused, Suite::AhMd5, Suite::EspTripleDes, Suite::Gcm];

    /// What is found where suites leave these shares of the throughput, and latency grows by this.
    fn found(shares: [f64; 5], slower: f64, rounds: usize) -> Vec<Finding> {
        let subject = |suite| Subject { home: Home::Library, suite };
        let grid =
            Grid { subjects: SUITES.map(subject).into(), flows: FLOWS.into(), sizes: vec![1, 1_000], rounds };
        let sweep = Sweep::with(grid, |subject, flow, size| {
            let place = SUITES.iter().position(|suite| *suite == subject.suite).unwrap_or_default();
            let units = match flow {
                Flow::HostAsks | Flow::DeviceAsks => {
                    let first = if flow == Flow::HostAsks { 1_000.0 } else { 2_000.0 };
                    first / if place == 0 { 1.0 } else { slower }
                }
                _ => 1e6 * shares[place] * size as f64,
            };
            let count = Count { units, elapsed: Duration::from_secs(1), pause: Duration::ZERO };
            Outcome { count, cpu: Duration::from_secs(1) }
        });
        of(Home::Library, &sweep)
    }

    #[test]
    fn numbers_like_the_papers_agree_with_it() {
        for finding in found([1.0, 0.98, 0.67, 0.30, 0.60], 1.1, 3) {
            assert_eq!(finding.agreement, Agreement::Agrees, "{finding:?}");
        }
    }

    #[test]
    fn one_round_decides_nothing() {
        let findings = found([1.0, 0.98, 0.67, 0.30, 0.60], 1.1, 1);
        assert_eq!(findings.len(), 12);
        assert!(findings.iter().all(|finding| finding.agreement == Agreement::NotMeasured));
    }

    #[test]
    fn other_numbers_do_not() {
        let findings = found([1.0, 0.5, 0.99, 0.99, 0.999], 2.0, 3);
        let differs = |what: &str| {
            let finding = findings.iter().find(|finding| finding.what.contains(what)).unwrap();
            assert_eq!(finding.agreement, Agreement::Differs, "{finding:?}");
        };
        [
            "latency grows",
            "AH, MD5: throughput, the device",
            "ESP, 3DES and MD5: throughput that",
            "compiled in",
            "AH is what",
        ]
        .into_iter()
        .for_each(differs);
        let holds = findings.iter().filter(|finding| finding.agreement == Agreement::Agrees).count();
        // The direction of latency, large messages, and AES a little faster than 3DES.
        assert_eq!(holds, 3, "{findings:?}");
    }
}
