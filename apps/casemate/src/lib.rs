//! The parts of the program `casemate`, so that tests and fuzz targets reach them.
//!
//! [`cli`] is the command line; each command has a module of its own. [`xfrm`] reads manual keys and policies, [`capture`]
//! reads capture files.
#![forbid(unsafe_code)]

pub mod advise;
pub mod calls;
pub mod capture;
pub mod cli;
pub mod command;
pub mod control;
pub mod demo;
pub mod failure;
pub mod ike;
pub mod inspect;
pub mod keyring;
pub mod lab;
pub mod manual;
pub mod output;
pub mod printable;
pub mod program;
pub mod providers;
pub mod run;
pub mod stack;
pub mod status;
pub mod swanctl;
pub mod xfrm;

use cli::{Cli, Command};
use failure::Failure;

/// Does what the command line says.
fn dispatch(cli: &Cli) -> Result<(), Failure> {
    match &cli.command {
        Command::Run(args) => run::run(args),
        Command::Initiate(args) => control::initiate(args),
        Command::Terminate(args) => control::terminate(args),
        Command::Rekey(args) => control::rekey(args),
        Command::Reload => control::reload(),
        Command::Log(args) => control::log(args),
        Command::Status(args) => status::status(args),
        Command::Cleanup(args) => run::cleanup::cleanup(args),
        Command::Stack(args) => stack::stack(args),
        Command::Inspect(args) => inspect::inspect(args),
        Command::Calls(args) => calls::calls(args),
        Command::Advise(args) => advise::advise(args),
        Command::Demo(args) => demo::demo(args),
        Command::Lab(args) => lab::lab(args),
        Command::Completions(args) => manual::completions(args),
        Command::Man(args) => manual::man(args),
    }
}
