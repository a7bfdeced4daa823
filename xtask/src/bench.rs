//! Benchmarks: runs the programs of verify/bench in release mode.

use crate::failure::Result;
use crate::{lwip, metadata, shell};

pub(crate) const ABOUT: &str = "Measure the data path (verify/bench), in release mode
Nanoseconds a packet for seal and open beside the provider's bare AEAD, look-ups, instruction counts. Arguments go to
the benchmark; FILTER picks rows by name. Wants a quiet machine, and is no part of the tests.
With --handshakes as the first option: IKEv2 handshakes, and the memory of their SAs. Casemate's responder in memory, then
`casemate run` and Debian's charon in network namespaces, side by side (as root). Options there: --in-memory, --rounds N,
--count N, --sas N, --quick, --json.
With --lwip: what Casemate costs lwIP, in instructions where nothing is protected (valgrind counts them), in throughput where
everything is.
With --stack: what the rings of `casemate stack` cost, and an application's bulk transfer, plain and protected (as root).";

/// Runs the benchmarks.
pub(crate) fn run(arguments: &[String]) -> Result {
    if let Some((first, rest)) = arguments.split_first()
        && first == "--handshakes"
    {
        return handshakes(rest);
    }
    if arguments == ["--lwip"] {
        lwip::run(&[])?;
        return shell::run_cargo(&[
            "run",
            "--quiet",
            "--package",
            "casemate-lwip-tests",
            "--bin",
            "lwip-costs",
        ]);
    }
    if arguments == ["--stack"] {
        return stack();
    }
    let fixed = ["run", "--quiet", "--release", "--package", "casemate-bench", "--bin", "bench", "--"];
    shell::run(shell::command(shell::cargo()).args(fixed).args(arguments))
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

/// The responder that is measured is a program of its own, and lies beside the benchmark.
fn handshakes(arguments: &[String]) -> Result {
    let packages = ["--package", "casemate-bench", "--package", "casemate-app"];
    let programs = ["--bin", "handshakes", "--bin", "casemate"];
    shell::run_cargo(&[&["build", "--quiet", "--release"], &packages[..], &programs].concat())?;
    let program = metadata::target_directory()?.join("release/handshakes");
    shell::run(shell::command(program).args(arguments))
}
