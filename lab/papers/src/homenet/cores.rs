//! One core against several: section 4.2 of the paper (figures 3 and 4).

use super::scenario::{Aes, MODES, Mode, Scenario};
use super::sweep::{Labels, Line, QUANTITIES, Quantity, Sweep, costs, few_mtus, figures, paper_range};
use super::testbed::Testbed;
use crate::Context;
use casemate_measure::report::{Bound, Claim, Finding, Part, Skipped};
use casemate_testbed::Result;
use std::thread::available_parallelism;

/// Default maximum number of threads of the gateway.
const MAX_THREADS: usize = 4;

pub(super) fn run(context: &Context) -> Result<Vec<Part>> {
    let threads = available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    if threads < 2 {
        let out = Skipped {
            what: "one core and several".into(),
            why: "this machine has one processor".into(),
            failed: false,
        };
        return Ok(vec![Part { title: TITLE.into(), skipped: vec![out], ..Part::default() }]);
    }
    let testbed = Testbed::new(context)?;
    let modes: &[Mode] = if context.quick { &[Mode::Cbc, Mode::Gcm] } else { &MODES };
    let sweep = Sweep::run(context, &testbed, &scenarios(modes, threads), few_mtus(context.quick));
    Ok(vec![part(&sweep, modes, threads)])
}

fn single_thread(mode: Mode) -> Scenario {
    Scenario::of(mode, Aes::Instructions)
}

fn multi_thread(mode: Mode, threads: usize) -> Scenario {
    Scenario { threads, ..single_thread(mode) }
}

fn scenarios(modes: &[Mode], threads: usize) -> Vec<Scenario> {
    modes.iter().flat_map(|mode| [single_thread(*mode), multi_thread(*mode, threads)]).collect()
}

fn part(sweep: &Sweep, modes: &[Mode], threads: usize) -> Part {
    let line = |mode: &Mode| Line::new(mode.to_string(), multi_thread(*mode, threads), single_thread(*mode));
    let lines: Vec<Line> = modes.iter().map(line).collect();
    let title = format!("Figures 3 and 4, {threads} threads over one");
    let words = Labels { title: &title, ratio: "ratio to one thread", caption: CAPTION };
    let figures = figures(sweep, &words, &lines, |quantity| match quantity {
        Quantity::Elapsed => vec![paper_range("paper: smallest packets", [180.0], [1.3, 1.7])],
        Quantity::Cpu => Vec::new(),
    });
    Part {
        title: TITLE.into(),
        text: format!("{TEXT} {}", sweep.effort()),
        figures,
        tables: vec![costs(sweep, "Threads", &scenarios(modes, threads))],
        findings: QUANTITIES
            .iter()
            .filter_map(|quantity| finding(sweep, modes, threads, *quantity))
            .collect(),
        samples: sweep.samples(),
        skipped: sweep.skipped.clone(),
    }
}

/// The paper recommends one core for one download.
fn finding(sweep: &Sweep, modes: &[Mode], threads: usize, quantity: Quantity) -> Option<Finding> {
    let mut texts = Vec::new();
    let mut all = Vec::new();
    for mtu in [*sweep.mtus.first()?, *sweep.mtus.last()?] {
        for mode in modes {
            let ratio = sweep.ratio(multi_thread(*mode, threads), single_thread(*mode), mtu, quantity)?;
            texts.push(format!("{mode} {} with an MTU of {mtu}", ratio.text(2)));
            all.push(ratio);
        }
    }
    let claim = Claim {
        what: &format!("{threads} threads over one, {}", quantity.name()),
        paper: match quantity {
            Quantity::Elapsed => {
                "no advantage for one download: 1.3 to 1.7 for the smallest packets, 1.1 and more for large \
                 ones"
            }
            Quantity::Cpu => "above 1 for small packets, down to 0.85 with GCM and CCM",
        },
        holds: Bound::Above(0.9),
        agrees: NO_GAIN,
        differs: GAIN,
    };
    Some(claim.judge(texts.join("; "), &all))
}

const TITLE: &str = "One core and several";
const CAPTION: &str = "Below 1, several threads are faster. The paper compares two and four cores with \
     one.";
const TEXT: &str = "The paper disables cores. Here the number of gateway threads changes and all \
     processors stay on, because both hosts share them with sender and receiver. A thread helps only \
     while more packets wait than one thread can protect.";
const NO_GAIN: &str = "No mode gains more than a tenth. Both hosts are on this machine: a second thread \
     finds a free processor only if the two ends do not keep all of them busy. On a device with idle cores, \
     use casemate advise.";
const GAIN: &str = "A mode gains more than a tenth: a second thread finds a free processor although both \
     hosts are on this machine.";
