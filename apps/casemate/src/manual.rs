//! `casemate completions` and `casemate man`: what packagers install beside the program.

use crate::cli::{Cli, CompletionsArgs, ManArgs};
use crate::failure::Failure;
use clap::CommandFactory;
use std::io::{self, Write};

/// Prints a completion script.
pub fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "casemate", &mut script);
    io::stdout().write_all(&script).map_err(Failure::failed)
}

/// Writes `casemate.1` and a page for each command.
pub fn man(args: &ManArgs) -> Result<(), Failure> {
    let directory = &args.directory;
    if !directory.is_dir() {
        return Err(Failure::bad_input(format!("{}: a directory was expected", directory.display())));
    }
    clap_mangen::generate_to(Cli::command(), directory)
        .map_err(|error| Failure::failed(format!("{}: {error}", directory.display())))
}
