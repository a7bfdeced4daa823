//! Benchmarks: runs the programs of verify/bench in release mode.

mod emulated;
mod peers;

use crate::failure::{Failure, Result};
use crate::{lwip, metadata, shell};
use std::path::PathBuf;

pub(crate) const ABOUT: &str = "Measure the data path, tunnels, handshakes (verify/bench), in release mode
Nanoseconds a packet for seal and open beside the provider's bare AEAD, look-ups, instruction counts. Arguments go to
the benchmark; FILTER picks rows by name. Wants a quiet machine, and is no part of the tests.
The first word may name another one:
tunnels: a TCP stream, small packets and echoes through Casemate, other tunnels in user space, and a forwarder without a
cipher, in network namespaces, side by side (as root; docs/manual/bench.md). With --fetch, what it needs is installed or built
first, below target/peers. Options there: --rounds N, --seconds N, --json.
calls: 50 calls beside more bulk than a gateway is able to protect, with and without the scheduler (as root). Options there:
--suite WORDS, --rounds N, --seconds N, --json. With --check alone, the benchmark itself is checked, in a minute.
many: 10,000 tunnels between two gateways beside one: throughput and memory (as root). Options there: --tunnels N, --rounds N,
--seconds N, --json.
soak: full load for minutes while keys change every few seconds: packets lost, memory (as root). Options there: --minutes N,
--rekey SECONDS, --suite WORDS, --json.
advise: whether `casemate advise` is right: its first suite against end-to-end measurements, here (`--thorough`), on an x86-64
processor without AES instructions and on ARM, both under QEMU (as root; docs/manual/advise.md). With --fetch, what it needs is
installed first. Options there: --rounds N, --seconds N, --json.
handshakes: IKEv2 handshakes, and the memory of their SAs. Casemate's responder in memory, then `casemate run` and
Debian's charon in network namespaces, side by side (as root). Options there: --in-memory, --rounds N, --count N, --sas N,
--quick, --json.
lwip: what Casemate costs lwIP, in instructions where nothing is protected (valgrind counts them), in throughput where
everything is.
stack: what the rings of `casemate stack` cost, and an application's bulk transfer, plain and protected (as root).";

/// Runs the benchmarks.
pub(crate) fn run(arguments: &[String]) -> Result {
    match arguments.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        Some(("tunnels", rest)) => tunnels(rest),
        Some(("calls", [check])) if check == "--check" => check_calls(),
        Some(("calls", rest)) => program("calls", &["casemate"], rest),
        Some(("many", rest)) => program("many", &["casemate"], rest),
        Some(("soak", rest)) => program("soak", &["casemate"], rest),
        Some(("handshakes", rest)) => program("handshakes", &["casemate"], rest),
        Some(("advise", rest)) => advise(rest),
        Some(("lwip", [])) => costs_of_lwip(),
        Some(("stack", [])) => stack(),
        Some((name @ ("lwip" | "stack"), _)) => {
            Err(Failure::new(format!("`bench {name}` takes no arguments")))
        }
        _ => program("bench", &[], arguments),
    }
}

fn costs_of_lwip() -> Result {
    lwip::run(&[])?;
    shell::run_cargo(&["run", "--quiet", "--package", "casemate-lwip-tests", "--bin", "lwip-costs"])
}

/// The measurements that stand among the tests of the stack server, whose applications and peers they use.
fn stack() -> Result {
    for (package, tests) in [("casemate-stack", "server"), ("casemate-stack-tests", "stack")] {
        let select = ["--package", package, "--test", tests];
        shell::run_cargo(
            &[&["test", "--quiet", "--release"], &select[..], &["--", "--ignored", "--nocapture", "speed"]]
                .concat(),
        )?;
    }
    Ok(())
}

fn tunnels(arguments: &[String]) -> Result {
    let (fetch, rest): (Vec<String>, Vec<String>) =
        arguments.iter().cloned().partition(|argument| argument == "--fetch");
    let peers = metadata::target_directory()?.join("peers");
    if !fetch.is_empty() {
        peers::fetch(&peers)?;
    }
    let place = ["--peers".to_owned(), peers.join("bin").display().to_string()];
    program("tunnels", &["casemate", "forwarder"], &[&place[..], &rest].concat())
}

fn advise(arguments: &[String]) -> Result {
    let (fetch, rest): (Vec<String>, Vec<String>) =
        arguments.iter().cloned().partition(|argument| argument == "--fetch");
    build(&["advice", "casemate"])?;
    let machines = emulated::machines(&built("casemate")?, !fetch.is_empty())?;
    let machines = machines.into_iter().flat_map(|machine| ["--machine".to_owned(), machine]);
    let arguments: Vec<String> = machines.chain(rest).collect();
    program("advice", &["casemate"], &arguments)
}

/// The benchmark of calls for a second, as a test.
fn check_calls() -> Result {
    build(&["casemate"])?;
    let select = ["--package", "casemate-bench", "--test", "calls"];
    shell::run_cargo(&[&["test", "--quiet", "--release"], &select[..], &["--", "--ignored"]].concat())
}

/// Builds a program of verify/bench and those that it measures, which lie beside it, and runs it.
fn program(name: &str, others: &[&str], arguments: &[String]) -> Result {
    build(&[&[name], others].concat())?;
    shell::run_unshown(shell::command(built(name)?).args(arguments))
}

fn build(programs: &[&str]) -> Result {
    let mut build = shell::command(shell::cargo());
    build.args(["build", "--quiet", "--release", "--package", "casemate-bench", "--package", "casemate-app"]);
    for program in programs {
        build.args(["--bin", program]);
    }
    shell::run_unshown(&mut build)
}

fn built(name: &str) -> Result<PathBuf> {
    Ok(metadata::target_directory()?.join("release").join(name))
}
