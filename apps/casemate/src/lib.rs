//! The program `casemate` as a library, for tests, fuzz targets and other programs.
//!
//! [`cli`] is the command line; each command has its own module with its arguments. [`swanctl`] reads
//! configurations, [`xfrm`] manual keys and policies, [`capture`] capture files.
#![forbid(unsafe_code)]
#![deny(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "these macros panic if the output is full or closed"
)]

pub mod calls;
pub mod capture;
pub mod cell;
pub mod cli;
pub mod command;
pub mod config_source;
pub mod control;
pub mod demo;
pub mod failure;
mod history;
pub mod import;
pub mod inspect;
pub mod keyring;
pub mod lab_program;
pub mod log;
pub mod metrics;
pub mod output;
pub mod printable;
pub mod providers;
mod radius;
pub mod revocation;
pub mod run;
mod sequence_numbers;
pub mod stack;
pub mod status;
pub mod swanctl;
mod tokens;
pub mod trace;
pub mod updown;
pub mod vici;
pub mod why;
pub mod xfrm;

use clap::{ArgMatches, FromArgMatches};
use cli::{Cli, Command};
use failure::Failure;
use lab_program::AddedCommand;
use std::process::ExitCode;

/// Runs the command.
fn dispatch(cli: &Cli, added: &[AddedCommand]) -> Result<(), Failure> {
    match &cli.command {
        Command::Run(args) => run::run(args),
        Command::Initiate(args) => control::initiate(args),
        Command::Terminate(args) => control::terminate(args),
        Command::Rekey(args) => control::rekey(args),
        Command::Redirect(args) => control::redirect(args),
        Command::Reload => control::reload(),
        Command::Log(args) => control::log(args),
        Command::Why(args) => why::why(args),
        Command::Trace(args) => trace::trace(args),
        Command::Status(args) => status::status(args),
        Command::Cell(args) => cell::cell(args),
        Command::Cleanup(args) => run::cleanup(args),
        Command::Stack(args) => stack::stack(args),
        Command::Inspect(args) => inspect::inspect(args),
        Command::Import(args) => import::import(args),
        Command::Calls(args) => calls::calls(args),
        Command::Demo(args) => demo::demo(args),
        Command::Advise(_) | Command::Lab(_) => lab_program::run(),
        Command::Completions(args) => cli::completions(args, added),
        Command::Man(args) => cli::man(args, added),
    }
}

/// Runs the program `casemate` with the arguments of this process. A program with this `main` must do nothing
/// else: it starts itself again as the processes that apply nftables scripts, change name servers, and run
/// updown scripts.
pub fn main() -> ExitCode {
    main_with(&[])
}

/// Like [`main`], with the commands that the program adds.
pub fn main_with(added: &[AddedCommand]) -> ExitCode {
    output::report_panics();
    if std::env::args_os().skip(1).eq([run::NFT_RUNNER]) {
        return end(run::nft_runner());
    }
    if std::env::args_os().skip(1).eq([run::DNS_RUNNER]) {
        return end(run::dns_runner());
    }
    if std::env::args_os().nth(1).is_some_and(|first| first == updown::RUNNER) {
        return end(updown::run_scripts());
    }
    if added.is_empty() && lab_program::has_help_request(std::env::args_os().skip(1)) {
        return end(lab_program::run());
    }
    let parsed = cli::command(added).try_get_matches().and_then(|matches| run_matches(&matches, added));
    match parsed {
        Ok(result) => end(result),
        Err(error) if error.use_stderr() => wrong_arguments(&error),
        // Help and version.
        Err(text) => end(output::print(&text.render().to_string())),
    }
}

/// Runs the command that the arguments name. The outer error is one of the arguments.
fn run_matches(matches: &ArgMatches, added: &[AddedCommand]) -> Result<Result<(), Failure>, clap::Error> {
    if let Some((name, arguments)) = matches.subcommand()
        && let Some(command) = added.iter().find(|command| command.name() == name)
    {
        return command.run(arguments);
    }
    Ok(dispatch(&Cli::from_arg_matches(matches)?, added))
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

fn wrong_arguments(error: &clap::Error) -> ExitCode {
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    output::show_error(&format_args!("casemate: {}", text.trim_end()));
    ExitCode::from(2)
}
