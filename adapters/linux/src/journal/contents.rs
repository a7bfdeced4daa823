//! The file of a journal: a first line, the network namespace that it is about, changes in the order in which they
//! were made, and those of them that were undone.

use super::{Undo, at};
use crate::Error;
use crate::namespace::Namespace;
use std::fs::File;
use std::io::Read;
use std::path::Path;

pub(super) const FIRST_LINE: &str = "casemate journal 1";
/// In front of a change that is undone.
pub(super) const UNDONE: &str = "undone ";
/// More than any journal needs; a longer file is not one of ours.
const MAX_LEN: u64 = 64 << 20;

/// What a file says.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// Changes that are not undone.
    pub(super) entries: Vec<Undo>,
    /// The namespace that they were made in. Former versions do not say.
    pub(super) namespace: Option<Namespace>,
    /// Bytes up to the end of the last whole line.
    pub(super) len: u64,
}

impl Contents {
    fn add(&mut self, line: &str) {
        if let Some(undone) = line.strip_prefix(UNDONE).map(str::parse::<Undo>) {
            self.entries.retain(|entry| undone.as_ref() != Ok(entry));
        } else if let Ok(namespace) = line.parse::<Namespace>() {
            self.namespace = Some(namespace);
        } else {
            self.entries.extend(line.parse::<Undo>());
        }
    }
}

/// What the file says. A last line without an end was not finished, so its change was not made.
pub(super) fn read(file: &mut File, path: &Path) -> Result<Contents, Error> {
    let mut text = String::new();
    file.take(MAX_LEN).read_to_string(&mut text).map_err(|error| at(path, error))?;
    let finished = text.rfind('\n').and_then(|end| text.get(..=end)).unwrap_or_default();
    let mut lines = finished.lines();
    match lines.next() {
        None => Ok(Contents::default()),
        Some(FIRST_LINE) => {
            let mut contents = Contents { len: finished.len() as u64, ..Contents::default() };
            lines.for_each(|line| contents.add(line));
            Ok(contents)
        }
        Some(_) => {
            let reason = "not a journal of this version; remove it when nothing of its instance is left";
            Err(Error::other(path.display().to_string(), reason))
        }
    }
}
