//! The command line.

use casemate_bench::options::{Common, number, unknown, value};
use casemate_interop::Result;
use std::time::Duration;

pub(crate) const HELP: &str = "Full load while keys change: packets lost, and memory.

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

impl Options {
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self> {
        let common = Common::new(1, 10 * MINUTE)?;
        let mut options = Self { common, rekey: 5, suite: "aes128gcm16".into() };
        while let Some(word) = words.next() {
            if options.common.take(&word, &mut words)? {
                continue;
            }
            match word.as_str() {
                "--minutes" => {
                    let minutes = number(&word, words.next(), 10_000)?;
                    options.common.seconds = Duration::from_secs(u64::from(minutes) * MINUTE);
                }
                "--rekey" => options.rekey = number(&word, words.next(), 1_000)?,
                "--suite" => options.suite = value(&word, words.next())?,
                _ => return Err(unknown(&word)),
            }
        }
        Ok(options)
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
