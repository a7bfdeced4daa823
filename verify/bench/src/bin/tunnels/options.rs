//! The command line.

use casemate_interop::{Error, Result};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) const HELP: &str =
    "Tunnels in user space, side by side: Casemate, others, and a forwarder without a cipher.

Usage: tunnels [--json] [--rounds N] [--seconds N] [--programs DIR] [--peers DIR] [FILTER...]

  FILTER          measure only subjects whose names hold one of the FILTERs, such as `aes-gcm forwarder`
  --rounds N      rounds, in each of which every subject has a turn (default: 3)
  --seconds N     how long the stream and the small packets of a turn flow, each (default: 4)
  --programs DIR  where `casemate` and `forwarder` are (default: beside this program)
  --peers DIR     where wireguard-go, boringtun and gotatun are (default: target/peers/bin, seen from there)
  --json          one JSON object
";

/// What to do.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) help: bool,
    pub(crate) json: bool,
    pub(crate) rounds: u32,
    pub(crate) seconds: Duration,
    pub(crate) programs: PathBuf,
    pub(crate) peers: PathBuf,
    filters: Vec<String>,
}

impl Options {
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self> {
        let program = std::env::current_exe().map_err(Error::in_front("this program"))?;
        let programs = program.parent().unwrap_or(Path::new("."));
        let mut options = Self {
            help: false,
            json: false,
            rounds: 3,
            seconds: Duration::from_secs(4),
            programs: programs.into(),
            peers: programs.join("../peers/bin"),
            filters: Vec::new(),
        };
        while let Some(word) = words.next() {
            match word.as_str() {
                "--help" | "-h" => options.help = true,
                "--json" => options.json = true,
                "--rounds" => options.rounds = number(&word, words.next())?,
                "--seconds" => options.seconds = Duration::from_secs(number(&word, words.next())?.into()),
                "--programs" => options.programs = value(&word, words.next())?.into(),
                "--peers" => options.peers = value(&word, words.next())?.into(),
                option if option.starts_with('-') => {
                    return Err(Error::new(format!("unknown option `{option}` (--help explains)")));
                }
                _ => options.filters.push(word),
            }
        }
        Ok(options)
    }

    /// Whether a subject is to be measured.
    pub(crate) fn selects(&self, name: &str) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|filter| name.contains(filter.as_str()))
    }
}

fn value(option: &str, value: Option<String>) -> Result<String> {
    value.ok_or_else(|| Error::new(format!("{option} needs a value")))
}

/// From 1 to 1000: everything is bounded.
fn number(option: &str, word: Option<String>) -> Result<u32> {
    let word = value(option, word)?;
    let number = word.parse().ok().filter(|number| (1..=1_000).contains(number));
    number.ok_or_else(|| Error::new(format!("{option} {word}: a number from 1 to 1000 was expected")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options> {
        Options::parse(line.split_whitespace().map(String::from))
    }

    #[test]
    fn options_and_filters_are_told_apart() {
        let options = parse("--rounds 5 gcm --json boringtun").unwrap();
        assert!(options.json && options.rounds == 5);
        assert!(options.selects("casemate-aes-gcm") && options.selects("boringtun"));
        assert!(!options.selects("forwarder"));
        assert!(parse("").unwrap().selects("forwarder"));
        for wrong in ["--rounds", "--rounds 0", "--seconds x", "--seconds 1001", "--fast"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
