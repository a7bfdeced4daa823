//! The program `casemate-lab`, which stands beside `casemate` and runs the commands `lab` and `advise`.
//!
//! It takes the same command line: its `main` is [`main_with`](crate::main_with) with an [`AddedCommand`]
//! for each of the two. `casemate` knows their names only, and executes it.

use crate::failure::Failure;
use clap::{ArgMatches, Args};
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// Name of the program's file.
const NAME: &str = "casemate-lab";

/// The commands that it runs.
const COMMANDS: [&str; 2] = ["lab", "advise"];

/// Arguments of a command that the program runs, which checks them.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct LabProgramArgs {
    /// Arguments of the command.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    pub arguments: Vec<OsString>,
}

/// Path of the program, which is in the directory of this program.
fn path() -> io::Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name(NAME))
}

/// Replaces this process by the program, with the arguments of this process. Returns only if that fails.
pub(crate) fn run() -> Result<(), Failure> {
    let path = path().map_err(Failure::failed)?;
    let error = Command::new(&path).args(std::env::args_os().skip(1)).exec();
    Err(match error.kind() {
        io::ErrorKind::NotFound => Failure::failed(format!(
            "{}: not installed: `casemate lab` and `casemate advise` run the program {NAME}, which must be \
             in the directory of `casemate`\n\
             `cargo build --release -p casemate-lab-app` in Casemate's sources builds \
             target/release/{NAME}: copy it to {}",
            path.display(),
            path.parent().unwrap_or(&path).display()
        )),
        _ => Failure::failed(format!("{}: {error}", path.display())),
    })
}

/// Whether the program exists, and this program is another one.
pub(crate) fn exists() -> bool {
    path().is_ok_and(|path| path.is_file() && std::env::current_exe().is_ok_and(|own| own != path))
}

/// Whether the arguments are those of `casemate help` for a command of the program, if it exists.
pub(crate) fn has_help_request(args: impl Iterator<Item = OsString>) -> bool {
    let args: Vec<OsString> = args.collect();
    matches!(&*args, [help, command, ..] if help == "help" && COMMANDS.iter().any(|name| command == name))
        && exists()
}

/// A command whose arguments and implementation a program adds. It replaces the command of the same name.
pub struct AddedCommand {
    name: &'static str,
    define: fn(clap::Command) -> clap::Command,
    run: fn(&ArgMatches) -> Result<Result<(), Failure>, clap::Error>,
}

impl AddedCommand {
    /// A command with the arguments `A`, which implements itself.
    pub const fn new<A: RunnableArgs>(name: &'static str) -> Self {
        Self {
            name,
            define: |command| A::augment_args(command),
            run: |matches| Ok(A::from_arg_matches(matches)?.run()),
        }
    }

    /// Name on the command line.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The command with its arguments.
    pub(crate) fn definition(&self) -> clap::Command {
        (self.define)(clap::Command::new(self.name))
    }

    /// Runs the command with these arguments. The outer error is one of the arguments.
    pub(crate) fn run(&self, arguments: &ArgMatches) -> Result<Result<(), Failure>, clap::Error> {
        (self.run)(arguments)
    }
}

/// Arguments of a command that can be added.
pub trait RunnableArgs: Args {
    /// Runs the command.
    fn run(&self) -> Result<(), Failure>;
}
