//! The driver: builds the engine, starts it for each target, and says what it found. `cargo xtask fuzz` runs it.
// The program of a test: its errors are for people, and end it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod driver;

use driver::options::{Command, HELP};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = Command::parse(&arguments).and_then(|command| match command {
        Command::Help => {
            print!("{HELP}");
            Ok(())
        }
        Command::List => {
            for target in casemate_fuzz::TARGETS {
                println!("{:<12} {}", target.name, target.about);
            }
            Ok(())
        }
        Command::Replay { target, input } => {
            (target.run)(&input);
            println!("{} keeps its promises with these {} bytes", target.name, input.len());
            Ok(())
        }
        Command::Fuzz(campaign) => driver::campaign::run(&campaign),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("casemate-fuzz: {why}");
            ExitCode::FAILURE
        }
    }
}
