//! Two hosts on a cable, each in a network namespace with Linux's own IP stack, for tests of `casemate run`.

use casemate_linux::Error;
use casemate_linux::netlink::Netlink;
use casemate_linux::netns::{Echo, Netns, terminate};
use casemate_scratch::{Scratch, write_program};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) const WIRE: &str = "wire0";
pub(crate) const TUN: &str = "casemate0";
const PATIENCE: Duration = Duration::from_secs(20);
/// For an answer that nothing keeps away.
const AT_ONCE: Duration = Duration::from_millis(400);

/// Repeats a system call with a time limit, which ends early when a signal interrupts it (signal(7)).
pub(crate) fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Waits until something is so.
pub(crate) fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "in vain: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Which host.
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

    /// Address on the cable.
    pub(crate) fn outer(self, v4: bool) -> IpAddr {
        let n = self.number();
        if v4 { [192, 0, 2, n as u8].into() } else { [0x2001, 0xdb8, 0, 0, 0, 0, 0, n].into() }
    }

    /// Address behind it, on the loopback interface.
    pub(crate) fn inner(self, v4: bool) -> IpAddr {
        let n = self.number();
        if v4 { [10, n as u8, 0, 1].into() } else { [0xfd00 | n, 0, 0, 0, 0, 0, 0, 1].into() }
    }
}

/// The two hosts, and a directory for files.
pub(crate) struct Lab {
    pub(crate) left: Host,
    pub(crate) right: Host,
    /// Gone with the hosts.
    scratch: Scratch,
}

impl Lab {
    /// Builds it; `None`, saying so, where network namespaces are not permitted.
    pub(crate) fn build(test: &str) -> Option<Self> {
        match Self::try_build(test) {
            Ok(lab) => Some(lab),
            Err(error) => {
                casemate_left_out::note(error);
                None
            }
        }
    }

    fn try_build(test: &str) -> Result<Self, Error> {
        for (program, package) in [("ip", "iproute2"), ("nft", "nftables")] {
            let found = Command::new(program).arg("-V").stdout(Stdio::null()).status();
            found.map_err(|error| Error::new(format!("{program} (Debian package {package})"), error))?;
        }
        let tun = File::options().read(true).write(true).open("/dev/net/tun");
        tun.map_err(|error| Error::new("/dev/net/tun", error))?;
        let scratch = Scratch::new(test);
        let host = |side| Ok(Host { side, netns: Netns::new()?, directory: scratch.path().into() });
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
        let lab = Self { left, right, scratch };
        // The cable carries packets when both ends have noticed that the other is there.
        for v4 in [true, false] {
            assert!(lab.left.hears(lab.right.side.outer(v4), 8), "the cable is dead");
        }
        Ok(lab)
    }

    /// A third host, on no cable yet.
    pub(crate) fn third(&self) -> Host {
        let directory = self.scratch.path().join("third");
        fs::create_dir(&directory).unwrap();
        Host { side: Side::Right, netns: Netns::new().unwrap(), directory }
    }
}

/// A host.
pub(crate) struct Host {
    pub(crate) side: Side,
    pub(crate) netns: Netns,
    directory: PathBuf,
}

