//! Runs stages with headings, progress and a summary. A failed stage does not stop the next one.

use crate::jobs::{self, BackgroundJobs, FinishedJob, Job};
use crate::progress::Progress;
use crate::shell::{Failure, Result};
use std::time::{Duration, Instant};

enum Outcome {
    Passed,
    Failed(String),
    Skipped(String),
    /// Failed, and passed in a second run.
    Unstable(String),
}

struct Stage {
    name: String,
    elapsed: Duration,
    outcome: Outcome,
}

/// Stages of a run.
pub(crate) struct Stages {
    done: Vec<Stage>,
    start: Instant,
    progress: Progress,
}

/// Name of the stage that waits for the background jobs.
pub(crate) const BACKGROUND: &str = "background tasks";

impl Stages {
    /// Starts a run and prints its outline.
    pub(crate) fn new(progress: Progress) -> Self {
        println!("{}", progress.outline());
        Self { done: Vec::new(), start: Instant::now(), progress }
    }

    /// Runs a stage under a heading.
    pub(crate) fn run(&mut self, name: &str, stage: impl FnOnce() -> Result) {
        println!("\n=== {}", self.progress.heading(name));
        let start = Instant::now();
        let outcome = stage();
        self.record(name, start.elapsed(), outcome);
    }

    /// Waits for background jobs and prints their output.
    pub(crate) fn join_background(&mut self, background: BackgroundJobs) {
        println!("\n=== {}", self.progress.heading(BACKGROUND));
        let start = Instant::now();
        let finished = background.wait();
        self.progress.finish(BACKGROUND, start.elapsed());
        match finished {
            Ok(all) => all.into_iter().for_each(|done| self.record_job(done)),
            Err(failure) => self.record(BACKGROUND, start.elapsed(), Err(failure)),
        }
    }

    /// Runs the jobs of each lane one after another, and the lanes in parallel. A failed job runs again at
    /// the end, when no other job runs; if it passes then, it counts as unstable. The summary lists each job
    /// by its stage. `name` is the name of the whole in the progress display.
    pub(crate) fn run_lanes(&mut self, name: &str, lanes: Vec<Vec<Job>>) {
        println!("\n=== {}", self.progress.heading(name));
        let start = Instant::now();
        let mut failed = Vec::new();
        let finished = jobs::run_lanes(lanes, |job, done| match &done.outcome {
            Ok(()) => self.record_job(done),
            Err(failure) => {
                println!("\n=== {}\n{}\n{failure}", done.stage, done.output.trim_end());
                println!("--- {}: failed beside another task; it runs again at the end", done.stage);
                failed.push(job);
            }
        });
        for job in failed {
            let done = jobs::run(&job);
            if done.outcome.is_ok() {
                self.unstable(done.stage, "failed beside another task, passed alone");
            }
            self.record_job(done);
        }
        match finished {
            Ok(()) => self.progress.finish(name, start.elapsed()),
            Err(failure) => self.record(name, start.elapsed(), Err(failure)),
        }
    }

    /// Prints the output of a job and records its outcome.
    fn record_job(&mut self, done: FinishedJob) {
        println!("\n=== {}\n{}", done.stage, done.output.trim_end());
        self.record(done.stage, done.elapsed, done.outcome);
    }

    fn record(&mut self, name: &str, elapsed: Duration, outcome: Result) {
        let outcome = match outcome {
            Ok(()) => Outcome::Passed,
            Err(failure) => {
                println!("{failure}");
                Outcome::Failed(failure.to_string())
            }
        };
        println!("--- {name}: {} in {:.1} s", word(&outcome), elapsed.as_secs_f64());
        match outcome {
            Outcome::Passed => self.progress.finish(name, elapsed),
            // The duration says nothing about the next run.
            Outcome::Failed(_) | Outcome::Skipped(_) | Outcome::Unstable(_) => self.progress.skip(name),
        }
        self.done.push(Stage { name: name.into(), elapsed, outcome });
    }

    /// Records a stage that cannot run on this machine, and the reason.
    pub(crate) fn skip(&mut self, name: &str, why: &str) {
        println!("\n=== {}\n--- {name}: skipped: {why}", self.progress.heading(name));
        self.progress.skip(name);
        self.done.push(Stage {
            name: name.into(),
            elapsed: Duration::ZERO,
            outcome: Outcome::Skipped(why.into()),
        });
    }

    /// Records a test that failed, and passed in a second run.
    pub(crate) fn unstable(&mut self, name: &str, why: &str) {
        let outcome = Outcome::Unstable(why.into());
        self.done.push(Stage { name: name.into(), elapsed: Duration::ZERO, outcome });
    }

    /// Prints the summary, and records the durations for the next run. Fails if a stage failed.
    pub(crate) fn finish(self) -> Result {
        self.progress.save();
        println!("\n=== summary ({:.1} s)", self.start.elapsed().as_secs_f64());
        for stage in &self.done {
            let why = match &stage.outcome {
                Outcome::Skipped(why) | Outcome::Unstable(why) => format!(": {why}"),
                Outcome::Failed(why) => format!(": {}", first_lines(why)),
                Outcome::Passed => String::new(),
            };
            println!(
                "{:>7.1} s  {:<8} {}{why}",
                stage.elapsed.as_secs_f64(),
                word(&stage.outcome),
                stage.name
            );
        }
        let failed: Vec<_> =
            self.done.iter().filter(|stage| matches!(stage.outcome, Outcome::Failed(_))).collect();
        if failed.is_empty() {
            return Ok(());
        }
        let names: Vec<_> = failed.iter().map(|stage| stage.name.as_str()).collect();
        Err(Failure::new(format!("failed: {}", names.join(", "))))
    }
}

fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Passed => "passed",
        Outcome::Failed(_) => "FAILED",
        Outcome::Skipped(_) => "skipped",
        Outcome::Unstable(_) => "UNSTABLE",
    }
}

/// The first lines of a message, for the summary.
fn first_lines(message: &str) -> String {
    message.lines().take(20).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn stages() -> Stages {
        Stages::new(Progress::new(&[], BTreeMap::new()))
    }

    #[test]
    fn one_failure_fails_the_run_but_not_the_next_stage() {
        let mut stages = stages();
        let mut second_ran = false;
        stages.run("first", || Err(Failure::new("broken")));
        stages.run("second", || {
            second_ran = true;
            Ok(())
        });
        assert!(second_ran);
        assert!(stages.finish().unwrap_err().to_string().contains("first"));
    }

    #[test]
    fn skipped_stage_is_not_a_failure() {
        let mut stages = stages();
        stages.skip("needs a guest", "no QEMU");
        assert!(stages.finish().is_ok());
    }
}
