//! User-space tunnels compared with each other (`cargo xtask bench tunnels`): Casemate, other tunnels, and
//! a forwarder without encryption, each between two connected network namespaces.
//!
//! In each round, every subject ([`subjects`]) is measured with new namespaces and processes, so that a
//! machine that slows down affects all of them; ratios are computed within a round. A measurement is a TCP
//! stream, many small packets, and echoes without other traffic ([`measures`]). Everything runs on two
//! CPUs.

// Developer tool: a failure stops the program where it happens.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod figure;
mod measures;
mod report;
mod stored;
mod subjects;

use casemate_bench::cli::{self, CommonOptions, Program, value};
use casemate_interop::{Error, Result};
use casemate_measure::stats::Spread;
use casemate_testbed::Meter;
use casemate_testbed::veth_pair::VethPair;
use measures::{EchoOutcome, SmallOutcome, StreamOutcome};
use report::Report;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use subjects::Subject;

fn main() -> ExitCode {
    cli::run::<Options>()
}

/// Runs the benchmark. Returns whether all measurements succeeded.
fn measure(options: &Options, directory: &Path) -> Result<bool> {
    let (subjects, skipped) = subjects::available(options, directory);
    if subjects.is_empty() {
        return Err(Error::new(format!("nothing to measure; skipped: {}", skipped.join("; "))));
    }
    let turns = rounds(&subjects, options, directory);
    let report = Report::new(&turns, skipped, options.commit.clone());
    if let Some(file) = &options.figure {
        figure::write(&report.to_json(), file)?;
    }
    if options.common.json {
        println!("{}", report.to_json());
    } else {
        report.print();
    }
    Ok(report.failed.is_empty())
}

const HELP: &str = "User-space tunnels compared: Casemate, others, and a forwarder without encryption.

Usage: tunnels [--json] [--svg FILE] [--rounds N] [--seconds N] [--programs DIR] [--peers DIR] [FILTER...]
       tunnels --from RESULTS --svg FILE

  FILTER          measure only subjects whose names contain one of the FILTERs, for example `aes-gcm forwarder`
  --rounds N      rounds; each measures every subject (default: 3)
  --seconds N     duration of the stream and of the small packets, each (default: 4)
  --programs DIR  directory of `casemate` and `forwarder` (default: that of this program)
  --peers DIR     directory of wireguard-go, boringtun and gotatun (default: ../peers/bin of that directory)
  --commit NAME   commit of the measured programs, for the results
  --json          print one JSON object
  --svg FILE      draw the common tunnels side by side
  --from RESULTS  draw earlier results, the output of --json, instead of measuring
";

/// Options of the benchmark.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) common: CommonOptions,
    pub(crate) peers: PathBuf,
    filters: Vec<String>,
    /// `--svg`: file of the figure
    figure: Option<PathBuf>,
    /// `--from`: earlier results to draw
    earlier: Option<PathBuf>,
    /// `--commit`: commit of the measured programs
    commit: Option<String>,
}

impl Program for Options {
    const NAME: &str = "tunnels";
    const HELP: &str = HELP;

    fn parse(words: impl Iterator<Item = String>) -> Result<Self> {
        let mut common = CommonOptions::new(3, 4)?;
        let mut own = Self {
            peers: common.programs.join("../peers/bin"),
            filters: Vec::new(),
            figure: None,
            earlier: None,
            commit: None,
            common: common.clone(),
        };
        common.parse_all(words, |_, word, words| {
            match word {
                "--peers" => own.peers = value(word, words.next())?.into(),
                "--svg" => own.figure = Some(value(word, words.next())?.into()),
                "--from" => own.earlier = Some(value(word, words.next())?.into()),
                "--commit" => own.commit = Some(value(word, words.next())?),
                option if option.starts_with('-') => return Ok(false),
                filter => own.filters.push(filter.to_owned()),
            }
            Ok(true)
        })?;
        if own.earlier.is_some() && own.figure.is_none() {
            return Err(Error::new("--from needs --svg"));
        }
        Ok(Self { common, ..own })
    }

