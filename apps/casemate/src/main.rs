//! The program `casemate`.
#![forbid(unsafe_code)]

use casemate_app::cli::Cli;
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    match casemate_app::dispatch(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            failure.exit_code()
        }
    }
}

/// Help and version on standard output; what is wrong with the arguments on standard error.
fn usage(error: &clap::Error) -> ExitCode {
    let text = error.render().to_string();
    if error.use_stderr() {
        eprint!("casemate: {}", text.strip_prefix("error: ").unwrap_or(&text));
        return ExitCode::from(2);
    }
    print!("{text}");
    ExitCode::SUCCESS
}
