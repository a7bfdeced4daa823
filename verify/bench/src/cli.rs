//! Common options of the benchmarks.

use casemate_testbed::TempDir;
use casemate_testbed::{Error, Result, is_root, sys};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Options that every benchmark has.
#[derive(Debug, Clone)]
pub struct CommonOptions {
    /// `--help`
    pub help: bool,
    /// `--json`
    pub json: bool,
    /// `--rounds`
    pub rounds: u32,
    /// `--seconds`: duration of each traffic in a turn
    pub seconds: Duration,
    /// `--programs`: directory of the measured programs
    pub programs: PathBuf,
}

impl CommonOptions {
    /// Default options. The measured programs are in the directory of this program.
    pub fn new(rounds: u32, seconds: u64) -> Result<Self> {
        let program = std::env::current_exe().map_err(Error::context("this program"))?;
        let programs = program.parent().unwrap_or(Path::new(".")).into();
        Ok(Self { help: false, json: false, rounds, seconds: Duration::from_secs(seconds), programs })
    }

    /// Parses all words. `own` handles an option that is not common, and returns whether it knows the
    /// option.
    pub fn parse_all<W: Iterator<Item = String>>(
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

    /// Parses an option and its value. Returns whether the option is a common one.
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

/// Value of an option.
pub fn value(option: &str, value: Option<String>) -> Result<String> {
    value.ok_or_else(|| Error::new(format!("{option} needs a value")))
}

/// Number from 1 to `most`.
pub fn number(option: &str, word: Option<String>, most: u32) -> Result<u32> {
    let word = value(option, word)?;
    let number = word.parse().ok().filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| Error::new(format!("{option} {word}: expected a number from 1 to {most}")))
}

/// CPUs that a benchmark uses.
pub const CPUS: usize = 2;

/// Benchmark program that connects network namespaces.
pub trait Program: Sized {
    /// Name of the program.
    const NAME: &str;
    /// Text that `--help` prints.
    const HELP: &str;

    /// Parses the command line after the program name.
    fn parse(words: impl Iterator<Item = String>) -> Result<Self>;

    /// Common options.
    fn common(&self) -> &CommonOptions;

    /// Whether the program connects network namespaces. Otherwise it only processes earlier results.
    fn needs_root(&self) -> bool {
        true
    }

    /// Runs the benchmark with a temporary directory. Returns whether all goals are met.
    fn start(&self, directory: &Path) -> Result<bool>;
}

/// Runs a benchmark program.
pub fn run<P: Program>() -> ExitCode {
    match P::parse(std::env::args().skip(1)).and_then(|program| prepare(&program)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{}: {error}", P::NAME);
            ExitCode::FAILURE
        }
    }
}

fn prepare<P: Program>(program: &P) -> Result<bool> {
    if program.common().help {
        print!("{}", P::HELP);
        return Ok(true);
    }
    if program.needs_root() {
        if !is_root() {
            return Err(Error::new("this benchmark needs root, because it connects network namespaces"));
        }
        sys::pin_to_first_cpus(CPUS).map_err(Error::context("CPU affinity"))?;
    }
    let scratch = TempDir::new(P::NAME)?;
    program.start(scratch.path())
}

/// Number of CPUs used, kernel version, and load average.
pub fn describe_machine() -> String {
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default().trim().to_owned();
    let kernel = read("/proc/sys/kernel/osrelease");
    format!("{CPUS} CPUs, Linux {kernel}, load {}", read("/proc/loadavg"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_bounded_and_other_words_go_to_own() {
        let mut common = CommonOptions::new(3, 4).unwrap();
        let mut own = Vec::new();
        let mut take = |line: &str| {
            let words = line.split_whitespace().map(String::from);
            common.parse_all(words, |_, word, _| {
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
