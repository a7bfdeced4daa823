//! The command line.

use crate::{report, rounds};
use casemate_bench::options::{Common, value};
use casemate_bench::program::Program;
use casemate_interop::Result;
use std::path::Path;

const HELP: &str = "Calls beside bulk: what the scheduler does for those who speak.

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

impl Program for Options {
    const NAME: &str = "calls";
    const HELP: &str = HELP;

    fn parse(words: impl Iterator<Item = String>) -> Result<Self> {
        let (mut common, mut suite) = (Common::new(3, 5)?, "3des-sha1".into());
        common.take_all(words, |_, word, words| {
            let is_known = word == "--suite";
            if is_known {
                suite = value(word, words.next())?;
            }
            Ok(is_known)
        })?;
        Ok(Self { common, suite })
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn start(&self, directory: &Path) -> Result<bool> {
        report::show(&rounds(self, directory)?, self);
        Ok(true)
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
