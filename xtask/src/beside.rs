//! Tasks that run one after the other beside the stages of a run: what mostly compiles beside what mostly waits.
//!
//! Each task is this program again, in a process of its own. What it says is kept in a file and printed when the run asks for it, so that
//! two never speak at the same time.

use crate::failure::{Failure, Result};
use crate::{metadata, shell};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A task as it is called.
pub(crate) struct Task {
    /// Its name in the summary.
    stage: &'static str,
    /// `cargo xtask` with these arguments.
    arguments: Vec<String>,
}

impl Task {
    /// For a stage of this name.
    pub(crate) fn new(stage: &'static str, arguments: &[&str]) -> Self {
        Self { stage, arguments: arguments.iter().map(ToString::to_string).collect() }
    }
}

/// What became of a task.
pub(crate) struct Done {
    pub(crate) stage: &'static str,
    pub(crate) took: Duration,
    pub(crate) outcome: Result,
    /// What it printed.
    pub(crate) said: String,
}

/// Tasks under way.
pub(crate) struct Beside(JoinHandle<Vec<Done>>);

impl Beside {
    /// Starts the first of them, with the lowest priority. The others follow, whatever became of it.
    pub(crate) fn start(tasks: Vec<Task>) -> Self {
        for task in &tasks {
            println!("\n=== {}: beside the next stages", task.stage);
        }
        Self(std::thread::spawn(move || tasks.into_iter().map(run).collect()))
    }

    /// Waits for all of them.
    pub(crate) fn wait(self) -> Result<Vec<Done>> {
        self.0.join().map_err(|_| Failure::new("the thread beside the stages panicked"))
    }
}

fn run(task: Task) -> Done {
    let start = Instant::now();
    let (outcome, said) = match log_of(task.stage) {
        Ok(log) => (into_file(&task.arguments, &log), read(&log)),
        Err(failure) => (Err(failure), String::new()),
    };
    Done { stage: task.stage, took: start.elapsed(), outcome, said }
}

/// Where a stage's output is kept.
fn log_of(stage: &str) -> Result<PathBuf> {
    let directory = metadata::target_directory()?.join("xtask");
    fs::create_dir_all(&directory)?;
    let name: String =
        stage.chars().map(|sign| if sign.is_ascii_alphanumeric() { sign } else { '-' }).collect();
    Ok(directory.join(format!("{name}.log")))
}

fn into_file(arguments: &[String], log: &Path) -> Result {
    let output = File::create(log)?;
    let mut command = again()?;
    command.args(arguments).stdout(output.try_clone()?).stderr(output);
    shell::run_unshown(&mut command)
}

/// This program, to be called again, with the lowest priority.
fn again() -> Result<Command> {
    let mut command = shell::command("nice");
    command.args(["-n", "19"]).arg(as_it_is_now(std::env::current_exe()?));
    Ok(command)
}

/// Where this program is. When the workspace is built, another one of the same sources takes its place, and Linux marks the path of the one that runs.
fn as_it_is_now(program: PathBuf) -> PathBuf {
    let replaced = program.to_str().and_then(|path| path.strip_suffix(" (deleted)"));
    replaced.map(PathBuf::from).unwrap_or(program)
}

/// What is in the file, as far as it can be read.
fn read(log: &Path) -> String {
    String::from_utf8_lossy(&fs::read(log).unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_was_built_again_is_found() {
        let here = PathBuf::from("/project/target/debug/xtask");
        assert_eq!(as_it_is_now(here.clone()), here);
        assert_eq!(as_it_is_now("/project/target/debug/xtask (deleted)".into()), here);
    }

    /// The program of the tests knows no such option, says so, and fails; the second is tried all the same.
    #[test]
    fn whatever_becomes_of_one_the_next_is_run_and_both_are_heard() {
        let tasks =
            vec![Task::new("beside: no such", &["--no-such-option"]), Task::new("beside: list", &["--list"])];
        let done = Beside::start(tasks).wait().unwrap();
        let [first, second] = &done[..] else { panic!("{} are done", done.len()) };
        assert!(first.outcome.is_err() && first.said.contains("no-such-option"), "{}", first.said);
        assert!(second.outcome.is_ok() && second.said.contains("whatever_becomes_of_one"), "{}", second.said);
    }
}
