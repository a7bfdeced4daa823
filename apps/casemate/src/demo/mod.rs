//! `casemate demo`: two hosts, a cable and two Casemates, with checks that can fail.
//!
//! The hosts are network namespaces with Linux's own IP stack, the traffic is real HTTP and ICMP, and
//! every statement about the wire is based on a capture of it. The same traffic is sent in clear first,
//! which proves that the search for cleartext works. The demo leaves nothing behind: /run is private, and
//! namespaces and programs end with this process.

mod gateway;
mod host;
mod requirements;
mod speed;
mod traffic;
mod wire;

use crate::failure::Failure;
use crate::output::{self, print};
use casemate_linux::netns::{self, EchoReply, Ping};
use casemate_linux::private_file::{self, OthersAccess};
use clap::Args;
use gateway::{Gateway, PROGRAM};
use host::{CONNECTIONS, Host, HostPair, SharedConfig, Side, two_hosts};
use speed::Speed;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use traffic::{SECRET, Servers, fetch_letter, short_error};
use wire::Keep;
use wire::{FrameKind, Recorder, Recording, contains};

const DEMO_EXAMPLES: &str = "\
Examples:
  casemate demo
  casemate demo --keep results && casemate inspect results/wire.pcapng --xfrm results/states.xfrm

The demo takes about ten seconds. It leaves nothing else behind than the directory of --keep. It needs root
or unprivileged user namespaces, and `nft`: as root, or with sudo that asks for no password, it installs Debian's
package nftables if `nft` is missing.";

/// Arguments of `demo`.
#[derive(Debug, Args)]
#[command(after_help = DEMO_EXAMPLES)]
pub struct DemoArgs {
    /// Save the captures, configurations and keys of both hosts in this directory.
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,

    /// Do not install Debian's package nftables where `nft` is missing; end with an error instead.
    #[arg(long)]
    pub no_install: bool,
}

/// A directory in memory that no other process sees; see [`netns::isolate`].
const SCRATCH: &str = "/run/casemate-demo";
/// The same files for ESP in UDP.
const SCRATCH_UDP: &str = "/run/casemate-demo/udp";
/// Timeout of a response, which takes less than a millisecond on this cable.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout where no response is expected.
const SHORT_TIMEOUT: Duration = Duration::from_millis(300);

/// Runs the command.
pub fn demo(args: &DemoArgs) -> Result<(), Failure> {
    // Opened before `isolate` replaces /run.
    let keep = args.keep.as_deref().map(Keep::open).transpose()?;
    // Before `isolate`, after which a package would be installed with a private /run.
    requirements::ensure_nft(!args.no_install)?;
    netns::isolate().map_err(|error| requirements::no_namespaces(&error))?;
    requirements::check_tun_access()?;
    let shared = SharedConfig::fresh()?;
    for (directory, encap) in [(SCRATCH, "no"), (SCRATCH_UDP, "auto")] {
        write_files(&shared, Path::new(directory), encap)
            .map_err(|error| Failure::failed(format!("demo: {directory}: {error}")))?;
    }

    print("Casemate demo: two hosts, a cable between them, and a capture of its packets.\n")?;
    let mut report = DemoReport::new();
    let hosts = Hosts::build(&mut report)?;
    let (clear, plain) = hosts.without_casemate(&mut report)?;
    let Gateways { left, right } = hosts.start_both(&mut report)?;
    let protected = hosts.with_casemate(&mut report)?;
    let tunnel = hosts.measure()?;
    let right = hosts.right_stops(&mut report, right)?;
    hosts.left_stops(&mut report, left)?;
    right.stop()?;
    report.step("Speed")?;
    let udp = hosts.measure_in_udp(&report)?;
    report.say(speed::table(&plain, &tunnel, &udp))?;
    report.end()?;
    match keep {
        Some(keep) => keep.fill(Path::new(SCRATCH), &clear, &protected),
        None => print("`casemate demo --keep DIR` saves the captures and the keys.\n"),
    }
}

