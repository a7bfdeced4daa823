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
use casemate_measure::report::{Paper, Part, Skipped};
use casemate_testbed::Result;
use results::Measured;
use std::time::Instant;
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
    let (mut measured, mut failed) = (Measured::new(&cases), Vec::new());
    for round in 0..effort.rounds {
        // A round that would not end in time is not started. Each round begins with a different case.
        let each = start.elapsed() / u32::try_from(round.max(1)).unwrap_or(u32::MAX);
        if round > 0 && start.elapsed() + each > context.time.mul_f64(1.1) {
            break;
        }
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
    Ok(measured.parts(effort, failed.chain(kernel.skipped()).collect()))
}
