//! Programs that run in a namespace, in the foreground or in the background, and their resource usage.

use crate::{Error, Netns, Result, sys};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Interval of polling whether a process has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Time limit for a dropped process to end on SIGTERM.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Result of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Exit status; 124 after a timeout.
    pub status: i32,
    /// Standard output followed by standard error.
    pub stdout: String,
}

/// Runs a program in a namespace and returns its status and output. After `limit` the program is killed, and
/// the status is 124.
pub fn run(netns: &Netns, limit: Duration, program: impl AsRef<Path>, arguments: &[&str]) -> Result<Output> {
    let program = program.as_ref();
    let mut command = netns.command("timeout");
    command.args(["--kill-after=2", &limit.as_secs_f64().to_string()]).arg(program).args(arguments);
    let output = command.output().map_err(Error::context(program.display()))?;
    let stdout = [output.stdout, output.stderr].concat();
    Ok(Output {
        status: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&stdout).into_owned(),
    })
}

/// Maximum number of lines of standard error in an error message.
const ERROR_LINES: usize = 8;
/// Time without a line after which the output of a program that has ended counts as complete. Only a process
/// that the program has left in the background keeps its streams open.
const OUTPUT_TIMEOUT: Duration = Duration::from_millis(500);

/// Stream of a program from which a line came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stream {
    Output,
    Error,
}

/// Runs a program that must succeed and returns its standard output. `report` receives each line of both
/// streams while the program runs. Standard input is empty.
pub(crate) fn run_reported(command: &mut Command, report: &dyn Fn(&str)) -> Result<String> {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let name = words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(Error::context(&name))?;
    let (sender, lines) = channel();
    if let Some(output) = child.stdout.take() {
        forward_lines(output, Stream::Output, sender.clone());
    }
    if let Some(errors) = child.stderr.take() {
        forward_lines(errors, Stream::Error, sender);
    }
    let (mut output, mut errors) = (String::new(), Vec::new());
    loop {
        match lines.recv_timeout(OUTPUT_TIMEOUT) {
            Ok((_, line)) if line.is_empty() => {}
            Ok((stream, line)) => {
                report(&line);
                match stream {
                    Stream::Output => output.extend([&line, "\n"]),
                    Stream::Error => errors.push(line),
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                if child.try_wait().map_err(Error::context(&name))?.is_some() {
                    break;
                }
            }
        }
    }
    let status = child.wait().map_err(Error::context(&name))?;
    if status.success() {
        return Ok(output);
    }
    let last = errors.get(errors.len().saturating_sub(ERROR_LINES)..).unwrap_or_default().join("; ");
    Err(Error::new(format!("{name}: {status}: {last}")))
}

/// Sends the lines of a stream from a thread that ends with the stream.
fn forward_lines(stream: impl Read + Send + 'static, kind: Stream, sender: Sender<(Stream, String)>) {
    std::thread::spawn(move || {
        let mut reader = BufReader::new(stream);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|len| len > 0) {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            if sender.send((kind, text)).is_err() {
                break;
            }
            line.clear();
        }
    });
}

/// A background process. Dropping it ends the process. Its output goes to a file.
#[derive(Debug)]
pub struct Background {
    name: String,
    child: Child,
    output: PathBuf,
}

impl Background {
    /// Starts `command` with its output going to the file `output`.
    pub fn start(name: &str, mut command: Command, output: &Path) -> Result<Self> {
        let file = File::create(output).map_err(Error::context(output.display()))?;
        let errors = file.try_clone().map_err(Error::context(output.display()))?;
        let child = command.stdout(file).stderr(errors).spawn().map_err(Error::context(name))?;
        Ok(Self { name: name.into(), child, output: output.into() })
    }

