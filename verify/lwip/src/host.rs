//! The running example program: its wire and its commands.

use casemate_test_support::TempDir;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

/// Maximum time of a command that needs no help of the peer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Layer at which Casemate hooks into lwIP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// Inside IP.
    Inside,
    /// Below IP.
    Below,
}

/// Start parameters of a host.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// Memory for Casemate in bytes.
    pub memory: usize,
    /// Layer at which Casemate hooks into lwIP.
    pub placement: Placement,
    /// Lines of the configuration file.
    pub config: &'static str,
}

/// A host with lwIP and Casemate in a process: the example of adapters/lwip. The option --help lists its
/// commands.
pub struct LwipHost {
    child: Child,
    commands: Option<ChildStdin>,
    responses: Receiver<String>,
    /// Directory of the sockets and of the configuration file.
    _scratch: TempDir,
}

impl LwipHost {
    /// Starts the program. The returned socket is the other end of the wire: one frame per datagram.
    /// Returns the program's error message if it does not start.
    pub fn start(program: &Path, setup: Setup) -> Result<(Self, UnixDatagram), String> {
        let scratch = TempDir::new("lwip").unwrap();
        let (near, far) = (scratch.file("near"), scratch.file("far"));
        let wire = UnixDatagram::bind(&near).unwrap();
        let mut command = Command::new(program);
        command.arg("--console").arg("--unix").arg(&far).arg(&near);
        command.arg("--memory").arg(setup.memory.to_string());
        let config = scratch.file("config");
        std::fs::write(&config, setup.config).unwrap();
        command.arg("--config").arg(config);
        if setup.placement == Placement::Below {
            command.arg("--below");
        }
        let known = concat!(env!("CARGO_MANIFEST_DIR"), "/races-of-lwip.txt");
        // lwIP's threads never exit.
        command.env("TSAN_OPTIONS", format!("suppressions={known} halt_on_error=1 report_thread_leaks=0"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (sender, responses) = mpsc::channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let commands = child.stdin.take();
        let mut host = Self { child, commands, responses, _scratch: scratch };
        host.next_response(TIMEOUT).expect("the program starts")?;
        wire.connect(&far).unwrap();
        wire.set_nonblocking(true).unwrap();
        Ok((host, wire))
    }

    /// Sends a command. The response arrives later.
    pub fn begin(&mut self, command: &str) {
        let mut commands = self.commands.as_ref().unwrap();
        writeln!(commands, "{command}").unwrap();
    }

    /// Waits for the next response: its text, as success or failure. Returns `None` after the time limit.
    pub fn next_response(&mut self, timeout: Duration) -> Option<Result<String, String>> {
        let line = match self.responses.recv_timeout(timeout) {
            Ok(line) => line,
            Err(mpsc::RecvTimeoutError::Timeout) => return None,
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                panic!("the program exited: {:?}", self.child.wait())
            }
        };
        let (failed, text) = line.split_once(' ').unwrap_or((&line, ""));
        Some(if failed == "0" { Ok(text.into()) } else { Err(text.into()) })
    }

    /// Sends a command and waits for its response.
    pub fn command(&mut self, command: &str) -> Result<String, String> {
        self.begin(command);
        self.next_response(TIMEOUT).expect("an answer in time")
    }

    /// Ends the program and checks its exit status. The leak detector runs at the exit.
    pub fn end(mut self) {
        drop(self.commands.take());
        let status = self.child.wait().unwrap();
        assert!(status.success(), "the program failed: {status}");
    }
}

impl Drop for LwipHost {
    fn drop(&mut self) {
        // After a failed test the program may still run.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
