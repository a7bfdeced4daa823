//! The command line.

use crate::measure;
use casemate_bench::options::{Common, value};
use casemate_bench::program::Program;
use casemate_interop::Result;
use std::path::{Path, PathBuf};

const HELP: &str = "Tunnels in user space, side by side: Casemate, others, and a forwarder without a cipher.

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
    pub(crate) common: Common,
    pub(crate) peers: PathBuf,
    filters: Vec<String>,
}

impl Program for Options {
    const NAME: &str = "tunnels";
    const HELP: &str = HELP;

    fn parse(words: impl Iterator<Item = String>) -> Result<Self> {
        let mut common = Common::new(3, 4)?;
        let (mut peers, mut filters) = (common.programs.join("../peers/bin"), Vec::new());
        common.take_all(words, |_, word, words| {
            match word {
                "--peers" => peers = value(word, words.next())?.into(),
                option if option.starts_with('-') => return Ok(false),
                filter => filters.push(filter.to_owned()),
            }
            Ok(true)
        })?;
        Ok(Self { common, peers, filters })
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn start(&self, directory: &Path) -> Result<bool> {
        measure(self, directory)
    }
}

impl Options {
    /// Whether a subject is to be measured.
    pub(crate) fn selects(&self, name: &str) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|filter| name.contains(filter.as_str()))
    }
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
        assert!(options.common.json && options.common.rounds == 5);
        assert!(options.selects("casemate-aes-gcm") && options.selects("boringtun"));
        assert!(!options.selects("forwarder"));
        assert!(parse("").unwrap().selects("forwarder"));
        for wrong in ["--rounds", "--peers", "--fast"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
