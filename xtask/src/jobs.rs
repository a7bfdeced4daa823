//! Jobs: tasks of xtask that run in child processes, in the background or in parallel lanes.

use crate::cargo;
use crate::shell::{self, Failure, Result};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A task of xtask that runs as a stage, in a child process.
pub(crate) struct Job {
    /// Name in the summary.
    stage: &'static str,
    /// Arguments of `cargo xtask`.
    arguments: Vec<String>,
}

impl Job {
    /// Job for the stage `stage`.
    pub(crate) fn new(stage: &'static str, arguments: &[&str]) -> Self {
        Self { stage, arguments: arguments.iter().map(ToString::to_string).collect() }
    }
}

/// Finished job.
pub(crate) struct FinishedJob {
    pub(crate) stage: &'static str,
    pub(crate) elapsed: Duration,
    pub(crate) outcome: Result,
    /// Standard output and standard error.
    pub(crate) output: String,
}

/// Running background jobs.
pub(crate) struct BackgroundJobs(JoinHandle<Vec<FinishedJob>>);

impl BackgroundJobs {
    /// Runs the jobs one after another with the lowest priority. A failed job does not stop the next one.
    pub(crate) fn start(jobs: Vec<Job>) -> Self {
        for job in &jobs {
            println!("\n=== {}: runs in the background", job.stage);
        }
        let run_all = move || jobs.iter().map(|job| run_with(job, Priority::Lowest)).collect();
        Self(thread::spawn(run_all))
    }

    /// Waits for all jobs.
    pub(crate) fn wait(self) -> Result<Vec<FinishedJob>> {
        self.0.join().map_err(|_| Failure::new("the thread of the background tasks panicked"))
    }
}

/// Runs the jobs of each lane one after another, and the lanes in parallel. Passes each job to `finished`
/// when it is done.
pub(crate) fn run_lanes(lanes: Vec<Vec<Job>>, mut finished: impl FnMut(Job, FinishedJob)) -> Result {
    let (sender, done) = mpsc::channel();
    let threads: Vec<_> = lanes
        .into_iter()
        .map(|lane| {
            let sender = sender.clone();
            thread::spawn(move || {
                for job in lane {
                    let result = run(&job);
                    // The receiver waits until all senders are gone.
                    let _ = sender.send((job, result));
                }
            })
        })
        .collect();
    drop(sender);
    for (job, result) in done {
        finished(job, result);
    }
    let panicked = threads.into_iter().map(JoinHandle::join).filter(|end| end.is_err()).count();
    if panicked == 0 {
        Ok(())
    } else {
        Err(Failure::new(format!("the threads of {panicked} lanes panicked")))
    }
}

/// Runs a job and waits for its end.
pub(crate) fn run(job: &Job) -> FinishedJob {
    run_with(job, Priority::Normal)
}

/// Scheduling priority of a job.
#[derive(Clone, Copy)]
enum Priority {
    Normal,
    Lowest,
}

fn run_with(job: &Job, priority: Priority) -> FinishedJob {
    let start = Instant::now();
    let (outcome, output) = match log_path(job.stage) {
        Ok(log) => (run_into_file(&job.arguments, priority, &log), read(&log)),
        Err(failure) => (Err(failure), String::new()),
    };
    FinishedJob { stage: job.stage, elapsed: start.elapsed(), outcome, output }
}

/// File for the output of a stage.
fn log_path(stage: &str) -> Result<PathBuf> {
    let directory = cargo::target_directory()?.join("xtask");
    fs::create_dir_all(&directory)?;
    let name: String =
        stage.chars().map(|sign| if sign.is_ascii_alphanumeric() { sign } else { '-' }).collect();
    Ok(directory.join(format!("{name}.log")))
}

fn run_into_file(arguments: &[String], priority: Priority, log: &Path) -> Result {
    let output = File::create(log)?;
    let mut command = this_program(priority)?;
    command.args(arguments).stdout(output.try_clone()?).stderr(output);
    shell::run_unshown(&mut command)
}

/// Command that runs this program.
fn this_program(priority: Priority) -> Result<Command> {
    let program = without_deleted_suffix(std::env::current_exe()?);
    Ok(match priority {
        Priority::Normal => shell::command(program),
        Priority::Lowest => {
            let mut command = shell::command("nice");
            command.args(["-n", "19"]).arg(program);
            command
        }
    })
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

    #[test]
    fn replaced_program_is_found() {
        let here = PathBuf::from("/project/target/debug/xtask");
        assert_eq!(without_deleted_suffix(here.clone()), here);
        assert_eq!(without_deleted_suffix("/project/target/debug/xtask (deleted)".into()), here);
    }

    /// The test program does not know the option and fails. The second job runs nevertheless.
    #[test]
    fn failed_job_does_not_stop_the_next_one() {
        let jobs = vec![
            Job::new("background: no such", &["--no-such-option"]),
            Job::new("background: list", &["--list"]),
        ];
        let done = BackgroundJobs::start(jobs).wait().unwrap();
        let [first, second] = &done[..] else { panic!("{} are done", done.len()) };
        assert!(first.outcome.is_err() && first.output.contains("no-such-option"), "{}", first.output);
        assert!(
            second.outcome.is_ok() && second.output.contains("failed_job_does_not_stop"),
            "{}",
            second.output
        );
    }

    #[test]
    fn every_job_of_every_lane_is_passed_on() {
        let failing = Job::new("lanes: no such", &["--no-such-option"]);
        let lanes = vec![
            vec![failing, Job::new("lanes: after a failure", &["--list"])],
            vec![Job::new("lanes: second", &["--list"])],
        ];
        let mut outcomes = Vec::new();
        run_lanes(lanes, |job, done| outcomes.push((job.stage, done.outcome.is_ok()))).unwrap();
        outcomes.sort_unstable();
        assert_eq!(
            outcomes,
            [("lanes: after a failure", true), ("lanes: no such", false), ("lanes: second", true)]
        );
    }
}
