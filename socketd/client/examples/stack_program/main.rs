//! The program `casemate`, built here so that `tests/stack` can start it.

use std::process::ExitCode;

fn main() -> ExitCode {
    casemate_app::main()
}