    fn common(&self) -> &CommonOptions {
        &self.common
    }

    fn needs_root(&self) -> bool {
        self.earlier.is_none()
    }

    fn start(&self, directory: &Path) -> Result<bool> {
        match (&self.earlier, &self.figure) {
            (Some(results), Some(file)) => figure::draw_file(results, file).map(|()| true),
            _ => measure(self, directory),
        }
    }
}

impl Options {
    /// Whether the filters select a subject.
    pub(crate) fn selects(&self, name: &str) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|filter| name.contains(filter.as_str()))
    }
}

/// Results of one turn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turn {
    pub(crate) stream: StreamOutcome,
    pub(crate) small: SmallOutcome,
    pub(crate) echo: EchoOutcome,
}

/// Turns of one subject, one per round, until one failed.
pub(crate) struct Turns {
    pub(crate) name: String,
    pub(crate) turns: Vec<Turn>,
    /// Reason why the last turn failed.
    pub(crate) failure: Option<String>,
}

impl Turns {
    /// Spread of a value over the rounds; `None` if no turn succeeded.
    pub(crate) fn spread(&self, of: fn(&Turn) -> f64) -> Option<Spread> {
        Spread::of(self.turns.iter().map(of))
    }
}

/// Measures all subjects, and prints a line about each turn on standard error.
pub(crate) fn rounds(subjects: &[Box<dyn Subject>], options: &Options, directory: &Path) -> Vec<Turns> {
    let names = subjects.iter().map(|subject| subject.name());
    let mut all: Vec<Turns> = names.map(|name| Turns { name, turns: Vec::new(), failure: None }).collect();
    for round in 0..options.common.rounds as usize {
        for step in 0..subjects.len() {
            // Each round starts with another subject.
            let which = (round + step) % subjects.len();
            let turns = &mut all[which];
            if turns.failure.is_some() {
                continue;
            }
            let directory = directory.join(format!("{round}-{}", turns.name));
            match turn(subjects[which].as_ref(), options, &directory) {
                Ok(turn) => {
                    log_turn(round, &turns.name, turn);
                    turns.turns.push(turn);
                }
                Err(error) => {
                    eprintln!("round {}: {}: {error}", round + 1, turns.name);
                    turns.failure = Some(error.to_string());
                }
            }
        }
    }
    all
}

fn log_turn(round: usize, name: &str, turn: Turn) {
    eprintln!(
        "round {}: {name}: {:.2} Gbit/s, {:.0} small packets/s, {:.0} us round trip (p99 {:.0} us)",
        round + 1,
        turn.stream.gbit_per_second,
        turn.small.packets_per_second,
        turn.echo.rtt_us,
        turn.echo.rtt_p99_us
    );
}

fn turn(subject: &dyn Subject, options: &Options, directory: &Path) -> Result<Turn> {
    fs::create_dir_all(directory).map_err(Error::context(directory.display()))?;
    let veth = VethPair::new()?;
    let processes = subject.start(&veth, directory)?;
    veth.wait_until_connected()?;
    let meter = Meter::new(&processes);
    // Echoes come first, while no other traffic has loaded the tunnel.
    let echo = measures::measure_echo(&veth, &meter)?;
    let stream = measures::measure_stream(&veth, &meter, options.common.seconds, directory)?;
    let small = measures::measure_small_packets(&veth, &meter, options.common.seconds)?;
    Ok(Turn { stream, small, echo })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options> {
        Options::parse(line.split_whitespace().map(String::from))
    }

    #[test]
    fn options_and_filters_are_distinguished() {
        let options = parse("--rounds 5 gcm --json boringtun").unwrap();
        assert!(options.common.json && options.common.rounds == 5);
        assert!(options.selects("casemate-aes-gcm") && options.selects("boringtun"));
        assert!(!options.selects("forwarder"));
        assert!(parse("").unwrap().selects("forwarder"));
        assert!(parse("--svg a.svg").unwrap().needs_root());
        assert!(!parse("--from a.json --svg a.svg").unwrap().needs_root());
        for wrong in ["--rounds", "--peers", "--fast", "--svg", "--from a.json"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
