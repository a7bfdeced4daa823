//! What the command lines of the benchmarks have in common.

use casemate_interop::{Error, Result};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Options that every benchmark has.
#[derive(Debug)]
pub struct Common {
    /// `--help`
    pub help: bool,
    /// `--json`
    pub json: bool,
    /// `--rounds`
    pub rounds: u32,
    /// `--seconds`: how long each traffic of a turn flows.
    pub seconds: Duration,
    /// `--programs`: the directory of the programs that are measured.
    pub programs: PathBuf,
}

impl Common {
    /// With these defaults, and programs beside this one.
    pub fn new(rounds: u32, seconds: u64) -> Result<Self> {
        let program = std::env::current_exe().map_err(Error::in_front("this program"))?;
        let programs = program.parent().unwrap_or(Path::new(".")).into();
        Ok(Self { help: false, json: false, rounds, seconds: Duration::from_secs(seconds), programs })
    }

    /// Takes all words. What is not an option of every benchmark is for `own`, which answers whether it knows it.
    pub fn take_all<W: Iterator<Item = String>>(
        &mut self,
        mut words: W,
        mut own: impl FnMut(&mut Self, &str, &mut W) -> Result<bool>,
    ) -> Result<()> {
        while let Some(word) = words.next() {
            if !self.take(&word, &mut words)? && !own(self, &word, &mut words)? {
                return Err(Error::new(format!("unknown option `{word}` (--help explains)")));
            }
        }
        Ok(())
    }

    /// Takes an option, with its value from `words`; answers whether it is one of these.
    fn take(&mut self, option: &str, words: &mut impl Iterator<Item = String>) -> Result<bool> {
        match option {
            "--help" | "-h" => self.help = true,
            "--json" => self.json = true,
            "--rounds" => self.rounds = number(option, words.next(), 1_000)?,
            "--seconds" => self.seconds = Duration::from_secs(number(option, words.next(), 1_000)?.into()),
            "--programs" => self.programs = value(option, words.next())?.into(),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// What follows an option.
pub fn value(option: &str, value: Option<String>) -> Result<String> {
    value.ok_or_else(|| Error::new(format!("{option} needs a value")))
}

/// From 1 to `most`: everything is bounded.
pub fn number(option: &str, word: Option<String>, most: u32) -> Result<u32> {
    let word = value(option, word)?;
    let number = word.parse().ok().filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| Error::new(format!("{option} {word}: a number from 1 to {most} was expected")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_bounded_and_unknown_words_left() {
        let mut common = Common::new(3, 4).unwrap();
        let mut own = Vec::new();
        let mut take = |line: &str| {
            let words = line.split_whitespace().map(String::from);
            common.take_all(words, |_, word, _| {
                own.push(word.to_owned());
                Ok(word == "slow")
            })
        };
        assert!(take("--rounds 5 slow --json").is_ok());
        assert!(take("--fast").is_err());
        for wrong in ["--rounds", "--rounds 0", "--seconds x", "--seconds 1001"] {
            assert!(take(wrong).is_err(), "{wrong}");
        }
        assert_eq!(own, ["slow", "--fast"]);
        assert!(common.json && common.rounds == 5 && common.seconds == Duration::from_secs(4));
    }
}
