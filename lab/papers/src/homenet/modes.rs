//! Modes of AES against packet size (section 4 of the paper: figures 1 and 2, table 2), with and without AES
//! instructions (figure 5).

mod findings;

use super::scenario::{Aes, MODES, Mode, PAPERS_MODES, Scenario};
use super::sweep::{Labels, Line, QUANTITIES, Quantity, Sweep, costs, figures, mtus, paper_range};
use super::testbed::{Testbed, cannot_hide_aes};
use crate::Context;
use casemate_measure::report::{Figure, Part, Skipped, Table};
use casemate_testbed::Result;

pub(super) fn run(context: &Context) -> Result<Vec<Part>> {
    let testbed = Testbed::new(context)?;
    let hidden = cannot_hide_aes();
    let kinds: &[Aes] =
        if hidden.is_none() { &[Aes::Software, Aes::Instructions] } else { &[Aes::Instructions] };
    let scenarios = scenarios(kinds);
    let mut sweep = Sweep::run(context, &testbed, &scenarios, mtus(context.quick));
    sweep.skipped.extend(hidden.map(|why| Skipped {
        what: "modes of AES in software".into(),
        why,
        failed: false,
    }));
    Ok(parts(&sweep, kinds))
}

fn scenarios(kinds: &[Aes]) -> Vec<Scenario> {
    kinds.iter().flat_map(|aes| modes(*aes).iter().map(|mode| Scenario::of(*mode, *aes))).collect()
}

/// ChaCha20 does not use AES instructions, and is only measured where the fastest mode is determined.
fn modes(aes: Aes) -> &'static [Mode] {
    match aes {
        Aes::Software => &PAPERS_MODES,
        Aes::Instructions => &MODES,
    }
}

fn parts(sweep: &Sweep, kinds: &[Aes]) -> Vec<Part> {
    let mut parts = vec![Part {
        title: "Modes of AES against packet sizes".into(),
        text: format!("{TEXT} {}", sweep.effort()),
        figures: kinds.iter().flat_map(|aes| against_cbc(sweep, *aes)).collect(),
        tables: vec![best_modes_table(sweep, kinds), costs(sweep, "Modes", &scenarios(kinds))],
        findings: findings::of_modes(sweep, kinds),
        samples: sweep.samples(),
        skipped: sweep.skipped.clone(),
    }];
    if kinds.contains(&Aes::Software) {
        parts.push(Part {
            title: "With and without AES instructions".into(),
            text: INSTRUCTIONS_TEXT.into(),
            figures: gain_of_instructions(sweep),
            findings: findings::of_instructions(sweep),
            ..Part::default()
        });
    }
    parts
}

/// Figures 1 and 2. The paper has one of each for both kinds of AES.
fn against_cbc(sweep: &Sweep, aes: Aes) -> Vec<Figure> {
    let base = Scenario::of(Mode::Cbc, aes);
    let line = |mode: &Mode| Line::new(mode.to_string(), Scenario::of(*mode, aes), base);
    let lines: Vec<Line> = modes(aes).iter().map(line).collect();
    let title = format!("Figures 1 and 2, {aes}");
    let words = Labels { title: &title, ratio: "ratio to CBC", caption: AGAINST_CBC };
    figures(sweep, &words, &lines, |_| match aes {
        Aes::Software => vec![paper_range("paper: CCM and GCM", ENDS, [1.2, 1.4])],
        Aes::Instructions => {
            vec![paper_range("paper: CTR, CCM and GCM at 180-200", [180.0, 200.0], [2.0, 3.0])]
        }
    })
}

fn gain_of_instructions(sweep: &Sweep) -> Vec<Figure> {
    let line = |mode: Mode| {
        let [software, instructions] = [Aes::Software, Aes::Instructions].map(|aes| Scenario::of(mode, aes));
        Line::new(mode.to_string(), software, instructions)
    };
    let words = Labels {
        title: "Figure 5, AES in software over AES instructions",
        ratio: "ratio",
        caption: "Above 1, AES instructions help. The paper states elapsed time in words: 1.1 for CBC to \
             1.3 for CCM above 250 bytes, and 3.3 for CBC below.",
    };
    figures(sweep, &words, &PAPERS_MODES.map(line), |quantity| match quantity {
        Quantity::Elapsed => vec![
            paper_range("paper: all modes above 250", [250.0, 1_500.0], [1.1, 1.3]),
            paper_range("paper: CBC below 250", [180.0, 250.0], [3.3, 3.3]),
        ],
        Quantity::Cpu => Vec::new(),
    })
}

