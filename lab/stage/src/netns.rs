//! A network namespace of the host that cannot be left behind.
//!
//! It has no name: a process that waits for us to go away holds it open, so it ends with its [`Netns`], after a panic, and
//! even when we are killed. Where we are not root it lies in a user namespace, in which we are.

use crate::{Error, Result, sys};
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

/// A network namespace; dropping it removes it.
#[derive(Debug)]
pub struct Netns {
    holder: Child,
    in_user_namespace: bool,
}

impl Netns {
    /// A new namespace with nothing in it but its loopback interface, which is up.
    pub fn new() -> Result<Self> {
        let in_user_namespace = !is_root();
        let mut command = Command::new("unshare");
        if in_user_namespace {
            command.args(["--user", "--map-root-user"]);
        }
        // `cat` ends when our end of its standard input closes.
        command.args(["--net", "sh", "-c", "ip link set lo up && echo ready && exec cat"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let holder = command.spawn().map_err(Error::in_front("unshare"))?;
        let mut netns = Self { holder, in_user_namespace };
        netns.wait_until_ready()?;
        Ok(netns)
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let mut line = String::new();
        if let Some(stdout) = self.holder.stdout.as_mut() {
            BufReader::new(stdout).read_line(&mut line).map_err(Error::in_front("network namespace"))?;
        }
        if line.trim() == "ready" {
            Ok(())
        } else {
            Err(Error::new("no network namespace could be made here"))
        }
    }

    /// The process that holds it open, as `ip link set ... netns PID` names a namespace.
    pub fn pid(&self) -> u32 {
        self.holder.id()
    }

    /// A command that runs `program` inside. It ends with the thread that starts it, whatever happens to us.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg("--target").arg(self.holder.id().to_string()).arg("--net");
        if self.in_user_namespace {
            command.args(["--user", "--preserve-credentials"]);
        }
        command.args(["--", "setpriv", "--pdeathsig", "KILL", "--"]).arg(program).stdin(Stdio::null());
        command
    }

    /// Does something in this network, such as opening sockets that stay there.
    pub fn inside<T: Send>(&self, act: impl FnOnce() -> T + Send) -> Result<T> {
        let enter = || sys::enter_network_of(self.pid()).map(|()| act());
        let done = std::thread::scope(|scope| scope.spawn(enter).join());
        done.unwrap_or_else(|_| Err(io::Error::other("it panicked"))).map_err(Error::in_front("namespace"))
    }

    /// Runs `ip -batch` inside with these lines; the first that fails is the error.
    pub fn ip(&self, lines: &str) -> Result<()> {
        let mut command = self.command("ip");
        command.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(Error::in_front("ip"))?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(lines.as_bytes()).map_err(Error::in_front("ip"))?;
        }
        let output = child.wait_with_output().map_err(Error::in_front("ip"))?;
        if output.status.success() {
            return Ok(());
        }
        Err(Error::new(format!("ip -batch failed: {}in:\n{lines}", String::from_utf8_lossy(&output.stderr))))
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        // The holder may be gone already; then there is nothing left to end.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Whether this process is root.
pub fn is_root() -> bool {
    // SAFETY: geteuid has no arguments and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_empty_and_gone_after_drop() {
        let Ok(netns) = Netns::new() else {
            casemate_left_out::note("no network namespace can be made here");
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
