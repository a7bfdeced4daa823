//! Full load while keys change (`cargo xtask bench soak`): not one packet may be lost to a rekey, and memory may not grow.
//!
//! Two gateways rekey their Child SA every few seconds, both at times of their own, so that they also meet. Packets flow both
//! ways ([`flow`]) as fast as they arrive, so that no queue is ever full.
// A tool for developers: what goes wrong here should stop it, at the line where it happens.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod flow;
mod options;
mod report;
mod watch;

use casemate_bench::scratch::Scratch;
use casemate_bench::sys;
use casemate_interop::{Error, Result, is_root};
use options::Options;
use std::process::ExitCode;

/// CPUs that everything runs on.
const CPUS: usize = 2;

fn main() -> ExitCode {
    match Options::parse(std::env::args().skip(1)).and_then(|options| start(&options)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("soak: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether the goals are held.
fn start(options: &Options) -> Result<bool> {
    if options.common.help {
        print!("{}", options::HELP);
        return Ok(true);
    }
    if !is_root() {
        return Err(Error::new("namespaces that are connected need root"));
    }
    sys::stay_on_cpus(CPUS).map_err(Error::in_front("CPU affinity"))?;
    let scratch = Scratch::new("soak")?;
    let seen = watch::run(options, scratch.path())?;
    Ok(report::show(&seen, options))
}
