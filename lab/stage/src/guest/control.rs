//! The line to the guest's `probe serve`: a script goes in, its status and output come back.
//!
//! Request: `LENGTH MILLISECONDS\n` and the script. Answer: `STATUS LENGTH\n` and the output. One at a time.

use crate::{Error, Output, Result};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

/// The guest ends an overlong script itself; this much later we stop waiting for it to say so.
const GRACE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Control {
    stdin: ChildStdin,
    answers: Receiver<Output>,
}

impl Control {
    /// Takes over QEMU's standard input and output.
    pub(super) fn new(qemu: &mut Child) -> Result<Self> {
        let (Some(stdin), Some(stdout)) = (qemu.stdin.take(), qemu.stdout.take()) else {
            return Err(Error::new("QEMU was started without pipes"));
        };
        let (sender, answers) = mpsc::channel();
        std::thread::spawn(move || {
            let mut reader = BufReader::new(stdout);
            while let Some(output) = read_answer(&mut reader) {
                if sender.send(output).is_err() {
                    break;
                }
            }
        });
        Ok(Self { stdin, answers })
    }

    /// The guest's first answer comes without a question.
    pub(super) fn wait_until_ready(&mut self, limit: Duration) -> Result<()> {
        self.answer(limit).map(drop)
    }

    pub(super) fn run(&mut self, script: &str, limit: Duration) -> Result<Output> {
        let request = format!("{} {}\n{script}", script.len(), limit.as_millis());
        self.stdin.write_all(request.as_bytes()).map_err(Error::in_front("QEMU has ended"))?;
        self.stdin.flush().map_err(Error::in_front("QEMU has ended"))?;
        self.answer(limit.saturating_add(GRACE))
    }

    fn answer(&self, limit: Duration) -> Result<Output> {
        self.answers.recv_timeout(limit).map_err(|error| match error {
            RecvTimeoutError::Timeout => Error::new(format!("no answer in {} s", limit.as_secs())),
            RecvTimeoutError::Disconnected => Error::new("QEMU has ended"),
        })
    }
}

fn read_answer(reader: &mut BufReader<ChildStdout>) -> Option<Output> {
    let mut header = String::new();
    reader.read_line(&mut header).ok()?;
    let (status, length) = header.trim_end().split_once(' ')?;
    let mut body = vec![0; length.parse().ok()?];
    reader.read_exact(&mut body).ok()?;
    Some(Output { status: status.parse().ok()?, stdout: String::from_utf8_lossy(&body).into_owned() })
}
