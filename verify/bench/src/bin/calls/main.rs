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

use casemate_bench::gateway::Gateway;
use casemate_bench::scratch::Scratch;
use casemate_bench::sys;
use casemate_interop::{Error, Result, is_root};
use options::Options;
use std::process::ExitCode;

fn main() -> ExitCode {
    match Options::parse(std::env::args().skip(1)).and_then(|options| start(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("calls: {error}");
            ExitCode::FAILURE
        }
    }
}

fn start(options: &Options) -> Result<()> {
    if options.common.help {
        print!("{}", options::HELP);
        return Ok(());
    }
    if !is_root() {
        return Err(Error::new("namespaces that are connected need root"));
    }
    let cpus = sys::allowed_cpus().map_err(Error::in_front("CPU affinity"))?;
    let &[others, own, ..] = &cpus[..] else {
        return Err(Error::new("the gateway that is measured needs a CPU for itself: two were expected"));
    };
    sys::stay_on(&[others]).map_err(Error::in_front("CPU affinity"))?;
    let scratch = Scratch::new("calls")?;
    let gateway = Gateway::in_directory(&options.common.programs)?;
    let rounds = (1..=options.common.rounds)
        .map(|round| turn::round(&gateway, options, [own, others], &scratch.path().join(round.to_string())))
        .collect::<Result<Vec<_>>>()?;
    report::show(&rounds.concat(), options);
    Ok(())
}
