//! Comparison of figures 5 to 8 with the paper.

use super::figures::bytes;
use super::flow::Flow;
use super::protection::Suite;
use super::sweep::{Quantity, Sweep};
use super::testbed::{Case, StackKind};
use casemate_measure::report::{Bound, Claim, Finding};
use casemate_measure::stats::Spread;

/// Latency ratio up to which an increase counts as small.
pub(super) const SMALL_INCREASE: f64 = 1.25;
/// Relative difference below which results count as close.
pub(super) const CLOSE: f64 = 0.15;
/// Share of the throughput that AH and ESP leave, according to the paper.
pub(super) const AH_LEFT: f64 = 0.67;
pub(super) const ESP_LEFT: f64 = 0.30;
/// Factor within which what is left agrees with the paper.
pub(super) const LEFT_FACTOR: f64 = 1.25;

/// Returns the findings about one device.
pub(super) fn of(stack: StackKind, sweep: &Sweep) -> Vec<Finding> {
    let view = Analysis { stack, sweep };
    let mut findings = Vec::new();
    findings.extend(view.latency());
    findings.extend(view.direction());
    for flow in [Flow::DeviceSends, Flow::HostSends] {
        findings.extend(view.loss(flow, Suite::AhMd5, AH_LEFT));
        findings.extend(view.loss(flow, Suite::EspTripleDes, ESP_LEFT));
    }
    findings.extend(view.own_loss(Suite::AhMd5, AH_LEFT));
    findings.extend(view.own_loss(Suite::EspTripleDes, ESP_LEFT));
    findings.extend(view.sizes());
    findings.extend(view.unused());
    findings.extend(view.today(Suite::EspTripleDes, &AES));
    findings.extend(view.today(Suite::AhMd5, &TODAY));
    findings
}

const LATENCY: Claim<'static> = Claim {
    what: "latency grows with ESP, but negligibly",
    paper: "a small increase, in both directions",
    holds: Bound::Below(SMALL_INCREASE),
    agrees: "The paper's ESP adds less than a quarter to the latency of the shortest message.",
    differs: "The paper's link, driver and processor were so slow that they hid the cost of cryptography. Here a \
              packet takes microseconds, and two programs process it in each direction: the device's IPsec \
              stack and the host's gateway.",
};
const DIRECTION: Claim<'static> = Claim {
    what: "latency is lower from the device to the host",
    paper: "yes",
    holds: Bound::Below(1.0),
    agrees: "In the paper, netperf's side had to be woken through a slow driver.",
    differs: "In the paper, netperf's side had to be woken through a slow driver. Here a transaction consists of \
              the same two packets in either direction.",
};
const LEFT_AGREES: &str = "What is left of the throughput is close to the paper's. Here it is limited by the \
     slowest of device, host gateway and host, on two or more processors; in the paper by the device.";
const LEFT_DIFFERS: &str = "Here the throughput is limited by the slowest of device, host gateway and host, on \
     two or more processors; in the paper by the device. Processors have grown faster than 3DES in software \
     has.";
const OWN_AGREES: &str = "Computed from the CPU time of the device for each byte, in both directions, as if its \
     processor were the only limit.";
const OWN_DIFFERS: &str = "Computed from the CPU time of the device for each byte, in both directions. Stack and \
     driver cost little here (one system call per frame), but much on the paper's USB network card, so \
     cryptography has the larger share.";
