//! The program as it runs: its wire and its orders.

use casemate_scratch::Scratch;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

/// How long an order may take that is obeyed at once.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where Casemate stands in lwIP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Inside IP.
    Inside,
    /// Below IP.
    Below,
}

/// How a host begins.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// Bytes for Casemate.
    pub memory: usize,
    /// Where it stands.
    pub place: Place,
    /// Lines of its configuration.
    pub config: &'static str,
}

/// A host with lwIP behind Casemate, in a process: the example of adapters/lwip. It takes orders, as its --help has them.
pub struct Host {
    child: Child,
    orders: Option<ChildStdin>,
    answers: Receiver<String>,
    /// The ends of the wire, and the program's configuration.
    _scratch: Scratch,
}

impl Host {
    /// Starts the program. The socket is the other end of its wire: a datagram is a frame. The error is why it did not start.
    pub fn start(program: &Path, setup: Setup) -> Result<(Self, UnixDatagram), String> {
        let scratch = Scratch::new("lwip");
        let (near, far) = (scratch.file("near"), scratch.file("far"));
        let wire = UnixDatagram::bind(&near).unwrap();
        let mut command = Command::new(program);
        command.arg("--console").arg("--unix").arg(&far).arg(&near);
        command.arg("--memory").arg(setup.memory.to_string());
        let config = scratch.file("config");
        std::fs::write(&config, setup.config).unwrap();
        command.arg("--config").arg(config);
        if setup.place == Place::Below {
            command.arg("--below");
        }
        let known = concat!(env!("CARGO_MANIFEST_DIR"), "/races-of-lwip.txt");
        // lwIP's threads do not end.
        command.env("TSAN_OPTIONS", format!("suppressions={known} halt_on_error=1 report_thread_leaks=0"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (sender, answers) = mpsc::channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let orders = child.stdin.take();
        let mut host = Self { child, orders, answers, _scratch: scratch };
        host.next_answer(PATIENCE).expect("the program starts")?;
        wire.connect(&far).unwrap();
        wire.set_nonblocking(true).unwrap();
        Ok((host, wire))
    }

    /// Gives an order, whose answer comes later.
    pub fn begin(&mut self, order: &str) {
        let mut orders = self.orders.as_ref().unwrap();
        writeln!(orders, "{order}").unwrap();
    }

    /// The next answer, if it comes in time: what it says, as success or as failure.
    pub fn next_answer(&mut self, patience: Duration) -> Option<Result<String, String>> {
        let line = match self.answers.recv_timeout(patience) {
            Ok(line) => line,
            Err(mpsc::RecvTimeoutError::Timeout) => return None,
            Err(mpsc::RecvTimeoutError::Disconnected) => panic!("the program ended: {:?}", self.child.wait()),
        };
        let (failed, text) = line.split_once(' ').unwrap_or((&line, ""));
        Some(if failed == "0" { Ok(text.into()) } else { Err(text.into()) })
    }

    /// Gives an order that is obeyed at once.
    pub fn order(&mut self, order: &str) -> Result<String, String> {
        self.begin(order);
        self.next_answer(PATIENCE).expect("an answer in time")
    }

    /// Ends the program, which finds leaks then; they fail it.
    pub fn end(mut self) {
        drop(self.orders.take());
        let status = self.child.wait().unwrap();
        assert!(status.success(), "the program: {status}");
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // After a failure the program may run still.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
