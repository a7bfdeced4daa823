//! Benchmarks of providers, data path and look-ups. Run by `cargo xtask bench`.
//!
//! What is compared is measured in one run, in turns of a fraction of a millisecond ([`casemate_measure::harness`]), so that a machine that
//! slows down slows all of it down. Times are medians; a difference is the median of the differences within each turn.
#![forbid(unsafe_code)]
// A tool for developers: what goes wrong here should stop it, at the line where it happens.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod arguments;
mod bare;
mod cores;
mod crew;
mod esp;
mod instructions;
mod lookup;
mod report;
mod suites;
mod tunnel;
mod world;

use arguments::Arguments;
use report::Report;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(usage) => {
            eprintln!("{usage}");
            return ExitCode::from(2);
        }
    };
    if let Some((row, label)) = &arguments.spin {
        return if instructions::spin(row, label) { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let mut report = Report::new(&arguments);
    esp::run(&mut report);
    cores::run(&mut report);
    lookup::run(&mut report);
    instructions::run(&mut report);
    report.finish()
}
