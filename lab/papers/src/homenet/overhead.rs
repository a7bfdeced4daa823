//! Sections 5.1 to 5.3 of the paper: what encryption, ESP itself, tunnels and UDP cost (figures 6 to 9).

use super::ground::Ground;
use super::plot::{Line, Words, costs, figures, said};
use super::setting::{Aes, Form, Mode, Setting};
use super::sweep::{Quantity, Sweep, few_mtus, mtus};
use crate::Context;
use crate::verdict::verdict;
use casemate_report::{Finding, Part, Series};
use casemate_stage::Result;

const CBC: Setting = Setting::of(Mode::Cbc, Aes::Instructions);
const GCM: Setting = Setting::of(Mode::Gcm, Aes::Instructions);
const NULL: Setting = Setting::of(Mode::Null, Aes::Instructions);
const CLEAR: Setting = Setting { form: Form::Clear, ..NULL };
const fn tunnel(setting: Setting) -> Setting {
    Setting { form: Form::Tunnel, ..setting }
}
const fn udp(setting: Setting) -> Setting {
    Setting { form: Form::Udp, ..setting }
}

const SETTINGS: [Setting; 8] = [CLEAR, NULL, CBC, tunnel(CBC), udp(CBC), GCM, tunnel(GCM), udp(GCM)];

pub(super) fn run(context: &Context) -> Result<Vec<Part>> {
    let ground = Ground::new(context)?;
    let mtus = if context.quick { few_mtus(true) } else { mtus(false) };
    let sweep = Sweep::run(context, &ground, &SETTINGS, mtus);
    Ok(vec![Part {
        title: "NULL, tunnel mode and UDP encapsulation".into(),
        text: format!("{TEXT} {}", sweep.effort()),
        figures: COMPARISONS.iter().flat_map(|comparison| comparison.figures(&sweep)).collect(),
        tables: vec![costs(&sweep, "Overheads", &SETTINGS)],
        findings: COMPARISONS.iter().filter_map(|comparison| comparison.finding(&sweep)).collect(),
        samples: sweep.samples(),
        left_out: sweep.left_out.clone(),
    }])
}

/// One of the paper's figures.
struct Comparison {
    title: &'static str,
    ratio: &'static str,
    lines: &'static [(&'static str, Setting, Setting)],
    /// What the paper says of its first line.
    claim: &'static str,
    quantity: Quantity,
    /// Which ratios agree with it, with the longest packets.
    agrees: [f64; 2],
    /// The same as numbers, where the paper has them: from which MTU, and how much.
    said: Option<(f64, f64)>,
    why: &'static str,
}

const COMPARISONS: [Comparison; 4] = [
    Comparison {
        title: "Figure 6, encryption: CBC with HMAC-SHA1 over NULL with HMAC-SHA1",
        ratio: "ratio to NULL",
        lines: &[("CBC", CBC, NULL), ("GCM (today)", GCM, NULL)],
        claim: "encrypting costs 3.75 times the CPU time",
        quantity: Quantity::Cpu,
        agrees: [2.0, f64::MAX],
        said: Some((180.0, 3.75)),
        why: "The paper's factor is of a processor without AES instructions among others. With them encryption is cheap beside HMAC-SHA1, system calls and TCP; GCM, \
              which does without HMAC, may cost less than no encryption with HMAC.",
    },
    Comparison {
        title: "Figure 7, ESP itself: NULL with HMAC-SHA1 over no IPsec",
        ratio: "ratio to no IPsec",
        lines: &[("NULL", NULL, CLEAR)],
        claim: "building ESP packets costs 1.5 times the time",
        quantity: Quantity::Elapsed,
        agrees: [1.25, 2.0],
        said: Some((180.0, 1.5)),
        why: "The paper's IPsec was in the kernel, and Ethernet limited both sides of the ratio. Here packets go from the kernel to a program and back at both ends, over a link \
              that costs nothing; and one machine does the work of both hosts.",
    },
    Comparison {
        title: "Figure 8, tunnel mode over transport mode",
        ratio: "ratio to transport mode",
        lines: &[("CBC", tunnel(CBC), CBC), ("GCM (today)", tunnel(GCM), GCM)],
        claim: "no more elapsed time above 500 bytes with one core",
        quantity: Quantity::Elapsed,
        agrees: [0.0, 1.1],
        said: Some((500.0, 1.0)),
        why: "A tunnel adds 20 bytes to each packet, which is little beside 1,500 and much beside 180.",
    },
    Comparison {
        title: "Figure 9, UDP encapsulation over transport mode",
        ratio: "ratio to transport mode",
        lines: &[("CBC", udp(CBC), CBC), ("GCM (today)", udp(GCM), GCM)],
        claim: "as tunnel mode: no significant effect for large packets",
        quantity: Quantity::Elapsed,
        agrees: [0.9, 1.1],
        said: Some((500.0, 1.0)),
        why: "UDP adds 8 bytes and no work of a cipher. Below 0.9 it is faster than bare ESP: the gateway hands the kernel dozens of packets in UDP as one train, which it \
              cannot do with ESP itself.",
    },
];

