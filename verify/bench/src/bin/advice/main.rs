//! Checks `casemate advise` on this machine and on emulated ones (`cargo xtask bench advise`): the first
//! suite of its quick measurement has to be first end to end too, or tie with the first.
//!
//! On this machine, `casemate advise --thorough` measures end to end. QEMU's user-mode emulators
//! (qemu-x86_64, qemu-aarch64) do not support the kernel's routing rules that two gateways need. There the
//! device is `casemate stack`, which has its own TCP/IP stack behind a TAP interface, and its peer is a
//! gateway on this machine, `casemate run`, with an SA negotiated by IKEv2. One TCP stream flows from the
//! device, and then another one to it. The application of the device runs in this program, over the memory
//! that it shares with the stack.

// Developer tool: a failure stops the program where it happens.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use casemate_advise::end_to_end::contenders;
use casemate_advise::goal::Goal;
use casemate_advise::rank::{RankedSuite, ScoredSuite, leaders, rank};
use casemate_advise::rules::{Filter, Keying};
use casemate_advise::suites::{self, proposal_keyword};
use casemate_bench::cli::{self, CommonOptions, Program, value};
use casemate_crypto::EspSuite;
use casemate_measure::stats::Spread;
use casemate_socketd_client::{Session, TcpStream};
use casemate_testbed::{Background, Error, Netns, Result, sys};
use serde_json::{Value, json};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

fn main() -> ExitCode {
    cli::run::<Options>()
}

/// Result for a machine.
struct Finding {
    machine: String,
    /// First suite of the quick ranking.
    first: String,
    agrees: bool,
    details: Value,
    lines: Vec<String>,
}

fn all(options: &Options, directory: &Path) -> Result<bool> {
    let own = Machine::own(&options.common().programs);
    let mut findings = vec![here(&own)?];
    for machine in &options.machines {
        findings.push(elsewhere(machine, &own, options, directory)?);
    }
    if options.common().json {
        let one = |finding: &Finding| {
            json!({ "machine": finding.machine, "first": finding.first, "agrees": finding.agrees,
                    "end_to_end": finding.details })
        };
        println!("{:#}", findings.iter().map(one).collect::<Value>());
    } else {
        for Finding { machine, first, agrees, lines, .. } in &findings {
            let word = if *agrees { "agrees" } else { "DIFFERS" };
            println!("{machine}: {first} is recommended; end to end {word}");
            lines.iter().for_each(|line| println!("    {line}"));
        }
    }
    Ok(findings.iter().all(|finding| finding.agrees))
}

/// Compares on this machine, with the thorough measurement of the command.
fn here(own: &Machine) -> Result<Finding> {
    let answer = own.advice(&["--thorough"])?;
    let details = answer["thorough"].clone();
    let lines = match details["not_measured"].as_str() {
        Some(why) => vec![format!("not measured: {why}")],
        None => details["contenders"].as_array().into_iter().flatten().map(line_of_turns).collect(),
    };
    let first = ranking(&answer)?[0].suite.to_string();
    let agrees = details["agrees"] == Value::Bool(true);
    Ok(Finding { machine: own.name.clone(), first, agrees, details, lines })
}

fn line_of_turns(contender: &Value) -> String {
    let rates = contender["turns"].as_array().into_iter().flatten();
    let spread = Spread::of(rates.filter_map(|turn| turn["packets_per_second"].as_f64()));
    let rate = spread.map_or_else(String::new, |spread| spread.text(0));
    format!("{}: {rate} packets a second", contender["suite"].as_str().unwrap_or_default())
}

