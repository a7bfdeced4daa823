//! Runs a range of seeds, or one seed with a trace of its events.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test program")]

use casemate_sim::{Coverage, Failure, Mix, Options, run, run_all, run_mix, run_mixes};
use std::process::ExitCode;
use std::time::Instant;

const HELP: &str = "\
casemate-sim [--seeds N] [--from S]     runs N seeds (default 1000), starting with seed S (default 0)
casemate-sim --seed S [--trace]         runs one seed; --trace prints its events
casemate-sim --mix NAME ...             runs seeds of a mix of overlapping operations; `all` runs every mix
                                        (rekey-child, rekey-ike, rekey-both, create-delete, everything, parallel,
                                        soak, soak-parallel, reauth, unique, limits, close-start, dead-start,
                                        crash, rebind, soak-reauth, followup-ke, resume, refused, store-crash,
                                        store-takeover, store-outage, store-reauth, cell-kill, cell-stop,
                                        cell-partition, cell-drain)

Each run prints a digest of the bytes on the wire. Two builds that print the same digest for the same seeds send the
same messages at the same times.
";

/// Failures to print.
const SHOWN: usize = 20;

struct Arguments {
    seeds: u64,
    from: u64,
    seed: Option<u64>,
    trace: bool,
    mixes: Vec<Mix>,
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut parsed = Arguments { seeds: 1_000, from: 0, seed: None, trace: false, mixes: vec![] };
    while let Some(argument) = arguments.next() {
        if argument == "--mix" {
            let name = arguments.next().ok_or("`--mix` needs a name")?;
            parsed.mixes = match name.as_str() {
                "all" => Mix::ALL.to_vec(),
                name => vec![Mix::named(name).ok_or(format!("`{name}` is not a mix\n{HELP}"))?],
            };
            continue;
        }
        let mut number = || {
            let value = arguments.next().ok_or(format!("`{argument}` needs a number"))?;
            value.parse().map_err(|_| format!("`{argument}` needs a number, got `{value}`"))
        };
        match argument.as_str() {
            "--seeds" => parsed.seeds = number()?,
            "--from" => parsed.from = number()?,
            "--seed" => parsed.seed = Some(number()?),
            "--trace" => parsed.trace = true,
            _ => return Err(format!("`{argument}` is not an option\n{HELP}")),
        }
    }
    Ok(parsed)
}

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)) {
        Ok(arguments) if arguments.mixes.is_empty() => execute(&arguments),
        Ok(arguments) => execute_mixes(&arguments),
        Err(why) => {
            eprintln!("casemate-sim: {why}");
            ExitCode::FAILURE
        }
    }
}

fn execute(arguments: &Arguments) -> ExitCode {
    let start = Instant::now();
    let (coverage, failures) = match arguments.seed {
        Some(seed) => match run(seed, Options { trace: arguments.trace, defect: None }) {
            Ok(coverage) => (coverage, vec![]),
            Err(failure) => (Default::default(), vec![failure]),
        },
        None => run_all(arguments.from..arguments.from + arguments.seeds, Options::default()),
    };
    for failure in failures.iter().take(SHOWN) {
        println!("{failure}");
    }
    if arguments.seed.is_none() {
        print!("{coverage}");
    }
    println!("{} failures, {:.1} s", failures.len(), start.elapsed().as_secs_f64());
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn execute_mixes(arguments: &Arguments) -> ExitCode {
    let mut failed = 0;
    for mix in &arguments.mixes {
        let start = Instant::now();
        let (seeds, coverage, failures): (u64, Coverage, Vec<Failure>) = match arguments.seed {
            Some(seed) => match run_mix(*mix, seed, arguments.trace) {
                Ok(coverage) => (1, coverage, vec![]),
                Err(failure) => (1, Coverage::default(), vec![failure]),
            },
            None => {
                let seeds = arguments.from..arguments.from + arguments.seeds;
                let (coverage, failures) = run_mixes(*mix, seeds);
                (arguments.seeds, coverage, failures)
            }
        };
        failures.iter().take(SHOWN).for_each(|failure| println!("{failure}"));
        let (count, time) = (failures.len(), start.elapsed().as_secs_f64());
        println!(
            "{mix}: {count} of {seeds} seeds failed, wire digest {:016x}, {time:.1} s",
            coverage.wire_digest
        );
        failed += count;
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
