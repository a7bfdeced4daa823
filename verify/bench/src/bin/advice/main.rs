//! Checks `casemate advise` on this machine and on emulated ones (`cargo xtask bench advise`): the first
//! suite of its quick measurement has to be first end to end too, or tie with the first.
//!
//! On this machine, `casemate advise --thorough` measures end to end. QEMU's user-mode emulators
//! (qemu-x86_64, qemu-aarch64) do not support the kernel's routing rules that two gateways need. There the
//! device is `casemate stack`, which has its own TCP/IP stack behind a TAP interface, and its peer is a
//! gateway on this machine ([`run`]).

// Developer tool: a failure stops the program where it happens.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod run;

use casemate_advise::end_to_end::contenders;
use casemate_advise::goal::Goal;
use casemate_advise::rank::{RankedSuite, ScoredSuite, leaders, rank};
use casemate_bench::cli::{self, CommonOptions, Program, value};
use casemate_measure::stats::Spread;
use casemate_testbed::{Error, Result};
use run::Machine;
use serde_json::{Value, json};
use std::path::Path;
use std::process::ExitCode;

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
    let first = run::ranking(&answer)?[0].suite.to_string();
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
    let quick = run::ranking(&machine.advice(&[])?)?;
    let places: Vec<RankedSuite> = quick
        .into_iter()
        .enumerate()
        .map(|(group, spot)| RankedSuite { scored: spot, gap: 0.0, is_tied: false, group })
        .collect();
    let mut spots: Vec<ScoredSuite> = contenders(&places);
    spots.iter_mut().for_each(|spot| spot.scores.clear());
    let first = spots[0].suite;
    for round in 0..options.common().rounds {
        for which in 0..spots.len() {
            // Each round starts with another suite.
            let at = (which + round as usize) % spots.len();
            let spot = &mut spots[at];
            let directory = directory.join(format!("{}-{round}-{at}", machine.name));
            let nanos = run::run(machine, own, spot.suite, options.common().seconds, &directory)?;
            eprintln!("{}, round {}: {}: {nanos:.0} ns for a byte", machine.name, round + 1, spot.suite);
            spot.scores.push(nanos);
        }
    }
    for spot in &mut spots {
        spot.median = Spread::of(spot.scores.iter().copied()).expect("there are rounds").median;
        spot.cpu = spot.median;
    }
    let ranked = rank(spots, Goal::Throughput);
    let lines = ranked.iter().map(|place| line_of(&place.scored, place.is_tied)).collect();
    let details = json!({
        "ranking": ranked.iter().map(|place| place.scored.suite.to_string()).collect::<Vec<_>>(),
        "ns_per_byte": ranked.iter().map(|place| place.scored.scores.clone()).collect::<Vec<_>>(),
    });
    let agrees = leaders(&ranked).any(|place| place.scored.suite == first);
    Ok(Finding { machine: machine.name.clone(), first: first.to_string(), agrees, details, lines })
}

fn line_of(spot: &ScoredSuite, is_tied: bool) -> String {
    let spread = Spread::of(spot.scores.iter().copied()).map_or_else(String::new, |spread| spread.text(0));
    format!("{}: {spread} ns for a byte{}", spot.suite, if is_tied { ", tie" } else { "" })
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
