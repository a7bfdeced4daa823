//! What of figures 5 to 8 agrees with the paper if instructions are the measure, what does not, and why.

use super::{HOME, Run};
use crate::embedded::figures::bytes;
use crate::embedded::findings::{AH, CLOSE, ESP, SMALL, percent};
use crate::embedded::flow::Flow;
use crate::embedded::protection::Suite;
use casemate_report::{Agreement, Finding};

/// Less than this apart, as a share, are two counts the same.
const SAME: f64 = 0.01;
const ASKS: [Flow; 2] = [Flow::HostAsks, Flow::DeviceAsks];
const STREAMS: [Flow; 2] = [Flow::DeviceSends, Flow::HostSends];
/// What the paper's ESP adds, as a multiple of what its AH adds, if throughput is one divided by what a byte takes.
const ADDED: f64 = (ESP / (1.0 - ESP)) / (AH / (1.0 - AH));

/// Everything that can be told. What was not counted is not told.
pub(super) fn of(run: &Run) -> Vec<Finding> {
    let view = View(run);
    let all = [
        view.latency(),
        view.direction(),
        view.loss(Suite::AhMd5, AH),
        view.loss(Suite::EspTripleDes, ESP),
        view.beside_other_work(),
        view.sizes(),
        view.unused(),
        view.aes(),
        view.today(),
    ];
    all.into_iter().flatten().collect()
}

const LATENCY: &str = "Agrees if the paper's ESP adds no more than a quarter to the instructions of a transaction with the shortest message, in both directions. The paper's \
    latency was its link, its driver and its kernel, in which cryptography was hidden; these are not counted here.";
const DIRECTION: &str = "Agrees if the device needs fewer instructions where it asks. A transaction is the same two packets, whoever begins: the paper's difference came from waiting, \
    which takes no instructions here.";
const LOSS: &str = "What would be lost if the instructions of stack and IPsec were the only limit, both directions; agrees if what is added to a byte, as a share of what it takes without IPsec, \
    lies between half and one and a half times the paper's. The paper's device did much more for a byte: its authors hold the driver of its USB network card and its interrupts for the limit.";
const BESIDE: &str = "This does not depend on what a driver and an operating system take for a byte. Agrees if ESP adds between half and one and a half times as many times what AH adds as follows from the \
    paper's losses. The paper's 3DES was OpenSSL's; that of the provider for obsolete algorithms works with words of 64 bits, which this processor has not.";
const LARGE: &str = "Agrees if a byte of the longest messages takes fewer instructions than one of the shortest, in both directions. A message costs a call into the stack. What the \
    other end sends comes in full segments, however short its messages are.";
const UNUSED: &str = "Agrees if the throughput that instructions allow lies within 15 % in both directions. The guard looks at each packet, for a policy too, and over a device that \
    lends its frames for a moment only it copies each once more. Nothing else is in these counts, beside which that could vanish.";
const AES: &str = "As a multiple of the bytes for an instruction, both directions; agrees if it is more. Without instructions for AES, too.";
const TODAY: &str = "Instructions for a byte as a multiple of those with the paper's AH, both directions; agrees if each of today's suites takes more. A processor without \
    instructions for AES and without vectors computes all of it by ordinary instructions, and MD5 takes the fewest.";

struct View<'r>(&'r Run);

