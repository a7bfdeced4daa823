//! Calls and bulk traffic (`cargo xtask bench calls`): delay and loss of 50 calls while more bulk traffic
//! arrives than a gateway can protect, with and without the scheduler.
//!
//! Each round makes either gateway the bottleneck, without and with the scheduler, on a [`testbed`] with
//! new namespaces and gateways. Their configurations differ only in `enabled` in the section `scheduler`.

// Developer tool: a failure stops the program where it happens.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod bulk;
mod report;
mod testbed;
mod voice;

use crate::testbed::{Bottleneck, CallTestbed, Outcome};
use casemate_bench::cli::{self, CommonOptions, Program, value};
use casemate_interop::{Error, Result};
use casemate_testbed::gateway::Gateway;
use casemate_testbed::gateway::IkeTunnel;
use casemate_testbed::sys;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    cli::run::<Options>()
}

/// Measurements of all rounds. The gateway that is the bottleneck has a CPU of its own.
fn rounds(options: &Options, directory: &Path) -> Result<Vec<Sample>> {
    let cpus = sys::allowed_cpus().map_err(Error::context("CPU affinity"))?;
    let &[others, own, ..] = &cpus[..] else {
        return Err(Error::new(
            "the measured gateway needs a CPU of its own, but this process may use only one CPU",
        ));
    };
    sys::pin_to_cpus(&[others]).map_err(Error::context("CPU affinity"))?;
    let gateway = Gateway::in_directory(&options.common.programs)?;
    let rounds = (1..=options.common.rounds)
        .map(|round| measure_round(&gateway, options, [own, others], &directory.join(round.to_string())))
        .collect::<Result<Vec<_>>>()?;
    Ok(rounds.concat())
}

const HELP: &str = "Delay and loss of calls beside bulk traffic, with and without the scheduler.

Usage: calls [--json] [--rounds N] [--seconds N] [--suite WORDS] [--programs DIR]

  --suite WORDS   suite, as in `esp_proposals` (default: 3des-sha1, whose slowness makes the cost of the tools small)
  --rounds N      rounds; each measures everything once (default: 3)
  --seconds N     duration of the calls for each load (default: 5)
  --programs DIR  directory of `casemate` (default: that of this program)
  --json          print one JSON object
";

/// Options of the benchmark.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) common: CommonOptions,
    pub(crate) suite: String,
}

impl Program for Options {
    const NAME: &str = "calls";
    const HELP: &str = HELP;

    fn parse(words: impl Iterator<Item = String>) -> Result<Self> {
        let (mut common, mut suite) = (CommonOptions::new(3, 5)?, "3des-sha1".into());
        common.parse_all(words, |_, word, words| {
            let is_known = word == "--suite";
            if is_known {
                suite = value(word, words.next())?;
            }
            Ok(is_known)
        })?;
        Ok(Self { common, suite })
    }

    fn common(&self) -> &CommonOptions {
        &self.common
    }

    fn start(&self, directory: &Path) -> Result<bool> {
        report::show(&rounds(self, directory)?, self);
        Ok(true)
    }
}

/// Loads, as multiples of the rate that saturates the tunnel.
pub(crate) const LOADS: [u64; 4] = [0, 1, 2, 3];

/// First packet rate of the search for saturation, and the largest number of doublings.
const FIRST: u64 = 4_000;
const DOUBLINGS: u32 = 8;
const SEARCH: Duration = Duration::from_secs(1);
/// The search ends when less than this share of the bulk traffic arrives.
const ENOUGH: f64 = 0.7;

/// Measurement under one load.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub(crate) bottleneck: Bottleneck,
    pub(crate) has_scheduler: bool,
    pub(crate) load: u64,
    /// Largest rate of bulk packets during the search, per second.
    pub(crate) max_rate: f64,
    pub(crate) outcome: Outcome,
}

fn measure_round(
    gateway: &Gateway,
    options: &Options,
    cpus: [usize; 2],
    directory: &Path,
) -> Result<Vec<Sample>> {
    let mut samples = Vec::new();
    for bottleneck in Bottleneck::ALL {
        let mut max_rate = None;
        for has_scheduler in [false, true] {
            let scheduler =
                format!("scheduler {{\n enabled = {}\n}}", if has_scheduler { "yes" } else { "no" });
            // The recorded packets are replays.
            let tunnel = IkeTunnel {
                suite: &options.suite,
                connection: "",
                child: "replay_window = 0",
                scheduler: &scheduler,
            };
            let directory = directory.join(format!("{}-{has_scheduler}", bottleneck.name()));
            let mut testbed = CallTestbed::build(gateway, &tunnel, bottleneck, cpus, &directory)?;
            // Both settings of the scheduler are loaded with multiples of the same rate.
            let max_rate = match max_rate {
                Some(max_rate) => max_rate,
                None => *max_rate.insert(saturation(&mut testbed)?),
            };
            for load in LOADS {
                let outcome = testbed.run(max_rate as u64 * load, options.common.seconds)?;
                let sample = Sample { bottleneck, has_scheduler, load, max_rate, outcome };
                eprintln!("{}", crate::report::line(&sample));
                samples.push(sample);
            }
        }
    }
    Ok(samples)
}

/// Largest rate of bulk packets per second, beside the calls.
fn saturation(testbed: &mut CallTestbed) -> Result<f64> {
    let mut max_rate = 0.0;
    for rate in (0..=DOUBLINGS).map(|times| FIRST << times) {
        let Outcome { offered, bulk, .. } = testbed.run(rate, SEARCH)?;
        max_rate = bulk.max(max_rate);
        if bulk < offered * ENOUGH {
            break;
        }
    }
    Ok(max_rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suite_is_parsed() {
        let parse = |line: &str| Options::parse(line.split_whitespace().map(String::from));
        assert_eq!(parse("--suite aes128-sha1 --rounds 1").unwrap().suite, "aes128-sha1");
        assert!(parse("--suite").is_err() && parse("aes").is_err());
    }
}
