//! Measures the cost of Casemate in lwIP (`cargo xtask bench lwip`): instructions for unprotected
//! packets, which are the same in every run, and throughput of protected packets. Uses two example
//! programs connected by a Unix socket.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a measurement may fail")]

use casemate_lwip_tests::program::{self, Build, Sanitizer, VERSIONS};
use casemate_test_support::TempDir;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Maximum additional instructions of an unprotected host in percent.
const MOST_IDLE: f64 = 3.0;
/// Minimum throughput of protected packets in percent of plain lwIP.
const LEAST_PROTECTED: f64 = 60.0;

/// Number of throughput measurements.
const ROUNDS: usize = 3;

/// Transport mode leaves segments of 1,426 bytes. The MTU gives plain lwIP segments of the same length.
const PLAIN: [&str; 3] = ["--plain", "--mtu", "1466"];
const PLACEMENTS: [(&str, &[&str]); 2] = [("inside IP", &[]), ("below IP", &["--below"])];

const NOTHING: [&str; 2] =
    ["address 192.0.2.1/24\nunmatched bypass\n", "address 192.0.2.2/24\nunmatched bypass\n"];

/// Returns configurations that protect all traffic between the hosts with ESP.
fn everything() -> [String; 2] {
    let host = |own: &str, peer: &str, spis: (u32, u32)| {
        let key = |spi: u32| format!("suite aes128gcm16 encryption-key {}", format!("{spi:02x}").repeat(20));
        format!(
            "address {own}/24\ncontrol-plane\n\
             sa out esp transport src {own} dst {peer} spi {} {}\n\
             sa in esp transport src {peer} dst {own} spi {} window 64 {}\n\
             policy out src {own} dst {peer} priority 10 protect esp transport\n\
             policy in src {peer} dst {own} priority 10 protect esp transport\n",
            spis.0,
            key(spis.0),
            spis.1,
            key(spis.1),
        )
    };
    [host("192.0.2.1", "192.0.2.2", (17, 18)), host("192.0.2.2", "192.0.2.1", (18, 17))]
}

/// A running example program.
struct MeasuredHost {
    child: Child,
    commands: ChildStdin,
    responses: BufReader<ChildStdout>,
}

impl MeasuredHost {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (commands, responses) =
            (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut host = Self { child, commands, responses };
        host.next_response();
        host
    }

    fn next_response(&mut self) -> String {
        let mut line = String::new();
        self.responses.read_line(&mut line).unwrap();
        line.trim_end().strip_prefix("0 ").unwrap_or_else(|| panic!("the program printed `{line}`")).into()
    }

    fn command(&mut self, command: &str) -> String {
        writeln!(self.commands, "{command}").unwrap();
        self.next_response()
    }

    /// Returns the processor time used so far in seconds (proc(5): fields 14 and 15, in hundredths).
    fn seconds(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let after_name = stat.rsplit(')').next().unwrap();
        after_name
            .split_whitespace()
            .skip(11)
            .take(2)
            .map(|ticks| ticks.parse::<f64>().unwrap() / 100.0)
            .sum()
    }

    fn end(self) {
        let Self { mut child, commands, .. } = self;
        drop(commands);
        assert!(child.wait().unwrap().success());
    }
}

/// Starts two hosts, the first of them with `runner`.
fn pair(
    program: &Path,
    directory: &Path,
    runner: &[&str],
    options: &[&str],
    configs: [&str; 2],
) -> [MeasuredHost; 2] {
    let start = |own: usize, runner: &[&str]| {
        let paths = [directory.join("first"), directory.join("second")];
        let [first, second] = &paths;
        let (socket, peer) = if own == 0 { (first, second) } else { (second, first) };
        let config = directory.join(format!("config-{own}"));
        fs::write(&config, if own == 0 { configs[0] } else { configs[1] }).unwrap();
        let _ = fs::remove_file(socket);
        let mut command = match runner.split_first() {
            None => Command::new(program),
            Some((runner, options)) => {
                let mut command = Command::new(runner);
                command.args(options).arg(program);
                command
            }
        };
        command.arg("--console").arg("--config").arg(config).arg("--unix").arg(socket).arg(peer);
        command.args(["--mac", &format!("02:00:00:00:00:0{}", own + 1)]).args(options);
        MeasuredHost::start(command)
    };
    let second = start(1, &[]);
    [start(0, runner), second]
}

