//! Runs stages with headings, progress and a summary. A failed stage does not stop the next one.

use crate::cargo;
use crate::progress::Progress;
use crate::shell::{self, Failure, Result};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::JoinHandle;
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

/// Name of the stage that waits for the background tasks.
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

    /// Waits for background tasks and prints their output.
    pub(crate) fn join_background(&mut self, background: BackgroundTasks) {
        println!("\n=== {}", self.progress.heading(BACKGROUND));
        let start = Instant::now();
        let finished = background.wait();
        self.progress.finish(BACKGROUND, start.elapsed());
        match finished {
            Ok(all) => {
                for done in all {
                    println!("\n=== {}\n{}", done.stage, done.output.trim_end());
                    self.record(done.stage, done.elapsed, done.outcome);
                }
            }
            Err(failure) => self.record(BACKGROUND, start.elapsed(), Err(failure)),
        }
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

/// Background task.
pub(crate) struct Task {
    /// Name in the summary.
    stage: &'static str,
    /// Arguments of `cargo xtask`.
    arguments: Vec<String>,
}

impl Task {
    /// Task of the stage `stage`.
    pub(crate) fn new(stage: &'static str, arguments: &[&str]) -> Self {
        Self { stage, arguments: arguments.iter().map(ToString::to_string).collect() }
    }
}

/// Finished task.
pub(crate) struct FinishedTask {
    pub(crate) stage: &'static str,
    pub(crate) elapsed: Duration,
    pub(crate) outcome: Result,
    /// Output of the task.
    pub(crate) output: String,
}

/// Running background tasks.
pub(crate) struct BackgroundTasks(JoinHandle<Vec<FinishedTask>>);

impl BackgroundTasks {
    /// Starts the first task with the lowest priority. The next tasks follow, even if a task fails.
    pub(crate) fn start(tasks: Vec<Task>) -> Self {
        for task in &tasks {
            println!("\n=== {}: runs in the background", task.stage);
        }
        Self(std::thread::spawn(move || tasks.into_iter().map(run).collect()))
    }

    /// Waits for all tasks.
    pub(crate) fn wait(self) -> Result<Vec<FinishedTask>> {
        self.0.join().map_err(|_| Failure::new("the thread of the background tasks panicked"))
    }
}

fn run(task: Task) -> FinishedTask {
    let start = Instant::now();
    let (outcome, output) = match log_path(task.stage) {
        Ok(log) => (run_into_file(&task.arguments, &log), read(&log)),
        Err(failure) => (Err(failure), String::new()),
    };
    FinishedTask { stage: task.stage, elapsed: start.elapsed(), outcome, output }
}

/// File for the output of a stage.
fn log_path(stage: &str) -> Result<PathBuf> {
    let directory = cargo::target_directory()?.join("xtask");
    fs::create_dir_all(&directory)?;
    let name: String =
        stage.chars().map(|sign| if sign.is_ascii_alphanumeric() { sign } else { '-' }).collect();
    Ok(directory.join(format!("{name}.log")))
}

fn run_into_file(arguments: &[String], log: &Path) -> Result {
    let output = File::create(log)?;
    let mut command = this_program()?;
    command.args(arguments).stdout(output.try_clone()?).stderr(output);
    shell::run_unshown(&mut command)
}

/// Command that runs this program with the lowest priority.
fn this_program() -> Result<Command> {
    let mut command = shell::command("nice");
    command.args(["-n", "19"]).arg(without_deleted_suffix(std::env::current_exe()?));
    Ok(command)
}

/// Path of this program. When a build replaces the running program, Linux appends " (deleted)" to its path.
fn without_deleted_suffix(program: PathBuf) -> PathBuf {
    let replaced = program.to_str().and_then(|path| path.strip_suffix(" (deleted)"));
    replaced.map(PathBuf::from).unwrap_or(program)
}

/// Content of the file; empty if it cannot be read.
fn read(log: &Path) -> String {
    String::from_utf8_lossy(&fs::read(log).unwrap_or_default()).into_owned()
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

    #[test]
    fn replaced_program_is_found() {
        let here = PathBuf::from("/project/target/debug/xtask");
        assert_eq!(without_deleted_suffix(here.clone()), here);
        assert_eq!(without_deleted_suffix("/project/target/debug/xtask (deleted)".into()), here);
    }

    /// The test program does not know the option and fails. The second task runs nevertheless.
    #[test]
    fn failed_task_does_not_stop_the_next_one() {
        let tasks = vec![
            Task::new("background: no such", &["--no-such-option"]),
            Task::new("background: list", &["--list"]),
        ];
        let done = BackgroundTasks::start(tasks).wait().unwrap();
        let [first, second] = &done[..] else { panic!("{} are done", done.len()) };
        assert!(first.outcome.is_err() && first.output.contains("no-such-option"), "{}", first.output);
        assert!(
            second.outcome.is_ok() && second.output.contains("failed_task_does_not_stop"),
            "{}",
            second.output
        );
    }
}
