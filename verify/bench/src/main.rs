//! Benchmarks of providers, data path, look-ups and header compression. `cargo xtask bench` runs them.
//!
//! Values to be compared are measured in one run, in alternating turns of a fraction of a millisecond
//! ([`casemate_measure::harness`]): a machine that slows down affects all of them. Times are medians; a
//! difference is the median of the differences within each turn.

#![forbid(unsafe_code)]
// Developer tool: a failure stops the program where it happens.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod cores;
mod esp;
mod instructions;
mod lookup;
mod report;
mod rohc;
mod worker_pool;

use casemate_measure::harness::Schedule;
use report::Report;
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(usage) => {
            eprintln!("{usage}");
            return ExitCode::from(2);
        }
    };
    if let Some(SpinTask { row, label }) = &arguments.spin {
        return if instructions::run_under_callgrind(row, label) {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        };
    }
    let mut report = Report::new(&arguments);
    esp::run(&mut report);
    cores::run(&mut report);
    lookup::run(&mut report);
    rohc::run(&mut report);
    instructions::run(&mut report);
    report.finish()
}

/// Arguments of the benchmark.
pub(crate) struct Arguments {
    /// Words that the name of a row has to contain, all of them.
    pub(crate) filters: Vec<String>,
    /// Whether to print one JSON object per line.
    pub(crate) json: bool,
    /// Rounds and their duration.
    pub(crate) effort: Schedule,
    /// Load to run for callgrind, in place of the benchmark.
    pub(crate) spin: Option<SpinTask>,
}

/// Identifies a load of the benchmark.
pub(crate) struct SpinTask {
    /// Name of the row.
    row: String,
    /// Label within the row.
    label: String,
}

const USAGE: &str = "usage: bench [--json] [--quick] [FILTER...]
  FILTER   measure only rows whose name contains every FILTER, for example `esp aws-lc GCM_16-128 seal`
  --json   one JSON object per line; `over` and `times` compare a value with its base, for example esp with bare
  --quick  fewer rounds: a smoke test, not a measurement";

const THOROUGH: Schedule = Schedule { rounds: 41, turn: Duration::from_micros(300) };
const QUICK: Schedule = Schedule { rounds: 3, turn: Duration::from_micros(50) };

impl Arguments {
    /// Parses the command line. The error is the usage text.
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut arguments = Self { filters: Vec::new(), json: false, effort: THOROUGH, spin: None };
        while let Some(word) = words.next() {
            match word.as_str() {
                "--json" => arguments.json = true,
                "--quick" => arguments.effort = QUICK,
                "--spin" => {
                    let task = words.next().zip(words.next());
                    arguments.spin = task.map(|(row, label)| SpinTask { row, label });
                }
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
