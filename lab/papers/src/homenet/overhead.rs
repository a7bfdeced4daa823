//! Cost of encryption, ESP, tunnels and UDP encapsulation: sections 5.1 to 5.3 of the paper (figures 6 to 9).

use super::scenario::{Aes, Encapsulation, Mode, Scenario};
use super::sweep::{Labels, Line, Quantity, Ratio, Sweep, costs, few_mtus, figures, mtus, paper_range};
use super::testbed::Testbed;
use crate::Context;
use casemate_measure::report::{Bound, Claim, Figure, Finding, Part, Series};
use casemate_testbed::Result;

const CBC: Scenario = Scenario::of(Mode::Cbc, Aes::Instructions);
const GCM: Scenario = Scenario::of(Mode::Gcm, Aes::Instructions);
const NULL: Scenario = Scenario::of(Mode::Null, Aes::Instructions);
const CLEAR: Scenario = Scenario { encapsulation: Encapsulation::Clear, ..NULL };
const fn tunnel(scenario: Scenario) -> Scenario {
    Scenario { encapsulation: Encapsulation::Tunnel, ..scenario }
}
const fn udp(scenario: Scenario) -> Scenario {
    Scenario { encapsulation: Encapsulation::Udp, ..scenario }
}

const SETTINGS: [Scenario; 8] = [CLEAR, NULL, CBC, tunnel(CBC), udp(CBC), GCM, tunnel(GCM), udp(GCM)];

pub(super) fn run(context: &Context) -> Result<Vec<Part>> {
    let testbed = Testbed::new(context)?;
    let mtus = if context.quick { few_mtus(true) } else { mtus(false) };
    let sweep = Sweep::run(context, &testbed, &SETTINGS, mtus);
    Ok(vec![Part {
        title: "NULL, tunnel mode and UDP encapsulation".into(),
        text: format!("{TEXT} {}", sweep.effort()),
        figures: COMPARISONS.iter().flat_map(|comparison| comparison.figures(&sweep)).collect(),
        tables: vec![costs(&sweep, "Overheads", &SETTINGS)],
        findings: COMPARISONS.iter().filter_map(|comparison| comparison.finding(&sweep)).collect(),
        samples: sweep.samples(),
        skipped: sweep.skipped.clone(),
    }])
}

/// One figure of the paper.
struct Comparison {
    title: &'static str,
    ratio: &'static str,
    /// Names and ratios.
    lines: &'static [(&'static str, Ratio)],
    /// Claim of the paper about the first line.
    claim: &'static str,
    quantity: Quantity,
    /// Ratios that agree with the claim, for the longest packets.
    holds: Bound,
    /// The claim in numbers, if the paper has them.
    said: Option<PaperRatio>,
    agrees: &'static str,
    differs: &'static str,
}

/// Ratio that the paper states.
#[derive(Clone, Copy)]
struct PaperRatio {
    /// Smallest MTU to which it applies.
    min_mtu: f64,
    ratio: f64,
}

const fn ratio(own: Scenario, base: Scenario) -> Ratio {
    Ratio { own, base }
}

