//! The program `casemate`.
#![forbid(unsafe_code)]

use casemate_app::cli::Cli;
use casemate_app::failure::Failure;
use casemate_app::{output, run};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::args_os().skip(1).eq([run::NFT_RUNNER]) {
        return end(run::nft_runner());
    }
    match Cli::try_parse() {
        Ok(cli) => end(casemate_app::dispatch(&cli)),
        Err(error) => usage(&error),
    }
}

fn end(result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::show_error(&failure);
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
