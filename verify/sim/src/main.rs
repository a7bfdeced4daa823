//! Runs seeds, or one seed with a log of what happens.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the program of a test")]

use casemate_sim::{Failure, Mix, Options, run, run_all, run_mix, run_mixes};
use std::process::ExitCode;
use std::time::Instant;

const HELP: &str = "\
casemate-sim [--seeds N] [--from S]     runs N seeds (1000), the first of which is S (0)
casemate-sim --seed S [--trace]         runs one seed; --trace prints what happens in it
casemate-sim --mix NAME ...             the same with seeds of a mix of overlapping operations; `all`: of each mix
                                        (rekey-child, rekey-ike, rekey-both, create-delete, everything, parallel,
                                        soak, soak-parallel, reauth, unique, limits, close-start, dead-start,
                                        crash, rebind, soak-reauth)
";

/// Failures that are printed in full.
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
                name => vec![Mix::named(name).ok_or(format!("`{name}` is no mix\n{HELP}"))?],
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
            _ => return Err(format!("`{argument}` is unknown\n{HELP}")),
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
    let (tally, failures) = match arguments.seed {
        Some(seed) => match run(seed, Options { trace: arguments.trace, sabotage: None }) {
            Ok(tally) => (tally, vec![]),
            Err(failure) => (Default::default(), vec![failure]),
        },
        None => run_all(arguments.from..arguments.from + arguments.seeds, Options::default()),
    };
    for failure in failures.iter().take(SHOWN) {
        println!("{failure}");
    }
    if arguments.seed.is_none() {
        print!("{tally}");
    }
    println!("{} failures, {:.1} s", failures.len(), start.elapsed().as_secs_f64());
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn execute_mixes(arguments: &Arguments) -> ExitCode {
    let mut failed = 0;
    for mix in &arguments.mixes {
        let start = Instant::now();
        let (seeds, failures): (u64, Vec<Failure>) = match arguments.seed {
            Some(seed) => (1, run_mix(*mix, seed, arguments.trace).err().into_iter().collect()),
            None => {
                let seeds = arguments.from..arguments.from + arguments.seeds;
                (arguments.seeds, run_mixes(*mix, seeds))
            }
        };
        failures.iter().take(SHOWN).for_each(|failure| println!("{failure}"));
        let (count, time) = (failures.len(), start.elapsed().as_secs_f64());
        println!("{mix}: {count} of {seeds} seeds failed, {time:.1} s");
        failed += count;
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