impl Comparison {
    fn figures(&self, sweep: &Sweep) -> Vec<casemate_report::Figure> {
        let line = |(name, own, base): &(&str, Setting, Setting)| -> Line { ((*name).into(), *own, *base) };
        let lines: Vec<Line> = self.lines.iter().map(line).collect();
        let words = Words { title: self.title, ratio: self.ratio, caption: CAPTION };
        figures(sweep, &words, &lines, |quantity| self.paper(quantity).into_iter().collect())
    }

    fn paper(&self, quantity: Quantity) -> Option<Series> {
        let (from, value) = self.said.filter(|_| quantity == self.quantity)?;
        Some(said("paper, in words", [from, 1_500.0], [value, value]))
    }

    fn finding(&self, sweep: &Sweep) -> Option<Finding> {
        let mtu = sweep.mtus.last()?;
        let mut texts = Vec::new();
        for (name, own, base) in self.lines {
            let ratio = sweep.ratio(*own, *base, *mtu, self.quantity)?;
            texts.push(format!("{name} {} times", ratio.text(2)));
        }
        let (_, own, base) = self.lines.first()?;
        let ratio = sweep.ratio(*own, *base, *mtu, self.quantity)?;
        let [least, most] = self.agrees;
        Some(Finding {
            what: self.title.into(),
            paper: self.claim.into(),
            ours: format!("{}, {} with an MTU of {mtu}", texts.join(", "), self.quantity.name()),
            agreement: verdict(&[ratio], |ratio| (least..=most).contains(&ratio)),
            why: self.why.into(),
        })
    }
}

const CAPTION: &str = "Above 1 is slower, or dearer. A grey line is what the paper says in words; its curves are not printed as numbers.";
const TEXT: &str = "The paper's one mode from here on, CBC with HMAC-SHA1-96, beside AES-GCM, which RFC 8221 asks for today. Without IPsec, the same hosts and link: the kernel alone, which \
    cuts what TCP sends into packets before it gives them to the link, as for a network card without segmentation offload. NULL has integrity, as IPsec demands.";

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_report::Agreement;

    #[test]
    fn ratios_are_judged_by_what_the_paper_says() {
        let sweep = Sweep::with(&SETTINGS, &[180, 1_500], |setting, _| match (setting.form, setting.mode) {
            (Form::Clear, _) => 2.0,
            (Form::Transport, Mode::Null) => 3.0,
            (Form::Udp, _) => 9.0,
            _ => 4.0,
        });
        let verdicts = COMPARISONS.iter().map(|comparison| comparison.finding(&sweep).unwrap().agreement);
        // Encryption 1.33 times instead of 3.75; ESP 1.5 times, as there; tunnels cost nothing, and UDP much.
        let expected = [Agreement::Differs, Agreement::Agrees, Agreement::Agrees, Agreement::Differs];
        assert_eq!(verdicts.collect::<Vec<_>>(), expected);
    }
}