const COMPARISONS: [Comparison; 4] = [
    Comparison {
        title: "Figure 6, encryption: CBC with HMAC-SHA1 over NULL with HMAC-SHA1",
        ratio: "ratio to NULL",
        lines: &[("CBC", ratio(CBC, NULL)), ("GCM (today)", ratio(GCM, NULL))],
        claim: "encrypting costs 3.75 times the CPU time",
        quantity: Quantity::Cpu,
        holds: Bound::Above(2.0),
        said: Some(PaperRatio { min_mtu: 180.0, ratio: 3.75 }),
        agrees: "Encryption costs more than HMAC-SHA1, system calls and TCP together.",
        differs: "The paper's factor includes processors without AES instructions. With them, encryption is \
             cheap compared with HMAC-SHA1, system calls and TCP.",
    },
    Comparison {
        title: "Figure 7, ESP itself: NULL with HMAC-SHA1 over no IPsec",
        ratio: "ratio to no IPsec",
        lines: &[("NULL", ratio(NULL, CLEAR))],
        claim: "building ESP packets costs 1.5 times the time",
        quantity: Quantity::Elapsed,
        holds: Bound::Within(1.25, 2.0),
        said: Some(PaperRatio { min_mtu: 180.0, ratio: 1.5 }),
        agrees: "The costs are others than the paper's: there Ethernet limited both sides of the ratio, here \
             packets cross between kernel and program at both ends.",
        differs: "The paper's IPsec was in the kernel, and Ethernet limited both sides of the ratio. Here \
             packets cross between kernel and program at both ends, the link costs nothing, and one \
             machine does the work of both hosts.",
    },
    Comparison {
        title: "Figure 8, tunnel mode over transport mode",
        ratio: "ratio to transport mode",
        lines: &[("CBC", ratio(tunnel(CBC), CBC)), ("GCM (today)", ratio(tunnel(GCM), GCM))],
        claim: "no more elapsed time above 500 bytes with one core",
        quantity: Quantity::Elapsed,
        holds: Bound::Below(1.1),
        said: Some(PaperRatio { min_mtu: 500.0, ratio: 1.0 }),
        agrees: "A tunnel adds 20 bytes to each packet, which is little for 1,500 bytes.",
        differs: "Besides 20 bytes, a tunnel costs a second IP header to write and to check for each packet.",
    },
    Comparison {
        title: "Figure 9, UDP encapsulation over transport mode",
        ratio: "ratio to transport mode",
        lines: &[("CBC", ratio(udp(CBC), CBC)), ("GCM (today)", ratio(udp(GCM), GCM))],
        claim: "as tunnel mode: no significant effect for large packets",
        quantity: Quantity::Elapsed,
        holds: Bound::Within(0.9, 1.1),
        said: Some(PaperRatio { min_mtu: 500.0, ratio: 1.0 }),
        agrees: "UDP adds 8 bytes but no cryptographic work.",
        differs: "Below 0.9, UDP is faster than plain ESP: the gateway passes dozens of UDP packets to the \
             kernel in one system call (GSO), which is not possible with plain ESP. Above 1.1, the kernel's \
             UDP costs more than that saves.",
    },
];

impl Comparison {
    fn figures(&self, sweep: &Sweep) -> Vec<Figure> {
        let lines = self.lines.iter().map(|(name, ratio)| Line::new(*name, ratio.own, ratio.base));
        let lines: Vec<Line> = lines.collect();
        let words = Labels { title: self.title, ratio: self.ratio, caption: CAPTION };
        figures(sweep, &words, &lines, |quantity| self.paper(quantity).into_iter().collect())
    }

    fn paper(&self, quantity: Quantity) -> Option<Series> {
        let PaperRatio { min_mtu, ratio } = self.said.filter(|_| quantity == self.quantity)?;
        Some(paper_range("paper, in words", [min_mtu, 1_500.0], [ratio, ratio]))
    }

    fn finding(&self, sweep: &Sweep) -> Option<Finding> {
        let mtu = sweep.mtus.last()?;
        let mut texts = Vec::new();
        for (name, Ratio { own, base }) in self.lines {
            let ratio = sweep.ratio(*own, *base, *mtu, self.quantity)?;
            texts.push(format!("{name} {} times", ratio.text(2)));
        }
        let (_, Ratio { own, base }) = self.lines.first()?;
        let ratio = sweep.ratio(*own, *base, *mtu, self.quantity)?;
        let claim = Claim {
            what: self.title,
            paper: self.claim,
            holds: self.holds,
            agrees: self.agrees,
            differs: self.differs,
        };
        let ours = format!("{}, {} with an MTU of {mtu}", texts.join(", "), self.quantity.name());
        Some(claim.judge(ours, &[ratio]))
    }
}

const CAPTION: &str = "Above 1 is slower or more expensive. Grey lines are stated in the paper's text; \
     it does not print the numbers of its curves.";
const TEXT: &str = "From here on, the paper uses CBC with HMAC-SHA1-96; AES-GCM, which RFC 8221 requires \
     today, is added. Without IPsec, hosts and link are the same, and the kernel segments TCP in \
     software, as for a network card without segmentation offload. NULL has integrity protection, which \
     IPsec requires.";

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_measure::report::Agreement;

    #[test]
    fn ratios_are_judged_by_the_papers_ranges() {
        let sweep = Sweep::with(&SETTINGS, &[180, 1_500], |scenario, _| {
            match (scenario.encapsulation, scenario.mode) {
                (Encapsulation::Clear, _) => 2.0,
                (Encapsulation::Transport, Mode::Null) => 3.0,
                (Encapsulation::Udp, _) => 9.0,
                _ => 4.0,
            }
        });
        let verdicts = COMPARISONS.iter().map(|comparison| comparison.finding(&sweep).unwrap().agreement);
        // Encryption costs 1.33 times instead of 3.75; ESP 1.5 times, as in the paper; tunnels cost nothing,
        // and UDP costs much.
        let expected = [Agreement::Differs, Agreement::Agrees, Agreement::Agrees, Agreement::Differs];
        assert_eq!(verdicts.collect::<Vec<_>>(), expected);
    }
}
