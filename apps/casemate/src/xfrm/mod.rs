//! Manual keys and policies: a file of `ip xfrm state add ...` and `ip xfrm policy add ...` lines.
//!
//! The same file works with `ip -batch` and `sh` on a Linux kernel. [`XfrmFile::load`] returns either the
//! whole file or all errors in it, so a file is never applied in part. Syntax: ip-xfrm(8) of iproute2;
//! docs/manual/xfrm.md lists the differences. Every command with `--xfrm FILE` uses this module.

mod algorithm;
mod check;
mod cursor;
mod policy;
mod print;
mod selector;
mod state;
#[cfg(test)]
mod tests;
mod words;

use crate::output;
use casemate_sa::{Protocol, SaParams, Selector, Spi};
use casemate_wire::invariant::OrBroken;
use cursor::Cursor;
pub(crate) use cursor::prefix;
pub use policy::{DirectedPolicy, Direction};
pub use print::state_line_with_keys;
pub(crate) use selector::{protocol_name, protocol_number};
pub use state::DEFAULT_REPLAY_WINDOW;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::{fmt, io};
use words::Word;
use zeroize::Zeroizing;

/// The content of one file.
#[derive(Debug, Default)]
pub struct XfrmFile {
    /// The SAs, in the order of the file.
    pub states: Vec<Located<SaParams>>,
    /// The policies, in the order of the file.
    pub policies: Vec<Located<DirectedPolicy>>,
    /// Warnings, in the order of the lines.
    pub warnings: Vec<LineProblem>,
}

/// A value and its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located<T> {
    /// Line of the first word of the command, from 1.
    pub line: usize,
    /// The value.
    pub value: T,
}

impl XfrmFile {
    /// Reads the file at `path`.
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        let expected = "--xfrm FILE with lines of ip-xfrm(8)";
        let text = std::fs::read(path).map_err(|error| LoadError::Read(path.to_owned(), error, expected))?;
        let text = Zeroizing::new(text);
        Self::parse(&text).map_err(|problems| LoadError::Invalid(path.to_owned(), problems))
    }

    /// Parses the text of a file. The error lists every problem in it.
    pub fn parse(text: &[u8]) -> Result<Self, Vec<LineProblem>> {
        let mut builder = XfrmBuilder::default();
        for command in words::split(text, &mut builder.problems) {
            if let Err(problem) = builder.command(&command) {
                builder.problems.push(problem);
            }
        }
        if builder.problems.is_empty() {
            check::warn(&mut builder.file);
            builder.file.warnings.sort_by_key(|warning| warning.line);
            Ok(builder.file)
        } else {
            builder.problems.sort_by_key(|problem| problem.line);
            Err(builder.problems)
        }
    }

    /// The warnings as `file:line: text`, for the file at `path`.
    pub fn warnings_at(&self, path: &Path) -> impl Iterator<Item = String> {
        self.warnings.iter().map(|warning| problem_at(path, warning))
    }
}

/// The key of an SA (RFC 4301 section 4.1).
#[derive(PartialEq, Eq, Hash)]
struct StateKey {
    dst: IpAddr,
    spi: Spi,
    protocol: Protocol,
}

/// The file so far, and the lines of its entries.
#[derive(Default)]
struct XfrmBuilder {
    file: XfrmFile,
    problems: Vec<LineProblem>,
    states: HashMap<StateKey, usize>,
    policies: HashMap<(Direction, Selector), usize>,
}

/// Whether a command adds or replaces an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Add,
    Update,
}