fn write_files(shared: &SharedConfig, directory: &Path, encap: &str) -> io::Result<()> {
    for side in [Side::Left, Side::Right] {
        let directory = directory.join(side.to_string());
        fs::create_dir_all(&directory)?;
        let conf = directory.join("swanctl.conf");
        let mut conf =
            private_file::open(&conf, File::options().write(true).create_new(true), OthersAccess::None)?;
        conf.write_all(shared.conf_for(side, encap).as_bytes())?;
    }
    Ok(())
}

/// The hosts and their servers.
struct Hosts {
    left: Host,
    right: Host,
    servers: Servers,
}

/// The instances on both hosts.
struct Gateways {
    left: Gateway,
    right: Gateway,
}

impl Hosts {
    fn build(report: &mut DemoReport) -> Result<Self, Failure> {
        report.step("Two hosts")?;
        let HostPair { left, right } = two_hosts()?;
        for host in [Side::Left, Side::Right] {
            let [inner4, inner6] = [true, false].map(|v4| host.inner(v4).to_string());
            report.say(format!(
                "{:<6} {inner4} and {inner6:<8} behind {} and {}",
                host.to_string(),
                host.outer(true),
                host.outer(false)
            ))?;
        }
        report.say(
            "Each host is a network namespace with the TCP/IP of Linux. A virtual Ethernet cable connects\n\
             them. The left host fetches a letter from the right host over HTTP, and pings it.",
        )?;
        let servers = right.run(Servers::start)?;
        let servers = servers.map_err(|error| Failure::failed(format!("demo: servers: {error}")))?;
        Ok(Self { left, right, servers })
    }

    /// The control experiment: without protection, the checks find the cleartext.
    fn without_casemate(&self, report: &mut DemoReport) -> Result<(Recording, Speed), Failure> {
        report.step("Without Casemate: an eavesdropper can read everything")?;
        let recorder = Recorder::start(&self.left)?;
        self.check_traffic_passes(report)?;
        let recording = recorder.finish()?;
        report.say(format!("On the wire: {}.", recording.summary()))?;
        let text_count = recording.frames_with(SECRET);
        report.check(text_count > 0, format!("{text_count} of the packets contain the letter"))?;
        Ok((recording, self.measure()?))
    }

    fn start_both(&self, report: &mut DemoReport) -> Result<Gateways, Failure> {
        report.step("With Casemate on both hosts")?;
        report.say(
            "Both hosts have a swanctl.conf with the same pre-shared key. IKEv2 negotiates all other keys\n\
             with X25519. ESP in tunnel mode uses AES-256-GCM, extended sequence numbers and replay\n\
             protection. One connection is over IPv4, the other over IPv6.",
        )?;
        let start = Instant::now();
        let left = Gateway::start(&self.left, Path::new(SCRATCH))?;
        let right = Gateway::start(&self.right, Path::new(SCRATCH))?;
        report.check(
            true,
            format!("`casemate run` is ready on both hosts after {} ms", start.elapsed().as_millis()),
        )?;
        self.negotiate(report)?;
        for warning in left.warnings() {
            report.say(format!("note  {warning}"))?;
        }
        Ok(Gateways { left, right })
    }

    /// Waits until both hosts have negotiated keys.
    fn negotiate(&self, report: &DemoReport) -> Result<(), Failure> {
        let start = Instant::now();
        for name in CONNECTIONS {
            Gateway::initiate(&self.left, name)?;
        }
        let what = "IKEv2 established an IKE SA and a Child SA over each IP version";
        report.check(true, format!("{what} in {} ms", start.elapsed().as_millis()))
    }

    fn with_casemate(&self, report: &mut DemoReport) -> Result<Recording, Failure> {
        let recorder = Recorder::start(&self.left)?;
        self.check_traffic_passes(report)?;
        let recording = recorder.finish()?;
        report.say(format!("On the wire: {}.", recording.summary()))?;
        report.check(recording.lost == 0, "the recording is complete")?;
        let esp = recording.count(FrameKind::Esp);
        let clear = recording.count(FrameKind::Clear);
        report.check(
            esp > 0 && clear == 0,
            format!("{} of ESP, {clear} in clear", output::counted(esp, "packet", "packets")),
        )?;
        for text in [SECRET, "HTTP/1.1", "GET /letter"] {
            let text_count = recording.frames_with(text);
            report.check(text_count == 0, format!("{text_count} of them contain \"{text}\""))?;
        }
        open_with_keys(report, &recording)?;
        Ok(recording)
    }

