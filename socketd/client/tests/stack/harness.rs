//! The test setup: server, peer and applications.

use casemate_linux::Error;
use casemate_linux::netlink::Netlink;
use casemate_linux::netns::Netns;
use casemate_test_support::{Process, Program, TempDir, eventually};
use std::fs::{self, File};
use std::io::{PipeWriter, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) const STACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
pub(crate) const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));
pub(crate) const SECRET: &str = "a pre-shared key of the stack server's tests";
const TAP: &str = "stack0";
const PATIENCE: Duration = Duration::from_secs(10);

/// Returns the program of an example of this crate. `cargo test` builds the examples, unless other
/// targets are selected.
fn example(name: &str) -> Program {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().and_then(Path::parent).unwrap().join("examples").join(name);
    assert!(program.exists(), "{}: not built; run `cargo test` with `--examples`", program.display());
    Program::new(program)
}

/// A network namespace with a server, and optionally a peer.
pub(crate) struct Harness {
    pub(crate) netns: Netns,
    pub(crate) server: LineProcess,
    /// `casemate run` on the peer.
    pub(crate) peer: Option<LineProcess>,
    /// Declared last: removed after the processes.
    pub(crate) scratch: TempDir,
}

impl Harness {
    /// Starts a server with IPsec to the peer. Returns `None`, with a note, if network namespaces are not
    /// permitted.
    pub(crate) fn protected(test: &str, more: &[&str]) -> Option<Self> {
        Self::with_child(test, more, "mode = transport")
    }

    /// Starts a server with IPsec and header compression.
    pub(crate) fn compressed(test: &str) -> Option<Self> {
        Self::with_child(test, &[], "rohc = yes")
    }

    /// Starts a server and a peer with this keyword of the child.
    fn with_child(test: &str, more: &[&str], keyword: &str) -> Option<Self> {
        let mut harness = Self::build(test, None, |directory| {
            let conf = directory.join("stack.conf");
            fs::write(&conf, conf_of(STACK, PEER, keyword)).unwrap();
            [&["--config", conf.to_str().unwrap()], more].concat().into_iter().map(String::from).collect()
        })?;
        harness.peer = Some(harness.start_peer(keyword));
        Some(harness)
    }

    /// Starts a server without IPsec.
    pub(crate) fn clear(test: &str, more: &[&str]) -> Option<Self> {
        let arguments = [&["--clear"], more].concat().into_iter().map(String::from).collect();
        Self::build(test, None, |_| arguments)
    }

    /// Like [`clear`](Self::clear), with a pipe as standard output of the server, which nothing reads.
    pub(crate) fn unread(test: &str, stdout: PipeWriter) -> Option<Self> {
        Self::build(test, Some(stdout), |_| vec!["--clear".into()])
    }

    fn build(
        test: &str,
        stdout: Option<PipeWriter>,
        arguments: impl FnOnce(&Path) -> Vec<String>,
    ) -> Option<Self> {
        let netns = Netns::new().and_then(|netns| {
            File::options()
                .read(true)
                .write(true)
                .open("/dev/net/tun")
                .map_err(|e| Error::new("/dev/net/tun", e))?;
            Ok(netns)
        });
        let netns = match netns {
            Ok(netns) => netns,
            Err(error) => {
                casemate_test_support::skip(error);
                return None;
            }
        };
        let scratch = TempDir::new(test).unwrap();
        let program = example("stack_program").args([
            "stack",
            "--tap",
            TAP,
            "--mac",
            "02:00:00:00:00:01",
            "--address",
            "192.0.2.1/24",
            "--socket",
        ]);
        let program = program.arg(scratch.file("sock")).args(arguments(scratch.path()));
        let server = match stdout {
            None => {
                let server = LineProcess::start(&netns, &scratch, program);
                server.await_line("ready");
                server
            }
            Some(stdout) => {
                let program = program.stdout(stdout).stderr(Stdio::inherit());
                let process = program.start_with(|command| netns.spawn(command));
                let socket = scratch.file("sock");
                eventually("the server has its socket", || socket.exists().then_some(()));
                LineProcess { process, read: AtomicUsize::new(0) }
            }
        };
        let harness = Self { netns, server, peer: None, scratch };
        harness
            .netns
            .run(|| {
                let mut netlink = Netlink::open().unwrap();
                let link = netlink.link(TAP).unwrap();
                netlink.add_address(link.index, PEER, 24).unwrap();
            })
            .unwrap();
        Some(harness)
    }

    fn start_peer(&self, keyword: &str) -> LineProcess {
        let conf = self.scratch.file("peer.conf");
        fs::write(&conf, conf_of(PEER, STACK, keyword)).unwrap();
        let program = example("stack_program").args(["run", "--config"]).arg(conf);
        let program = program.arg("--save-keys").arg(self.scratch.file("keys"));
        let peer = LineProcess::start(&self.netns, &self.scratch, program);
        peer.await_line("ready");
        peer
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.scratch.file("sock")
    }

