//! `streams`: what modules with queues cost, and what it helps to do without (Aalto's STREAMS prototype, 1997).
//!
//! A large file goes from one host to another through ten arrangements, which are the rows of the paper's table, and through the paper's
//! remedies. All are measured in turns, so that what slows the machine down slows all of them.

mod kernel;
mod outcome;
mod protection;
pub mod relay;
mod rows;
mod turn;

use crate::{Context, Experiment, Need, Step};
use casemate_report::{LeftOut, Paper, Part};
use casemate_stage::Result;
use outcome::Measured;
use std::time::Instant;
use turn::{Effort, Ground};

/// The experiment.
pub static STREAMS: Experiment = Experiment {
    name: "streams",
    paper,
    summary: "A large file goes over TCP from one host to another: with no IPsec, through modules that are called as functions, through \
              modules with queues and threads as UNIX STREAMS has them, and with AH, ESP and both in such modules. Then the paper's \
              remedies: one context, one context until it is congested, and inside IP. Hosts are network namespaces, and the \
              modules are those of this program's data path between a TUN interface and a UDP socket.",
    steps: &[Step {
        title: "ten rows and three remedies",
        needs: &[Need::Namespaces, Need::Tun],
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
    let begun = Instant::now();
    let ground = Ground::new(&context.program, &context.scratch)?;
    let kernel = kernel::Knows::probe()?;
    let subjects = rows::subjects(&kernel.suites);
    let effort = Effort::within(context.time, subjects.len(), context.quick);
    context.progress.expect(effort.rounds * subjects.len());
    let (mut measured, mut failed) = (Measured::new(&subjects), Vec::new());
    for round in 0..effort.rounds {
        // A round that would not end in time is not begun; each begins with another subject.
        let each = begun.elapsed() / u32::try_from(round.max(1)).unwrap_or(u32::MAX);
        if round > 0 && begun.elapsed() + each > context.time.mul_f64(1.1) {
            break;
        }
        for place in 0..subjects.len() {
            let Some(subject) = subjects.get((place + round * 5) % subjects.len()) else { continue };
            context.progress.next(&subject.name());
            if failed.iter().any(|(other, _)| other == subject) {
                continue;
            }
            match ground.turn(*subject, effort.turn) {
                Ok(outcome) => measured.push(*subject, outcome),
                Err(error) => failed.push((*subject, error.to_string())),
            }
        }
    }
    let failed = failed.into_iter().map(|(subject, why)| LeftOut { what: subject.name(), why, failed: true });
    Ok(measured.parts(effort, failed.chain(kernel.left_out()).collect()))
}