const SIZES: Claim<'static> = Claim {
    what: "throughput is better with large messages",
    paper: "yes",
    holds: Bound::Above(1.0),
    agrees: "Every message costs a call into the stack, regardless of its length.",
    differs: "Short messages are merged into segments before they are sent.",
};
const UNUSED: Claim<'static> = Claim {
    what: "IPsec compiled in and unused costs nothing",
    paper: "a close result",
    holds: Bound::Within(1.0 - CLOSE, 1.0 + CLOSE),
    agrees: "The throughput is within 15 % in both directions: without a policy, a packet is looked up once and \
             passed.",
    differs: "The throughput is not within 15 % in both directions, although a packet without a policy is only \
              looked up and passed.",
};
const AES: Claim<'static> = Claim {
    what: "AES instead of 3DES improves ESP",
    paper: "believed, not measured",
    holds: Bound::Above(1.0),
    agrees: "Processors have instructions for AES-GCM but not for 3DES.",
    differs: "Something besides the cipher limits both.",
};
const TODAY: Claim<'static> = Claim {
    what: "AH is what a small device can afford, not ESP: today's ESP against the paper's AH",
    paper: "AH is recommended, because ESP degrades the system",
    holds: Bound::Below(1.0),
    agrees: "The portable AES-GCM of this device costs more than MD5.",
    differs: "One pass of an AEAD costs no more than MD5, so a small device can afford confidentiality.",
};

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

    /// Judges a claim about this device.
    fn judge(&self, claim: &Claim<'_>, ours: String, ratios: &[Spread]) -> Finding {
        let what = format!("{} ({})", claim.what, self.stack);
        Claim { what: &what, ..*claim }.judge(ours, ratios)
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
        Some(self.judge(&LATENCY, ours, &esp))
    }

    fn direction(&self) -> Option<Finding> {
        let (case, size) = (self.case(Suite::Plain), self.shortest());
        let latency = |flow| self.sweep.spread(case, flow, size, Quantity::Performance);
        let (host, device) = (latency(Flow::HostAsks)?, latency(Flow::DeviceAsks)?);
        let ours = format!(
            "{:.0} µs where the host asks, {:.0} µs where the device asks",
            host.median, device.median
        );
        let ratio = self.sweep.ratio_of_flows(case, [Flow::DeviceAsks, Flow::HostAsks], size)?;
        Some(self.judge(&DIRECTION, ours, &[ratio]))
    }

    /// What a suite leaves of the throughput.
    fn loss(&self, flow: Flow, suite: Suite, paper: f64) -> Option<Finding> {
        let ratio = self.pace([suite, Suite::Plain], flow, self.longest())?;
        Some(self.left(&format!("{suite}: throughput, {flow}"), &[ratio], paper, [LEFT_AGREES, LEFT_DIFFERS]))
    }

    /// What the CPU time of the device would leave.
    fn own_loss(&self, suite: Suite, paper: f64) -> Option<Finding> {
        let ratio = |flow| {
            let [own, base] = self.pair(suite, Suite::Plain);
            // The throughput of the device is the reciprocal of its CPU time.
            self.sweep.ratio([base, own], flow, self.longest(), Quantity::Cpu)
        };
        let ratios = [ratio(Flow::DeviceSends)?, ratio(Flow::HostSends)?];
        let what = format!("{suite}: throughput that the device's CPU time allows");
        Some(self.left(&what, &ratios, paper, [OWN_AGREES, OWN_DIFFERS]))
    }

    /// Compares what is left of the throughput. Shares of losses would call 2 % and 30 % alike.
    fn left(&self, what: &str, ratios: &[Spread], paper: f64, [agrees, differs]: [&str; 2]) -> Finding {
        let ours: Vec<String> =
            ratios.iter().map(|ratio| format!("{:.0} % is left", ratio.median * 100.0)).collect();
        let claim = Claim {
            what,
            paper: &format!("{:.0} % is left", paper * 100.0),
            holds: Bound::Within(paper / LEFT_FACTOR, paper * LEFT_FACTOR),
            agrees,
            differs,
        };
        self.judge(&claim, ours.join(", "), ratios)
    }

    fn sizes(&self) -> Option<Finding> {
        let (case, [short, long]) = (self.case(Suite::Plain), [self.shortest(), self.longest()]);
        let (mut texts, mut ratios) = (Vec::new(), Vec::new());
        for flow in [Flow::DeviceSends, Flow::HostSends] {
            let pace = |size| self.sweep.spread(case, flow, size, Quantity::Performance);
            texts.push(format!(
                "{:.1} Mb/s with {}, {:.0} with {} ({flow})",
                pace(short)?.median,
                bytes(short),
                pace(long)?.median,
                bytes(long)
            ));
            ratios.push(self.sweep.ratio_of_sizes(case, flow, [long, short])?);
        }
        Some(self.judge(&SIZES, texts.join("; "), &ratios))
    }

    fn unused(&self) -> Option<Finding> {
        let ratio = |flow| self.pace([Suite::Unused, Suite::Plain], flow, self.longest());
        let ratios = [ratio(Flow::DeviceSends)?, ratio(Flow::HostSends)?];
        let ours: Vec<String> = ratios.iter().map(|ratio| percent(ratio.median - 1.0)).collect();
        Some(self.judge(&UNUSED, ours.join(", "), &ratios))
    }

    /// AES-GCM compared with a suite of the paper.
    fn today(&self, base: Suite, claim: &Claim<'_>) -> Option<Finding> {
        let ratio = |flow| self.pace([Suite::Gcm, base], flow, self.longest());
        let ratios = [ratio(Flow::DeviceSends)?, ratio(Flow::HostSends)?];
        let ours: Vec<String> = ratios.iter().map(|ratio| format!("{:.1} times", ratio.median)).collect();
        Some(self.judge(claim, ours.join(", "), &ratios))
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
    use casemate_measure::report::Agreement;
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
        for finding in found([1.0, 0.98, 0.67, 0.30, 0.60], 1.1, 5) {
            assert_eq!(finding.agreement, Agreement::Agrees, "{finding:?}");
        }
    }

    #[test]
    fn four_rounds_decide_nothing() {
        let findings = found([1.0, 0.98, 0.67, 0.30, 0.60], 1.1, 4);
        assert_eq!(findings.len(), 12);
        assert!(findings.iter().all(|finding| finding.agreement == Agreement::Unknown));
    }

    #[test]
    fn other_numbers_differ() {
        let findings = found([1.0, 0.5, 0.99, 0.99, 0.999], 2.0, 5);
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
