//! Comparison of figures 5 to 8 with the paper.

use super::figures::bytes;
use super::flow::Flow;
use super::protection::Suite;
use super::sweep::{Quantity, Sweep};
use super::testbed::{Case, StackKind};
use casemate_measure::report::{Agreement, Finding};
use casemate_measure::stats::Spread;

/// Latency ratio up to which an increase counts as small.
pub(super) const SMALL_INCREASE: f64 = 1.25;
/// Relative difference below which results count as close.
pub(super) const CLOSE: f64 = 0.15;
/// Share of the throughput that AH takes, according to the paper.
pub(super) const AH_LOSS: f64 = 0.33;
pub(super) const ESP_LOSS: f64 = 0.70;

/// Minimum number of rounds for a decision.
const MIN_ROUNDS: usize = 2;

/// Returns the findings about one device.
pub(super) fn of(stack: StackKind, sweep: &Sweep) -> Vec<Finding> {
    let view = Analysis { stack, sweep };
    let mut findings = Vec::new();
    findings.extend(view.latency());
    findings.extend(view.direction());
    for flow in [Flow::DeviceSends, Flow::HostSends] {
        findings.extend(view.loss(flow, Suite::AhMd5, AH_LOSS, LOSS));
        findings.extend(view.loss(flow, Suite::EspTripleDes, ESP_LOSS, LOSS));
    }
    findings.extend(view.own_loss(Suite::AhMd5, AH_LOSS));
    findings.extend(view.own_loss(Suite::EspTripleDes, ESP_LOSS));
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
    if sweep.rounds() < MIN_ROUNDS {
        for finding in &mut findings {
            finding.agreement = Agreement::NotMeasured;
            finding.why = FEW.into();
        }
    }
    findings
}

const FEW: &str = "There was no time for a second round: this machine is too slow or too busy.";
const LATENCY: &str = "Agrees if the paper's ESP adds at most a quarter to the latency of the shortest \
     message. The paper's link, driver and processor were so slow that they hid the cost of cryptography. \
     Here a packet takes microseconds, and two programs process it in each direction: the device's IPsec \
     stack and the host's gateway.";
const DIRECTION: &str = "In the paper, netperf's side had to be woken through a slow driver. Here a \
     transaction consists of the same two packets in either direction.";
const LOSS: &str = "Agrees if the loss is between half and one and a half times that of the paper. It is \
     the loss of the slowest of device, host gateway and host, on two or more processors; in the paper it \
     is that of the device.";
const OWN: &str = "Loss if the device's processor were the only limit, computed from its CPU time per \
     byte, in both directions; agrees as above. Stack and driver cost little here (one system call per \
     frame), but much on the paper's USB network card.";
const SIZES: &str = "Every message costs a call into the stack, regardless of its length.";
const UNUSED: &str = "Agrees if the throughput is within 15 % in both directions. Without a policy, a \
     packet is looked up once and passed.";
const AES: &str = "As a ratio, both directions; agrees if it is faster in all rounds. Processors have \
     instructions for AES-GCM but not for 3DES.";
const TODAY: &str = "As a ratio, both directions; differs if modern ESP (AES-GCM) is at least as fast as \
     AH with HMAC-MD5 in all rounds. One pass of an AEAD costs no more than MD5, so a small device can \
     afford confidentiality.";

struct Analysis<'s> {
    stack: StackKind,
    sweep: &'s Sweep,
}