    /// Starts an application.
    pub(crate) fn application(&self, role: &str, argument: &str) -> LineProcess {
        let program = example("stack_application").arg(self.socket()).args([role, argument]);
        LineProcess::start(&self.netns, &self.scratch, program)
    }

    /// Starts an application and waits until it is ready.
    pub(crate) fn ready(&self, role: &str, argument: &str) -> LineProcess {
        let application = self.application(role, argument);
        application.await_line("ready");
        application
    }

    /// Runs `work` in the network namespace of the peer.
    pub(crate) fn at_peer<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.netns.run(work).unwrap()
    }

    /// Lets the link lose all packets to the stack while `work` runs.
    pub(crate) fn during_outage(&self, work: impl FnOnce()) {
        let tc = |action: &str, limit: &[&str]| {
            let mut command = Command::new("tc");
            command.args(["qdisc", action, "dev", TAP, "root"]).args(limit);
            assert!(self.at_peer(move || command.status()).unwrap().success(), "tc qdisc {action}");
        };
        tc("add", &["bfifo", "limit", "0"]);
        work();
        tc("del", &[]);
    }

    /// Connects from the peer to a port of the stack.
    pub(crate) fn connect(&self, port: u16) -> TcpStream {
        let connect = || TcpStream::connect_timeout(&SocketAddr::new(STACK, port), PATIENCE);
        let stream = self.at_peer(connect).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends `bytes` bytes from the peer to an echo service and receives them again.
    pub(crate) fn echoes(&self, port: u16, bytes: usize) {
        echo(self.connect(port), bytes);
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        // SIGTERM lets the peer remove its routes and policies, and its journal.
        if let Some(mut peer) = self.peer.take() {
            peer.stop();
        }
    }
}

/// Sends `bytes` bytes and checks that the same bytes come back.
pub(crate) fn echo(stream: TcpStream, bytes: usize) {
    let data: Vec<u8> = (0..bytes).map(|at| (at / 7) as u8).collect();
    let (mut out, sent) = (stream.try_clone().unwrap(), data.clone());
    let writer = thread::spawn(move || {
        out.write_all(&sent).unwrap();
        out.shutdown(std::net::Shutdown::Write).unwrap();
    });
    let mut back = Vec::new();
    (&stream).read_to_end(&mut back).unwrap();
    writer.join().unwrap();
    assert!(back == data, "{} of {bytes} bytes came back, or they differ", back.len());
}

fn conf_of(own: IpAddr, other: IpAddr, keyword: &str) -> String {
    format!(
        "connections {{ lab {{ local_addrs = {own}\n remote_addrs = {other}\n local {{ auth = psk }}\n \
         remote {{ auth = psk }}\n children {{ all {{ {keyword}\n start_action = trap }} }} }} }}\n\
         secrets {{ ike {{ secret = \"{SECRET}\" }} }}\n"
    )
}

/// A program of the setup, whose standard output is read line by line.
pub(crate) struct LineProcess {
    process: Process,
    /// Number of lines that have been read.
    read: AtomicUsize,
}

impl LineProcess {
    fn start(netns: &Netns, scratch: &TempDir, program: Program) -> Self {
        static STARTED: AtomicUsize = AtomicUsize::new(0);
        let log = scratch.file(&format!("output-{}", STARTED.fetch_add(1, Ordering::Relaxed)));
        let program = program.log_to(&log).stderr(Stdio::inherit());
        Self { process: program.start_with(|command| netns.spawn(command)), read: AtomicUsize::new(0) }
    }

    /// Returns the next line of output; `None` if there is none within `patience`.
    fn next(&self, patience: Duration) -> Option<String> {
        let start = Instant::now();
        loop {
            let log = self.process.log();
            // The process may have written a part of a line.
            let mut lines = log.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
            if let Some(line) = lines.nth(self.read.load(Ordering::Relaxed)) {
                self.read.fetch_add(1, Ordering::Relaxed);
                return Some(line.into());
            }
            if start.elapsed() >= patience {
                return None;
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Returns the next line of output.
    pub(crate) fn line(&self) -> String {
        self.next(PATIENCE).unwrap_or_else(|| panic!("the process printed nothing"))
    }

    /// Waits for a line that starts with `wanted`.
    pub(crate) fn await_line(&self, wanted: &str) -> String {
        let end = Instant::now() + PATIENCE;
        let mut output = Vec::new();
        while let Some(line) = self.next(end.saturating_duration_since(Instant::now())) {
            if line.starts_with(wanted) {
                return line;
            }
            output.push(line);
        }
        panic!("no line `{wanted}` in the output: {output:?}");
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Kills the process (SIGKILL).
    pub(crate) fn crash(&mut self) {
        self.process.kill();
    }

    /// Terminates the process (SIGTERM). Returns whether it exited successfully.
    pub(crate) fn stop(&mut self) -> bool {
        self.process.stop(PATIENCE).success()
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        self.process.exit_status().is_none()
    }
}
