//! Tunnels in user space, side by side (`cargo xtask bench tunnels`): Casemate, other tunnels, and a forwarder without a
//! cipher, each between two network namespaces with a link between them.
//!
//! In each round every subject ([`subjects`]) has a turn with fresh namespaces and processes, so that a machine that slows
//! down slows all of them down; ratios are taken within a round. A turn is a TCP stream, many small packets, and echoes
//! while nothing else flows ([`measures`]). Everything runs on two CPUs.
// A tool for developers: what goes wrong here should stop it, at the line where it happens.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod goals;
mod measures;
mod options;
mod report;
mod subjects;
mod turn;

use casemate_bench::program;
use casemate_interop::{Error, Result};
use options::Options;
use report::Report;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    program::run::<Options>()
}

/// Whether every turn went well.
fn measure(options: &Options, directory: &Path) -> Result<bool> {
    let (subjects, left_out) = subjects::present(options, directory);
    if subjects.is_empty() {
        return Err(Error::new(format!("nothing to measure; left out: {}", left_out.join("; "))));
    }
    let turns = turn::rounds(&subjects, options, directory);
    let report = Report::new(&turns, left_out);
    if options.common.json {
        println!("{}", report.to_json());
    } else {
        report.print();
    }
    Ok(report.failed.is_empty())
}