const ENDS: [f64; 2] = [180.0, 1_500.0];

const TEXT: &str = "As in the paper: ESP in transport mode, and ratios to CBC. In the paper, devices \
     downloaded over HTTP and Ethernet from a server with the kernel's IPsec. Here both ends are on this \
     machine with one thread per gateway, and the file is transferred over TCP. The MTU is that of the \
     link: the longest packet of a host fits it after protection. Keys have 256 bits. CPU time is that of \
     gateways, sender and receiver together. With AES instructions, the gateway uses the fastest \
     available provider. For AES in software, the instructions for AES and carry-less multiplication are \
     hidden from AWS-LC, and Intel's library, which requires them, is hidden.";

const INSTRUCTIONS_TEXT: &str = "Ratios of the same samples. AES-NI, VAES and carry-less multiplication \
     are hidden; AWS-LC computes AES with the remaining vector instructions. If Intel's library is \
     installed, it contributes to the gain, because it protects several packets at once.";

const AGAINST_CBC: &str = "Below 1 is better than CBC with HMAC-SHA1-96. The paper does not print the \
     numbers of its curves; grey ranges are stated in its text.";

/// Relative distance to the minimum within which modes count as equally good.
pub(super) const TIE: f64 = 0.03;

/// Returns the best of these modes for one MTU, followed by those that are equally good.
pub(super) fn best(sweep: &Sweep, aes: Aes, mtu: u32, quantity: Quantity, of: &[Mode]) -> Vec<Mode> {
    let cost = |mode: &Mode| Some((*mode, sweep.cost(Scenario::of(*mode, aes), mtu, quantity)?.median));
    let mut costs: Vec<(Mode, f64)> = of.iter().filter_map(cost).collect();
    costs.sort_by(|one, other| one.1.total_cmp(&other.1));
    let least = costs.first().map_or(0.0, |(_, cost)| *cost);
    costs.into_iter().filter(|(_, cost)| *cost <= least * (1.0 + TIE)).map(|(mode, _)| mode).collect()
}

/// Best mode for an MTU according to table 2 of the paper. Its text prefers CBC to CTR from 600 bytes on.
pub(super) const fn paper_best(aes: Aes, mtu: u32, quantity: Quantity) -> Mode {
    match (aes, mtu, quantity) {
        (Aes::Software, 200..=999, _) => Mode::Ctr,
        (Aes::Instructions, 200.., Quantity::Elapsed) => Mode::Ctr,
        _ => Mode::Cbc,
    }
}

/// The paper's best mode without AES instructions according to its section 4.1, which contradicts its table
/// from 600 to 1,000 bytes.
const fn paper_text(mtu: u32) -> &'static str {
    match mtu {
        ..=180 => "CBC",
        181..600 => "CTR",
        600 => "CTR below, CBC above",
        601.. => "CBC",
    }
}

/// Table 2: the paper's best mode, the best of the same four modes here, and the best of all modes.
fn best_modes_table(sweep: &Sweep, kinds: &[Aes]) -> Table {
    let columns = ["AES", "By", "Who", "Of"].map(str::to_owned).into_iter();
    let columns = columns.chain(sweep.mtus.iter().map(|mtu| format!("MTU {mtu}")));
    let mut rows = Vec::new();
    for (aes, quantity) in kinds.iter().flat_map(|aes| QUANTITIES.map(|quantity| (*aes, quantity))) {
        let mut row = |who: &str, of: &str, cell: &dyn Fn(u32) -> String| {
            let head = [aes.to_string(), quantity.name().into(), who.into(), of.into()];
            rows.push(head.into_iter().chain(sweep.mtus.iter().map(|mtu| cell(*mtu))).collect());
        };
        row("paper, table 2", "its four", &|mtu| paper_best(aes, mtu, quantity).to_string());
        if aes == Aes::Software {
            row("paper, text", "its four", &|mtu| paper_text(mtu).to_owned());
        }
        row("here", "its four", &|mtu| names(&best(sweep, aes, mtu, quantity, &PAPERS_MODES)));
        if aes == Aes::Instructions {
            row("here", "all five", &|mtu| names(&best(sweep, aes, mtu, quantity, &MODES)));
        }
    }
    Table {
        title: "Table 2, recomputed: the best mode, followed by those within 3 %".into(),
        columns: columns.collect(),
        rows,
    }
}

