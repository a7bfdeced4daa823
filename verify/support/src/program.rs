//! Programs that tests start. Each has a time limit, and none outlives its test.

use std::ffi::OsStr;
use std::fmt::Debug;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Time limit of [`Program::output`], for a busy machine.
const LIMIT: Duration = Duration::from_secs(120);
/// Interval of polling whether a process has ended or is ready.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Time limit for the rest of the output after the end of a process. A process that the program left behind
/// may keep the pipe open.
const OUTPUT_LIMIT: Duration = Duration::from_secs(10);

/// A program with its arguments, environment and streams.
///
/// Standard input is empty and the output is collected, unless a method changes that.
#[must_use = "the program is not started"]
#[derive(Debug)]
pub struct Program {
    command: Command,
    input: Vec<u8>,
    limit: Duration,
    log: Option<PathBuf>,
}

impl From<Command> for Program {
    fn from(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self { command, input: Vec::new(), limit: LIMIT, log: None }
    }
}

impl Program {
    /// Returns a program without arguments. A name without a slash is searched in `PATH`.
    pub fn new(path: impl AsRef<OsStr>) -> Self {
        Command::new(path).into()
    }

    /// Adds an argument.
    pub fn arg(self, argument: impl AsRef<OsStr>) -> Self {
        self.configure(|command| command.arg(argument))
    }

    /// Adds arguments.
    pub fn args(self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.configure(|command| command.args(arguments))
    }

    /// Sets an environment variable.
    pub fn env(self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.configure(|command| command.env(name, value))
    }

    /// Changes what no other method does, such as the user.
    pub fn configure(mut self, change: impl FnOnce(&mut Command) -> &mut Command) -> Self {
        change(&mut self.command);
        self
    }

    /// Sets the bytes that the program reads from standard input.
    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = bytes.into();
        self.stdin(Stdio::piped())
    }

    /// Sets standard input.
    pub fn stdin(self, stream: impl Into<Stdio>) -> Self {
        self.configure(|command| command.stdin(stream))
    }

    /// Sets standard output, which is then not collected.
    pub fn stdout(self, stream: impl Into<Stdio>) -> Self {
        self.configure(|command| command.stdout(stream))
    }

    /// Sets standard error, which is then not collected.
    pub fn stderr(self, stream: impl Into<Stdio>) -> Self {
        self.configure(|command| command.stderr(stream))
    }

    /// Writes standard output and standard error to a file, which [`Process::log`] returns. Panics if the
    /// file cannot be created.
    #[expect(clippy::unwrap_used, reason = "called by tests only, which may fail")]
    pub fn log_to(mut self, path: &Path) -> Self {
        let file = File::create(path).unwrap();
        self.log = Some(path.into());
        self.stdout(file.try_clone().unwrap()).stderr(file)
    }

    /// Changes the time limit of [`output`](Self::output), which is two minutes.
    pub const fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Runs the program to its end and returns its status and output. Panics if it does not start or does not
    /// end within the time limit.
    pub fn output(self) -> Output {
        self.output_with(Command::spawn)
    }

    /// Like [`output`](Self::output); `spawn` starts the process, for example in a network namespace.
    pub fn output_with<E: Debug>(self, spawn: impl FnOnce(&mut Command) -> Result<Child, E>) -> Output {
        let limit = self.limit;
        self.start_with(spawn).output(limit)
    }

    /// Starts the program in the background. Panics if it does not start.
    pub fn start(self) -> Process {
        self.start_with(Command::spawn)
    }

    /// Like [`start`](Self::start); `spawn` starts the process, for example in a network namespace.
    #[expect(clippy::panic, reason = "called by tests only, which may fail")]
    pub fn start_with<E: Debug>(mut self, spawn: impl FnOnce(&mut Command) -> Result<Child, E>) -> Process {
        let name = self.command.get_program().display().to_string();
        let mut child = spawn(&mut self.command).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        if let Some(mut stdin) = child.stdin.take() {
            // The program may end before it has read everything.
            thread::spawn(move || stdin.write_all(&self.input));
        }
        let stdout = child.stdout.take().map(collect);
        let stderr = child.stderr.take().map(collect);
        Process { name, child, stdout, stderr, log: self.log }
    }
}

/// Thread that reads a stream to its end.
type Collector = JoinHandle<io::Result<Vec<u8>>>;

/// Reads a stream in a thread, so that a full pipe does not stop the process.
fn collect(mut stream: impl Read + Send + 'static) -> Collector {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).map(|_| bytes)
    })
}

/// A running program, killed on drop.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    stdout: Option<Collector>,
    stderr: Option<Collector>,
    log: Option<PathBuf>,
}

#[expect(clippy::unwrap_used, clippy::panic, reason = "called by tests only, which may fail")]
impl Process {
    /// Process ID.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Output so far, if it goes to a file ([`Program::log_to`]); otherwise empty.
    pub fn log(&self) -> String {
        let Some(path) = &self.log else { return String::new() };
        String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned()
    }

