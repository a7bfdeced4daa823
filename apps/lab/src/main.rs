//! The program `casemate-lab`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    casemate_app::main_with(&casemate_lab_app::COMMANDS)
}
