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

use casemate_bench::program;
use options::Options;
use std::process::ExitCode;

fn main() -> ExitCode {
    program::run::<Options>()
}