    /// Process ID.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Output so far.
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.output).unwrap_or_default()).into_owned()
    }

    /// Waits until `is_ready` returns true for the output. Fails if the process ends first or `limit`
    /// elapses.
    pub fn wait_until(&mut self, limit: Duration, mut is_ready: impl FnMut(&str) -> bool) -> Result<()> {
        let start = Instant::now();
        while !is_ready(&self.output()) {
            if let Some(status) = self.child.try_wait().map_err(Error::context(&self.name))? {
                return Err(Error::new(format!(
                    "{} ended before it was ready, {status}: {}",
                    self.name,
                    self.output()
                )));
            }
            if start.elapsed() > limit {
                let seconds = limit.as_secs();
                return Err(Error::new(format!(
                    "{} is not ready after {seconds} s: {}",
                    self.name,
                    self.output()
                )));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Sends SIGTERM and returns the exit status. Fails if the process does not end within `limit`.
    pub fn stop(mut self, limit: Duration) -> Result<ExitStatus> {
        self.end(limit)?
            .ok_or_else(|| Error::new(format!("{} does not end on SIGTERM: {}", self.name, self.output())))
    }

    fn end(&mut self, limit: Duration) -> Result<Option<ExitStatus>> {
        let pid = self.child.id().to_string();
        // If the process has already ended, `try_wait` below reports it.
        let _ = Command::new("sh").args(["-c", "kill -TERM $0", &pid]).stderr(Stdio::null()).status();
        let start = Instant::now();
        while start.elapsed() < limit {
            if let Some(status) = self.child.try_wait().map_err(Error::context(&self.name))? {
                return Ok(Some(status));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(None)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_))
            || matches!(self.end(STOP_TIMEOUT), Ok(Some(_)))
        {
            return;
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// CPU time and context switches of the processes of both tunnel ends.
pub struct Meter<'p> {
    processes: &'p [Background],
}

impl<'p> Meter<'p> {
    /// Creates a meter for these processes.
    pub const fn new(processes: &'p [Background]) -> Self {
        Self { processes }
    }

    /// CPU time of all threads so far, in user and kernel mode. Kernel threads are not included.
    pub fn cpu_time(&self) -> Result<Duration> {
        let time = |process: &Background| {
            sys::process_cpu_time(process.pid()).map_err(Error::context("a tunnel's process"))
        };
        self.processes.iter().map(time).sum()
    }

    /// Context switches so far of all threads that still run.
    pub fn context_switches(&self) -> Result<u64> {
        let count = |process: &Background| {
            sys::process_context_switches(process.pid()).map_err(Error::context("a tunnel's process"))
        };
        self.processes.iter().map(count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hanging_program_is_killed_and_output_is_captured() {
        let Ok(netns) = Netns::new() else {
            casemate_test_support::skip("no network namespace can be created");
            return;
        };
        assert_eq!(run(&netns, Duration::from_millis(100), "sleep", &["60"]).unwrap().status, 124);
        let output = run(&netns, STOP_TIMEOUT, "sh", &["-c", "echo out; echo err >&2; exit 3"]).unwrap();
        assert_eq!((output.status, output.stdout.as_str()), (3, "out\nerr\n"));
    }

    /// Runs a shell script. Returns its result and the reported lines.
    fn reported(script: &str) -> (Result<String>, Vec<String>) {
        let lines = std::cell::RefCell::new(Vec::new());
        let result = run_reported(Command::new("/bin/sh").args(["-c", script]), &|line: &str| {
            lines.borrow_mut().push(line.to_owned());
        });
        (result, lines.into_inner())
    }

    #[test]
    fn lines_are_reported_and_the_last_errors_are_in_the_message() {
        let (output, mut lines) = reported("cat; echo one; echo; echo two; echo aside >&2");
        lines.sort();
        assert_eq!(
            (output.unwrap().as_str(), &lines[..]),
            ("one\ntwo\n", &["aside", "one", "two"].map(String::from)[..])
        );
        let (failed, _) = reported("for i in 1 2 3 4 5 6 7 8 9; do echo e$i >&2; done; exit 3");
        let error = failed.unwrap_err().to_string();
        assert!(error.ends_with("exit status: 3: e2; e3; e4; e5; e6; e7; e8; e9"), "{error}");
    }

    #[test]
    fn a_background_process_with_the_same_streams_does_not_delay_the_end() {
        let start = Instant::now();
        let (output, _) = reported("sleep 20 & echo $!");
        assert!(start.elapsed() < Duration::from_secs(10));
        Command::new("kill").arg(output.unwrap().trim()).status().unwrap();
    }
}