/// Compares on an emulated machine.
fn elsewhere(machine: &Machine, own: &Machine, options: &Options, directory: &Path) -> Result<Finding> {
    let quick = ranking(&machine.advice(&[])?)?;
    let places: Vec<RankedSuite> = quick
        .into_iter()
        .enumerate()
        .map(|(group, scored)| RankedSuite { scored, gap: 0.0, is_tied: false, group })
        .collect();
    let mut scored_suites: Vec<ScoredSuite> = contenders(&places);
    scored_suites.iter_mut().for_each(|scored| scored.scores.clear());
    let first = scored_suites[0].suite;
    for round in 0..options.common().rounds {
        for which in 0..scored_suites.len() {
            // Each round starts with another suite.
            let at = (which + round as usize) % scored_suites.len();
            let scored = &mut scored_suites[at];
            let directory = directory.join(format!("{}-{round}-{at}", machine.name));
            let nanos = run(machine, own, scored.suite, options.common().seconds, &directory)?;
            eprintln!("{}, round {}: {}: {nanos:.0} ns for a byte", machine.name, round + 1, scored.suite);
            scored.scores.push(nanos);
        }
    }
    for scored in &mut scored_suites {
        scored.score = Spread::of(scored.scores.iter().copied()).expect("there are rounds").median;
        scored.cpu = scored.score;
    }
    let ranked = rank(scored_suites, Goal::Throughput);
    let lines = ranked.iter().map(|place| line_of(&place.scored, place.is_tied)).collect();
    let details = json!({
        "ranking": ranked.iter().map(|place| place.scored.suite.to_string()).collect::<Vec<_>>(),
        "ns_per_byte": ranked.iter().map(|place| place.scored.scores.clone()).collect::<Vec<_>>(),
    });
    let agrees = leaders(&ranked).any(|place| place.scored.suite == first);
    Ok(Finding { machine: machine.name.clone(), first: first.to_string(), agrees, details, lines })
}

fn line_of(scored: &ScoredSuite, is_tied: bool) -> String {
    let spread = Spread::of(scored.scores.iter().copied()).map_or_else(String::new, |spread| spread.text(0));
    format!("{}: {spread} ns for a byte{}", scored.suite, if is_tied { ", tie" } else { "" })
}

/// Options of the benchmark.
pub(crate) struct Options {
    common: CommonOptions,
    /// Machines besides this one.
    pub(crate) machines: Vec<Machine>,
}

impl Program for Options {
    const NAME: &str = "advice";
    const HELP: &str = "\
Compares the quick result of `casemate advise` with end-to-end measurements, here and on emulated machines.

Usage: advice [--machine NAME=PROGRAM]... [--rounds N] [--seconds N] [--programs DIR] [--json]

  --machine NAME=PROGRAM   another machine, and the program that runs `casemate` on it
  --rounds N               measurements of each suite on an emulated machine (default: 5)
  --seconds N              duration of a stream in each direction (default: 2)
  --programs DIR           directory of this machine's `casemate` (default: that of this program)
  --json                   print one JSON array instead of text

Fails if a recommended suite is neither first end to end nor ties with the first.
";

    fn parse(words: impl Iterator<Item = String>) -> Result<Self> {
        let mut machines = Vec::new();
        let mut common = CommonOptions::new(5, 2)?;
        common.parse_all(words, |_, word, words| {
            if word == "--machine" {
                let given = value(word, words.next())?;
                let (name, program) = given
                    .split_once('=')
                    .ok_or_else(|| Error::new(format!("--machine {given}: expected NAME=PROGRAM")))?;
                machines.push(Machine { name: name.into(), program: program.into() });
            }
            Ok(word == "--machine")
        })?;
        Ok(Self { common, machines })
    }

    fn common(&self) -> &CommonOptions {
        &self.common
    }

    fn start(&self, directory: &Path) -> Result<bool> {
        crate::all(self, directory)
    }
}

const DEVICE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
/// Timeout of programs and sockets. Emulated programs are slow.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Time until TCP reaches its full rate.
const WARM_UP: Duration = Duration::from_millis(500);
const CHUNK: usize = 16 << 10;

