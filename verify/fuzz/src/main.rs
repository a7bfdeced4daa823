//! Driver: builds the engine, runs it for each target, and reports the results. `cargo xtask fuzz` runs it.

// Test program: errors are for people, and stop it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod driver;

use casemate_fuzz::{TARGETS, Target, regressions, target};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = Command::parse(&arguments).and_then(|command| match command {
        Command::Help => {
            print!("{HELP}");
            Ok(())
        }
        Command::List => {
            for target in casemate_fuzz::TARGETS {
                println!("{:<12} {}", target.name, target.about);
            }
            Ok(())
        }
        Command::Replay { target, input } => {
            (target.run)(&input);
            println!("{}: no failure with these {} bytes", target.name, input.len());
            Ok(())
        }
        Command::Fuzz(campaign) => driver::run(&campaign),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("casemate-fuzz: {why}");
            ExitCode::FAILURE
        }
    }
}

pub(crate) const HELP: &str = "Fuzzes the parsers, the data path and the files that the program reads.

cargo xtask fuzz [--smoke] [--seconds N] [TARGET...]   fuzz these targets, or all
cargo xtask fuzz --replay TARGET INPUT                 run one input, given as hexadecimal digits or as a file
cargo xtask fuzz --list                                list the targets

--smoke       a few seconds for each target, with the seeds only and always the same random numbers, as in CI
--seconds N   time for each target (default 60); the corpus is kept in target/fuzz and grows with each run
";

/// Time for each target in a smoke run. All targets and the build take less than 90 s on two cores.
const SMOKE: Duration = Duration::from_secs(3);
const USUAL: Duration = Duration::from_secs(60);

/// Command to execute.
pub(crate) enum Command {
    Help,
    List,
    Replay { target: &'static Target, input: Vec<u8> },
    Fuzz(Campaign),
}

/// Targets of a fuzzing run, and their time.
pub(crate) struct Campaign {
    pub(crate) targets: Vec<&'static Target>,
    pub(crate) time: Duration,
    pub(crate) is_smoke: bool,
}

impl Command {
    pub(crate) fn parse(arguments: &[String]) -> Result<Self, String> {
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        match words[..] {
            ["--help" | "-h"] => Ok(Self::Help),
            ["--list"] => Ok(Self::List),
            ["--replay", name, input] => Ok(Self::Replay { target: known(name)?, input: read(input)? }),
            ["--replay", ..] => Err("--replay needs a target and an input".into()),
            _ => campaign(&words).map(Self::Fuzz),
        }
    }
}

fn campaign(words: &[&str]) -> Result<Campaign, String> {
    let mut campaign = Campaign { targets: Vec::new(), time: USUAL, is_smoke: false };
    let mut seconds = None;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "--smoke" => campaign.is_smoke = true,
            "--seconds" => {
                let number = words.next().and_then(|number| number.parse().ok()).filter(|number| *number > 0);
                seconds = Some(Duration::from_secs(number.ok_or("--seconds needs a number greater than 0")?));
            }
            option if option.starts_with('-') => {
                return Err(format!("unknown option `{option}`; see --help"));
            }
            name => campaign.targets.push(known(name)?),
        }
    }
    if campaign.targets.is_empty() {
        campaign.targets = TARGETS.iter().collect();
    }
    campaign.time = seconds.unwrap_or(if campaign.is_smoke { SMOKE } else { USUAL });
    Ok(campaign)
}

fn known(name: &str) -> Result<&'static Target, String> {
    let names = || TARGETS.iter().map(|target| target.name).collect::<Vec<_>>().join(", ");
    target(name).ok_or_else(|| format!("unknown target `{name}`; expected one of: {}", names()))
}

/// Input of a replay: a file of bytes or hexadecimal digits, or hexadecimal digits.
fn read(input: &str) -> Result<Vec<u8>, String> {
    let path = Path::new(input);
    if !path.is_file() {
        return regressions::from_hex(input)
            .ok_or_else(|| format!("`{input}` is neither a file nor hexadecimal digits"));
    }
    let read = match path.extension() {
        Some(extension) if extension == "hex" => regressions::read(path),
        _ => std::fs::read(path),
    };
    read.map_err(|error| format!("{input}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Command, String> {
        Command::parse(&line.split_whitespace().map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn campaigns_are_parsed() {
        let campaign = |line| match parse(line) {
            Ok(Command::Fuzz(Campaign { targets, time, is_smoke })) => {
                (targets.len(), time.as_secs(), is_smoke)
            }
            _ => panic!("{line}"),
        };
        assert_eq!(campaign(""), (TARGETS.len(), 60, false));
        assert_eq!(campaign("--smoke"), (TARGETS.len(), 3, true));
        assert_eq!(campaign("udp --seconds 5 --smoke ah"), (2, 5, true));
        for wrong in
            ["--seconds", "--seconds 0", "--seconds x", "--what", "nonsense", "--replay udp", "--replay x 00"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn replay_inputs_are_hexadecimal_digits_or_files() {
        assert!(
            matches!(parse("--replay udp 0aff"), Ok(Command::Replay { input, .. }) if input == [0x0a, 0xff])
        );
        assert!(
            matches!(parse("--replay udp Cargo.toml"), Ok(Command::Replay { input, .. }) if input.starts_with(b"[package]"))
        );
        assert!(parse("--replay udp 0x").is_err());
    }
}
