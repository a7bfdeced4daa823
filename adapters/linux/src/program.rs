//! Runs a program to its end, with a time limit and without the environment of this process.

use crate::{Error, sys};
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// Directories in which distributions install programs for the system. PATH is ignored: a user who sets it
/// would choose what runs as root.
const DIRECTORIES: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];
/// Time limit for a program that is expected to end at once.
pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(10);
/// Longest interval between two checks whether the program has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Time for the end of the thread that writes the input, after the program has succeeded.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes of error messages that are read, at most.
pub(crate) const MAX_MESSAGE: u64 = 4_096;

/// The path of a program, if it is installed.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    DIRECTORIES.iter().map(|directory| Path::new(directory).join(name)).find(|path| path.exists())
}

/// The paths that [`find`] looks at, for a message.
pub(crate) fn searched(name: &str) -> String {
    DIRECTORIES.map(|directory| format!("{directory}/{name}")).join(", ")
}

/// Runs a program with this input, and waits for its end, at most as long as `limit`. An error has the first
/// line of its error output.
pub(crate) fn run(program: &Path, args: &[&str], input: &str, limit: Duration) -> Result<(), Error> {
    let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut command = Command::new(program);
    command
        .args(args)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let parent = std::process::id();
    // SAFETY: between fork and exec only what is async-signal-safe may be done: `die_with_parent` makes
    // system calls and compares numbers; it neither allocates nor locks.
    unsafe { command.pre_exec(move || sys::die_with_parent(parent)) };
    let mut child = command.spawn().map_err(|error| Error::new(program.display().to_string(), error))?;
    // The program may read and write slowly, or never, and its child processes may outlive it. Nothing waits
    // for these two threads.
    let (sender, written) = channel();
    if let Some(mut stdin) = child.stdin.take() {
        let input = input.to_owned();
        in_background(move || drop(sender.send(stdin.write_all(input.as_bytes()))))?;
    }
    let (sender, output) = channel();
    if let Some(stderr) = child.stderr.take() {
        in_background(move || {
            let mut output = Vec::new();
            let mut stderr = stderr.take(MAX_MESSAGE);
            let _ = stderr.read_to_end(&mut output);
            let _ = sender.send(output);
            let _ = io::copy(&mut stderr.into_inner(), &mut io::sink());
        })?;
    }
    let status = wait_until(&mut child, Instant::now().checked_add(limit));
    let failed = |error| Error::new(program.display().to_string(), error);
    if status.map_err(failed)?.success() {
        return match written.recv_timeout(WRITE_TIMEOUT) {
            Ok(Ok(())) => Ok(()),
            _ => Err(Error::other(name, "the program did not read the whole input")),
        };
    }
    let output = output.recv_timeout(POLL_INTERVAL.saturating_mul(10)).unwrap_or_default();
    let output = String::from_utf8_lossy(&output);
    Err(Error::other(name, output.lines().next().unwrap_or("the program failed without a message")))
}

fn in_background(work: impl FnOnce() + Send + 'static) -> Result<(), Error> {
    let thread = thread::Builder::new().name("pipe".into());
    thread.spawn(work).map(drop).map_err(|error| Error::new("thread", error))
}

/// Waits for the end of a process, and kills it at `end`.
fn wait_until(child: &mut Child, end: Option<Instant>) -> io::Result<ExitStatus> {
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if end.is_none_or(|end| Instant::now() >= end) {
            child.kill()?;
            child.wait()?;
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the program took too long and was killed"));
        }
        thread::sleep(pause);
        pause = pause.saturating_mul(2).min(POLL_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_test_support::{TempDir, write_program};

    fn run_shell(script: &str, input: &str, limit: Duration) -> Result<(), Error> {
        let scratch = TempDir::new("program").unwrap();
        let path = scratch.file("program");
        write_program(&path, format!("#!/bin/sh\n{script}\n").as_bytes());
        run(&path, &[], input, limit)
    }

    #[test]
    fn input_is_written_completely_and_the_error_returned() {
        let long = "x".repeat(1 << 20);
        let limit = Duration::from_secs(60);
        run_shell("test $(wc -c) = 1048576", &long, limit).unwrap();
        let error = run_shell("echo wrong >&2; yes | head -c 100000 >&2; exit 1", &long, limit).unwrap_err();
        assert!(error.to_string().contains("wrong"), "{error}");
        let error = run_shell("exit 0", &long, limit).unwrap_err();
        assert!(error.to_string().contains("did not read the whole input"), "{error}");
        // The program sees none of our environment.
        run_shell("test -z \"$CARGO_MANIFEST_DIR\"", "", limit).unwrap();
    }

    #[test]
    fn a_program_that_hangs_is_ended() {
        let start = Instant::now();
        // The program reads nothing, and the script does not fit into the pipe.
        let error = run_shell("sleep 61", &"x".repeat(1 << 20), Duration::from_millis(50)).unwrap_err();
        assert!(error.to_string().contains("too long"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(60));
    }
}