    /// The left host keeps protecting its traffic when its peer is gone.
    fn right_stops(&self, report: &mut DemoReport, gateway: Gateway) -> Result<Gateway, Failure> {
        report.step("Casemate stops on the right host: the left host must not send cleartext")?;
        gateway.stop()?;
        let recorder = Recorder::start(&self.left)?;
        self.check_traffic_fails(report)?;
        let recording = recorder.finish()?;
        report.say(format!("On the wire: {}.", recording.summary()))?;
        let (ike, clear, secret) = (
            recording.count(FrameKind::Ike),
            recording.count(FrameKind::Clear),
            recording.frames_with(SECRET),
        );
        report.check(
            recording.lost == 0 && ike > 0 && clear == 0 && secret == 0,
            format!(
                "{} without a response, {} in clear",
                output::counted(ike, "IKEv2 message", "IKEv2 messages"),
                output::counted(clear, "packet", "packets")
            ),
        )?;
        report.say("Casemate starts again on the right host, and IKEv2 negotiates new keys:")?;
        let gateway = Gateway::start(&self.right, Path::new(SCRATCH))?;
        self.negotiate(report)?;
        self.check_traffic_passes(report)?;
        Ok(gateway)
    }

    /// The right host accepts no cleartext that its policies protect.
    fn left_stops(&self, report: &mut DemoReport, gateway: Gateway) -> Result<(), Failure> {
        report.step("Casemate stops on the left host: the right host must not answer cleartext")?;
        gateway.stop()?;
        let recorder = Recorder::start(&self.left)?;
        self.check_traffic_fails(report)?;
        let recording = recorder.finish()?;
        report.say(format!("On the wire: {}.", recording.summary()))?;
        let asked: usize = [true, false].map(|v4| recording.clear_from(Side::Left.inner(v4))).iter().sum();
        let answered: usize =
            [true, false].map(|v4| recording.clear_from(Side::Right.inner(v4))).iter().sum();
        report.check(
            recording.lost == 0 && asked > 0 && answered == 0,
            format!(
                "{}, {} in clear",
                output::counted(asked, "request", "requests"),
                output::counted(answered, "answer", "answers")
            ),
        )
    }

    /// Fetches the letter and pings over both IP versions, and checks every byte.
    fn check_traffic_passes(&self, report: &DemoReport) -> Result<(), Failure> {
        for v4 in [true, false] {
            let dst = Side::Right.inner(v4);
            match self.left.run(|| fetch_letter(dst, TIMEOUT))? {
                Ok(len) => report.check(true, format!("HTTP from {dst:<8}  {len} bytes, all correct"))?,
                Err(error) => report.check(false, format!("HTTP from {dst}: {}", short_error(&error)))?,
            }
            match self.ping(v4, TIMEOUT)? {
                Ok(EchoReply { round_trip: time, payload: reply }) => report.check(
                    reply == SECRET.as_bytes(),
                    format!(
                        "ping to   {dst:<8}  {} bytes returned unchanged after {} µs",
                        reply.len(),
                        time.as_micros()
                    ),
                )?,
                Err(error) => report.check(false, format!("ping to {dst}: {}", short_error(&error)))?,
            }
        }
        Ok(())
    }

    /// Sends the same requests, all of which must fail.
    fn check_traffic_fails(&self, report: &DemoReport) -> Result<(), Failure> {
        let before = self.servers.requests();
        let outcome = |report: &DemoReport, what: String, error: Option<io::Error>| match error {
            Some(error) => report.check(true, format!("{what}  {}", short_error(&error))),
            None => report.check(false, format!("{what}  received an unexpected answer")),
        };
        for v4 in [true, false] {
            let dst = Side::Right.inner(v4);
            let http = self.left.run(|| fetch_letter(dst, SHORT_TIMEOUT))?;
            outcome(report, format!("HTTP from {dst:<8}"), http.err())?;
            outcome(report, format!("ping to   {dst:<8}"), self.ping(v4, SHORT_TIMEOUT)?.err())?;
        }
        let requests = self.servers.requests().wrapping_sub(before);
        let received = output::counted(requests, "request", "requests");
        report.check(requests == 0, format!("the server of the right host received {received}"))
    }

