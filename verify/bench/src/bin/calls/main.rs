//! Calls beside bulk (`cargo xtask bench calls`): what becomes of 50 calls when more bulk comes than a gateway is able to
//! protect, with and without the scheduler.
//!
//! In each round ([`turn`]) either gateway is the bottleneck once without and once with the scheduler, on a [`stage`] with fresh
//! namespaces and gateways. Their configurations differ in nothing but `enabled` in the section `scheduler`.
// A tool for developers: what goes wrong here should stop it, at the line where it happens.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod bulk;
mod options;
mod report;
mod stage;
mod turn;
mod voice;

use casemate_bench::program;
use casemate_interop::{Error, Result};
use casemate_stage::gateway::Gateway;
use casemate_stage::sys;
use options::Options;
use std::path::Path;
use std::process::ExitCode;
use turn::Sample;

fn main() -> ExitCode {
    program::run::<Options>()
}

/// What was measured in all rounds. The gateway that is the bottleneck has a CPU for itself.
fn rounds(options: &Options, directory: &Path) -> Result<Vec<Sample>> {
    let cpus = sys::allowed_cpus().map_err(Error::in_front("CPU affinity"))?;
    let &[others, own, ..] = &cpus[..] else {
        return Err(Error::new("the gateway that is measured needs a CPU for itself: two were expected"));
    };
    sys::stay_on(&[others]).map_err(Error::in_front("CPU affinity"))?;
    let gateway = Gateway::in_directory(&options.common.programs)?;
    let rounds = (1..=options.common.rounds)
        .map(|round| turn::round(&gateway, options, [own, others], &directory.join(round.to_string())))
        .collect::<Result<Vec<_>>>()?;
    Ok(rounds.concat())
}
