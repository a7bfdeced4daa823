//! The command line.

use casemate_measure::harness::Effort;
use std::time::Duration;

/// What to measure, and how to show it.
pub(crate) struct Arguments {
    /// Every one of these must be part of a row's name.
    pub(crate) filters: Vec<String>,
    /// One JSON object a line.
    pub(crate) json: bool,
    /// How thoroughly.
    pub(crate) effort: Effort,
    /// Instead of all that, run one load for callgrind: row and label.
    pub(crate) spin: Option<(String, String)>,
}

const USAGE: &str = "usage: bench [--json] [--quick] [FILTER...]
  FILTER   measure only rows whose name holds every FILTER, e.g. `esp aws-lc GCM_16-128 seal`
  --json   one JSON object a line; `over` and `times` compare a value with its base, e.g. esp with bare
  --quick  fewer rounds: a smoke test, not a measurement";

const THOROUGH: Effort = Effort { rounds: 41, turn: Duration::from_micros(300) };
const QUICK: Effort = Effort { rounds: 3, turn: Duration::from_micros(50) };

impl Arguments {
    /// Reads them, or says how it is done.
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut arguments = Self { filters: Vec::new(), json: false, effort: THOROUGH, spin: None };
        while let Some(word) = words.next() {
            match word.as_str() {
                "--json" => arguments.json = true,
                "--quick" => arguments.effort = QUICK,
                "--spin" => arguments.spin = words.next().zip(words.next()),
                "--help" | "-h" => return Err(USAGE.into()),
                option if option.starts_with('-') => {
                    return Err(format!("unknown option `{option}`\n{USAGE}"));
                }
                _ => arguments.filters.push(word.to_lowercase()),
            }
        }
        Ok(arguments)
    }
}