/// Nanoseconds per byte in the slower direction.
pub(crate) fn run(
    machine: &Machine,
    own: &Machine,
    suite: EspSuite,
    seconds: Duration,
    directory: &Path,
) -> Result<f64> {
    fs::create_dir_all(directory).map_err(Error::context(directory.display()))?;
    let netns = Netns::new()?;
    let (socket, device_conf) = (directory.join("sock"), directory.join("device.conf"));
    write(&device_conf, &conf(DEVICE, PEER, suite))?;
    let mut device = netns.command(&machine.program);
    device.args(["stack", "--tap", "tap0", "--address", "192.0.2.1/24", "--socket"]).arg(&socket);
    device.arg("--config").arg(&device_conf);
    let _device = start("casemate stack", device, &directory.join("device"))?;
    netns.ip("addr add 192.0.2.2/24 dev tap0\n")?;
    let peer_conf = directory.join("peer.conf");
    write(&peer_conf, &conf(PEER, DEVICE, suite))?;
    let mut peer = netns.command(&own.program);
    peer.arg("run").arg("--config").arg(&peer_conf);
    let _peer = start("casemate run", peer, &directory.join("peer"))?;
    let stack = Session::connect(&socket).map_err(Error::context(socket.display()))?;
    streams(&netns, &stack, seconds).map_err(Error::context(format!("{} with {suite}", machine.name)))
}

fn start(name: &str, command: std::process::Command, output: &Path) -> Result<Background> {
    let mut process = Background::start(name, command, output)?;
    process.wait_until(TIMEOUT, |said| said.lines().any(|line| line == "ready"))?;
    Ok(process)
}

fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).map_err(Error::context(file.display()))
}

/// Configuration of a connection in transport mode. The IKE proposal is an AEAD cipher for every suite.
fn conf(own: IpAddr, other: IpAddr, suite: EspSuite) -> String {
    format!(
        "connections {{\n  device {{\n    local_addrs = {own}\n    remote_addrs = {other}\n    \
         proposals = chacha20poly1305-prfsha256-x25519\n    local {{\n      auth = psk\n    }}\n    \
         remote {{\n      auth = psk\n    }}\n    children {{\n      all {{\n        mode = transport\n        \
         esp_proposals = {}\n        start_action = trap\n      }}\n    }}\n  }}\n}}\n\
         secrets {{\n  ike {{\n    secret = \"for a measurement and nothing else\"\n  }}\n}}\n",
        proposal_keyword(suite)
    )
}

fn streams(netns: &Netns, stack: &Session, seconds: Duration) -> io::Result<f64> {
    let pid = netns.pid();
    let listen = || {
        sys::enter_netns_of(pid)?;
        TcpListener::bind((PEER, 0))
    };
    let listener = thread::scope(|scope| scope.spawn(listen).join())
        .unwrap_or_else(|_| Err(io::Error::other("the listener panicked")))?;
    let to: SocketAddr = listener.local_addr()?;
    let connect = || {
        let near = TcpStream::connect_timeout(stack, to, TIMEOUT)?;
        near.set_read_timeout(Some(TIMEOUT));
        near.set_write_timeout(Some(TIMEOUT));
        let (far, _) = listener.accept()?;
        far.set_read_timeout(Some(TIMEOUT))?;
        far.set_write_timeout(Some(TIMEOUT))?;
        Ok::<_, io::Error>((near, far))
    };
    let (near, far) = connect()?;
    let out = rate(near, far, seconds)?;
    let (near, far) = connect()?;
    let back = rate(far, near, seconds)?;
    Ok(1e9 / out.min(back))
}

/// Bytes per second from one side to the other, as the reader counts them.
fn rate(from: impl Write + Send, mut to: impl Read, seconds: Duration) -> io::Result<f64> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut from = from;
            let chunk = vec![0x5a; CHUNK];
            let mut is_open = true;
            while is_open {
                is_open = from.write_all(&chunk).is_ok() && !is_over.load(Ordering::Relaxed);
            }
            // The reader sees the end of the stream.
            drop(from);
        });
        let result = read_for(&mut to, WARM_UP).and_then(|_| read_for(&mut to, seconds));
        is_over.store(true, Ordering::Relaxed);
        // Without a reader, the writer would wait for its whole timeout.
        let rest = read_for(&mut to, TIMEOUT);
        match rest {
            Ok(_) => Err(io::ErrorKind::TimedOut.into()),
            Err(_) => result,
        }
    })
}