impl Host {
    /// Does something on this host.
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
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.netns.spawn(&mut command).unwrap().wait_with_output().unwrap()
    }

    /// What the program says; it must succeed.
    pub(crate) fn says(&self, program: &str, args: &[&str]) -> String {
        let output = self.output(program, args);
        assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs Casemate to its end.
    pub(crate) fn casemate(&self, args: &[&str]) -> Output {
        self.output(env!("CARGO_BIN_EXE_casemate"), args)
    }

    /// Starts `casemate run` with this file and waits until it is ready.
    pub(crate) fn protect(&self, xfrm: &str) -> Running {
        self.protect_with(xfrm, &[])
    }

    /// The same with more arguments.
    pub(crate) fn protect_with(&self, xfrm: &str, more: &[&str]) -> Running {
        let mut command = self.protecting(xfrm);
        command.args(more);
        self.start(command)
    }

    /// The same with another standard error.
    pub(crate) fn protect_with_stderr(&self, xfrm: &str, stderr: impl Into<Stdio>) -> Running {
        self.start_with(self.protecting(xfrm), Some(stderr.into()))
    }

    fn protecting(&self, xfrm: &str) -> Command {
        fs::write(self.file("xfrm"), xfrm).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_casemate"));
        command.arg("run").arg("--xfrm").arg(self.file("xfrm"));
        command.arg("--counters").arg(self.file("counters"));
        command
    }

    /// Starts `casemate run` with this `swanctl.conf`, with another environment variable if one is given, and waits until
    /// it is ready.
    pub(crate) fn negotiate(&self, conf: &str, variable: Option<(&str, &str)>) -> Running {
        fs::write(self.file("conf"), conf).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_casemate"));
        command.arg("run").arg("--config").arg(self.file("conf")).envs(variable);
        self.start(command)
    }

    /// Makes a script that runs in the place of `nft`, where `$NFT` is the real one. Returns the script and the place, for
    /// [`negotiate_with_nft`](Self::negotiate_with_nft) and [`fails_with`](Self::fails_with).
    pub(crate) fn script_as_nft(&self, script: &str) -> (PathBuf, PathBuf) {
        let places = ["/usr/sbin/nft", "/sbin/nft", "/usr/bin/nft", "/bin/nft"].map(PathBuf::from);
        let place = places.into_iter().find(|place| place.exists()).unwrap();
        let (copy, fake) = (self.file("nft"), self.file("fake-nft"));
        write_program(&copy, &fs::read(&place).unwrap());
        write_program(&fake, format!("#!/bin/sh\nNFT={}\n{script}\n", copy.display()).as_bytes());
        (fake, place)
    }

    /// Like [`negotiate`](Self::negotiate) where another program stands in the place of `nft`: that one, and the place.
    pub(crate) fn negotiate_with_nft(&self, conf: &str, nft: &(PathBuf, PathBuf)) -> Running {
        fs::write(self.file("conf"), conf).unwrap();
        let mut command = under_nft(nft);
        command.arg("run").arg("--config").arg(self.file("conf"));
        self.start(command)
    }

    /// What `casemate run` says with this file where another program stands in the place of `nft`; it must
    /// fail.
    pub(crate) fn fails_with(&self, xfrm: &str, nft: &(PathBuf, PathBuf)) -> String {
        fs::write(self.file("xfrm"), xfrm).unwrap();
        let mut command = under_nft(nft);
        command.arg("run").arg("--xfrm").arg(self.file("xfrm")).arg("--counters").arg(self.file("counters"));
        self.fails(command)
    }

    /// The same with a `swanctl.conf`.
    pub(crate) fn fails_to_negotiate_with(&self, conf: &str, nft: &(PathBuf, PathBuf)) -> String {
        fs::write(self.file("conf"), conf).unwrap();
        let mut command = under_nft(nft);
        command.arg("run").arg("--config").arg(self.file("conf"));
        self.fails(command)
    }

    fn fails(&self, mut command: Command) -> String {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = self.netns.spawn(&mut command).unwrap().wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    }

    fn start(&self, command: Command) -> Running {
        self.start_with(command, None)
    }

    /// Both standard output and standard error go to a file, unless there is another standard error.
    fn start_with(&self, mut command: Command, stderr: Option<Stdio>) -> Running {
        let log = self.file("log");
        let out = File::create(&log).unwrap();
        command.stdin(Stdio::null()).stdout(out.try_clone().unwrap());
        command.stderr(stderr.unwrap_or_else(|| out.into()));
        let mut running = Running { child: self.netns.spawn(&mut command).unwrap(), log };
        let start = Instant::now();
        while !running.said().lines().any(|line| line == "ready") {
            assert!(running.child.try_wait().unwrap().is_none(), "ended at once: {}", running.said());
            assert!(start.elapsed() < PATIENCE, "not ready: {}", running.said());
            thread::sleep(Duration::from_millis(2));
        }
        running
    }

    /// The status of the instance on this host.
    pub(crate) fn status(&self) -> Value {
        let output = self.casemate(&["status", "--json"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Waits until the status of the instance on this host is such a one.
    pub(crate) fn waits_until(&self, is_so: impl Fn(&Value) -> bool) {
        let start = Instant::now();
        loop {
            let status = self.status();
            if is_so(&status) {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "it never became so: {status:#}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Whether `dst` answers an echo request with this many bytes of payload, unchanged, at the third attempt at latest.
    pub(crate) fn hears(&self, dst: IpAddr, size: usize) -> bool {
        [AT_ONCE, AT_ONCE, PATIENCE].into_iter().any(|patience| self.hears_within(patience, dst, size))
    }

    /// Whether it answers the first request, at once.
    pub(crate) fn hears_at_once(&self, dst: IpAddr, size: usize) -> bool {
        self.hears_within(AT_ONCE, dst, size)
    }

    /// Whether it answers the first request.
    pub(crate) fn hears_first(&self, dst: IpAddr, size: usize) -> bool {
        self.hears_within(PATIENCE, dst, size)
    }

    fn hears_within(&self, patience: Duration, dst: IpAddr, size: usize) -> bool {
        let payload: Vec<u8> = (0..size).map(|n| n as u8).collect();
        let ask = || Echo::open(dst)?.ask(&payload, patience).map_err(|e| Error::new("echo", e));
        self.run(ask).is_ok_and(|(_, reply)| reply == payload)
    }

    /// Sends `bytes` over TCP to `server`, which sends them back; whether all came back unchanged.
    pub(crate) fn exchanges(&self, server: &Host, addr: IpAddr, bytes: usize) -> bool {
        let listener = server.run(|| TcpListener::bind(SocketAddr::new(addr, 0))).unwrap();
        let addr = listener.local_addr().unwrap();
        let echo = thread::spawn(move || -> io::Result<()> {
            let mut stream = listener.accept()?.0;
            io::copy(&mut stream.try_clone()?, &mut stream).map(drop)
        });
        let data: Vec<u8> = (0..bytes).map(|n| (n / 7) as u8).collect();
        let connect = || TcpStream::connect_timeout(&addr, PATIENCE);
        let Ok(mut stream) = self.run(connect) else { return false };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
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

/// Casemate in a mount namespace of its own, where one file is another one.
fn under_nft((fake, place): &(PathBuf, PathBuf)) -> Command {
    let mut command = Command::new("unshare");
    let script = "mount --bind \"$1\" \"$2\" && shift 2 && exec \"$@\"";
    command.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]);
    command.arg(fake).arg(place).arg(env!("CARGO_BIN_EXE_casemate"));
    command
}

/// A running `casemate run`.
pub(crate) struct Running {
    pub(crate) child: Child,
    log: PathBuf,
}

impl Running {
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Ends it as `kill` does.
    pub(crate) fn stop(mut self) -> ExitStatus {
        terminate(&mut self.child, PATIENCE).unwrap()
    }

    /// Ends it as a crash does.
    pub(crate) fn crash(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
