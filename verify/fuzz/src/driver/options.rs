//! The command line of the driver.

use casemate_fuzz::{TARGETS, Target, regressions, target};
use std::path::Path;
use std::time::Duration;

pub(crate) const HELP: &str = "Fuzzes the parsers, the data path and the program's files.

cargo xtask fuzz [--smoke] [--seconds N] [TARGET...]   fuzz these targets, or all
cargo xtask fuzz --replay TARGET INPUT                 run one input: hexadecimal, or a file
cargo xtask fuzz --list                                the targets

--smoke       a few seconds for each target, from the seeds only and with the same choices every time, as in CI
--seconds N   time for each target (60); the corpus is kept in target/fuzz and grows from run to run
";

/// Time for each target in a smoke run, so that all of them and the build take less than 90 s on two cores.
const SMOKE: Duration = Duration::from_secs(3);
const USUAL: Duration = Duration::from_secs(60);

/// What to do.
pub(crate) enum Command {
    Help,
    List,
    Replay { target: &'static Target, input: Vec<u8> },
    Fuzz(Campaign),
}

/// What to fuzz, and how long.
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
            ["--replay", ..] => Err("--replay wants a target and an input".into()),
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
                seconds = Some(Duration::from_secs(number.ok_or("--seconds wants a number from 1 up")?));
            }
            option if option.starts_with('-') => return Err(format!("no option `{option}`; try --help")),
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
    target(name).ok_or_else(|| format!("no target `{name}`; expected one of: {}", names()))
}

/// A file of bytes or of hexadecimal, or hexadecimal itself.
fn read(input: &str) -> Result<Vec<u8>, String> {
    let path = Path::new(input);
    if !path.is_file() {
        return regressions::from_hex(input)
            .ok_or_else(|| format!("`{input}` is neither a file nor hexadecimal"));
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
    fn campaigns() {
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
    fn replays_take_hexadecimal_and_files() {
        assert!(
            matches!(parse("--replay udp 0aff"), Ok(Command::Replay { input, .. }) if input == [0x0a, 0xff])
        );
        assert!(
            matches!(parse("--replay udp Cargo.toml"), Ok(Command::Replay { input, .. }) if input.starts_with(b"[package]"))
        );
        assert!(parse("--replay udp 0x").is_err());
    }
}