    /// Exit status; `None` while the process is running.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits until the log has this line. Panics if the process ends first or after `limit`.
    pub fn wait_for_line(&mut self, line: &str, limit: Duration) {
        let start = Instant::now();
        while !self.log().lines().any(|logged| logged == line) {
            let status = self.exit_status();
            assert!(status.is_none(), "{} ended before `{line}`, {status:?}: {}", self.name, self.log());
            assert!(start.elapsed() < limit, "{}: no `{line}` within {limit:?}: {}", self.name, self.log());
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Waits for the end. Panics after `limit`.
    pub fn wait(&mut self, limit: Duration) -> ExitStatus {
        let status = self.wait_up_to(limit);
        status.unwrap_or_else(|| panic!("{} does not end within {limit:?}: {}", self.name, self.log()))
    }

    fn wait_up_to(&mut self, limit: Duration) -> Option<ExitStatus> {
        let start = Instant::now();
        loop {
            let status = self.exit_status();
            if status.is_some() || start.elapsed() >= limit {
                return status;
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Waits for the end and returns the status and the collected output. Panics after `limit`.
    pub fn output(mut self, limit: Duration) -> Output {
        let status = self.wait(limit);
        let [stdout, stderr] = [self.stdout.take(), self.stderr.take()].map(|stream| self.collected(stream));
        Output { status, stdout, stderr }
    }

    /// Returns the bytes of a stream whose process has ended.
    fn collected(&self, stream: Option<Collector>) -> Vec<u8> {
        let Some(collector) = stream else { return Vec::new() };
        let start = Instant::now();
        while !collector.is_finished() {
            assert!(start.elapsed() < OUTPUT_LIMIT, "{}: another process keeps its output open", self.name);
            thread::sleep(POLL_INTERVAL);
        }
        collector.join().unwrap().unwrap()
    }

    /// Sends SIGTERM and returns the exit status. After `limit`, kills the process.
    pub fn stop(&mut self, limit: Duration) -> ExitStatus {
        // The process is not waited for yet, so the process ID is still its own.
        if self.exit_status().is_none() {
            let pid = self.pid().to_string();
            let sent = Command::new("sh").args(["-c", "kill -TERM $0", &pid]).status().unwrap();
            assert!(sent.success(), "{}: cannot send SIGTERM", self.name);
        }
        match self.wait_up_to(limit) {
            Some(status) => status,
            None => self.kill(),
        }
    }

    /// Kills the process (SIGKILL), as a crash does, and returns the exit status.
    pub fn kill(&mut self) -> ExitStatus {
        self.child.kill().unwrap();
        self.child.wait().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail if the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail")]

    use super::*;
    use crate::TempDir;
    use std::os::unix::process::ExitStatusExt;

    fn shell(script: &str) -> Program {
        Program::new("sh").args(["-c", script])
    }

    #[test]
    fn both_streams_are_collected_beyond_the_size_of_a_pipe() {
        let script = "head -c 200000 /dev/zero; head -c 200000 /dev/zero >&2; cat; exit 3";
        let output = shell(script).input([7; 100_000]).output();
        assert_eq!(output.status.code(), Some(3));
        assert_eq!((output.stdout.len(), output.stderr.len()), (300_000, 200_000));
        assert!(output.stdout.ends_with(&[7; 100_000]));
    }

    #[test]
    fn arguments_and_environment_reach_the_program() {
        let output = shell("echo $0 $1 $NAME").arg("a").args(["b"]).env("NAME", "c").output();
        assert_eq!(output.stdout, b"a b c\n");
        assert!(shell("cat").output().stdout.is_empty(), "standard input is empty");
    }

    #[test]
    #[should_panic(expected = "sh does not end within 50ms")]
    fn program_that_does_not_end_fails_the_test() {
        shell("exec sleep 60").limit(Duration::from_millis(50)).output();
    }

    #[test]
    fn dropped_process_is_killed() {
        let process = shell("exec sleep 60").start();
        let directory = format!("/proc/{}", process.pid());
        assert!(Path::new(&directory).exists());
        let start = Instant::now();
        drop(process);
        assert!(!Path::new(&directory).exists());
        assert!(start.elapsed() < Duration::from_secs(30), "the process ended by itself");
    }

    #[test]
    fn log_contains_both_streams_and_is_readable_during_the_run() {
        let scratch = TempDir::new("program-log").unwrap();
        let script =
            "trap 'echo end; exit 4' TERM; echo warning >&2; echo ready; while :; do sleep 0.01; done";
        let mut process = shell(script).log_to(&scratch.file("log")).start();
        process.wait_for_line("ready", LIMIT);
        assert_eq!((process.log().as_str(), process.exit_status()), ("warning\nready\n", None));
        assert_eq!(process.stop(LIMIT).code(), Some(4));
        assert_eq!(fs::read(scratch.file("log")).unwrap(), b"warning\nready\nend\n");
    }

    #[test]
    #[should_panic(expected = "ended before `ready`")]
    fn end_before_a_line_fails_the_test() {
        let scratch = TempDir::new("program-end").unwrap();
        shell("echo failed").log_to(&scratch.file("log")).start().wait_for_line("ready", LIMIT);
    }

    #[test]
    fn process_that_ignores_sigterm_is_killed() {
        let scratch = TempDir::new("program-kill").unwrap();
        let script = "trap '' TERM; echo ready; while :; do sleep 0.01; done";
        let start = || {
            let mut process = shell(script).log_to(&scratch.file("log")).start();
            process.wait_for_line("ready", LIMIT);
            process
        };
        const SIGKILL: i32 = 9;
        assert_eq!(start().stop(Duration::from_millis(50)).signal(), Some(SIGKILL));
        assert_eq!(start().kill().signal(), Some(SIGKILL));
    }
}
