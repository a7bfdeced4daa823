//! Manual keys and policies: a file of `ip xfrm state add ...` and `ip xfrm policy add ...` lines.
//!
//! The very same file serves `ip -batch` and `sh` on a Linux kernel. [`XfrmFile::load`] gives all of it or every error in
//! it, so nothing is ever applied by halves. Syntax: ip-xfrm(8) of iproute2; what differs is in docs/manual/xfrm.md.
//! Called by every command that takes `--xfrm FILE`.

mod algorithm;
mod check;
mod cursor;
mod limit;
mod policy;
mod print;
mod problem;
mod selector;
mod state;
#[cfg(test)]
mod tests;
mod words;

pub use policy::{DirectedPolicy, Direction};
pub use print::state_line_with_keys;
pub(crate) use problem::at as problem_at;
pub use problem::{LoadError, Problem};
pub use state::DEFAULT_REPLAY_WINDOW;

use casemate_sa::{Protocol, SaParams, Selector, Spi};
use cursor::Cursor;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::path::Path;
use words::Word;
use zeroize::Zeroizing;

/// Everything that one file says.
#[derive(Debug, Default)]
pub struct XfrmFile {
    /// The SAs, in the order of the file.
    pub states: Vec<Located<SaParams>>,
    /// The policies, in the order of the file.
    pub policies: Vec<Located<DirectedPolicy>>,
    /// What is odd but no error, in the order of the lines.
    pub warnings: Vec<Problem>,
}

/// A value and the line it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located<T> {
    /// Line of its command's first word, counted from 1.
    pub line: usize,
    /// The value.
    pub value: T,
}

impl XfrmFile {
    /// Reads the file at `path`.
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        let text = std::fs::read(path).map_err(|error| LoadError::Read(path.to_owned(), error))?;
        let text = Zeroizing::new(text);
        Self::parse(&text).map_err(|problems| LoadError::Wrong(path.to_owned(), problems))
    }

    /// Reads the text of a file; else gives every error in it.
    pub fn parse(text: &[u8]) -> Result<Self, Vec<Problem>> {
        let mut loader = Loader::default();
        for command in words::split(text, &mut loader.problems) {
            if let Err(problem) = loader.command(&command) {
                loader.problems.push(problem);
            }
        }
        if loader.problems.is_empty() {
            check::warn(&mut loader.file);
            loader.file.warnings.sort_by_key(|warning| warning.line);
            Ok(loader.file)
        } else {
            loader.problems.sort_by_key(|problem| problem.line);
            Err(loader.problems)
        }
    }

    /// The warnings as `file:line: text`.
    pub fn warnings_at(&self, path: &Path) -> impl Iterator<Item = String> {
        self.warnings.iter().map(|warning| problem::at(path, warning))
    }
}

/// What names an SA: destination, SPI and protocol (RFC 4301 section 4.1).
type StateKey = (IpAddr, Spi, Protocol);

#[derive(Default)]
struct Loader {
    file: XfrmFile,
    problems: Vec<Problem>,
    states: HashMap<StateKey, usize>,
    policies: HashMap<(Direction, Selector), usize>,
}

/// What a command does to an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Add,
    Update,
}

impl Loader {
    fn command(&mut self, words: &[Word<'_>]) -> Result<(), Problem> {
        let mut cursor = Cursor::new(words);
        take_program(&mut cursor)?;
        let object = cursor.value("state or policy")?;
        let is_state = abbreviates(object, "state") || object == "sa";
        if !is_state && !abbreviates(object, "policy") {
            return Err(cursor.bad("state or policy"));
        }
        let verb = cursor.value("add or update")?;
        let change = match verb {
            _ if abbreviates(verb, "add") => Change::Add,
            _ if abbreviates(verb, "update") => Change::Update,
            _ if abbreviates(verb, "flush") || matches!(verb, "deleteall" | "delall") => {
                return self.flush(&cursor);
            }
            _ => return Err(cursor.bad("add or update")),
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

    /// Scripts often begin with a flush. Casemate starts empty, so there it has nothing to do.
    fn flush(&self, cursor: &Cursor<'_>) -> Result<(), Problem> {
        if self.file.states.is_empty() && self.file.policies.is_empty() {
            return Ok(());
        }
        Err(cursor.wrong(format!("`{}`: expected only before the first state and policy", cursor.last())))
    }

    fn state(&mut self, change: Change, state: Located<SaParams>) -> Result<(), Problem> {
        let sa = &state.value;
        let key = (sa.dst, sa.spi, sa.transform.protocol());
        let name = format!("dst {} proto {} spi {}", key.0, key.2, key.1);
        match (self.states.entry(key), change) {
            (Entry::Vacant(free), Change::Add) => {
                free.insert(self.file.states.len());
                self.file.states.push(state);
            }
            (Entry::Occupied(held), Change::Update) => replace(&mut self.file.states, *held.get(), state),
            (Entry::Vacant(_), Change::Update) => {
                return Err(Problem::new(
                    state.line,
                    format!("there is no state with {name} yet: `state add` was expected"),
                ));
            }
            (Entry::Occupied(held), Change::Add) => {
                let first = line_of(&self.file.states, *held.get());
                return Err(Problem::new(
                    state.line,
                    format!(
                        "line {first} has a state with {name} already: another spi, or `state update`, was expected"
                    ),
                ));
            }
        }
        Ok(())
    }

    fn policy(&mut self, change: Change, policy: Located<DirectedPolicy>) -> Result<(), Problem> {
        let key = (policy.value.direction, policy.value.policy.selector);
        match (self.policies.entry(key), change) {
            (Entry::Vacant(free), _) => {
                free.insert(self.file.policies.len());
                self.file.policies.push(policy);
            }
            (Entry::Occupied(held), Change::Update) => replace(&mut self.file.policies, *held.get(), policy),
            (Entry::Occupied(held), Change::Add) => {
                let first = line_of(&self.file.policies, *held.get());
                return Err(Problem::new(
                    policy.line,
                    format!(
                        "line {first} has a policy for the same packets and direction already: another selector, or \
                         `policy update`, was expected"
                    ),
                ));
            }
        }
        Ok(())
    }
}

fn replace<T>(list: &mut [Located<T>], index: usize, value: Located<T>) {
    if let Some(slot) = list.get_mut(index) {
        *slot = value;
    }
}

fn line_of<T>(list: &[Located<T>], index: usize) -> usize {
    list.get(index).map_or(0, |located| located.line)
}

/// Takes `[ ip [ -4 | -6 ] ] xfrm`.
fn take_program(cursor: &mut Cursor<'_>) -> Result<(), Problem> {
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
    Err(cursor.wrong(format!(
        "{} begins no command of this file: `ip xfrm state add ...` or `ip xfrm policy add ...` was expected",
        cursor.shown()
    )))
}

/// Whether `word` is the beginning of `whole`, which iproute2 takes for the whole.
fn abbreviates(word: &str, whole: &str) -> bool {
    !word.is_empty() && whole.starts_with(word)
}
