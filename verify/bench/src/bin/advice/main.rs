//! Whether `casemate advise` is right, on this machine and on emulated ones (`cargo xtask bench advise`): the first suite of its quick
//! measurement has to be first end to end, too, or tie there.
//!
//! End to end is `casemate advise --thorough` on this machine. An emulator of programs (QEMU's qemu-x86_64, qemu-aarch64) does not know
//! the kernel's routing rules that two gateways need. There the device is `casemate stack`, which has its own TCP/IP stack behind a TAP
//! interface, and its peer is a gateway of this machine ([`turn`]).
// A tool for developers: what goes wrong here should stop it, at the line where it happens.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod machine;
mod options;
mod turn;

use casemate_advise::goal::Goal;
use casemate_advise::rank::{Place, Spot, leaders, rank};
use casemate_advise::thorough::contenders;
use casemate_bench::program::{self, Program};
use casemate_measure::spread::Spread;
use casemate_stage::Result;
use machine::Machine;
use options::Options;
use serde_json::{Value, json};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    program::run::<Options>()
}

/// What was found on a machine.
struct Finding {
    machine: String,
    /// The quick ranking's first, and how it fared end to end.
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
            println!("{machine}: {first} is advised; end to end {word}");
            lines.iter().for_each(|line| println!("    {line}"));
        }
    }
    Ok(findings.iter().all(|finding| finding.agrees))
}

/// On this machine, by the command's own thorough measurement.
fn here(own: &Machine) -> Result<Finding> {
    let answer = own.advice(&["--thorough"])?;
    let details = answer["thorough"].clone();
    let lines = match details["not_measured"].as_str() {
        Some(why) => vec![format!("not measured: {why}")],
        None => details["contenders"].as_array().into_iter().flatten().map(line_of_turns).collect(),
    };
    let first = machine::ranking(&answer)?[0].suite.to_string();
    let agrees = details["agrees"] == Value::Bool(true);
    Ok(Finding { machine: own.name.clone(), first, agrees, details, lines })
}

fn line_of_turns(contender: &Value) -> String {
    let rates = contender["turns"].as_array().into_iter().flatten();
    let spread = Spread::of(rates.filter_map(|turn| turn["packets_per_second"].as_f64()));
    let rate = spread.map_or_else(String::new, |spread| spread.text(0));
    format!("{}: {rate} packets a second", contender["suite"].as_str().unwrap_or_default())
}

/// On an emulated machine.
fn elsewhere(machine: &Machine, own: &Machine, options: &Options, directory: &Path) -> Result<Finding> {
    let quick = machine::ranking(&machine.advice(&[])?)?;
    let places: Vec<Place> = quick
        .into_iter()
        .enumerate()
        .map(|(group, spot)| Place { spot, behind: 0.0, is_tied: false, group })
        .collect();
    let mut spots: Vec<Spot> = contenders(&places);
    spots.iter_mut().for_each(|spot| spot.scores.clear());
    let first = spots[0].suite;
    for round in 0..options.common().rounds {
        for which in 0..spots.len() {
            // Each round begins with another one.
            let at = (which + round as usize) % spots.len();
            let spot = &mut spots[at];
            let directory = directory.join(format!("{}-{round}-{at}", machine.name));
            let nanos = turn::run(machine, own, spot.suite, options.common().seconds, &directory)?;
            eprintln!("{}, round {}: {}: {nanos:.0} ns for a byte", machine.name, round + 1, spot.suite);
            spot.scores.push(nanos);
        }
    }
    for spot in &mut spots {
        spot.median = Spread::of(spot.scores.iter().copied()).expect("there are rounds").median;
        spot.cpu = spot.median;
    }
    let ranked = rank(spots, Goal::Throughput);
    let lines = ranked.iter().map(|place| line_of(&place.spot, place.is_tied)).collect();
    let details = json!({
        "ranking": ranked.iter().map(|place| place.spot.suite.to_string()).collect::<Vec<_>>(),
        "ns_per_byte": ranked.iter().map(|place| place.spot.scores.clone()).collect::<Vec<_>>(),
    });
    let agrees = leaders(&ranked).any(|place| place.spot.suite == first);
    Ok(Finding { machine: machine.name.clone(), first: first.to_string(), agrees, details, lines })
}

fn line_of(spot: &Spot, is_tied: bool) -> String {
    let spread = Spread::of(spot.scores.iter().copied()).map_or_else(String::new, |spread| spread.text(0));
    format!("{}: {spread} ns for a byte{}", spot.suite, if is_tied { ", tie" } else { "" })
}
