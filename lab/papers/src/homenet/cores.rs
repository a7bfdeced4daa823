//! Section 4.2 of the paper: one core and several (figures 3 and 4).

use super::ground::Ground;
use super::plot::{Line, Words, costs, figures, said};
use super::setting::{Aes, MODES, Mode, Setting};
use super::sweep::{QUANTITIES, Quantity, Sweep, few_mtus};
use crate::Context;
use crate::verdict::verdict;
use casemate_report::{Finding, LeftOut, Part};
use casemate_stage::Result;
use std::thread::available_parallelism;

/// As many as the gateway takes of its own accord.
const MOST: usize = 4;

pub(super) fn run(context: &Context) -> Result<Vec<Part>> {
    let threads = available_parallelism().map_or(1, usize::from).min(MOST);
    if threads < 2 {
        let out = LeftOut {
            what: "one core and several".into(),
            why: "this machine has one processor".into(),
            failed: false,
        };
        return Ok(vec![Part { title: TITLE.into(), left_out: vec![out], ..Part::default() }]);
    }
    let ground = Ground::new(context)?;
    let modes: &[Mode] = if context.quick { &[Mode::Cbc, Mode::Gcm] } else { &MODES };
    let sweep = Sweep::run(context, &ground, &settings(modes, threads), few_mtus(context.quick));
    Ok(vec![part(&sweep, modes, threads)])
}

fn one(mode: Mode) -> Setting {
    Setting::of(mode, Aes::Instructions)
}

fn several(mode: Mode, threads: usize) -> Setting {
    Setting { threads, ..one(mode) }
}

fn settings(modes: &[Mode], threads: usize) -> Vec<Setting> {
    modes.iter().flat_map(|mode| [one(*mode), several(*mode, threads)]).collect()
}

fn part(sweep: &Sweep, modes: &[Mode], threads: usize) -> Part {
    let line = |mode: &Mode| -> Line { (mode.to_string(), several(*mode, threads), one(*mode)) };
    let lines: Vec<Line> = modes.iter().map(line).collect();
    let title = format!("Figures 3 and 4, {threads} threads over one");
    let words = Words { title: &title, ratio: "ratio to one thread", caption: CAPTION };
    let figures = figures(sweep, &words, &lines, |quantity| match quantity {
        Quantity::Elapsed => vec![said("paper: smallest packets", [180.0], [1.3, 1.7])],
        Quantity::Cpu => Vec::new(),
    });
    Part {
        title: TITLE.into(),
        text: format!("{TEXT} {}", sweep.effort()),
        figures,
        tables: vec![costs(sweep, "Threads", &settings(modes, threads))],
        findings: QUANTITIES
            .iter()
            .filter_map(|quantity| finding(sweep, modes, threads, *quantity))
            .collect(),
        samples: sweep.samples(),
        left_out: sweep.left_out.clone(),
    }
}

/// The paper advises one core for one download.
fn finding(sweep: &Sweep, modes: &[Mode], threads: usize, quantity: Quantity) -> Option<Finding> {
    let mut texts = Vec::new();
    let mut all = Vec::new();
    for mtu in [*sweep.mtus.first()?, *sweep.mtus.last()?] {
        for mode in modes {
            let ratio = sweep.ratio(several(*mode, threads), one(*mode), mtu, quantity)?;
            texts.push(format!("{mode} {} with an MTU of {mtu}", ratio.text(2)));
            all.push(ratio);
        }
    }
    Some(Finding {
        what: format!("{threads} threads over one, {}", quantity.name()),
        paper: match quantity {
            Quantity::Elapsed => "no advantage for one download: 1.3 to 1.7 for the smallest packets, 1.1 and more for large ones",
            Quantity::Cpu => "above 1 for small packets, down to 0.85 with GCM and CCM",
        }
        .into(),
        ours: texts.join("; "),
        agreement: verdict(&all, |ratio| ratio > 0.9),
        why: WHY.into(),
    })
}

const TITLE: &str = "One core and several";
const CAPTION: &str = "Below 1, several threads are better. The paper compares two and four cores with one.";
const TEXT: &str = "The paper switches cores off; here the gateways are told how many threads may move packets, and the processors stay on, for the two \
    hosts share them with sender and receiver. A thread helps only while more packets wait than one can protect.";
const WHY: &str = "Agrees if no mode gains more than a tenth. Both hosts are on this machine: a second thread finds a free processor only where there are more than the \
    two ends keep busy already. On a device with cores to spare, casemate advise measures its own.";
