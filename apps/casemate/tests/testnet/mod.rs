//! Two hosts on a cable, each in a network namespace with Linux's own IP stack, for tests of `casemate
//! run`.

use casemate_linux::Error;
use casemate_linux::netlink::Netlink;
use casemate_linux::netns::{Netns, Ping};
use casemate_test_support::{Process, Program, TempDir, write_program};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) const WIRE: &str = "wire0";
pub(crate) const TUN: &str = "casemate0";
const TIMEOUT: Duration = Duration::from_secs(20);
/// Timeout of a response that nothing delays.
const QUICK_TIMEOUT: Duration = Duration::from_millis(400);

/// Repeats a system call that a signal interrupted: one with a timeout is not restarted automatically
/// (signal(7)).
pub(crate) fn retry_interrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Waits until `is_so` returns true; `what` describes the condition.
pub(crate) fn eventually(what: &str, is_so: impl Fn() -> bool) {
    casemate_test_support::eventually(what, || is_so().then_some(()));
}

/// Sets a flag on drop, also after a panic. A thread that runs until then does not outlive its scope.
pub(crate) struct SetOnDrop<'f>(pub(crate) &'f AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One of the two hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
}

impl Side {
    pub(crate) fn other(self) -> Self {
        if self == Self::Left { Self::Right } else { Self::Left }
    }

    fn number(self) -> u16 {
        if self == Self::Left { 1 } else { 2 }
    }

    /// The address on the cable.
    pub(crate) fn outer(self, v4: bool) -> IpAddr {
        let n = self.number();
        if v4 { [192, 0, 2, n as u8].into() } else { [0x2001, 0xdb8, 0, 0, 0, 0, 0, n].into() }
    }

    /// The inner address, on the loopback interface.
    pub(crate) fn inner(self, v4: bool) -> IpAddr {
        let n = self.number();
        if v4 { [10, n as u8, 0, 1].into() } else { [0xfd00 | n, 0, 0, 0, 0, 0, 0, 1].into() }
    }

    /// A connection of this host with its peer in tunnel mode, with these keys of its child. The left host
    /// sets it up when a packet needs it.
    pub(crate) fn connection(self, child: &str) -> String {
        let (own, peer) = (self, self.other());
        format!(
            "connections {{ t {{\n local_addrs = {}\n remote_addrs = {}\n\
             local {{ auth = psk\n id = {own:?} }}\n remote {{ auth = psk\n id = {peer:?} }}\n\
             children {{ c {{ local_ts = {}\n remote_ts = {}\n{child}\n start_action = {} }} }} }} }}\n\
             secrets {{ ike {{ secret = \"a secret of the two\" }} }}\n",
            own.outer(true),
            peer.outer(true),
            own.inner(true),
            peer.inner(true),
            if self == Self::Left { "trap" } else { "none" }
        )
    }
}

/// The two hosts, and a directory for their files.
pub(crate) struct TestNet {
    pub(crate) left: Host,
    pub(crate) right: Host,
    /// Removed with the hosts.
    scratch: TempDir,
}

/// Removes the files of runs in an older network namespace with the number of this one. The kernel uses
/// numbers again, and a killed run leaves files.
fn forget_former_namespace() -> io::Result<()> {
    let number = fs::metadata("/proc/thread-self/ns/net")?.ino();
    let files = fs::read_dir("/run/casemate").into_iter().flatten().flatten();
    for file in files.filter(|file| file.file_name().to_string_lossy().starts_with(&format!("net{number}-")))
    {
        // Another test may have removed it.
        let _ = fs::remove_file(file.path());
    }
    Ok(())
}

/// Fails if this machine lacks a program or a device that every host needs.
pub(crate) fn check_prerequisites() -> Result<(), Error> {
    for (program, package) in [("ip", "iproute2"), ("nft", "nftables")] {
        let found = Command::new(program).arg("-V").stdout(Stdio::null()).status();
        found.map_err(|error| Error::new(format!("{program} (Debian package {package})"), error))?;
    }
    let tun = File::options().read(true).write(true).open("/dev/net/tun");
    tun.map(drop).map_err(|error| Error::new("/dev/net/tun", error))
}

impl TestNet {
    /// Builds the hosts. Notes the skipped test and returns `None` if network namespaces are not
    /// permitted.
    pub(crate) fn build(test: &str) -> Option<Self> {
        match Self::try_build(test) {
            Ok(net) => Some(net),
            Err(error) => {
                casemate_test_support::skip(error);
                None
            }
        }
    }

