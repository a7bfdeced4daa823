//! The command line.

use crate::{report, watch};
use casemate_bench::options::{Common, number, value};
use casemate_bench::program::Program;
use casemate_interop::Result;
use std::path::Path;
use std::time::Duration;

const HELP: &str = "Full load while keys change: packets lost, and memory.

Usage: soak [--json] [--minutes N | --seconds N] [--rekey SECONDS] [--suite WORDS] [--programs DIR]

  --minutes N      how long (default: 10)
  --seconds N      the same in seconds
  --rekey SECONDS  how old keys get (default: 5)
  --suite WORDS    the suite, as in `esp_proposals` (default: aes128gcm16)
  --programs DIR   where `casemate` is (default: beside this program)
  --json           one JSON object
";

const MINUTE: u64 = 60;

/// What to do.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) common: Common,
    pub(crate) rekey: u32,
    pub(crate) suite: String,
}

impl Program for Options {
    const NAME: &str = "soak";
    const HELP: &str = HELP;

    fn parse(words: impl Iterator<Item = String>) -> Result<Self> {
        let mut common = Common::new(1, 10 * MINUTE)?;
        let (mut rekey, mut suite) = (5, "aes128gcm16".into());
        common.take_all(words, |common, word, words| {
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

    fn common(&self) -> &Common {
        &self.common
    }

    fn start(&self, directory: &Path) -> Result<bool> {
        let seen = watch::run(self, directory)?;
        Ok(report::show(&seen, self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_given_in_minutes_or_seconds() {
        let parse = |line: &str| Options::parse(line.split_whitespace().map(String::from));
        assert_eq!(parse("--minutes 2 --rekey 3").unwrap().common.seconds, Duration::from_secs(120));
        assert_eq!(parse("--seconds 7").unwrap().common.seconds, Duration::from_secs(7));
        assert!(parse("--minutes 0").is_err() && parse("--rekey").is_err());
    }
}