    fn ping(&self, v4: bool, timeout: Duration) -> Result<io::Result<EchoReply>, Failure> {
        let mut echo = self.left.run(|| Ping::open(Side::Right.inner(v4)))?.map_err(Failure::failed)?;
        Ok(echo.send(SECRET.as_bytes(), timeout))
    }

    /// Measures new instances with ESP in UDP.
    fn measure_in_udp(&self, report: &DemoReport) -> Result<Speed, Failure> {
        let directory = Path::new(SCRATCH_UDP);
        let left = Gateway::start(&self.left, directory)?;
        let right = Gateway::start(&self.right, directory)?;
        self.negotiate(report)?;
        let recorder = Recorder::start(&self.left)?;
        self.check_traffic_passes(report)?;
        let recording = recorder.finish()?;
        let (udp, clear) = (recording.count(FrameKind::EspInUdp), recording.count(FrameKind::Clear));
        let packets = output::counted(udp, "packet", "packets");
        report.check(udp > 0 && clear == 0, format!("{packets} of ESP in UDP, {clear} in clear"))?;
        let speed = self.measure()?;
        left.stop()?;
        right.stop()?;
        Ok(speed)
    }

    fn measure(&self) -> Result<Speed, Failure> {
        let failed = |error: &dyn Display| Failure::failed(format!("demo: measurement: {error}"));
        self.left.run(Speed::measure)?.map_err(|error| failed(&error))
    }
}

/// The counter-check: the keys decrypt the capture, and the letter is in it.
fn open_with_keys(report: &DemoReport, recording: &Recording) -> Result<(), Failure> {
    let [capture, opened, keys] =
        ["wire.pcapng", "opened.pcapng", "right/keys/states.xfrm"].map(|name| Path::new(SCRATCH).join(name));
    let failed = |error: io::Error| Failure::failed(format!("demo: inspection: {error}"));
    fs::File::create(&capture).and_then(|file| recording.write(file)).map_err(failed)?;
    let mut command = Command::new(PROGRAM);
    command.arg("inspect").arg(&capture).arg("--xfrm").arg(keys).arg("--write").arg(&opened);
    let output = command.stdin(Stdio::null()).output().map_err(failed)?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    let summary = stderr.lines().last().unwrap_or_default();
    let verdict = format!("{} ok", recording.count(FrameKind::Esp));
    let whole = output.status.success() && summary.contains(&verdict) && !summary.contains("drop");
    report.check(whole, format!("`casemate inspect` decrypts them with the keys: {verdict}"))?;
    let found = contains(&fs::read(&opened).map_err(failed)?, SECRET);
    report.check(found, "the decrypted packets contain the letter")
}

/// Numbers the steps and reports the checks.
pub(super) struct DemoReport {
    start: Instant,
    step: u32,
}

impl DemoReport {
    pub(super) fn new() -> Self {
        Self { start: Instant::now(), step: 0 }
    }

    /// Begins a step.
    pub(super) fn step(&mut self, title: &str) -> Result<(), Failure> {
        self.step = self.step.saturating_add(1);
        print(&format!("\n{}  {title}\n", self.step))
    }

    /// Prints an explanation, line by line.
    pub(super) fn say(&self, text: impl Display) -> Result<(), Failure> {
        let lines: String = text.to_string().lines().map(|line| format!("   {line}\n")).collect();
        print(&lines)
    }

    /// Reports the result of a check; a failed check ends the demo.
    pub(super) fn check(&self, passed: bool, found: impl Display) -> Result<(), Failure> {
        if passed {
            return print(&format!("   ok    {found}\n"));
        }
        print(&format!("   FAIL  {found}\n"))?;
        Err(Failure::failed(format!("demo: step {} failed: {found}", self.step)))
    }

    pub(super) fn end(&self) -> Result<(), Failure> {
        print(&format!("\nAll checks passed ({:.1} s).\n", self.start.elapsed().as_secs_f64()))
    }
}