fn read_for(from: &mut impl Read, time: Duration) -> io::Result<f64> {
    let (start, mut bytes, mut chunk) = (Instant::now(), 0, vec![0; CHUNK]);
    while start.elapsed() < time {
        match from.read(&mut chunk)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            len => bytes += len,
        }
    }
    Ok(bytes as f64 / start.elapsed().as_secs_f64())
}

/// Machine that runs `casemate`.
pub(crate) struct Machine {
    pub(crate) name: String,
    /// Program that runs `casemate` on the machine.
    pub(crate) program: PathBuf,
}

impl Machine {
    /// The machine that runs the benchmark.
    pub(crate) fn own(programs: &Path) -> Self {
        Self { name: "this machine".into(), program: programs.join("casemate") }
    }

    /// Output of `casemate advise` on the machine, with these additional arguments.
    pub(crate) fn advice(&self, arguments: &[&str]) -> Result<Value> {
        let mut command = Command::new(&self.program);
        let output = command.args(["advise", "--json"]).args(arguments).output();
        let output = output.map_err(Error::context(self.program.display()))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(Error::new(format!("{}: casemate advise: {said}", self.name)));
        }
        serde_json::from_slice(&output.stdout).map_err(Error::context(&self.name))
    }
}

/// Ranking in the output of `casemate advise`. Only the medians of its measurements are kept.
pub(crate) fn ranking(answer: &Value) -> Result<Vec<ScoredSuite>> {
    let wrong = || Error::new("the output of casemate advise has no ranking");
    let places = answer["ranking"].as_array().filter(|places| !places.is_empty()).ok_or_else(wrong)?;
    places.iter().map(|place| scored_suite(place).ok_or_else(wrong)).collect()
}

fn scored_suite(place: &Value) -> Option<ScoredSuite> {
    let suite = named(place["suite"].as_str()?)?;
    let admitted = Filter::new(None, false).ok()?.esp(suite, Keying::Negotiated).ok()?;
    let median = place["number"]["median"].as_f64()?;
    let (cpu, bytes) = (place["cpu_ns_per_byte"].as_f64()?, place["air_bytes_per_byte"].as_f64()?);
    Some(ScoredSuite { suite, admitted, scores: vec![median], score: median, cpu, bytes })
}

fn named(name: &str) -> Option<EspSuite> {
    suites::all().into_iter().find(|suite| suite.to_string() == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn machines_have_a_name_and_a_program() {
        let parse = |words: &[&str]| Options::parse(words.iter().map(ToString::to_string));
        let options = parse(&["--machine", "arm=/bin/a=b", "--rounds", "3"]).unwrap();
        assert_eq!(options.common.rounds, 3);
        assert_eq!(
            (&*options.machines[0].name, options.machines[0].program.to_str()),
            ("arm", Some("/bin/a=b"))
        );
        assert!(parse(&["--machine", "arm"]).is_err() && parse(&["--machine"]).is_err());
    }

    #[test]
    fn ranking_is_parsed() {
        let place = |suite: &str| json!({ "suite": suite, "number": { "median": 2.5 }, "cpu_ns_per_byte": 3.0, "air_bytes_per_byte": 1.1 });
        let answer = json!({ "ranking": [place("ENCR_CHACHA20_POLY1305"), place("ENCR_AES_GCM_16-128")] });
        let scored_suites = ranking(&answer).unwrap();
        assert_eq!(scored_suites[1].suite.to_string(), "ENCR_AES_GCM_16-128");
        assert!((scored_suites[0].score - 2.5).abs() < f64::EPSILON);
        assert!(ranking(&json!({ "ranking": [] })).is_err());
        assert!(ranking(&json!({ "ranking": [place("ENCR_DES-64")] })).is_err());
    }
}
