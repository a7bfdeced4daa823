//! Benchmarks: runs verify/bench in release mode.

use crate::failure::Result;
use crate::shell;

pub(crate) const ABOUT: &str = "Measure the data path (verify/bench), in release mode
Nanoseconds a packet for seal and open beside the provider's bare AEAD, look-ups, instruction counts. Arguments go to
the benchmark; FILTER picks rows by name. Wants a quiet machine, and is no part of the tests.";

/// Runs the benchmarks.
pub(crate) fn run(arguments: &[String]) -> Result {
    let fixed = ["run", "--quiet", "--release", "--package", "casemate-bench", "--"];
    shell::run(shell::command(shell::cargo()).args(fixed).args(arguments))
}
