//! Runs seeds, or one seed with a log of what happens.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the program of a test")]

use casemate_sim::{Options, run, run_all};
use std::process::ExitCode;
use std::time::Instant;

const HELP: &str = "\
casemate-sim [--seeds N] [--from S]     runs N seeds (1000), the first of which is S (0)
casemate-sim --seed S [--trace]         runs one seed; --trace prints what happens in it
";

/// Failures that are printed in full.
const SHOWN: usize = 20;

struct Arguments {
    seeds: u64,
    from: u64,
    seed: Option<u64>,
    trace: bool,
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut parsed = Arguments { seeds: 1_000, from: 0, seed: None, trace: false };
    while let Some(argument) = arguments.next() {
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
        Ok(arguments) => execute(&arguments),
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
