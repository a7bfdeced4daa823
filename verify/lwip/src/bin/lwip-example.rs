//! Builds the example of adapters/lwip and prints where it is: `lwip-example [--memory]`. `cargo xtask lwip --example` runs it.

use casemate_lwip_tests::program::{self, Build, VERSIONS, Watch};
use std::process::ExitCode;

fn main() -> ExitCode {
    let watch = match std::env::args().nth(1).as_deref() {
        None => Watch::Nobody,
        Some("--memory") => Watch::Memory,
        Some(other) => {
            eprintln!("lwip-example: `{other}`: expected --memory, or nothing");
            return ExitCode::FAILURE;
        }
    };
    let Some(version) = VERSIONS.last() else { return ExitCode::FAILURE };
    match program::build(Build { version, is_threaded: false, watch }) {
        Ok(program) => {
            println!("{}", program.display());
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("lwip-example: {why}");
            ExitCode::FAILURE
        }
    }
}
