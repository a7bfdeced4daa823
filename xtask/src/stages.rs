//! A run of several stages: headings, timings and a summary. A stage that fails does not hide what the next would say.

use crate::beside::Beside;
use crate::failure::{Failure, Result};
use std::time::{Duration, Instant};

enum Outcome {
    Passed,
    Failed(String),
    LeftOut(String),
}

struct Stage {
    name: String,
    took: Duration,
    outcome: Outcome,
}

/// The stages so far.
pub(crate) struct Stages {
    done: Vec<Stage>,
    start: Instant,
}

impl Stages {
    /// No stage yet; the clock runs.
    pub(crate) fn new() -> Self {
        Self { done: Vec::new(), start: Instant::now() }
    }

    /// Runs one stage under a heading.
    pub(crate) fn run(&mut self, name: &str, stage: impl FnOnce() -> Result) {
        println!("\n=== {name}");
        let start = Instant::now();
        let outcome = stage();
        self.note(name, start.elapsed(), outcome);
    }

    /// Waits for tasks that ran beside the stages so far, and prints what they said.
    pub(crate) fn join(&mut self, beside: Beside) {
        match beside.wait() {
            Ok(all) => {
                for done in all {
                    println!("\n=== {}\n{}", done.stage, done.said.trim_end());
                    self.note(done.stage, done.took, done.outcome);
                }
            }
            Err(failure) => self.note("what ran beside", Duration::ZERO, Err(failure)),
        }
    }

    fn note(&mut self, name: &str, took: Duration, outcome: Result) {
        let outcome = match outcome {
            Ok(()) => Outcome::Passed,
            Err(failure) => {
                println!("{failure}");
                Outcome::Failed(failure.to_string())
            }
        };
        println!("--- {name}: {} in {:.1} s", word(&outcome), took.as_secs_f64());
        self.done.push(Stage { name: name.into(), took, outcome });
    }

    /// Notes a stage that cannot run here, and why.
    pub(crate) fn left_out(&mut self, name: &str, why: &str) {
        println!("\n=== {name}\n--- {name}: left out: {why}");
        self.done.push(Stage {
            name: name.into(),
            took: Duration::ZERO,
            outcome: Outcome::LeftOut(why.into()),
        });
    }

    /// Prints the summary. Fails when a stage failed.
    pub(crate) fn finish(self) -> Result {
        println!("\n=== summary ({:.1} s)", self.start.elapsed().as_secs_f64());
        for stage in &self.done {
            let why = match &stage.outcome {
                Outcome::LeftOut(why) => format!(": {why}"),
                Outcome::Failed(why) => format!(": {}", why.lines().next().unwrap_or_default()),
                Outcome::Passed => String::new(),
            };
            println!("{:>7.1} s  {:<8} {}{why}", stage.took.as_secs_f64(), word(&stage.outcome), stage.name);
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
        Outcome::LeftOut(_) => "left out",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failure_fails_the_run_but_not_the_next_stage() {
        let mut stages = Stages::new();
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
    fn what_is_left_out_is_no_failure() {
        let mut stages = Stages::new();
        stages.left_out("needs a guest", "no QEMU");
        assert!(stages.finish().is_ok());
    }
}
