//! Comparison of figures 5 to 8 with the paper, by instructions.

use super::{DEVICE_NAME, Run};
use crate::embedded::figures::bytes;
use crate::embedded::findings::{AH_LEFT, CLOSE, ESP_LEFT, LEFT_FACTOR, SMALL_INCREASE, percent};
use crate::embedded::flow::Flow;
use crate::embedded::protection::Suite;
use casemate_measure::report::{Agreement, Finding};

/// Relative difference below which two counts are equal.
const SAME: f64 = 0.01;
const ASKS: [Flow; 2] = [Flow::HostAsks, Flow::DeviceAsks];
const STREAMS: [Flow; 2] = [Flow::DeviceSends, Flow::HostSends];
/// Cost that the paper's ESP adds, as a multiple of what its AH adds, if throughput is the reciprocal of the
/// cost per byte.
const PAPER_ADDED_RATIO: f64 = ((1.0 - ESP_LEFT) / ESP_LEFT) / ((1.0 - AH_LEFT) / AH_LEFT);

/// Returns the findings. Claims without counts are omitted.
pub(super) fn of(run: &Run) -> Vec<Finding> {
    let view = Analysis(run);
    let all = [
        view.latency(),
        view.direction(),
        view.loss(Suite::AhMd5, AH_LEFT),
        view.loss(Suite::EspTripleDes, ESP_LEFT),
        view.beside_other_work(),
        view.sizes(),
        view.unused(),
        view.aes(),
        view.today(),
    ];
    all.into_iter().flatten().collect()
}

const LATENCY: &str = "Agrees if the paper's ESP adds at most a quarter to the instructions of a \
     transaction with the shortest message, in both directions. In the paper, link, driver and kernel \
     dominated the latency and hid the cost of cryptography; they are not counted here.";
const DIRECTION: &str = "Agrees if the device needs fewer instructions when it sends the request. A \
     transaction consists of the same two packets in either direction. The difference in the paper comes \
     from waiting, which takes no instructions here.";
const LOSS: &str = "What is left if the instructions of stack and IPsec were the only limit, both \
     directions. Agrees within a factor of 1.25 of the paper. The paper's device had far higher costs per \
     byte: its authors consider the driver and the interrupts of its USB network card the bottleneck.";
const BESIDE: &str = "Independent of the cost per byte of driver and operating system. Agrees if the \
     ratio of the costs added by ESP and AH is between half and one and a half times the ratio that \
     follows from the paper's losses. The paper used 3DES of OpenSSL. 3DES of Casemate's provider for \
     obsolete algorithms uses 64-bit words, which this processor does not have.";
const LARGE: &str = "Agrees if a byte of the longest messages takes fewer instructions than one of the \
     shortest, in both directions. A message costs a call into the stack. Received data comes in full \
     segments, even if the messages of the sender are short.";
const UNUSED: &str = "Agrees if the throughput that the instructions allow is within 15 % in both \
     directions. IPsec looks up a policy for each packet, and copies a packet once more if the device \
     lends its frames only briefly. The counts contain nothing else that could hide this cost.";
const AES: &str = "Ratio of the bytes per instruction, both directions; agrees if it is above 1, even \
     without AES instructions.";
const TODAY: &str = "Instructions per byte relative to the paper's AH, both directions; agrees if every \
     modern suite takes more. Without AES and vector instructions, a processor computes everything with \
     ordinary instructions, and MD5 takes the fewest.";

struct Analysis<'r>(&'r Run);

