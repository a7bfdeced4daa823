//! The program `casemate`, so that tests of this crate can start it.

use clap::Parser;

fn main() {
    if let Err(failure) = casemate_app::dispatch(&casemate_app::cli::Cli::parse()) {
        eprintln!("{failure}");
        std::process::exit(1);
    }
}
