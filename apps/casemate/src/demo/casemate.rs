//! A `casemate run` on one of the hosts.

use super::host::Host;
use crate::failure::Failure;
use casemate_linux::netns::terminate;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// This very program, also when its file has been replaced or is out of sight.
pub(super) const PROGRAM: &str = "/proc/self/exe";
const PATIENCE: Duration = Duration::from_secs(5);

/// A running instance; it ends with this value, and with us in any case.
pub(super) struct Casemate {
    child: Child,
    /// What it says on standard error.
    log: PathBuf,
}

impl Casemate {
    /// Starts it on `host` with the files that are in the host's part of `directory`, and waits until it is ready.
    pub(super) fn start(host: &Host, directory: &Path) -> Result<Self, Failure> {
        let file = |name: &str| directory.join(host.side.to_string()).join(name);
        let log = file("log");
        let failed = |error: std::io::Error| Failure::failed(format!("demo: {}: {error}", log.display()));
        let mut command = Command::new(PROGRAM);
        command.arg("run").arg("--config").arg(file("swanctl.conf")).arg("--save-keys").arg(file("keys"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&log).map_err(failed)?);
        let child = host.netns.spawn(&mut command).map_err(Failure::failed)?;
        let mut casemate = Self { child, log };
        if casemate.becomes_ready() {
            return Ok(casemate);
        }
        Err(Failure::failed(format!(
            "demo: Casemate on the {} did not become ready; it said:\n{}",
            host.side,
            casemate.said()
        )))
    }

    /// Has the one on `host` set up a connection, and waits until it stands.
    pub(super) fn initiate(host: &Host, name: &str) -> Result<(), Failure> {
        let mut command = Command::new(PROGRAM);
        command.args(["initiate", name, "--timeout", "5"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = host.netns.spawn(&mut command).map_err(Failure::failed)?;
        let output = child.wait_with_output().map_err(Failure::failed)?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(Failure::failed(format!("demo: {name}: {}", said.trim_end())))
    }

    /// Reads what it says until its end, so that it never waits for us.
    fn becomes_ready(&mut self) -> bool {
        let Some(stdout) = self.child.stdout.take() else { return false };
        let (sender, receiver) = mpsc::channel();
        let reader = move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if line == "ready" {
                    // Nobody listens any more if it took too long.
                    let _ = sender.send(());
                }
            }
        };
        thread::Builder::new().spawn(reader).is_ok() && receiver.recv_timeout(PATIENCE).is_ok()
    }

    /// Its warnings.
    pub(super) fn warnings(&self) -> Vec<String> {
        self.said().lines().filter_map(|line| line.strip_prefix("warning: ")).map(str::to_owned).collect()
    }

    /// What it said, without its name, which our own messages begin with, too.
    fn said(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines = log.lines().map(|line| line.strip_prefix("casemate: ").unwrap_or(line));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Ends it as `kill` does.
    pub(super) fn stop(mut self) -> Result<(), Failure> {
        let status = terminate(&mut self.child, PATIENCE).map_err(Failure::failed)?;
        if status.success() {
            return Ok(());
        }
        Err(Failure::failed(format!("demo: Casemate ended with {status}; it said:\n{}", self.said())))
    }
}

impl Drop for Casemate {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing left to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