impl Analysis<'_> {
    fn shortest(&self) -> usize {
        self.0.plan.sizes.first().copied().unwrap_or_default()
    }

    fn longest(&self) -> usize {
        self.0.plan.sizes.last().copied().unwrap_or_default()
    }

    /// Ratio of the instructions of two rows, for both flows.
    fn multiples(&self, [suite, base]: [Suite; 2], flows: [Flow; 2], size: usize) -> Option<[f64; 2]> {
        let multiple = |flow| Some(self.0.cost(suite, flow, size)? / self.0.cost(base, flow, size)?);
        Some([multiple(flows[0])?, multiple(flows[1])?])
    }

    fn finding(&self, what: &str, paper: &str, ours: String, agrees: bool, why: &str) -> Finding {
        let what = format!("{what} ({DEVICE_NAME}, instructions)");
        Finding { what, paper: paper.into(), ours, agreement: Agreement::of(agrees), why: why.into() }
    }

    fn latency(&self) -> Option<Finding> {
        let of = |suite| self.multiples([suite, Suite::Plain], ASKS, self.shortest());
        let (ah, esp) = (of(Suite::AhMd5)?, of(Suite::EspTripleDes)?);
        let ours = format!(
            "AH {}, ESP {} (figure 5, figure 6; messages of {})",
            changes(ah),
            changes(esp),
            bytes(self.shortest())
        );
        let agrees = esp.iter().all(|multiple| *multiple <= SMALL_INCREASE);
        let paper = "a small increase, in both directions";
        Some(self.finding("latency grows with ESP, but negligibly", paper, ours, agrees, LATENCY))
    }

    fn direction(&self) -> Option<Finding> {
        let [host, device] = ASKS.map(|flow| self.0.cost(Suite::Plain, flow, self.shortest()));
        let (host, device) = (host?, device?);
        let ours = format!("{host:.0} instructions where the host asks, {device:.0} where the device asks");
        let agrees = device < host * (1.0 - SAME);
        Some(self.finding(
            "latency is lower where the flow runs from the device to the host",
            "yes",
            ours,
            agrees,
            DIRECTION,
        ))
    }

    fn loss(&self, suite: Suite, paper: f64) -> Option<Finding> {
        let multiples = self.multiples([suite, Suite::Plain], STREAMS, self.longest())?;
        let left = multiples.map(|multiple| 1.0 / multiple);
        let close = paper / LEFT_FACTOR..=paper * LEFT_FACTOR;
        let agrees = left.iter().all(|left| close.contains(left));
        let what = format!("{suite}: throughput that the device's instructions allow");
        let share = |left: f64| format!("{:.0} % is left", left * 100.0);
        Some(self.finding(&what, &share(paper), left.map(share).join(", "), agrees, LOSS))
    }

    /// Cost per byte that a suite adds, as a multiple of what AH adds.
    fn added(&self, suite: Suite) -> Option<[f64; 2]> {
        let cost = |suite, flow| self.0.cost(suite, flow, self.longest());
        let added = |suite, flow| Some(cost(suite, flow)? - cost(Suite::Plain, flow)?);
        let ratio = |flow| Some(added(suite, flow)? / added(Suite::AhMd5, flow)?);
        Some([ratio(STREAMS[0])?, ratio(STREAMS[1])?])
    }

    /// Loss if AH has the same relative cost as in the paper.
    fn beside_other_work(&self) -> Option<Finding> {
        let left =
            |suite| Some(self.added(suite)?.map(|ratio| 1.0 / (1.0 + ratio * (1.0 - AH_LEFT) / AH_LEFT)));
        let ratios = self.added(Suite::EspTripleDes)?;
        let ours = format!(
            "{}; AES-GCM {}, ChaCha20-Poly1305 {}; 3DES with MD5 adds {} as much as MD5 alone",
            changes(left(Suite::EspTripleDes)?),
            changes(left(Suite::Gcm)?),
            changes(left(Suite::ChaCha)?),
            times(ratios)
        );
        let agrees = ratios.iter().all(|ratio| (0.5..=1.5).contains(&(ratio / PAPER_ADDED_RATIO)));
        let what = "ESP takes seven tenths if the other cost per byte is such that AH takes a third";
        Some(self.finding(
            what,
            &format!("{}; {PAPER_ADDED_RATIO:.1} times", percent(ESP_LEFT - 1.0)),
            ours,
            agrees,
            BESIDE,
        ))
    }

    fn sizes(&self) -> Option<Finding> {
        let cost = |flow, size| self.0.cost(Suite::Plain, flow, size);
        let pair = |flow| Some([cost(flow, self.shortest())?, cost(flow, self.longest())?]);
        let (device, host): ([f64; 2], [f64; 2]) = (pair(STREAMS[0])?, pair(STREAMS[1])?);
        let ours = format!(
            "{:.1} instructions per byte with {}, {:.1} with {} ({}); {:.1}, {:.1} ({})",
            device[0],
            bytes(self.shortest()),
            device[1],
            bytes(self.longest()),
            STREAMS[0],
            host[0],
            host[1],
            STREAMS[1]
        );
        let agrees = [device, host].iter().all(|[short, long]| *long < short * (1.0 - SAME));
        Some(self.finding("throughput is better with large messages", "yes", ours, agrees, LARGE))
    }

    fn unused(&self) -> Option<Finding> {
        let left = self
            .multiples([Suite::Unused, Suite::Plain], STREAMS, self.longest())?
            .map(|multiple| 1.0 / multiple);
        let agrees = left.iter().all(|left| (left - 1.0).abs() <= CLOSE);
        Some(self.finding(
            "IPsec compiled in and unused costs nothing",
            "a close result",
            changes(left),
            agrees,
            UNUSED,
        ))
    }

    fn aes(&self) -> Option<Finding> {
        let gains = self.multiples([Suite::EspTripleDes, Suite::Gcm], STREAMS, self.longest())?;
        let agrees = gains.iter().all(|gain| *gain > 1.0);
        Some(self.finding(
            "AES instead of 3DES improves ESP",
            "believed, not measured",
            times(gains),
            agrees,
            AES,
        ))
    }

    fn today(&self) -> Option<Finding> {
        let of = |suite| self.multiples([suite, Suite::AhMd5], STREAMS, self.longest());
        let (gcm, chacha) = (of(Suite::Gcm)?, of(Suite::ChaCha)?);
        let ours = format!("AES-GCM {}, ChaCha20-Poly1305 {}", times(gcm), times(chacha));
        let agrees = gcm.iter().chain(&chacha).all(|multiple| *multiple > 1.0);
        let what = "AH is what a small device can afford, not ESP: today's ESP against the paper's AH";
        Some(self.finding(what, "AH is recommended, because ESP degrades the system", ours, agrees, TODAY))
    }
}