impl XfrmBuilder {
    fn command(&mut self, words: &[Word<'_>]) -> Result<(), LineProblem> {
        let mut cursor = Cursor::new(words);
        take_program(&mut cursor)?;
        let object = cursor.value("state or policy")?;
        let is_state = abbreviates(object, "state") || object == "sa";
        if !is_state && !abbreviates(object, "policy") {
            return Err(cursor.unexpected("state or policy"));
        }
        let verb = cursor.value("add or update")?;
        let change = match verb {
            _ if abbreviates(verb, "add") => Change::Add,
            _ if abbreviates(verb, "update") => Change::Update,
            _ if abbreviates(verb, "flush") || matches!(verb, "deleteall" | "delall") => {
                return self.flush(&cursor);
            }
            _ => return Err(cursor.unexpected("add or update")),
        };
        let line = words.first().map_or(1, |word| word.line);
        if is_state {
            let value = state::take_state(&mut cursor, &mut self.file.warnings)?;
            self.state(change, Located { line, value })
        } else {
            let value = policy::take_policy(&mut cursor, &mut self.file.warnings)?;
            self.policy(change, Located { line, value })
        }
    }

    /// Accepts `flush` at the start of a file, where scripts often have it. Casemate starts empty, so
    /// there is nothing to flush.
    fn flush(&self, cursor: &Cursor<'_>) -> Result<(), LineProblem> {
        if self.file.states.is_empty() && self.file.policies.is_empty() {
            return Ok(());
        }
        Err(cursor.problem(format!("`{}`: expected only before the first state and policy", cursor.last())))
    }

    fn state(&mut self, change: Change, state: Located<SaParams>) -> Result<(), LineProblem> {
        let sa = &state.value;
        let (dst, spi, protocol) = (sa.dst, sa.spi, sa.transform.protocol());
        let name = format!("dst {dst} proto {protocol} spi {spi}");
        match (self.states.entry(StateKey { dst, spi, protocol }), change) {
            (Entry::Vacant(free), Change::Add) => {
                free.insert(self.file.states.len());
                self.file.states.push(state);
            }
            (Entry::Occupied(held), Change::Update) => replace(&mut self.file.states, *held.get(), state),
            (Entry::Vacant(_), Change::Update) => {
                return Err(LineProblem::new(
                    state.line,
                    format!("there is no state with {name} yet: `state add` was expected"),
                ));
            }
            (Entry::Occupied(held), Change::Add) => {
                let first = line_of(&self.file.states, *held.get());
                return Err(LineProblem::new(
                    state.line,
                    format!(
                        "line {first} has a state with {name} already: another spi, or `state update`, was \
                         expected"
                    ),
                ));
            }
        }
        Ok(())
    }

    fn policy(&mut self, change: Change, policy: Located<DirectedPolicy>) -> Result<(), LineProblem> {
        let key = (policy.value.direction, policy.value.policy.selector);
        match (self.policies.entry(key), change) {
            (Entry::Vacant(free), _) => {
                free.insert(self.file.policies.len());
                self.file.policies.push(policy);
            }
            (Entry::Occupied(held), Change::Update) => replace(&mut self.file.policies, *held.get(), policy),
            (Entry::Occupied(held), Change::Add) => {
                let first = line_of(&self.file.policies, *held.get());
                return Err(LineProblem::new(
                    policy.line,
                    format!(
                        "line {first} has a policy for the same packets and direction already: another \
                         selector, or `policy update`, was expected"
                    ),
                ));
            }
        }
        Ok(())
    }
}

/// Indices of entries are noted when the entries are added, and entries are never removed.
const KNOWN: &str = "the index is that of an entry";

fn replace<T>(list: &mut [Located<T>], index: usize, value: Located<T>) {
    if let Some(slot) = list.get_mut(index).or_report(KNOWN) {
        *slot = value;
    }
}

fn line_of<T>(list: &[Located<T>], index: usize) -> usize {
    list.get(index).map(|located| located.line).or_broken(KNOWN, 0)
}

/// Takes `[ ip [ -4 | -6 ] ] xfrm`.
fn take_program(cursor: &mut Cursor<'_>) -> Result<(), LineProblem> {
    let mut word = cursor.take().unwrap_or_default();
    if word == "ip" || word.ends_with("/ip") {
        word = cursor.value("xfrm")?;
        while matches!(word, "-4" | "-6") {
            word = cursor.value("xfrm")?;
        }
    }
    if abbreviates(word, "xfrm") {
        return Ok(());
    }
    Err(cursor.problem(format!(
        "{} is not a command: `ip xfrm state add ...` or `ip xfrm policy add ...` was expected",
        cursor.shown()
    )))
}

/// Whether `word` abbreviates `whole`, as iproute2 allows.
fn abbreviates(word: &str, whole: &str) -> bool {
    !word.is_empty() && whole.starts_with(word)
}

/// Maximum number of errors shown; further errors are only counted.
const MAX_SHOWN: usize = 20;

/// An error or a warning about one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineProblem {
    /// Line of the word at fault, from 1.
    pub line: usize,
    /// Cause and expected value.
    pub text: String,
}

impl LineProblem {
    /// Makes a problem at `line`.
    pub fn new(line: usize, text: impl Into<String>) -> Self {
        Self { line, text: text.into() }
    }
}

/// Why a file could not be loaded.
#[derive(Debug)]
pub enum LoadError {
    /// The file could not be read, and what was expected instead.
    Read(PathBuf, io::Error, &'static str),
    /// The file has errors: all of them, in the order of the lines.
    Invalid(PathBuf, Vec<LineProblem>),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(path, error, expected) => {
                write!(f, "{}: {error}: {expected} was expected", path.display())
            }
            Self::Invalid(path, problems) => {
                let shown = problems.iter().take(MAX_SHOWN);
                for (n, problem) in shown.enumerate() {
                    let end = if n == 0 { "" } else { "\n" };
                    write!(f, "{end}{}", problem_at(path, problem))?;
                }
                match problems.len().saturating_sub(MAX_SHOWN) {
                    0 => Ok(()),
                    more => {
                        let more = output::counted(more, "more error", "more errors");
                        write!(f, "\n{}: and {more}", path.display())
                    }
                }
            }
        }
    }
}

impl std::error::Error for LoadError {}

/// `file:line: text`, as compilers print it.
pub(crate) fn problem_at(path: &Path, problem: &LineProblem) -> String {
    format!("{}:{}: {}", path.display(), problem.line, problem.text)
}