impl View<'_> {
    fn shortest(&self) -> usize {
        self.0.order.sizes.first().copied().unwrap_or_default()
    }

    fn longest(&self) -> usize {
        self.0.order.sizes.last().copied().unwrap_or_default()
    }

    /// The instructions of one row as a multiple of another's, in both flows.
    fn multiples(&self, [suite, base]: [Suite; 2], flows: [Flow; 2], size: usize) -> Option<[f64; 2]> {
        let multiple = |flow| Some(self.0.cost(suite, flow, size)? / self.0.cost(base, flow, size)?);
        Some([multiple(flows[0])?, multiple(flows[1])?])
    }

    fn finding(&self, what: &str, paper: &str, ours: String, agrees: bool, why: &str) -> Finding {
        let what = format!("{what} ({HOME}, instructions)");
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
        let agrees = esp.iter().all(|multiple| *multiple <= SMALL);
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
        let added = paper / (1.0 - paper);
        let agrees = multiples.iter().all(|multiple| (0.5..=1.5).contains(&((multiple - 1.0) / added)));
        let what = format!("{suite}: throughput that the device's instructions allow");
        Some(self.finding(
            &what,
            &percent(-paper),
            changes(multiples.map(|multiple| 1.0 / multiple)),
            agrees,
            LOSS,
        ))
    }

    /// What a suite adds to a byte, as a multiple of what AH adds.
    fn added(&self, suite: Suite) -> Option<[f64; 2]> {
        let cost = |suite, flow| self.0.cost(suite, flow, self.longest());
        let added = |suite, flow| Some(cost(suite, flow)? - cost(Suite::Plain, flow)?);
        let ratio = |flow| Some(added(suite, flow)? / added(Suite::AhMd5, flow)?);
        Some([ratio(STREAMS[0])?, ratio(STREAMS[1])?])
    }

    /// What is lost where AH takes what it takes in the paper.
    fn beside_other_work(&self) -> Option<Finding> {
        let left = |suite| Some(self.added(suite)?.map(|ratio| 1.0 / (1.0 + ratio * AH / (1.0 - AH))));
        let ratios = self.added(Suite::EspTripleDes)?;
        let ours = format!(
            "{}; AES-GCM {}, ChaCha20-Poly1305 {}; 3DES with MD5 adds {} as much as MD5 alone",
            changes(left(Suite::EspTripleDes)?),
            changes(left(Suite::Gcm)?),
            changes(left(Suite::ChaCha)?),
            times(ratios)
        );
        let agrees = ratios.iter().all(|ratio| (0.5..=1.5).contains(&(ratio / ADDED)));
        let what = "ESP takes seven tenths where other work for a byte is so much that AH takes a third";
        Some(self.finding(what, &format!("{}; {ADDED:.1} times", percent(-ESP)), ours, agrees, BESIDE))
    }

    fn sizes(&self) -> Option<Finding> {
        let cost = |flow, size| self.0.cost(Suite::Plain, flow, size);
        let pair = |flow| Some([cost(flow, self.shortest())?, cost(flow, self.longest())?]);
        let (device, host): ([f64; 2], [f64; 2]) = (pair(STREAMS[0])?, pair(STREAMS[1])?);
        let ours = format!(
            "{:.1} instructions for a byte with {}, {:.1} with {} ({}); {:.1}, {:.1} ({})",
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

/// Both as changes, with their signs.
fn changes([first, second]: [f64; 2]) -> String {
    format!("{}, {}", percent(first - 1.0), percent(second - 1.0))
}

fn times([first, second]: [f64; 2]) -> String {
    format!("{first:.1} times, {second:.1} times")
}

#[cfg(test)]
mod tests {
    use super::super::lines::Cell;
    use super::super::{Order, SHORT};
    use super::*;
    use crate::embedded::flow::FLOWS;

    /// What is found where these rows, in the order of the short form, take so many instructions for a byte, and a message 100 more.
    fn found(bytes: [f64; 6], device_asks: f64) -> Vec<Finding> {
        let order = Order { suites: SHORT.into(), sizes: vec![1, 1_000] };
        let mut cells = Vec::new();
        for (suite, each) in SHORT.into_iter().zip(bytes) {
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
        of(&Run { order, cells })
    }

    #[test]
    fn numbers_like_the_papers_agree_with_it() {
        let findings = found([10.0, 10.5, 15.0, 33.0, 20.0, 16.0], 0.9);
        assert_eq!(findings.len(), 9);
        for finding in findings {
            assert_eq!(finding.agreement, Agreement::Agrees, "{finding:?}");
        }
    }

    #[test]
    fn other_numbers_do_not() {
        // Nothing depends on the length of messages but the flows of messages themselves, and AES costs more than 3DES.
        for finding in found([10.0, 20.0, 100.0, 1_000.0, 2_000.0, 16.0], 1.0) {
            let large = finding.what.starts_with("throughput is better");
            let expected = if large { Agreement::Agrees } else { Agreement::Differs };
            assert_eq!(finding.agreement, expected, "{finding:?}");
        }
    }

    #[test]
    fn what_was_not_counted_is_not_told() {
        let order = Order { suites: SHORT.into(), sizes: vec![1] };
        assert!(of(&Run { order, cells: Vec::new() }).is_empty());
    }
}
