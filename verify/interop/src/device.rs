//! A program that is a device: it obeys lines of its standard input, and answers each with one.
//!
//! The answer is `0 TEXT`, or `1 TEXT` when it could not be done. The first line, without an order, is `0 ready`.

use crate::{Error, Output, Result};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

/// The device gives an order up by itself before.
const LIMIT: Duration = Duration::from_secs(60);

/// A running device; dropping it ends the program.
#[derive(Debug)]
pub struct Device {
    child: Child,
    orders: ChildStdin,
    answers: Receiver<String>,
}

impl Device {
    /// Starts the program and waits until it is ready. What it tells of itself goes to the file `log`.
    pub fn start(mut command: Command, log: &Path) -> Result<Self> {
        let errors = File::create(log).map_err(Error::in_front(log.display()))?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let mut child = command.spawn().map_err(Error::in_front("the device"))?;
        let (Some(orders), Some(said)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::new("the device was started without pipes"));
        };
        let (sender, answers) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(said).lines().map_while(std::result::Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let device = Self { child, orders, answers };
        match device.line().as_deref() {
            Ok("0 ready") => Ok(device),
            Ok(other) => Err(Error::new(format!("the device says `{other}`"))),
            Err(error) => {
                let told = std::fs::read_to_string(log).unwrap_or_default();
                Err(Error::new(format!("{error}: {}", told.trim_end())))
            }
        }
    }

    fn line(&self) -> Result<String> {
        let said = self.answers.recv_timeout(LIMIT);
        said.map_err(|_| {
            Error::new(format!("the device says nothing for {} s, or has ended", LIMIT.as_secs()))
        })
    }

    /// Gives an order and waits for what becomes of it.
    pub fn order(&mut self, order: &str) -> Result<Output> {
        writeln!(self.orders, "{order}").map_err(Error::in_front("the device has ended"))?;
        let answer = self.line()?;
        let (status, text) = answer.split_once(' ').unwrap_or(("1", &answer));
        Ok(Output { status: status.parse().unwrap_or(1), stdout: text.into() })
    }

    /// An order that has to succeed; what it says.
    pub fn demand(&mut self, order: &str) -> Result<String> {
        match self.order(order)? {
            Output { status: 0, stdout } => Ok(stdout),
            Output { stdout, .. } => Err(Error::new(format!("the device: {order}: {stdout}"))),
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
