//! Full load while keys change (`cargo xtask bench soak`): rekeying must lose no packet, and memory must
//! not grow.
//!
//! Two gateways rekey their Child SA every few seconds, each at its own times, so that rekeyings also
//! collide. Packets flow in both directions ([`traffic`]) as fast as they arrive, so that no queue is ever
//! full.

// Developer tool: a failure stops the program where it happens.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod report;
mod traffic;

use casemate_bench::cli::{self, CommonOptions, Program, number, value};
use casemate_interop::Result;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    cli::run::<Options>()
}

const HELP: &str = "Lost packets and memory under full load while keys change.

Usage: soak [--json] [--minutes N | --seconds N] [--rekey SECONDS] [--suite WORDS] [--programs DIR]

  --minutes N      duration (default: 10)
  --seconds N      duration in seconds
  --rekey SECONDS  rekey time (default: 5)
  --suite WORDS    suite, as in `esp_proposals` (default: aes128gcm16)
  --programs DIR   directory of `casemate` (default: that of this program)
  --json           print one JSON object
";

const MINUTE: u64 = 60;

/// Options of the benchmark.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) common: CommonOptions,
    pub(crate) rekey: u32,
    pub(crate) suite: String,
}

impl Program for Options {
    const NAME: &str = "soak";
    const HELP: &str = HELP;

    fn parse(words: impl Iterator<Item = String>) -> Result<Self> {
        let mut common = CommonOptions::new(1, 10 * MINUTE)?;
        let (mut rekey, mut suite) = (5, "aes128gcm16".into());
        common.parse_all(words, |common, word, words| {
            match word {
                "--minutes" => {
                    let minutes = number(word, words.next(), 10_000)?;
                    common.seconds = Duration::from_secs(u64::from(minutes) * MINUTE);
                }
                "--rekey" => rekey = number(word, words.next(), 1_000)?,
                "--suite" => suite = value(word, words.next())?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(Self { common, rekey, suite })
    }

    fn common(&self) -> &CommonOptions {
        &self.common
    }

    fn start(&self, directory: &Path) -> Result<bool> {
        let results = traffic::run(self, directory)?;
        Ok(report::show(&results, self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_is_in_minutes_or_seconds() {
        let parse = |line: &str| Options::parse(line.split_whitespace().map(String::from));
        assert_eq!(parse("--minutes 2 --rekey 3").unwrap().common.seconds, Duration::from_secs(120));
        assert_eq!(parse("--seconds 7").unwrap().common.seconds, Duration::from_secs(7));
        assert!(parse("--minutes 0").is_err() && parse("--rekey").is_err());
    }
}
