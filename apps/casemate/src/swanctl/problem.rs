//! What is wrong in a configuration, and where.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How many errors are shown; the rest is only counted.
const SHOWN: usize = 40;

/// A line of a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The file, as it was named: included files by their whole path.
    pub file: Arc<Path>,
    /// The line, counted from 1.
    pub line: usize,
}

impl fmt::Display for Place {
    /// `file:line`, as compilers write it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

/// One error: where, what is wrong, and what was expected. Never a secret.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Problem {
    /// The line that is wrong.
    pub place: Place,
    /// What is wrong and what was expected.
    pub text: String,
}

impl Problem {
    /// An error at `place`.
    pub fn new(place: &Place, text: impl Into<String>) -> Self {
        Self { place: place.clone(), text: text.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.text)
    }
}

/// Why a configuration was not loaded. Nothing of it is applied then.
#[derive(Debug)]
pub enum LoadError {
    /// The first file could not be read.
    Read(PathBuf, io::Error),
    /// It is wrong: every error in it, in the order of files and lines.
    Wrong(Vec<Problem>),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Wrong(problems) => {
                for (n, problem) in problems.iter().take(SHOWN).enumerate() {
                    let end = if n == 0 { "" } else { "\n" };
                    write!(f, "{end}{problem}")?;
                }
                match problems.len().saturating_sub(SHOWN) {
                    0 => Ok(()),
                    more => write!(f, "\nand {more} more errors"),
                }
            }
        }
    }
}

impl std::error::Error for LoadError {}
