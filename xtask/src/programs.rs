//! The programs that a task runs: built for it, or as they are.
//!
//! Cargo settles the features of dependencies for the packages that it is to build, so programs that are built alone are others than those of
//! the whole workspace, and much is compiled again for each choice of packages. `cargo xtask test` builds the workspace once.

use crate::failure::Result;
use crate::{metadata, shell};
use std::path::PathBuf;

/// The option that says that nothing is to be built.
pub(crate) const BUILT: &str = "--built";

/// Where programs come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Programs {
    /// They are built when they are wanted.
    Wanted,
    /// They are there: the whole workspace was built.
    There,
}

impl Programs {
    /// What a task's arguments say, and the rest of them.
    pub(crate) fn of(arguments: &[String]) -> (Self, &[String]) {
        match arguments.split_first() {
            Some((first, rest)) if first == BUILT => (Self::There, rest),
            _ => (Self::Wanted, arguments),
        }
    }

    /// Builds the programs of these packages, unless they are there, and answers the directory that they are in.
    pub(crate) fn of_packages(self, packages: &[&str]) -> Result<PathBuf> {
        if self == Self::Wanted {
            let mut arguments = vec!["build", "--locked", "--bins"];
            arguments.extend(packages.iter().flat_map(|package| ["--package", package]));
            shell::run_cargo(&arguments)?;
        }
        Ok(metadata::target_directory()?.join("debug"))
    }
}

/// Builds all programs and all tests.
pub(crate) fn build_all() -> Result {
    shell::run_cargo(&["build", "--workspace", "--all-targets", "--locked"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_argument_says_whether_they_are_there() {
        let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
        let given = words(&[BUILT, "rekey"]);
        assert_eq!(Programs::of(&given), (Programs::There, &given[1..]));
        let given = words(&["rekey", BUILT]);
        assert_eq!(Programs::of(&given), (Programs::Wanted, &given[..]));
        assert_eq!(Programs::of(&[]), (Programs::Wanted, &[][..]));
    }
}
