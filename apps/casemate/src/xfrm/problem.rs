//! What is wrong in a file of `ip xfrm` lines, and where.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// How many errors of one file are shown; the rest is only counted.
const SHOWN: usize = 20;

/// One remark about one line: an error, or a warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Line of the offending word, counted from 1.
    pub line: usize,
    /// What is wrong and what was expected.
    pub text: String,
}

impl Problem {
    /// A remark about `line`.
    pub fn new(line: usize, text: impl Into<String>) -> Self {
        Self { line, text: text.into() }
    }
}

/// Why a file was not loaded. Nothing of it is applied then.
#[derive(Debug)]
pub enum LoadError {
    /// It could not be read.
    Read(PathBuf, io::Error),
    /// It is wrong: every error in it, in the order of the lines.
    Wrong(PathBuf, Vec<Problem>),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Wrong(path, problems) => {
                let shown = problems.iter().take(SHOWN);
                for (n, problem) in shown.enumerate() {
                    let end = if n == 0 { "" } else { "\n" };
                    write!(f, "{end}{}", at(path, problem))?;
                }
                match problems.len().saturating_sub(SHOWN) {
                    0 => Ok(()),
                    more => write!(f, "\n{}: and {more} more errors", path.display()),
                }
            }
        }
    }
}

impl std::error::Error for LoadError {}

/// `file:line: text`, as compilers write it.
pub(crate) fn at(path: &Path, problem: &Problem) -> String {
    format!("{}:{}: {}", path.display(), problem.line, problem.text)
}
