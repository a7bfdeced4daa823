//! The program from its arguments to its exit status.

use crate::cli::Cli;
use crate::failure::Failure;
use crate::{dispatch, output, run};
use clap::Parser;
use std::process::ExitCode;

/// Does what the arguments of this process say. The program must do nothing else: it starts itself once more as the
/// process that applies nftables scripts.
pub fn main() -> ExitCode {
    output::report_panics();
    if std::env::args_os().skip(1).eq([run::NFT_RUNNER]) {
        return end(run::nft_runner());
    }
    match Cli::try_parse() {
        Ok(cli) => end(dispatch(&cli)),
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
