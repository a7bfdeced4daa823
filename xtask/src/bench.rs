//! Runs the benchmarks of verify/bench, built with the profile `dist`.

mod emulated;

use crate::shell::{self, Failure, Result};
use crate::{cargo, lwip, packages};
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) const ABOUT: &str =
    "Measure the data path, tunnels and handshakes (verify/bench), built with the profile `dist`
Without a name, measures nanoseconds per packet of seal and open compared with the bare AEAD of the provider,
look-ups, header compression, and instruction counts. FILTER selects rows by name. Run it on a quiet
machine; it is not part of the tests.
The first word may name another benchmark:
tunnels: a TCP stream, small packets and echoes through Casemate, other user-space tunnels, and a forwarder
without encryption, side by side in network namespaces (needs root; docs/manual/bench.md). --fetch first
installs or builds the other tunnels below target/peers. Options: --rounds N, --seconds N, --json; --svg
FILE draws the results, with --from RESULTS those of an earlier --json.
calls: 50 calls together with more bulk traffic than a gateway can protect, with and without the scheduler
(needs root). Options: --suite WORDS, --rounds N, --seconds N, --json. --check alone tests the benchmark
itself in a minute.
many: throughput and memory of 10,000 tunnels between two gateways, compared with one tunnel (needs root).
Options: --tunnels N, --rounds N, --seconds N, --json.
soak: lost packets and memory under full load for minutes, while keys change every few seconds (needs root).
Options: --minutes N, --rekey SECONDS, --suite WORDS, --json.
advise: the first suite of `casemate advise` against end-to-end measurements, on this machine
(`--thorough`), on an x86-64 processor without AES instructions and on ARM, both emulated by QEMU (needs
root; docs/manual/advise.md). --fetch first installs the required packages. Options: --rounds N, --seconds
N, --json.
handshakes: IKEv2 handshakes, and the memory of their SAs: Casemate's responder in memory, then `casemate
run` and Debian's charon side by side in network namespaces (needs root). Options: --in-memory, --rounds N,
--count N, --sas N, --quick, --json.
lwip: the cost of Casemate in lwIP: instructions without protection (counted by valgrind), throughput with
protection.
etcd: how long a cluster of three etcd servers takes for the transactions of a cell, on this machine
(docs/decisions/0142-etcd.md).
stack: the cost of the rings of `casemate stack`, and bulk transfers of an application, plain and protected
(needs root).";

/// Build profile of all programs.
const DIST: &str = "dist";

/// Go module of wireguard-go, in its newest version.
const WIREGUARD_GO: &str = "golang.zx2c4.com/wireguard@latest";
/// Go compiler, unless it is in the PATH.
const GO: &str = "/usr/local/go/bin/go";
/// Crates with tunnel programs.
const CRATES: [&str; 2] = ["boringtun-cli", "gotatun-cli"];

/// Runs a benchmark.
pub(crate) fn run(arguments: &[String]) -> Result {
    match arguments.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        Some(("tunnels", rest)) => tunnels(rest),
        Some(("calls", [check])) if check == "--check" => check_calls(),
        Some(("calls", rest)) => program("calls", &["casemate"], rest),
        Some(("many", rest)) => program("many", &["casemate"], rest),
        Some(("soak", rest)) => program("soak", &["casemate"], rest),
        Some(("handshakes", rest)) => program("handshakes", &["casemate"], rest),
        Some(("advise", rest)) => advise(rest),
        Some(("lwip", [])) => lwip_costs(),
        Some(("stack", [])) => stack(),
        Some(("etcd", [])) => etcd(),
        Some((name @ ("lwip" | "stack" | "etcd"), _)) => {
            Err(Failure::new(format!("`bench {name}` takes no arguments")))
        }
        _ => program("bench", &[], arguments),
    }
}

fn lwip_costs() -> Result {
    lwip::run(&[])?;
    shell::run_cargo(&["run", "--quiet", "--package", "casemate-lwip-tests", "--bin", "lwip-costs"])
}

/// Runs the measurements among the tests of the stack server, which need its applications and peers.
fn stack() -> Result {
    for (package, tests) in [("casemate-socketd", "server"), ("casemate-socketd-client", "stack")] {
        measurements(package, &["--examples", "--test", tests], "speed")?;
    }
    Ok(())
}

/// Runs the measurement of a cluster of etcd servers.
fn etcd() -> Result {
    packages::unpack_etcd()?;
    measurements("casemate-etcd", &["--test", "etcd"], "measure")
}

/// Runs the measurements among the tests of a package, those whose names contain `name`.
fn measurements(package: &str, select: &[&str], name: &str) -> Result {
    shell::run_cargo(
        &[
            &["test", "--quiet", "--profile", DIST, "--package", package],
            select,
            &["--", "--ignored", "--nocapture", name],
        ]
        .concat(),
    )
}

fn tunnels(arguments: &[String]) -> Result {
    let (fetch, rest): (Vec<String>, Vec<String>) =
        arguments.iter().cloned().partition(|argument| argument == "--fetch");
    let peers = cargo::target_directory()?.join("peers");
    if !fetch.is_empty() {
        fetch_peers(&peers)?;
    }
    let mut options = vec!["--peers".to_owned(), peers.join("bin").display().to_string()];
    // A source archive has no commit.
    if let Ok(commit) = shell::output(shell::command("git").args(["describe", "--always", "--dirty"])) {
        options.extend(["--commit".to_owned(), String::from_utf8_lossy(&commit).trim().to_owned()]);
    }
    program("tunnels", &["casemate", "forwarder"], &[options, rest].concat())
}

fn advise(arguments: &[String]) -> Result {
    let (fetch, rest): (Vec<String>, Vec<String>) =
        arguments.iter().cloned().partition(|argument| argument == "--fetch");
    let programs = ["casemate", "casemate-lab"];
    build(&programs)?;
    let machines = emulated::machines(&built("casemate-lab")?, !fetch.is_empty())?;
    let machines = machines.into_iter().flat_map(|machine| ["--machine".to_owned(), machine]);
    let arguments: Vec<String> = machines.chain(rest).collect();
    program("advice", &programs, &arguments)
}

/// Runs the benchmark of calls for a second, as a test.
fn check_calls() -> Result {
    build(&["casemate"])?;
    let select = ["--package", "casemate-bench", "--test", "programs"];
    shell::run_cargo(&[&["test", "--quiet", "--profile", DIST], &select[..], &["--", "--ignored"]].concat())
}

/// Builds a program of verify/bench and the programs that it measures, and runs it. Cargo puts all of them
/// into one directory.
fn program(name: &str, others: &[&str], arguments: &[String]) -> Result {
    build(&[&[name], others].concat())?;
    shell::run_unshown(shell::command(built(name)?).args(arguments))
}

fn build(programs: &[&str]) -> Result {
    let mut build = shell::command(shell::cargo());
    build.args(["build", "--quiet", "--profile", DIST]);
    for package in ["casemate-bench", "casemate-app", "casemate-lab-app"] {
        build.args(["--package", package]);
    }
    for program in programs {
        build.args(["--bin", program]);
    }
    shell::run_unshown(&mut build)
}

fn built(name: &str) -> Result<PathBuf> {
    Ok(cargo::target_directory()?.join(DIST).join(name))
}

/// Installs or builds the newest versions of the other tunnels below `directory`. Prints what fails; the
/// comparison skips it. Nothing of the product depends on these programs.
fn fetch_peers(directory: &Path) -> Result {
    fs::create_dir_all(directory)?;
    let installed = packages::install_for_tunnels();
    let wireguard = wireguard_go(directory);
    let crates = CRATES.map(|name| {
        // With the lock file of its authors, because they tested these versions.
        let install = ["install", "--quiet", "--locked", name, "--root"];
        shell::run(shell::command(shell::cargo()).args(install).arg(directory))
    });
    for outcome in [installed, wireguard].into_iter().chain(crates) {
        if let Err(failure) = outcome {
            eprintln!("xtask: {failure}");
        }
    }
    Ok(())
}

fn wireguard_go(directory: &Path) -> Result {
    let go = if Path::new(GO).is_file() { GO } else { "go" };
    let mut command = shell::command(go);
    // Uses the installed compiler, and makes the module cache writable so that it can be removed.
    command.env("GOTOOLCHAIN", "local").env("GOFLAGS", "-modcacherw").env("GOBIN", directory.join("bin"));
    shell::run(command.args(["install", WIREGUARD_GO]))
}