    fn try_build(test: &str) -> Result<Self, Error> {
        check_prerequisites()?;
        let scratch = TempDir::new(test).unwrap();
        let host = |side| Host::without_cable(side, scratch.path().into());
        let (left, right) = (host(Side::Left)?, host(Side::Right)?);
        left.run(|| Netlink::open()?.add_veth(WIRE, WIRE, right.netns.as_fd()))?;
        for host in [&left, &right] {
            host.run(|| {
                let mut netlink = Netlink::open()?;
                let (lo, wire) = (netlink.link("lo")?.index, netlink.link(WIRE)?.index);
                netlink.set_up(wire, 1500)?;
                for v4 in [true, false] {
                    netlink.add_address(wire, host.side.outer(v4), if v4 { 24 } else { 64 })?;
                    netlink.add_address(lo, host.side.inner(v4), if v4 { 32 } else { 128 })?;
                }
                Ok::<(), Error>(())
            })?;
        }
        let net = Self { left, right, scratch };
        // Waits until both ends of the cable have a carrier.
        for v4 in [true, false] {
            assert!(net.left.pings(net.right.side.outer(v4), 8), "the cable carries no packets");
        }
        Ok(net)
    }

    /// Adds a third host without a cable.
    pub(crate) fn add_host(&self) -> Host {
        let directory = self.scratch.path().join("third");
        fs::create_dir(&directory).unwrap();
        Host::without_cable(Side::Right, directory).unwrap()
    }
}

/// A host.
pub(crate) struct Host {
    pub(crate) side: Side,
    pub(crate) netns: Netns,
    directory: PathBuf,
}

impl Host {
    /// A host without a cable. Two hosts with the same directory need different sides.
    pub(crate) fn without_cable(side: Side, directory: PathBuf) -> Result<Self, Error> {
        let host = Self { side, netns: Netns::new()?, directory };
        host.run(forget_former_namespace).unwrap();
        Ok(host)
    }

    /// Runs `work` on this host.
    pub(crate) fn run<T: Send, E: Send + std::fmt::Debug>(
        &self,
        work: impl FnOnce() -> Result<T, E> + Send,
    ) -> Result<T, E> {
        self.netns.run(work).unwrap()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{:?}.{name}", self.side))
    }

    /// Runs a program to its end.
    pub(crate) fn output(&self, program: &str, args: &[&str]) -> Output {
        self.output_of(Program::new(program).args(args))
    }

    /// Like [`output`](Self::output), for a program with other settings.
    pub(crate) fn output_of(&self, program: Program) -> Output {
        program.output_with(|command| self.netns.spawn(command))
    }

