//! Programs of the host: those that run for a while, and those that come to an end.

use crate::{Error, Netns, Result};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How often a process is asked whether it has ended.
const PAUSE: Duration = Duration::from_millis(5);
/// How long a process that is dropped may take to end in good order.
const FAREWELL: Duration = Duration::from_secs(2);

/// What a program left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Exit status; 124 when it ran out of time.
    pub status: i32,
    /// Standard output and standard error, as they came.
    pub stdout: String,
}

/// Runs a program in a namespace to its end and returns its status and what it printed. It is ended when it runs for longer
/// than `limit`; the status is then 124.
pub fn run(netns: &Netns, limit: Duration, program: impl AsRef<Path>, arguments: &[&str]) -> Result<Output> {
    let program = program.as_ref();
    let mut command = netns.command("timeout");
    command.args(["--kill-after=2", &limit.as_secs_f64().to_string()]).arg(program).args(arguments);
    let output = command.output().map_err(Error::in_front(program.display()))?;
    let stdout = [output.stdout, output.stderr].concat();
    Ok(Output {
        status: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&stdout).into_owned(),
    })
}

/// A program that runs until it is stopped; dropping it ends it. What it prints goes to a file.
#[derive(Debug)]
pub struct Background {
    name: String,
    child: Child,
    output: PathBuf,
}

impl Background {
    /// Starts `command`, whose output goes to the file `output`.
    pub fn start(name: &str, mut command: Command, output: &Path) -> Result<Self> {
        let file = File::create(output).map_err(Error::in_front(output.display()))?;
        let errors = file.try_clone().map_err(Error::in_front(output.display()))?;
        let child = command.stdout(file).stderr(errors).spawn().map_err(Error::in_front(name))?;
        Ok(Self { name: name.into(), child, output: output.into() })
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it printed so far.
    pub fn said(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.output).unwrap_or_default()).into_owned()
    }

    /// Waits until `is_ready` holds for what it printed. It is an error that it ends before, or takes longer than `limit`.
    pub fn wait_until(&mut self, limit: Duration, mut is_ready: impl FnMut(&str) -> bool) -> Result<()> {
        let start = Instant::now();
        while !is_ready(&self.said()) {
            if let Some(status) = self.child.try_wait().map_err(Error::in_front(&self.name))? {
                return Err(Error::new(format!("{} ended at once, {status}: {}", self.name, self.said())));
            }
            if start.elapsed() > limit {
                let seconds = limit.as_secs();
                return Err(Error::new(format!(
                    "{} is not ready after {seconds} s: {}",
                    self.name,
                    self.said()
                )));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Ends it by SIGTERM and returns how it ended; an error when it does not within `limit`.
    pub fn stop(mut self, limit: Duration) -> Result<ExitStatus> {
        self.end(limit)?
            .ok_or_else(|| Error::new(format!("{} does not end on SIGTERM: {}", self.name, self.said())))
    }

    fn end(&mut self, limit: Duration) -> Result<Option<ExitStatus>> {
        let pid = self.child.id().to_string();
        // A process that has ended by itself is found so below.
        let _ = Command::new("sh").args(["-c", "kill -TERM $0", &pid]).stderr(Stdio::null()).status();
        let start = Instant::now();
        while start.elapsed() < limit {
            if let Some(status) = self.child.try_wait().map_err(Error::in_front(&self.name))? {
                return Ok(Some(status));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(None)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) || matches!(self.end(FAREWELL), Ok(Some(_)))
        {
            return;
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_hangs_is_ended_and_one_that_ends_is_heard() {
        let Ok(netns) = Netns::new() else {
            casemate_left_out::note("no network namespace can be made here");
            return;
        };
        assert_eq!(run(&netns, Duration::from_millis(100), "sleep", &["60"]).unwrap().status, 124);
        let output = run(&netns, FAREWELL, "sh", &["-c", "echo out; echo err >&2; exit 3"]).unwrap();
        assert_eq!((output.status, output.stdout.as_str()), (3, "out\nerr\n"));
    }
}
