//! The command line.

use casemate_bench::options::{Common, unknown, value};
use casemate_interop::Result;

pub(crate) const HELP: &str = "Calls beside bulk: what the scheduler does for those who speak.

Usage: calls [--json] [--rounds N] [--seconds N] [--suite WORDS] [--programs DIR]

  --suite WORDS   the suite, as in `esp_proposals` (default: 3des-sha1: a slow engine, so that instruments cost little)
  --rounds N      rounds, in each of which everything is measured once (default: 3)
  --seconds N     how long the calls take for each load (default: 5)
  --programs DIR  where `casemate` is (default: beside this program)
  --json          one JSON object
";

/// What to do.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) common: Common,
    pub(crate) suite: String,
}

impl Options {
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self> {
        let mut options = Self { common: Common::new(3, 5)?, suite: "3des-sha1".into() };
        while let Some(word) = words.next() {
            if options.common.take(&word, &mut words)? {
                continue;
            }
            match word.as_str() {
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
    fn a_suite_may_be_named() {
        let parse = |line: &str| Options::parse(line.split_whitespace().map(String::from));
        assert_eq!(parse("--suite aes128-sha1 --rounds 1").unwrap().suite, "aes128-sha1");
        assert!(parse("--suite").is_err() && parse("aes").is_err());
    }
}
