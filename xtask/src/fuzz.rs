//! Fuzzing: runs the driver of verify/fuzz, which holds a target for every parser and for inbound as a whole.

use crate::failure::Result;
use crate::programs::Programs;
use crate::{packages, shell};

pub(crate) const ABOUT: &str = "Fuzz the parsers, the data path and the program's files (verify/fuzz)
All targets, or those named, for 60 s each; with --smoke for seconds, as in CI. Needs a C++ compiler for libFuzzer.
--seconds N gives each target another time, --list shows the targets, --replay TARGET INPUT runs a single input, given as
hexadecimal or as a file. --built, as the first option, builds nothing.";

/// Runs the driver.
pub(crate) fn run(arguments: &[String]) -> Result {
    // The development profile: a smoke run takes what the tests have built already.
    let (programs, arguments) = Programs::of(arguments);
    let driver = programs.of_packages(&["casemate-fuzz"])?.join("casemate-fuzz");
    shell::run(shell::command(driver).args(arguments))
}

/// Why nothing can be fuzzed here, if so.
pub(crate) fn unavailable() -> Option<&'static str> {
    (!packages::has_compiler()).then_some("there is no C++ compiler (Debian package g++) for libFuzzer")
}
