//! Experiment `streams`: cost of modules with queues, and gain of avoiding them (Aalto's STREAMS prototype,
//! 1997).
//!
//! A large file is transferred between two hosts in ten configurations, the rows of the paper's table, and
//! with the paper's remedies. All are measured in turns, so that a disturbance affects all of them.

mod protection;
pub mod relay;
mod results;
mod testbed;

use crate::{Context, Experiment, Requirement, Step};
use casemate_measure::report::{Paper, Part, Skipped, share_of_others};
use casemate_testbed::Result;
use results::Measured;
use std::time::{Duration, Instant};
use testbed::{KernelSupport, Schedule, Testbed};

/// The experiment.
pub static STREAMS: Experiment = Experiment {
    name: "streams",
    paper,
    summary: "A large file is transferred over TCP between two hosts: without IPsec, through modules \
         called as functions, through modules with queues and threads as in UNIX STREAMS, and with AH, \
         ESP and both in such modules. Then the paper's remedies: one context, one context until it is \
         congested, and inside IP. The hosts are network namespaces, and the modules are those of \
         Casemate's data path between a TUN interface and a UDP socket.",
    short_form_limits: &[
        "The short form measures each arrangement five times for a part of a second, which decides about \
         factors, not about a few percent: whether protections of the same kind are equally fast.",
    ],
    artifacts: &[],
    steps: &[Step {
        title: "ten rows and three remedies",
        requirements: &[Requirement::Namespaces, Requirement::Tun],
        share: 1,
        run,
    }],
};

fn paper() -> Paper {
    Paper {
        authors: "T. Aalto, as reported by M. Dobrucki".into(),
        title: "A UNIX Streams Implementation of the Internet Protocol Security".into(),
        venue: "Helsinki University of Technology, TCM laboratory".into(),
        year: 1997,
    }
}

fn run(context: &Context) -> Result<Vec<Part>> {
    let start = Instant::now();
    let testbed = Testbed::new(&context.program, &context.scratch)?;
    let kernel = KernelSupport::probe()?;
    let cases = protection::cases(&kernel.suites);
    let effort = Schedule::within(context.time, cases.len());
    context.progress.set_total(effort.rounds * cases.len());
    let (mut measured, mut failed, mut others) = (Measured::new(&cases), Vec::new(), 0.0_f64);
    for round in 0..effort.rounds {
        // A round that would not end in time is not started. Each round begins with a different case.
        let each = start.elapsed() / u32::try_from(round.max(1)).unwrap_or(u32::MAX);
        if round > 0 && start.elapsed() + each > context.time.mul_f64(1.1) {
            break;
        }
        others = others.max(share_of_others(OTHERS_TIME));
        for place in 0..cases.len() {
            let Some(case) = cases.get((place + round * 5) % cases.len()) else { continue };
            context.progress.advance(&case.name());
            if failed.iter().any(|(other, _)| other == case) {
                continue;
            }
            match testbed.run(*case, effort.sample_time) {
                Ok(sample) => measured.push(*case, sample),
                Err(error) => failed.push((*case, error.to_string())),
            }
        }
    }
    let failed = failed.into_iter().map(|(case, why)| Skipped { what: case.name(), why, failed: true });
    let mut parts = measured.parts(effort, failed.chain(kernel.skipped()).collect());
    parts.iter_mut().for_each(|part| judge_disturbance(part, others));
    Ok(parts)
}

/// Time before each round in which the processors should be idle.
const OTHERS_TIME: Duration = Duration::from_millis(200);
/// Share of the processors that other programs may take.
const MAX_OTHERS: f64 = 0.25;

/// Withdraws the verdicts of a part if other programs took too much of the processors. This is no noise,
/// which rounds would show: the more threads an arrangement has, the more it gets of contended processors.
fn judge_disturbance(part: &mut Part, others: f64) {
    if others <= MAX_OTHERS {
        return;
    }
    let why = format!(
        "Other programs took {:.0} % of the processors. The scheduler shares the rest among threads, so \
         arrangements with different numbers of threads cannot be compared.",
        others * 100.0
    );
    part.findings =
        std::mem::take(&mut part.findings).into_iter().map(|finding| finding.undecided(&why)).collect();
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_measure::report::Agreement::{self, Agrees, Differs, NotMeasured, Unknown};
    use casemate_measure::report::Finding;

    #[test]
    fn verdicts_of_a_contended_machine_are_withdrawn() {
        let finding = |agreement| Finding {
            what: "faster".into(),
            paper: "yes".into(),
            ours: "2 times".into(),
            agreement,
            why: "so".into(),
        };
        let judged = |others| {
            let findings = [Agrees, Differs, Unknown, NotMeasured].map(finding).into();
            let mut part = Part { findings, ..Part::default() };
            judge_disturbance(&mut part, others);
            part.findings.into_iter().map(|found| (found.agreement, found.why)).collect::<Vec<_>>()
        };
        let verdicts =
            |others| judged(others).into_iter().map(|(agreement, _)| agreement).collect::<Vec<Agreement>>();
        assert_eq!(verdicts(0.2), [Agrees, Differs, Unknown, NotMeasured]);
        assert_eq!(verdicts(0.97), [Unknown, Unknown, Unknown, NotMeasured]);
        assert!(judged(0.97)[0].1.starts_with("Other programs took 97 % of the processors."));
        assert_eq!(judged(0.97)[2].1, "so");
    }
}
