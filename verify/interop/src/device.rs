//! Program that runs a device. It reads a command per line from standard input, and writes one response
//! line for each.
//!
//! A response is `0 TEXT`, or `1 TEXT` for a failed command. The first line, before any command, is `0
//! ready`.

use crate::{Error, Output, Result};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

/// Longer than the device's own time limit of a command.
const LIMIT: Duration = Duration::from_secs(60);

/// Running device; dropping it ends the program.
#[derive(Debug)]
pub struct Device {
    child: Child,
    commands: ChildStdin,
    answers: Receiver<String>,
}

impl Device {
    /// Starts the program and waits until it is ready. Its standard error goes to the file `log`.
    pub fn start(mut command: Command, log: &Path) -> Result<Self> {
        let errors = File::create(log).map_err(Error::context(log.display()))?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let mut child = command.spawn().map_err(Error::context("the device"))?;
        let (Some(commands), Some(said)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::new("the device has no pipes"));
        };
        let (sender, answers) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(said).lines().map_while(std::result::Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let device = Self { child, commands, answers };
        match device.line().as_deref() {
            Ok("0 ready") => Ok(device),
            Ok(other) => Err(Error::new(format!("unexpected first line of the device: `{other}`"))),
            Err(error) => {
                let told = std::fs::read_to_string(log).unwrap_or_default();
                Err(Error::new(format!("{error}: {}", told.trim_end())))
            }
        }
    }

    fn line(&self) -> Result<String> {
        let said = self.answers.recv_timeout(LIMIT);
        said.map_err(|_| {
            Error::new(format!("the device has exited, or did not respond for {} s", LIMIT.as_secs()))
        })
    }

    /// Sends a command and waits for the response.
    pub fn execute(&mut self, command: &str) -> Result<Output> {
        writeln!(self.commands, "{command}").map_err(Error::context("the device has exited"))?;
        let answer = self.line()?;
        let (status, text) = answer.split_once(' ').unwrap_or(("1", &answer));
        Ok(Output { status: status.parse().unwrap_or(1), stdout: text.into() })
    }

    /// Sends a command that has to succeed. Returns the text of the response.
    pub fn execute_ok(&mut self, command: &str) -> Result<String> {
        match self.execute(command)? {
            Output { status: 0, stdout } => Ok(stdout),
            Output { stdout, .. } => Err(Error::new(format!("the device: {command}: {stdout}"))),
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
