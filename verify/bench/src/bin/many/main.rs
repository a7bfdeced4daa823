//! Ten thousand tunnels between two gateways, compared with one tunnel (`cargo xtask bench many`): the
//! memory of an idle tunnel, and the throughput of all tunnels relative to one tunnel with the same
//! packets.
//!
//! In each round, every provider is measured with one tunnel and with all tunnels ([`run`]), with new
//! namespaces and gateways. Everything runs on two CPUs.

// Developer tool: a failure stops the program where it happens.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod report;
mod run;

use casemate_bench::cli::{self, CommonOptions, Program, number};
use casemate_interop::Result;
use casemate_testbed::gateway::Gateway;
use report::Pair;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run::<Options>()
}

/// Measurements of each provider, by round.
fn rounds(options: &Options, directory: &Path) -> Result<Vec<(&'static str, Vec<Pair>)>> {
    let gateway = Gateway::in_directory(&options.common.programs)?;
    let mut gateways = vec![("aws-lc", gateway.clone().without_ipsec_mb(directory)?)];
    match casemate_ipsec_mb::IPSEC_MB.available() {
        Ok(()) => gateways.push(("ipsec-mb", gateway)),
        Err(absent) => eprintln!("skipped: ipsec-mb: {absent}"),
    }
    let mut all: Vec<(&str, Vec<Pair>)> = gateways.iter().map(|(name, _)| (*name, Vec::new())).collect();
    for round in 1..=options.common.rounds {
        for ((name, gateway), (_, pairs)) in gateways.iter().zip(&mut all) {
            let run = |tunnels: u32| {
                let directory = directory.join(format!("{round}-{name}-{tunnels}"));
                run::run(gateway, (tunnels, options.tunnels), options.common.seconds, &directory)
            };
            let pair = Pair { one: run(1)?, all: run(options.tunnels)?, tunnels: options.tunnels };
            eprintln!("round {round}: {name}: {}", pair.line());
            pairs.push(pair);
        }
    }
    Ok(all)
}

const HELP: &str = "Memory and throughput of ten thousand tunnels, compared with one tunnel.

Usage: many [--json] [--rounds N] [--seconds N] [--tunnels N] [--programs DIR]

  --tunnels N     number of tunnels, at least 2 (default: 10000)
  --rounds N      rounds; each measures every provider with one tunnel and with all (default: 3)
  --seconds N     duration of a measurement (default: 4)
  --programs DIR  directory of `casemate` (default: that of this program)
  --json          print one JSON object
";

/// Limited by the number of addresses.
const MOST: u32 = 60_000;

/// Options of the benchmark.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) common: CommonOptions,
    pub(crate) tunnels: u32,
}

impl Program for Options {
    const NAME: &str = "many";
    const HELP: &str = HELP;

    fn parse(words: impl Iterator<Item = String>) -> Result<Self> {
        let (mut common, mut tunnels) = (CommonOptions::new(3, 4)?, 10_000);
        common.parse_all(words, |_, word, words| {
            let is_known = word == "--tunnels";
            if is_known {
                tunnels = number(word, words.next(), MOST)?.max(2);
            }
            Ok(is_known)
        })?;
        Ok(Self { common, tunnels })
    }

    fn common(&self) -> &CommonOptions {
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
    fn number_of_tunnels_is_bounded() {
        let parse = |line: &str| Options::parse(line.split_whitespace().map(String::from));
        assert_eq!(parse("--tunnels 100 --rounds 1").unwrap().tunnels, 100);
        assert!(parse("--tunnels 60001").is_err() && parse("100").is_err());
    }
}
