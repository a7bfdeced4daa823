//! The command line.

use casemate_interop::{Error, Result};
use std::path::{Path, PathBuf};

pub(crate) const HELP: &str = "IKEv2 handshakes: Casemate and strongSwan's charon as responders, side by side.

Usage: handshakes [--json] [--quick] [--in-memory] [--casemate PROGRAM] [--rounds N] [--count N] [--sas N] [FILTER...]

  FILTER              measure only cases whose names hold every FILTER, such as `psk x25519`
  --in-memory         only Casemate's responder, in this process and without sockets; needs no root
  --casemate PROGRAM  the program to measure (default: beside this one)
  --rounds N          rounds, in each of which every responder has a turn with a process of its own (default: 5)
  --count N           handshakes in each turn (default: 2000)
  --sas N             IKE SAs in memory, each with a Child SA (default: 10000)
  --quick             one short round: a smoke test, not a measurement
  --json              one JSON object
";

/// What to do.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) help: bool,
    pub(crate) json: bool,
    pub(crate) in_memory: bool,
    pub(crate) casemate: PathBuf,
    pub(crate) rounds: u32,
    pub(crate) count: u32,
    pub(crate) sas: u32,
    filters: Vec<String>,
}

impl Options {
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self> {
        let program = std::env::current_exe().map_err(Error::in_front("this program"))?;
        let mut options = Self {
            help: false,
            json: false,
            in_memory: false,
            casemate: program.parent().unwrap_or(Path::new(".")).join("casemate"),
            rounds: 5,
            count: 2_000,
            sas: 10_000,
            filters: Vec::new(),
        };
        while let Some(word) = words.next() {
            match word.as_str() {
                "--help" | "-h" => options.help = true,
                "--json" => options.json = true,
                "--in-memory" => options.in_memory = true,
                "--quick" => (options.rounds, options.count, options.sas) = (1, 100, 100),
                "--casemate" => options.casemate = value(&word, words.next())?.into(),
                "--rounds" => options.rounds = number(&word, words.next())?,
                "--count" => options.count = number(&word, words.next())?,
                "--sas" => options.sas = number(&word, words.next())?,
                option if option.starts_with('-') => {
                    return Err(Error::new(format!("unknown option `{option}` (--help explains)")));
                }
                _ => options.filters.push(word),
            }
        }
        Ok(options)
    }

    /// Whether a case is to be measured.
    pub(crate) fn selects(&self, name: &str) -> bool {
        self.filters.iter().all(|filter| name.contains(filter.as_str()))
    }
}

fn value(option: &str, value: Option<String>) -> Result<String> {
    value.ok_or_else(|| Error::new(format!("{option} needs a value")))
}

fn number(option: &str, word: Option<String>) -> Result<u32> {
    let word = value(option, word)?;
    let number = word.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| Error::new(format!("{option} {word}: a number from 1 on was expected")))
}