/// Formats two relative changes with their signs.
fn changes([first, second]: [f64; 2]) -> String {
    format!("{}, {}", percent(first - 1.0), percent(second - 1.0))
}

fn times([first, second]: [f64; 2]) -> String {
    format!("{first:.1} times, {second:.1} times")
}

#[cfg(test)]
mod tests {
    use super::super::Cell;
    use super::super::{Plan, QUICK_SUITES};
    use super::*;
    use crate::embedded::flow::FLOWS;

    /// Findings for these instructions per byte of the rows, in the order of the short form, and 100 more per
    /// message.
    fn found(bytes: [f64; 6], device_asks: f64) -> Vec<Finding> {
        let plan = Plan { suites: QUICK_SUITES.into(), sizes: vec![1, 1_000] };
        let mut cells = Vec::new();
        for (suite, each) in QUICK_SUITES.into_iter().zip(bytes) {
            for flow in FLOWS {
                for size in [1, 1_000] {
                    let message = 100.0 + each * size as f64;
                    let cost = match flow {
                        Flow::HostAsks => message,
                        Flow::DeviceAsks => message * device_asks,
                        _ => 100.0 / size as f64 + each,
                    };
                    cells.push(Cell { suite, flow, size, instructions: cost * 10.0, units: 10.0 });
                }
            }
        }
        of(&Run { plan, cells })
    }

    #[test]
    fn numbers_of_the_paper_agree() {
        let findings = found([10.0, 10.5, 15.0, 33.0, 20.0, 16.0], 0.9);
        assert_eq!(findings.len(), 9);
        for finding in findings {
            assert_eq!(finding.agreement, Agreement::Agrees, "{finding:?}");
        }
    }

    #[test]
    fn other_numbers_differ() {
        // Only the flows of messages depend on their length, and AES costs more than 3DES.
        for finding in found([10.0, 20.0, 100.0, 1_000.0, 2_000.0, 16.0], 1.0) {
            let large = finding.what.starts_with("throughput is better");
            let expected = if large { Agreement::Agrees } else { Agreement::Differs };
            assert_eq!(finding.agreement, expected, "{finding:?}");
        }
    }

    #[test]
    fn claims_without_counts_are_omitted() {
        let plan = Plan { suites: QUICK_SUITES.into(), sizes: vec![1] };
        assert!(of(&Run { plan, cells: Vec::new() }).is_empty());
    }
}
