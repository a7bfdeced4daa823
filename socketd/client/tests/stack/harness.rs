//! The test setup: server, peer and applications.

use casemate_linux::Error;
use casemate_linux::netlink::Netlink;
use casemate_linux::netns::{Netns, terminate};
use casemate_test_support::TempDir;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) const STACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
pub(crate) const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));
pub(crate) const SECRET: &str = "a pre-shared key of the stack server's tests";
const TAP: &str = "stack0";
const PATIENCE: Duration = Duration::from_secs(10);

/// Returns the command of an example of this crate. `cargo test` builds the examples, unless other
/// targets are selected.
fn example(name: &str) -> Command {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().and_then(Path::parent).unwrap().join("examples").join(name);
    assert!(program.exists(), "{}: not built; run `cargo test` with `--examples`", program.display());
    Command::new(program)
}

/// A network namespace with a server, and optionally a peer.
pub(crate) struct Harness {
    pub(crate) netns: Netns,
    pub(crate) server: Process,
    /// `casemate run` on the peer.
    pub(crate) peer: Option<Process>,
    /// Declared last: removed after the processes.
    pub(crate) scratch: TempDir,
}

impl Harness {
    /// Starts a server with IPsec to the peer. Returns `None`, with a note, if network namespaces are not
    /// permitted.
    pub(crate) fn protected(test: &str, more: &[&str]) -> Option<Self> {
        let mut harness = Self::build(test, |directory| {
            let conf = directory.join("stack.conf");
            fs::write(&conf, conf_of(STACK, PEER)).unwrap();
            [&["--config", conf.to_str().unwrap()], more].concat().into_iter().map(String::from).collect()
        })?;
        harness.peer = Some(harness.start_peer());
        Some(harness)
    }

    /// Starts a server without IPsec.
    pub(crate) fn clear(test: &str, more: &[&str]) -> Option<Self> {
        Self::build(test, |_| [&["--clear"], more].concat().into_iter().map(String::from).collect())
    }

    fn build(test: &str, arguments: impl FnOnce(&Path) -> Vec<String>) -> Option<Self> {
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
        let mut command = example("stack_program");
        command.args([
            "stack",
            "--tap",
            TAP,
            "--mac",
            "02:00:00:00:00:01",
            "--address",
            "192.0.2.1/24",
            "--socket",
        ]);
        command.arg(scratch.file("sock")).args(arguments(scratch.path()));
        let server = Process::start(&netns, command);
        server.await_line("ready");
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

    fn start_peer(&self) -> Process {
        let conf = self.scratch.file("peer.conf");
        fs::write(&conf, conf_of(PEER, STACK)).unwrap();
        let mut command = example("stack_program");
        command.args(["run", "--config"]).arg(conf).arg("--save-keys").arg(self.scratch.file("keys"));
        let peer = Process::start(&self.netns, command);
        peer.await_line("ready");
        peer
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.scratch.file("sock")
    }

    /// Starts an application.
    pub(crate) fn application(&self, role: &str, argument: &str) -> Process {
        let mut command = example("stack_application");
        command.arg(self.socket()).args([role, argument]);
        Process::start(&self.netns, command)
    }

    /// Starts an application and waits until it is ready.
    pub(crate) fn ready(&self, role: &str, argument: &str) -> Process {
        let application = self.application(role, argument);
        application.await_line("ready");
        application
    }

    /// Runs `work` in the network namespace of the peer.
    pub(crate) fn at_peer<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.netns.run(work).unwrap()
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
        let _ = self.peer.take().map(|mut peer| terminate(&mut peer.child, PATIENCE));
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

fn conf_of(own: IpAddr, other: IpAddr) -> String {
    format!(
        "connections {{ lab {{ local_addrs = {own}\n remote_addrs = {other}\n local {{ auth = psk }}\n \
         remote {{ auth = psk }}\n children {{ all {{ mode = transport\n start_action = trap }} }} }} }}\n\
         secrets {{ ike {{ secret = \"{SECRET}\" }} }}\n"
    )
}

/// A child process, killed on drop.
pub(crate) struct Process {
    pub(crate) child: Child,
    lines: Mutex<Receiver<String>>,
}

impl Process {
    fn start(netns: &Netns, mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = netns.spawn(&mut command).unwrap();
        let (sender, lines) = channel();
        let stdout = child.stdout.take().unwrap();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(io::Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines: Mutex::new(lines) }
    }

    fn next(&self, patience: Duration) -> Option<String> {
        self.lines.lock().unwrap().recv_timeout(patience).ok()
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

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills the process (SIGKILL).
    pub(crate) fn crash(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Terminates the process (SIGTERM). Returns whether it exited successfully.
    pub(crate) fn stop(&mut self) -> bool {
        terminate(&mut self.child, PATIENCE).unwrap().success()
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