impl Analysis<'_> {
    fn case(&self, suite: Suite) -> Case {
        Case { stack: self.stack, suite }
    }

    fn pair(&self, suite: Suite, base: Suite) -> [Case; 2] {
        [self.case(suite), self.case(base)]
    }

    fn shortest(&self) -> usize {
        self.sweep.grid.sizes.first().copied().unwrap_or_default()
    }

    fn longest(&self) -> usize {
        self.sweep.grid.sizes.last().copied().unwrap_or_default()
    }

    fn pace(&self, suites: [Suite; 2], flow: Flow, size: usize) -> Option<Spread> {
        let [suite, base] = suites;
        self.sweep.ratio(self.pair(suite, base), flow, size, Quantity::Performance)
    }

    fn finding(&self, what: &str, paper: &str, ours: String, agreement: Agreement, why: &str) -> Finding {
        let what = format!("{what} ({})", self.stack);
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
        let agreement = Agreement::judge(&esp, |ratio| ratio <= SMALL_INCREASE);
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
            |flow| self.sweep.spread(self.case(Suite::Plain), flow, self.shortest(), Quantity::Performance);
        let (host, device) = (latency(Flow::HostAsks)?, latency(Flow::DeviceAsks)?);
        let (agreement, how) = if device.max < host.min {
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

    /// Loss computed from the CPU time of the device.
    fn own_loss(&self, suite: Suite, paper: f64) -> Option<Finding> {
        let ratio = |flow| {
            let [own, base] = self.pair(suite, Suite::Plain);
            // The throughput of the device is the reciprocal of its CPU time.
            self.sweep.ratio([base, own], flow, self.longest(), Quantity::Cpu)
        };
        let ratios = [ratio(Flow::DeviceSends)?, ratio(Flow::HostSends)?];
        let what = format!("{suite}: throughput that the device's CPU time allows");
        Some(self.loss_of(&what, &ratios, paper, OWN))
    }

    fn loss_of(&self, what: &str, ratios: &[Spread], paper: f64, why: &str) -> Finding {
        let agreement = Agreement::judge(ratios, |ratio| (0.5..=1.5).contains(&((1.0 - ratio) / paper)));
        let ours: Vec<String> = ratios.iter().map(|ratio| percent(ratio.median - 1.0)).collect();
        self.finding(what, &percent(-paper), ours.join(", "), agreement, why)
    }

    fn sizes(&self) -> Option<Finding> {
        let flows = [Flow::DeviceSends, Flow::HostSends];
        let pace = |size| {
            move |flow: Flow| self.sweep.spread(self.case(Suite::Plain), flow, size, Quantity::Performance)
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
                long.min > short.max,
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
        let agreement = Agreement::judge(&ratios, |ratio| (ratio - 1.0).abs() <= CLOSE);
        Some(self.finding(
            "IPsec compiled in and unused costs nothing",
            "a close result",
            ours.join(", "),
            agreement,
            UNUSED,
        ))
    }

    /// AES-GCM compared with a suite of the paper.
    fn today(&self, base: Suite, what: &str, paper: &str, why: &str) -> Option<Finding> {
        let ratio = |flow| self.pace([Suite::Gcm, base], flow, self.longest());
        let ratios = [ratio(Flow::DeviceSends)?, ratio(Flow::HostSends)?];
        let ours: Vec<String> = ratios.iter().map(|ratio| format!("{:.1} times", ratio.median)).collect();
        let agreement = match base {
            Suite::AhMd5 => Agreement::judge(&ratios, |ratio| ratio < 1.0),
            _ => Agreement::judge(&ratios, |ratio| ratio > 1.0),
        };
        Some(self.finding(what, paper, ours.join(", "), agreement, why))
    }
}

/// Formats a relative change with its sign.
pub(super) fn percent(change: f64) -> String {
    format!("{:+.0} %", change * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::flow::{Count, FLOWS};
    use crate::embedded::sweep::Grid;
    use crate::embedded::testbed::Sample;
    use std::time::Duration;

    const SUITES: [Suite; 5] = [Suite::Plain, Suite::Unused, Suite::AhMd5, Suite::EspTripleDes, Suite::Gcm];

    /// Findings for these shares of the throughput and this growth of the latency.
    fn found(shares: [f64; 5], slower: f64, rounds: usize) -> Vec<Finding> {
        let case = |suite| Case { stack: StackKind::Library, suite };
        let grid =
            Grid { cases: SUITES.map(case).into(), flows: FLOWS.into(), sizes: vec![1, 1_000], rounds };
        let sweep = Sweep::with(grid, |case, flow, size| {
            let place = SUITES.iter().position(|suite| *suite == case.suite).unwrap_or_default();
            let units = match flow {
                Flow::HostAsks | Flow::DeviceAsks => {
                    let first = if flow == Flow::HostAsks { 1_000.0 } else { 2_000.0 };
                    first / if place == 0 { 1.0 } else { slower }
                }
                _ => 1e6 * shares[place] * size as f64,
            };
            let count = Count { units, elapsed: Duration::from_secs(1), pause: Duration::ZERO };
            Sample { count, cpu: Duration::from_secs(1) }
        });
        of(StackKind::Library, &sweep)
    }

    #[test]
    fn numbers_of_the_paper_agree() {
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
    fn other_numbers_differ() {
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
        // Direction of the latency, large messages, and AES being slightly faster than 3DES.
        assert_eq!(holds, 3, "{findings:?}");
    }
}
