//! Does an experiment, whatever becomes of its steps.

use crate::experiment::{Context, Experiment, Step};
use crate::{Progress, clock};
use casemate_report::{LeftOut, Machine, Part, Record, Watch};
use casemate_stage::Result;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How an experiment is to be done.
#[derive(Debug, Clone)]
pub struct Order {
    /// The short form.
    pub quick: bool,
    /// What the steps share.
    pub time: Duration,
    /// The program `casemate`.
    pub program: PathBuf,
    /// A directory for files that nobody needs afterwards.
    pub scratch: PathBuf,
    /// Programs that take part, with their versions.
    pub versions: BTreeMap<String, String>,
    /// Who is told how far it is.
    pub progress: Progress,
}

impl Order {
    /// What the steps share as a rule. A user is told 5 minutes, and 45 seconds for the short form, all else included.
    pub const fn usual_time(quick: bool) -> Duration {
        Duration::from_secs(if quick { 36 } else { 245 })
    }

    /// When a step that hangs is given up, and with it what comes after.
    fn limit(&self) -> Duration {
        self.time.mul_f64(1.17)
    }
}

/// Does all steps and returns what came out.
pub fn run(experiment: &'static Experiment, order: &Order) -> Record {
    let (watch, begun, started) = (Watch::begin(), Instant::now(), clock::utc());
    let missing = |step: &Step| step.needs.iter().find_map(|need| need.missing());
    let steps: Vec<_> = experiment.steps.iter().map(|step| (step, missing(step))).collect();
    // The time of what cannot be done here is for the rest.
    let shares: u32 = steps.iter().filter(|(_, missing)| missing.is_none()).map(|(step, _)| step.share).sum();
    let mut parts = Vec::new();
    for (step, missing) in steps {
        order.progress.step(step.title);
        let context = Context {
            quick: order.quick,
            time: order.time.saturating_mul(step.share) / shares.max(1),
            program: order.program.clone(),
            scratch: order.scratch.clone(),
            progress: order.progress.clone(),
        };
        let left = order.limit().saturating_sub(begun.elapsed());
        parts.extend(attempt(step, missing, context, left).unwrap_or_else(|out| {
            order.progress.say(&format!("left out: {}: {}", out.what, out.why));
            vec![Part { title: step.title.into(), left_out: vec![out], ..Part::default() }]
        }));
    }
    order.progress.end();
    Record {
        experiment: experiment.name.into(),
        paper: (experiment.paper)(),
        summary: experiment.summary.into(),
        machine: Machine::here(),
        activity: watch.end(),
        versions: order.versions.clone(),
        started,
        seconds: begun.elapsed().as_secs_f64(),
        quick: order.quick,
        parts,
    }
}

/// Does a step in a thread of its own, which is left behind if it hangs. The programs that it started end with this process.
fn attempt(
    step: &'static Step,
    missing: Option<String>,
    context: Context,
    left: Duration,
) -> Result<Vec<Part>, LeftOut> {
    let out = |why, failed| LeftOut { what: step.title.into(), why, failed };
    if let Some(missing) = missing {
        return Err(out(missing, false));
    }
    let (told, hear) = channel();
    thread::spawn(move || told.send((step.run)(&context)));
    match hear.recv_timeout(left) {
        Ok(done) => done.map_err(|error| out(error.to_string(), true)),
        Err(RecvTimeoutError::Timeout) => {
            Err(out(format!("no time: it had not ended after {:.0} s", left.as_secs_f64()), true))
        }
        Err(RecvTimeoutError::Disconnected) => Err(out("it panicked".into(), true)),
    }
}

#[cfg(test)]
mod tests;