/// Formats a list of modes, such as `GCM, CTR`.
pub(super) fn names(modes: &[Mode]) -> String {
    let names: Vec<String> = modes.iter().map(ToString::to_string).collect();
    if names.is_empty() { "-".into() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_measure::report::Agreement;

    /// A modern machine: GCM is cheapest with AES instructions, and CBC without.
    fn today() -> Vec<Part> {
        let kinds = [Aes::Software, Aes::Instructions];
        let sweep = Sweep::with(&scenarios(&kinds), &[180, 1_500], |scenario, _| {
            match (scenario.aes, scenario.mode) {
                (Aes::Software, Mode::Cbc) => 20.0,
                (Aes::Software, _) => 26.0,
                (Aes::Instructions, Mode::Gcm) => 5.0,
                (Aes::Instructions, Mode::Ccm) => 6.0,
                (Aes::Instructions, _) => 10.0,
            }
        });
        parts(&sweep, &kinds)
    }

    #[test]
    fn findings_on_a_modern_machine() {
        let parts = today();
        let of = |what: &str| {
            let mut findings = parts.iter().flat_map(|part| &part.findings);
            findings.find(|finding| finding.what.starts_with(what)).unwrap().agreement
        };
        assert_eq!(of("AES in software: CCM and GCM"), Agreement::Agrees);
        assert_eq!(of("AES instructions: GCM against CCM"), Agreement::Differs);
        assert_eq!(of("AES instructions: CBC with HMAC-SHA1 over GCM"), Agreement::Differs);
        assert_eq!(of("table 2, AES instructions"), Agreement::Differs);
        assert_eq!(of("gain of AES instructions for large"), Agreement::Agrees);
    }

    #[test]
    fn every_figure_has_a_line_for_each_mode() {
        let parts = today();
        let lines: Vec<usize> = parts
            .iter()
            .flat_map(|part| &part.figures)
            .map(|figure| figure.series.iter().filter(|series| series.points.len() == 2).count())
            .collect();
        // Four lines and one of the paper without instructions; five and one of the paper with instructions;
        // four, and two of the paper for elapsed time.
        assert_eq!(lines, [5, 5, 6, 6, 6, 4]);
    }

    #[test]
    fn the_best_comes_first_and_ties_follow() {
        let scenarios = MODES.map(|mode| Scenario::of(mode, Aes::Instructions));
        let sweep = Sweep::with(&scenarios, &[180, 1_500], |scenario, mtu| match scenario.mode {
            Mode::Gcm => 10.0,
            Mode::Ctr if mtu == 180 => 10.2,
            Mode::ChaCha => 9.0,
            _ => 20.0,
        });
        let best = |mtu, of: &[Mode]| best(&sweep, Aes::Instructions, mtu, Quantity::Cpu, of);
        assert_eq!(best(180, &PAPERS_MODES), [Mode::Gcm, Mode::Ctr]);
        assert_eq!(best(1_500, &PAPERS_MODES), [Mode::Gcm]);
        assert_eq!(best(180, &MODES), [Mode::ChaCha]);
        let table = best_modes_table(&sweep, &[Aes::Instructions]);
        assert_eq!(table.rows.len(), 6);
        assert_eq!(table.rows[1][4..], ["GCM, CTR", "GCM"]);
    }

    /// Table 2 of the paper.
    #[test]
    fn paper_best_matches_table_2() {
        let software = [180, 200, 999, 1_000, 1_500].map(|mtu| paper_best(Aes::Software, mtu, Quantity::Cpu));
        assert_eq!(software, [Mode::Cbc, Mode::Ctr, Mode::Ctr, Mode::Cbc, Mode::Cbc]);
        let instructions = |quantity| [180, 1_500].map(|mtu| paper_best(Aes::Instructions, mtu, quantity));
        assert_eq!(instructions(Quantity::Elapsed), [Mode::Cbc, Mode::Ctr]);
        assert_eq!(instructions(Quantity::Cpu), [Mode::Cbc, Mode::Cbc]);
    }
}
