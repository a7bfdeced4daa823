//! The program `casemate`, built here so that the tests of this crate can start it.

use std::process::ExitCode;

fn main() -> ExitCode {
    casemate_app::main()
}