/// Returns the number of instructions of a host that executes `command`.
fn instructions(program: &Path, directory: &Path, options: &[&str], command: &str) -> f64 {
    let log = directory.join("log");
    let log_option = format!("--log-file={}", log.display());
    let valgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", &log_option];
    let [mut first, second] = pair(program, directory, &valgrind, options, NOTHING);
    first.command(command);
    first.end();
    second.end();
    let response = fs::read_to_string(log).unwrap();
    response.rsplit("Collected : ").next().unwrap().split_whitespace().next().unwrap().parse().unwrap()
}

/// Returns the instructions per ping and reply, and per kilobyte sent and received over TCP.
fn idle_costs(program: &Path, directory: &Path, options: &[&str]) -> [f64; 2] {
    let between = |few: &str, many: &str, count: f64| {
        let cost = |command: &str| instructions(program, directory, options, command);
        (cost(many) - cost(few)) / count
    };
    [
        between("ping 192.0.2.1 192.0.2.2 100", "ping 192.0.2.1 192.0.2.2 100-500", 400.0),
        between("tcp 192.0.2.1 192.0.2.2 200000", "tcp 192.0.2.1 192.0.2.2 2200000", 2_000.0),
    ]
}

/// Returns the throughput in Mbit/s, and the megabytes per second of processor time.
fn throughput(program: &Path, directory: &Path, options: &[&str], configs: [&str; 2]) -> [f64; 2] {
    let [mut first, second] = pair(program, directory, &[], options, configs);
    let before = first.seconds() + second.seconds();
    let response = first.command("iperf 192.0.2.2");
    let worked = first.seconds() + second.seconds() - before;
    let mut numbers = response.split_whitespace().filter_map(|word| word.parse::<f64>().ok());
    let (bytes, ms) = (numbers.next().unwrap(), numbers.next().unwrap());
    first.end();
    second.end();
    [bytes * 8.0 / ms / 1e3, bytes / 1e6 / worked]
}

/// Measures plain lwIP and both placements alternately, because the speed of the machine varies.
fn throughputs(program: &Path, directory: &Path) -> [[f64; 2]; 3] {
    let [first, second] = everything();
    let kinds: [(&[&str], [&str; 2]); 3] =
        [(&PLAIN, NOTHING), (PLACEMENTS[0].1, [&first, &second]), (PLACEMENTS[1].1, [&first, &second])];
    let rounds: Vec<_> = (0..ROUNDS)
        .map(|_| kinds.map(|(options, configs)| throughput(program, directory, options, configs)))
        .collect();
    [0, 1, 2].map(|kind| {
        [0, 1].map(|what| {
            let mut found: Vec<_> = rounds.iter().map(|round| round[kind][what]).collect();
            found.sort_by(f64::total_cmp);
            found[ROUNDS / 2]
        })
    })
}

fn main() {
    let build = Build { version: VERSIONS[1], is_threaded: false, sanitizer: Sanitizer::None };
    let program: PathBuf = program::build(build).unwrap_or_else(|error| panic!("{error}"));
    let scratch = TempDir::new("lwip-costs").unwrap();
    let directory = scratch.path();
    println!("No SA, no policy: instructions of one host, compared with plain lwIP");
    let plain = idle_costs(&program, directory, &["--plain"]);
    let mut is_good = true;
    for (placement, options) in PLACEMENTS {
        let costs = idle_costs(&program, directory, options);
        let more = [0, 1].map(|what| (costs[what] / plain[what] - 1.0) * 100.0);
        println!(
            "  {placement}: ping {:+.2} % of {:.0}, TCP {:+.2} % of {:.0} a kilobyte",
            more[0], plain[0], more[1], plain[1]
        );
        is_good &= more.iter().all(|more| *more <= MOST_IDLE);
    }
    println!("AES-128-GCM, transport mode, segments of the same length: throughput, medians of {ROUNDS}");
    let [plain, protected @ ..] = throughputs(&program, directory);
    println!("  plain: {:.0} Mbit/s, {:.0} megabytes a second of processor time", plain[0], plain[1]);
    for ((placement, _), found) in PLACEMENTS.into_iter().zip(protected) {
        let part = [0, 1].map(|what| found[what] / plain[what] * 100.0);
        println!(
            "  {placement}: {:.0} Mbit/s ({:.0} %), {:.0} megabytes ({:.0} %)",
            found[0], part[0], found[1], part[1]
        );
        is_good &= part[1] >= LEAST_PROTECTED;
    }
    println!("{}", if is_good { "within the limits" } else { "outside of the limits: 3 % and 60 %" });
}
