//! Runs the program `nft`, which parses the nftables language. This is the only place where another program
//! is started.
//!
//! The program is started from fixed paths, without the environment, and killed when its time is over or its
//! parent ends. The kernel applies a script completely or not at all, so after an error the kernel has one
//! state or the other.

use crate::{Error, sys};
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// Paths at which distributions install the program. PATH is ignored: a user who sets it would choose what
/// runs as root.
const NFT_PATHS: [&str; 4] = ["/usr/sbin/nft", "/sbin/nft", "/usr/bin/nft", "/bin/nft"];
/// Time limit for a script. Thousands of elements take a second on a slow machine.
pub(super) const TIME_LIMIT: Duration = Duration::from_secs(10);
/// Longest interval between two checks whether the program has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Time for the end of the thread that writes the script, after the program has succeeded.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes of error messages that are read, at most.
pub(super) const MAX_MESSAGE: u64 = 4_096;

/// Runs a script and waits for its end.
pub(super) fn run(script: &str) -> Result<(), Error> {
    run_program(program()?, script, TIME_LIMIT)
}

/// Fails if the program is not installed; the error names the paths that were searched.
pub fn check_installed() -> Result<(), Error> {
    program().map(drop)
}

fn program() -> Result<&'static Path, Error> {
    let missing = || {
        let reason = format!("not installed (Debian package nftables): looked for {}", NFT_PATHS.join(", "));
        Error::other("nft", reason)
    };
    NFT_PATHS.iter().map(Path::new).find(|path| path.exists()).ok_or_else(missing)
}

fn run_program(program: &Path, script: &str, limit: Duration) -> Result<(), Error> {
    let mut command = Command::new(program);
    command
        .args(["-f", "-"])
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
        let script = script.to_owned();
        in_background(move || drop(sender.send(stdin.write_all(script.as_bytes()))))?;
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
            _ => Err(Error::other("nft", "the program did not read the whole script")),
        };
    }
    let output = output.recv_timeout(POLL_INTERVAL.saturating_mul(10)).unwrap_or_default();
    let output = String::from_utf8_lossy(&output);
    Err(Error::other("nft", output.lines().next().unwrap_or("the program failed without a message")))
}

fn in_background(work: impl FnOnce() + Send + 'static) -> Result<(), Error> {
    let thread = thread::Builder::new().name("nft pipe".into());
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
        let scratch = TempDir::new("nft").unwrap();
        let path = scratch.file("nft");
        write_program(&path, format!("#!/bin/sh\n{script}\n").as_bytes());
        run_program(&path, input, limit)
    }

    #[test]
    fn a_script_is_written_completely_and_its_error_returned() {
        let long = "x".repeat(1 << 20);
        let limit = Duration::from_secs(60);
        run_shell("test $(wc -c) = 1048576", &long, limit).unwrap();
        let error = run_shell("echo wrong >&2; yes | head -c 100000 >&2; exit 1", &long, limit).unwrap_err();
        assert!(error.to_string().contains("wrong"), "{error}");
        let error = run_shell("exit 0", &long, limit).unwrap_err();
        assert!(error.to_string().contains("did not read the whole script"), "{error}");
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
