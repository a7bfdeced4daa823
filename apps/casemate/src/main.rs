//! The program `casemate`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    casemate_app::main()
}
