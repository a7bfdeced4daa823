//! Network namespace that never outlives its owner.
//!
//! The namespace has no name. A child process keeps it open and ends with this process, even after a panic or
//! a kill. Without root, the namespace is inside a user namespace.
//!
//! `casemate_linux::netns` is for `casemate demo`: there, the whole process enters a user namespace first,
//! which needs a process with one thread. Tests have several threads, so each namespace here has a process.

use crate::{Error, Result, sys};
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

/// A network namespace. Dropping it removes it.
#[derive(Debug)]
pub struct Netns {
    holder: Child,
    in_user_namespace: bool,
}

impl Netns {
    /// Creates a namespace with a loopback interface that is up.
    pub fn new() -> Result<Self> {
        let in_user_namespace = !is_root();
        let mut command = Command::new("unshare");
        if in_user_namespace {
            command.args(["--user", "--map-root-user"]);
        }
        // `cat` ends when this process closes its standard input.
        command.args(["--net", "sh", "-c", "ip link set lo up && echo ready && exec cat"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let holder = command.spawn().map_err(Error::context("unshare"))?;
        let mut netns = Self { holder, in_user_namespace };
        netns.wait_until_ready()?;
        Ok(netns)
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let mut line = String::new();
        if let Some(stdout) = self.holder.stdout.as_mut() {
            BufReader::new(stdout).read_line(&mut line).map_err(Error::context("network namespace"))?;
        }
        if line.trim() == "ready" { Ok(()) } else { Err(Error::new("no network namespace can be created")) }
    }

    /// Process that keeps the namespace open, for `ip link set ... netns PID`.
    pub fn pid(&self) -> u32 {
        self.holder.id()
    }

    /// Returns a command that runs `program` in the namespace. The process ends with the thread that starts
    /// it.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg("--target").arg(self.holder.id().to_string()).arg("--net");
        if self.in_user_namespace {
            command.args(["--user", "--preserve-credentials"]);
        }
        command.args(["--", "setpriv", "--pdeathsig", "KILL", "--"]).arg(program).stdin(Stdio::null());
        command
    }

    /// Runs `act` on a thread inside the namespace. Sockets that it opens stay in the namespace.
    pub fn run_in<T: Send>(&self, act: impl FnOnce() -> T + Send) -> Result<T> {
        let enter = || sys::enter_netns_of(self.pid()).map(|()| act());
        let done = std::thread::scope(|scope| scope.spawn(enter).join());
        done.unwrap_or_else(|_| Err(io::Error::other("it panicked"))).map_err(Error::context("namespace"))
    }

    /// Runs `ip -batch` in the namespace. The error is that of the first line that fails.
    pub fn ip(&self, lines: &str) -> Result<()> {
        let mut command = self.command("ip");
        command.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(Error::context("ip"))?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(lines.as_bytes()).map_err(Error::context("ip"))?;
        }
        let output = child.wait_with_output().map_err(Error::context("ip"))?;
        if output.status.success() {
            return Ok(());
        }
        Err(Error::new(format!("ip -batch failed: {}in:\n{lines}", String::from_utf8_lossy(&output.stderr))))
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        // If the child process has already ended, there is nothing to kill.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Whether this process runs as root.
pub fn is_root() -> bool {
    // SAFETY: geteuid has no arguments and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_removed_on_drop() {
        let Ok(netns) = Netns::new() else {
            casemate_test_support::skip("no network namespace can be created");
            return;
        };
        netns.ip("addr add 192.0.2.1/32 dev lo\n").unwrap();
        assert!(netns.ip("link show nosuchlink\n").is_err());
        let holder = format!("/proc/{}", netns.holder.id());
        assert!(std::path::Path::new(&holder).exists());
        drop(netns);
        assert!(!std::path::Path::new(&holder).exists());
    }
}
