//! A `casemate run` process on one of the hosts.

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

/// This program, even if its file was replaced or is not visible.
pub(super) const PROGRAM: &str = "/proc/self/exe";
const TIMEOUT: Duration = Duration::from_secs(5);

/// A running instance. It ends when the value is dropped, and with this process.
pub(super) struct Gateway {
    child: Child,
    /// File with its standard error.
    log: PathBuf,
}

impl Gateway {
    /// Starts an instance on `host` with the configuration of that host in `directory`, and waits until
    /// it is ready.
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
            "demo: Casemate on the {} host did not become ready; its output:\n{}",
            host.side,
            casemate.log()
        )))
    }

    /// Initiates a connection on `host` and waits until it is established.
    pub(super) fn initiate(host: &Host, name: &str) -> Result<(), Failure> {
        let mut command = Command::new(PROGRAM);
        command.args(["initiate", name, "--timeout", "5"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = host.netns.spawn(&mut command).map_err(Failure::failed)?;
        let output = child.wait_with_output().map_err(Failure::failed)?;
        if output.status.success() {
            return Ok(());
        }
        let stderr = String::from_utf8_lossy(&output.stderr);
        Err(Failure::failed(format!("demo: {name}: {}", stderr.trim_end())))
    }

    /// Waits for the line `ready`. A thread reads standard output to the end, so that the instance never
    /// blocks on it.
    fn becomes_ready(&mut self) -> bool {
        let Some(stdout) = self.child.stdout.take() else { return false };
        let (sender, receiver) = mpsc::channel();
        let reader = move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if line == "ready" {
                    // Sending fails only after a timeout.
                    let _ = sender.send(());
                }
            }
        };
        thread::Builder::new().spawn(reader).is_ok() && receiver.recv_timeout(TIMEOUT).is_ok()
    }

    /// The warnings of the instance.
    pub(super) fn warnings(&self) -> Vec<String> {
        self.log().lines().filter_map(|line| line.strip_prefix("warning: ")).map(str::to_owned).collect()
    }

    /// The output of the instance, without the prefix `casemate:`, which our own messages have too.
    fn log(&self) -> String {
        let log =
            fs::read_to_string(&self.log).unwrap_or_else(|error| format!("{}: {error}", self.log.display()));
        let lines = log.lines().map(|line| line.split_once("casemate: ").map_or(line, |(_, text)| text));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Stops the instance with SIGTERM.
    pub(super) fn stop(mut self) -> Result<(), Failure> {
        let status = terminate(&mut self.child, TIMEOUT).map_err(Failure::failed)?;
        if status.success() {
            return Ok(());
        }
        Err(Failure::failed(format!("demo: Casemate ended with {status}; its output:\n{}", self.log())))
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // Fails only if the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
