//! Builds the example of adapters/lwip and prints its path: `lwip-example [--memory]`. Called by `cargo
//! xtask lwip --example`.

use casemate_lwip_tests::program::{self, Build, Sanitizer, VERSIONS};
use std::process::ExitCode;

fn main() -> ExitCode {
    let sanitizer = match std::env::args().nth(1).as_deref() {
        None => Sanitizer::None,
        Some("--memory") => Sanitizer::Address,
        Some(other) => {
            eprintln!("lwip-example: unknown argument `{other}`: expected --memory or no argument");
            return ExitCode::FAILURE;
        }
    };
    let Some(version) = VERSIONS.last() else { return ExitCode::FAILURE };
    match program::build(Build { version, is_threaded: false, sanitizer }) {
        Ok(program) => {
            println!("{}", program.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("lwip-example: {error}");
            ExitCode::FAILURE
        }
    }
}
