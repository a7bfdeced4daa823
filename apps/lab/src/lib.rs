//! The commands `lab` and `advise` of the program `casemate`.
//!
//! `casemate` runs the program of this crate, `casemate-lab`, for these two commands, and for completions
//! and manual pages that contain them. `casemate-lab` takes the whole command line of `casemate`, because
//! experiments start it as a gateway or a stack (docs/decisions/0066-build-profiles.md).
#![forbid(unsafe_code)]
#![deny(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "these macros panic if the output is full or closed"
)]

pub mod advise;
pub mod lab;

use advise::AdviseArgs;
use casemate_app::lab_program::AddedCommand;
use lab::args::LabArgs;

/// The commands that this crate adds to those of `casemate`.
pub const COMMANDS: [AddedCommand; 2] =
    [AddedCommand::new::<AdviseArgs>("advise"), AddedCommand::new::<LabArgs>("lab")];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_definition_is_valid() {
        casemate_app::cli::command(&COMMANDS).debug_assert();
    }

    #[test]
    fn help_contains_examples() {
        let mut command = casemate_app::cli::command(&COMMANDS);
        for added in &COMMANDS {
            let name = added.name();
            let help = command.find_subcommand_mut(name).unwrap().render_help().to_string();
            assert!(help.contains(&format!("Examples:\n  casemate {name}")), "{help}");
        }
    }
}
