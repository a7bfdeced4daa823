//! The program `casemate`, so that tests of this crate can start it.

use std::process::ExitCode;

fn main() -> ExitCode {
    casemate_app::program::main()
}
