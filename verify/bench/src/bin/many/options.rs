//! The command line.

use crate::{report, rounds};
use casemate_bench::options::{Common, number};
use casemate_bench::program::Program;
use casemate_interop::Result;
use std::path::Path;

const HELP: &str = "Ten thousand tunnels beside one: memory and throughput.

Usage: many [--json] [--rounds N] [--seconds N] [--tunnels N] [--programs DIR]

  --tunnels N     how many tunnels, at least 2 (default: 10000)
  --rounds N      rounds, in each of which every provider has a turn with one tunnel and one with all (default: 3)
  --seconds N     how long the packets of a turn flow (default: 4)
  --programs DIR  where `casemate` is (default: beside this program)
  --json          one JSON object
";

/// As many as there are addresses for.
const MOST: u32 = 60_000;

/// What to do.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) common: Common,
    pub(crate) tunnels: u32,
}

impl Program for Options {
    const NAME: &str = "many";
    const HELP: &str = HELP;

    fn parse(words: impl Iterator<Item = String>) -> Result<Self> {
        let (mut common, mut tunnels) = (Common::new(3, 4)?, 10_000);
        common.take_all(words, |_, word, words| {
            let is_known = word == "--tunnels";
            if is_known {
                tunnels = number(word, words.next(), MOST)?.max(2);
            }
            Ok(is_known)
        })?;
        Ok(Self { common, tunnels })
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
    fn the_number_of_tunnels_is_bounded() {
        let parse = |line: &str| Options::parse(line.split_whitespace().map(String::from));
        assert_eq!(parse("--tunnels 100 --rounds 1").unwrap().tunnels, 100);
        assert!(parse("--tunnels 60001").is_err() && parse("100").is_err());
    }
}
