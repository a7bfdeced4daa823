//! Section 4 of the paper without its cores: modes of AES against packet sizes (figures 1 and 2, table 2), with and without instructions
//! for AES (figure 5).

mod findings;
mod recommend;

use super::ground::{Ground, cannot_hide_aes};
use super::plot::{Line, Words, costs, figures, said};
use super::setting::{Aes, MODES, Mode, PAPERS_MODES, Setting};
use super::sweep::{Quantity, Sweep, mtus};
use crate::Context;
use casemate_report::{Figure, LeftOut, Part};
use casemate_stage::Result;

pub(super) fn run(context: &Context) -> Result<Vec<Part>> {
    let ground = Ground::new(context)?;
    let hidden = cannot_hide_aes();
    let kinds: &[Aes] =
        if hidden.is_none() { &[Aes::Software, Aes::Instructions] } else { &[Aes::Instructions] };
    let settings = settings(kinds);
    let mut sweep = Sweep::run(context, &ground, &settings, mtus(context.quick));
    sweep.left_out.extend(hidden.map(|why| LeftOut {
        what: "modes of AES in software".into(),
        why,
        failed: false,
    }));
    Ok(parts(&sweep, kinds))
}

fn settings(kinds: &[Aes]) -> Vec<Setting> {
    kinds.iter().flat_map(|aes| modes(*aes).iter().map(|mode| Setting::of(*mode, *aes))).collect()
}

/// ChaCha20 needs no instructions for AES, and is measured where the fastest is sought.
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
        tables: vec![recommend::table(sweep, kinds), costs(sweep, "Modes", &settings(kinds))],
        findings: findings::of_modes(sweep, kinds),
        samples: sweep.samples(),
        left_out: sweep.left_out.clone(),
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

/// Figures 1 and 2, of which the paper has one for each kind of AES.
fn against_cbc(sweep: &Sweep, aes: Aes) -> Vec<Figure> {
    let base = Setting::of(Mode::Cbc, aes);
    let line = |mode: &Mode| -> Line { (mode.to_string(), Setting::of(*mode, aes), base) };
    let lines: Vec<Line> = modes(aes).iter().map(line).collect();
    let title = format!("Figures 1 and 2, {aes}");
    let words = Words { title: &title, ratio: "ratio to CBC", caption: AGAINST_CBC };
    figures(sweep, &words, &lines, |_| match aes {
        Aes::Software => vec![said("paper: CCM and GCM", ENDS, [1.2, 1.4])],
        Aes::Instructions => vec![said("paper: CTR, CCM and GCM at 180-200", [180.0, 200.0], [2.0, 3.0])],
    })
}

fn gain_of_instructions(sweep: &Sweep) -> Vec<Figure> {
    let line = |mode: Mode| -> Line {
        (mode.to_string(), Setting::of(mode, Aes::Software), Setting::of(mode, Aes::Instructions))
    };
    let words = Words {
        title: "Figure 5, AES in software over AES instructions",
        ratio: "ratio",
        caption: "Above 1, instructions help. The paper gives elapsed time in words: 1.1 for CBC to 1.3 for CCM above 250 bytes, and 3.3 for CBC below.",
    };
    figures(sweep, &words, &PAPERS_MODES.map(line), |quantity| match quantity {
        Quantity::Elapsed => vec![
            said("paper: all modes above 250", [250.0, 1_500.0], [1.1, 1.3]),
            said("paper: CBC below 250", [180.0, 250.0], [3.3, 3.3]),
        ],
        Quantity::Cpu => Vec::new(),
    })
}

const ENDS: [f64; 2] = [180.0, 1_500.0];

const TEXT: &str = "As in the paper: ESP in transport mode, and a ratio to CBC for every mode. There, devices downloaded over HTTP and Ethernet from a \
    server with the kernel's IPsec; here both ends are this machine, with one thread for each gateway, and TCP carries the file. The MTU is \
    that of the link: the longest packet of a host is such that it fits once it is protected. Keys have 256 bits. CPU time is that of gateways, \
    sender and receiver together. With AES instructions the gateway uses the fastest provider that it finds; for AES in software, AES and \
    carry-less multiplication are hidden from AWS-LC, and Intel's library, which needs them, is hidden altogether.";

const INSTRUCTIONS_TEXT: &str = "The same samples the other way round. What is hidden is AES-NI, VAES and carry-less multiplication; vector instructions stay, and \
    AWS-LC computes AES with them. Where Intel's library is installed, it is part of what instructions give: it protects several packets at once.";

const AGAINST_CBC: &str = "Below 1 is better than CBC with HMAC-SHA1-96. Curves of the paper are not printed as numbers; what it says in words is grey.";

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_report::Agreement;

    /// A machine of today: GCM is cheapest with instructions, and CBC without.
    fn today() -> Vec<Part> {
        let kinds = [Aes::Software, Aes::Instructions];
        let sweep =
            Sweep::with(&settings(&kinds), &[180, 1_500], |setting, _| match (setting.aes, setting.mode) {
                (Aes::Software, Mode::Cbc) => 20.0,
                (Aes::Software, _) => 26.0,
                (Aes::Instructions, Mode::Gcm) => 5.0,
                (Aes::Instructions, Mode::Ccm) => 6.0,
                (Aes::Instructions, _) => 10.0,
            });
        parts(&sweep, &kinds)
    }

    #[test]
    fn what_changed_since_the_paper_is_found() {
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
        // Four and the paper's without instructions; five and the paper's with; four, and twice the paper's for elapsed time.
        assert_eq!(lines, [5, 5, 6, 6, 6, 4]);
    }
}