    /// The standard output of a program that must succeed.
    pub(crate) fn stdout_of(&self, program: &str, args: &[&str]) -> String {
        let output = self.output(program, args);
        assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The packet filter, without the table that drops received ESP early: a running instance makes it some
    /// time after its start, and it ends with the process.
    pub(crate) fn filter(&self) -> String {
        let rules = self.stdout_of("nft", &["--stateless", "list", "ruleset"]);
        let tables = rules.split_inclusive("\n}\n");
        tables.filter(|table| !table.starts_with("table inet casemate-received_")).collect()
    }

    /// Runs Casemate to its end.
    pub(crate) fn casemate(&self, args: &[&str]) -> Output {
        self.output(env!("CARGO_BIN_EXE_casemate"), args)
    }

    /// Starts `casemate run --xfrm` with this file and waits until it is ready.
    pub(crate) fn run_xfrm(&self, xfrm: &str) -> Running {
        self.run_xfrm_with_args(xfrm, &[])
    }

    /// Like [`run_xfrm`](Self::run_xfrm), with more arguments.
    pub(crate) fn run_xfrm_with_args(&self, xfrm: &str, more: &[&str]) -> Running {
        self.start(self.xfrm_program(casemate(), xfrm).args(more))
    }

    /// Like [`run_xfrm`](Self::run_xfrm), with another standard error.
    pub(crate) fn run_xfrm_with_stderr(&self, xfrm: &str, stderr: impl Into<Stdio>) -> Running {
        let program = self.xfrm_program(casemate(), xfrm).log_to(&self.file("log"));
        self.start_logged(program.stderr(stderr))
    }

    /// Starts `casemate run` with this `swanctl.conf` and an optional environment variable, and waits
    /// until it is ready.
    pub(crate) fn run_config(&self, conf: &str, variable: Option<(&str, &str)>) -> Running {
        self.run_config_with_variables(conf, variable.as_slice())
    }

    /// Like [`run_config`](Self::run_config), with several environment variables.
    pub(crate) fn run_config_with_variables(&self, conf: &str, variables: &[(&str, &str)]) -> Running {
        let program = self.config_program(casemate(), conf);
        self.start(program.configure(|command| command.envs(variables.iter().copied())))
    }

    /// Starts `casemate run` with a `swanctl.conf` at another place, and waits until it is ready.
    pub(crate) fn run_config_file(&self, path: &Path) -> Running {
        self.start(casemate().arg("run").arg("--config").arg(path))
    }

    /// Starts `casemate run --vici` with more arguments and waits until it is ready. The socket is the file
    /// `vici` of this host.
    pub(crate) fn run_vici(&self, more: &[&str]) -> Running {
        self.start(casemate().arg("run").arg("--vici").arg(self.file("vici")).args(more))
    }

    /// Makes a script that runs instead of `nft`; `$NFT` in it is the real program.
    pub(crate) fn fake_nft(&self, script: &str) -> ReplacedFile {
        let paths = ["/usr/sbin/nft", "/sbin/nft", "/usr/bin/nft", "/bin/nft"].map(PathBuf::from);
        let path = paths.into_iter().find(|path| path.exists()).unwrap();
        let (copy, fake) = (self.file("nft"), self.file("fake-nft"));
        write_program(&copy, &fs::read(&path).unwrap());
        write_program(&fake, format!("#!/bin/sh\nNFT={}\n{script}\n", copy.display()).as_bytes());
        ReplacedFile { path, by: fake }
    }

    /// Like [`run_config`](Self::run_config), with another program instead of `nft`.
    pub(crate) fn run_config_with_nft(&self, conf: &str, nft: &ReplacedFile) -> Running {
        self.start(self.config_program(casemate_with_nft(nft), conf))
    }

    /// Starts `casemate run --dry-run` with this `swanctl.conf` and another file.
    pub(crate) fn start_dry_run(&self, conf: &str, file: &ReplacedFile) -> Process {
        let program = self.config_program(casemate_with_nft(file), conf).arg("--dry-run");
        program.start_with(|command| self.netns.spawn(command))
    }

    /// The error output of `casemate run --xfrm`, which must fail, with another program instead of `nft`.
    pub(crate) fn run_xfrm_fails(&self, xfrm: &str, nft: &ReplacedFile) -> String {
        self.fails(self.xfrm_program(casemate_with_nft(nft), xfrm))
    }

    /// Like [`run_xfrm_fails`](Self::run_xfrm_fails), with a `swanctl.conf`.
    pub(crate) fn run_config_fails(&self, conf: &str, nft: &ReplacedFile) -> String {
        self.fails(self.config_program(casemate_with_nft(nft), conf))
    }

    fn xfrm_program(&self, casemate: Program, xfrm: &str) -> Program {
        fs::write(self.file("xfrm"), xfrm).unwrap();
        let program = casemate.arg("run").arg("--xfrm").arg(self.file("xfrm"));
        program.arg("--counters").arg(self.file("counters"))
    }

    fn config_program(&self, casemate: Program, conf: &str) -> Program {
        fs::write(self.file("conf"), conf).unwrap();
        casemate.arg("run").arg("--config").arg(self.file("conf"))
    }

    fn fails(&self, program: Program) -> String {
        let output = self.output_of(program);
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    }

    /// Starts a program that becomes an instance, and waits until it is ready.
    pub(crate) fn start(&self, program: Program) -> Running {
        self.start_logged(program.log_to(&self.file("log")))
    }

    /// Starts a program whose standard output goes to the log, and waits until it is ready.
    fn start_logged(&self, program: Program) -> Running {
        let mut process = program.start_with(|command| self.netns.spawn(command));
        process.wait_for_line("ready", TIMEOUT);
        Running(process)
    }

    /// The status of the instance on this host.
    pub(crate) fn status(&self) -> Value {
        let output = self.casemate(&["status", "--json"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Waits until the status of the instance on this host fulfils a condition.
    pub(crate) fn wait_until(&self, is_so: impl Fn(&Value) -> bool) {
        let start = Instant::now();
        loop {
            let status = self.status();
            if is_so(&status) {
                return;
            }
            assert!(start.elapsed() < TIMEOUT, "timeout: {status:#}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Whether `dst` responds to an echo request with this many bytes of payload, unchanged, within three
    /// attempts.
    pub(crate) fn pings(&self, dst: IpAddr, size: usize) -> bool {
        // Without a route a request fails at once: the route may follow the SA in a moment.
        let soon = || {
            let started = Instant::now();
            let is_answered = self.pings_within(QUICK_TIMEOUT, dst, size);
            if !is_answered {
                thread::sleep(QUICK_TIMEOUT.saturating_sub(started.elapsed()));
            }
            is_answered
        };
        soon() || soon() || self.pings_within(TIMEOUT, dst, size)
    }

    /// Whether `dst` responds to the first request within 400 ms.
    pub(crate) fn pings_at_once(&self, dst: IpAddr, size: usize) -> bool {
        self.pings_within(QUICK_TIMEOUT, dst, size)
    }

    /// Whether `dst` responds to the first request.
    pub(crate) fn pings_first_time(&self, dst: IpAddr, size: usize) -> bool {
        self.pings_within(TIMEOUT, dst, size)
    }

    fn pings_within(&self, timeout: Duration, dst: IpAddr, size: usize) -> bool {
        let payload: Vec<u8> = (0..size).map(|n| n as u8).collect();
        let ask = || Ping::open(dst)?.send(&payload, timeout).map_err(|e| Error::new("echo", e));
        self.run(ask).is_ok_and(|reply| reply.payload == payload)
    }

    /// Sends `bytes` over TCP to `server`, which echoes them. Returns whether all came back unchanged.
    pub(crate) fn tcp_round_trip(&self, server: &Host, addr: IpAddr, bytes: usize) -> bool {
        let listener = server.run(|| TcpListener::bind(SocketAddr::new(addr, 0))).unwrap();
        let addr = listener.local_addr().unwrap();
        let echo = thread::spawn(move || -> io::Result<()> {
            let mut stream = listener.accept()?.0;
            io::copy(&mut stream.try_clone()?, &mut stream).map(drop)
        });
        let data: Vec<u8> = (0..bytes).map(|n| (n / 7) as u8).collect();
        let connect = || TcpStream::connect_timeout(&addr, TIMEOUT);
        let Ok(mut stream) = self.run(connect) else { return false };
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut sender = stream.try_clone().unwrap();
        let sent = data.clone();
        let writer = thread::spawn(move || {
            sender.write_all(&sent).is_ok() && sender.shutdown(std::net::Shutdown::Write).is_ok()
        });
        let mut back = Vec::new();
        let whole = stream.read_to_end(&mut back).is_ok() && back == data;
        writer.join().unwrap() && whole && echo.join().unwrap().is_ok()
    }
}

/// A file over which another one is mounted, such as a script over `nft`.
pub(crate) struct ReplacedFile {
    pub(crate) path: PathBuf,
    pub(crate) by: PathBuf,
}

pub(crate) fn casemate() -> Program {
    Program::new(env!("CARGO_BIN_EXE_casemate"))
}

/// Casemate in a separate mount namespace, in which a bind mount replaces `nft`.
fn casemate_with_nft(nft: &ReplacedFile) -> Program {
    let script = "mount --bind \"$1\" \"$2\" && shift 2 && exec \"$@\"";
    let unshare =
        Program::new("unshare").args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]);
    unshare.arg(&nft.by).arg(&nft.path).arg(env!("CARGO_BIN_EXE_casemate"))
}

/// A running `casemate run` process.
pub(crate) struct Running(Process);

impl Running {
    pub(crate) fn pid(&self) -> u32 {
        self.0.pid()
    }

    pub(crate) fn log(&self) -> String {
        self.0.log()
    }

    /// Resident memory in KiB.
    pub(crate) fn resident_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.exit_status().is_some()
    }

    /// Waits for the end, for at most 20 seconds.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.wait_within(TIMEOUT)
    }

    pub(crate) fn wait_within(&mut self, limit: Duration) -> ExitStatus {
        self.0.wait(limit)
    }

    /// Stops the process with SIGTERM.
    pub(crate) fn stop(mut self) -> ExitStatus {
        self.0.stop(TIMEOUT)
    }

    /// Ends the process with SIGUSR1, as before a restart.
    pub(crate) fn end_for_restart(mut self) -> ExitStatus {
        let pid = self.pid().to_string();
        assert!(Command::new("kill").args(["-USR1", &pid]).status().unwrap().success());
        self.wait()
    }

    /// Kills the process, as a crash does.
    pub(crate) fn crash(mut self) {
        self.0.kill();
    }
}
