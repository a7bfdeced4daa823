//! Errors and warnings of a configuration, with the file and line.

use crate::output;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum number of errors shown; further errors are only counted.
const MAX_SHOWN: usize = 40;

/// A file and a line in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// Path of the file as given; included files have their whole path.
    pub file: Arc<Path>,
    /// Line number, from 1.
    pub line: usize,
}

impl fmt::Display for Location {
    /// `file:line`, as compilers print it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

/// One error or warning: location, cause, and expected value. The text never contains a secret.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Problem {
    /// The line at fault.
    pub location: Location,
    /// Cause and expected value.
    pub text: String,
}

impl Problem {
    /// Makes a problem at `location`.
    pub fn new(location: &Location, text: impl Into<String>) -> Self {
        Self { location: location.clone(), text: text.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.location, self.text)
    }
}

/// Files with certificates and keys, each with the first line that names it.
pub type NamedFiles = BTreeMap<PathBuf, Location>;

/// Errors and warnings so far, sorted by file and line. A problem in an inherited section is reported
/// once.
#[derive(Default)]
pub(super) struct Problems {
    errors: RefCell<BTreeSet<Problem>>,
    /// Values that contradict each other, with the section in which they are compared.
    contradictions: RefCell<Vec<(String, Problem)>>,
    /// Sections with values that could not be read.
    unreadable: RefCell<HashSet<String>>,
    warnings: RefCell<BTreeSet<Problem>>,
    named_files: RefCell<NamedFiles>,
}

impl Problems {
    /// Records an error.
    pub(super) fn error(&self, location: &Location, text: String) {
        self.errors.borrow_mut().insert(Problem::new(location, text));
    }

    /// Records that values in the section `path` contradict each other. This error is left out if a value
    /// could not be read in the section, in one around it or in one inside of it: a default has taken its
    /// place, from which the contradiction may follow.
    pub(super) fn contradiction(&self, path: &str, location: &Location, text: String) {
        self.contradictions.borrow_mut().push((path.to_owned(), Problem::new(location, text)));
    }

    /// Records that a value in the section `path` could not be read.
    pub(super) fn note_unreadable(&self, path: &str) {
        self.unreadable.borrow_mut().insert(path.to_owned());
    }

    /// Records a warning.
    pub(super) fn warn(&self, location: &Location, text: String) {
        self.warnings.borrow_mut().insert(Problem::new(location, text));
    }

    /// Records that a line names a file.
    pub(super) fn note_file(&self, file: &Path, location: &Location) {
        self.named_files.borrow_mut().entry(file.into()).or_insert_with(|| location.clone());
    }

    /// Returns the files that lines name, and empties them.
    pub(super) fn take_files(&self) -> NamedFiles {
        self.named_files.take()
    }

    /// Returns the errors, and empties them.
    pub(super) fn take_errors(&self) -> BTreeSet<Problem> {
        let (mut errors, unreadable) = (self.errors.take(), self.unreadable.take());
        let inside: HashSet<&str> = unreadable.iter().flat_map(|path| with_outer(path)).collect();
        let follows =
            |path: &str| inside.contains(path) || with_outer(path).any(|outer| unreadable.contains(outer));
        let all = self.contradictions.take().into_iter();
        errors.extend(all.filter(|(path, _)| !follows(path)).map(|(_, problem)| problem));
        errors
    }

    /// Returns the warnings, and empties them.
    pub(super) fn take_warnings(&self) -> BTreeSet<Problem> {
        self.warnings.take()
    }
}

/// The path of a section, and those of the sections around it.
fn with_outer(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| path.rsplit_once('.').map(|(outer, _)| outer))
}

/// Why a configuration could not be loaded.
#[derive(Debug)]
pub enum ConfigError {
    /// The main file could not be read.
    Read(PathBuf, io::Error),
    /// The configuration has errors: all of them, in the order of files and lines.
    Invalid(Vec<Problem>),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(path, error) => {
                let path = path.display();
                write!(f, "{path}: {error}: --config FILE in the format of swanctl.conf(5) was expected")
            }
            Self::Invalid(problems) => {
                for (n, problem) in problems.iter().take(MAX_SHOWN).enumerate() {
                    let end = if n == 0 { "" } else { "\n" };
                    write!(f, "{end}{problem}")?;
                }
                match problems.len().saturating_sub(MAX_SHOWN) {
                    0 => Ok(()),
                    more => write!(f, "\nand {}", output::counted(more, "more error", "more errors")),
                }
            }
        }
    }
}

impl std::error::Error for ConfigError {}
