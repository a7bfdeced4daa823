//! The command line.

use crate::machine::Machine;
use casemate_bench::options::{Common, value};
use casemate_bench::program::Program;
use casemate_stage::{Error, Result};
use std::path::Path;

/// What is to be compared.
pub(crate) struct Options {
    common: Common,
    /// Besides this machine.
    pub(crate) machines: Vec<Machine>,
}

impl Program for Options {
    const NAME: &str = "advice";
    const HELP: &str = "\
Whether `casemate advise` is right: its quick answer against end-to-end measurements, here and on emulated machines.

Usage: advice [--machine NAME=PROGRAM]... [--rounds N] [--seconds N] [--programs DIR] [--json]

  --machine NAME=PROGRAM   a machine, and what runs `casemate` on it
  --rounds N               turns of each suite on an emulated machine (default: 5)
  --seconds N              how long a stream flows in each direction of a turn (default: 2)
  --programs DIR           where this machine's `casemate` is (default: beside this program)
  --json                   one JSON array instead of text

Fails if an advised suite is not first end to end and does not tie with the first.
";

    fn parse(words: impl Iterator<Item = String>) -> Result<Self> {
        let mut machines = Vec::new();
        let mut common = Common::new(5, 2)?;
        common.take_all(words, |_, word, words| {
            if word == "--machine" {
                let given = value(word, words.next())?;
                let (name, program) = given
                    .split_once('=')
                    .ok_or_else(|| Error::new(format!("`{given}`: NAME=PROGRAM was expected")))?;
                machines.push(Machine { name: name.into(), program: program.into() });
            }
            Ok(word == "--machine")
        })?;
        Ok(Self { common, machines })
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn start(&self, directory: &Path) -> Result<bool> {
        crate::all(self, directory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_have_a_name_and_a_program() {
        let parse = |words: &[&str]| Options::parse(words.iter().map(ToString::to_string));
        let options = parse(&["--machine", "arm=/bin/a=b", "--rounds", "3"]).unwrap();
        assert_eq!(options.common.rounds, 3);
        assert_eq!(
            (&*options.machines[0].name, options.machines[0].program.to_str()),
            ("arm", Some("/bin/a=b"))
        );
        assert!(parse(&["--machine", "arm"]).is_err() && parse(&["--machine"]).is_err());
    }
}
