//! The file of a journal: its format, and lines that are damaged.
//!
//! The file has a first line, the network namespace, changes in the order in which they were made, and those
//! of the changes that were undone. Of a line whose write failed there may be a part, which is marked. An
//! incomplete last line is not damage: the process ended in the middle of a write, and a change is made only
//! after its whole line was written. (The claim of a rule is recorded after it was made, but without routes
//! it has no effect; see [`RoutingNumbers`](crate::route::RoutingNumbers).)

use super::file_error;
use super::undo::Undo;
use crate::Error;
use crate::instance::NetnsId;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

pub(super) const FIRST_LINE: &str = "casemate journal 1";
/// Start of the first line in every version.
const FIRST_WORDS: &str = "casemate journal ";
/// Prefix of a change that was undone.
pub(super) const UNDONE: &str = "undone ";
/// End of a line whose write failed: its change was not made. No other line ends like this, because neither
/// an interface name nor a value has a slash.
pub(super) const TORN: &str = "/torn";
/// Longest file that is read, in bytes: more than any journal needs.
const MAX_LEN: u64 = 64 << 20;
/// Damaged lines that a message quotes, and characters of each.
const MAX_QUOTED_LINES: usize = 10;
const MAX_QUOTED_CHARS: usize = 120;

/// The contents of a file.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// Changes that are not undone.
    pub(super) entries: Vec<Undo>,
    /// The namespace in which they were made. Former versions do not write it.
    pub(super) namespace: Option<NetnsId>,
    /// Bytes up to the end of the last complete line.
    pub(super) len: u64,
    /// Complete lines that are none of these.
    pub(super) damage: Damage,
}

/// The damaged lines of a file, in order. Its text quotes them.
#[derive(Debug, Clone, Default)]
pub(super) struct Damage(Vec<DamagedLine>);

#[derive(Debug, Clone)]
struct DamagedLine {
    /// Counted from 1.
    number: usize,
    /// The start of the line. Characters that a terminal may interpret are escaped.
    quoted: String,
}

impl Damage {
    fn add(&mut self, number: usize, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        let short: String = text.chars().take(MAX_QUOTED_CHARS).collect();
        let more = if short.len() < text.len() { "..." } else { "" };
        self.0.push(DamagedLine { number, quoted: format!("`{}{more}`", short.escape_debug()) });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, DamagedLine { number, quoted }) in self.0.iter().take(MAX_QUOTED_LINES).enumerate() {
            let before = if n == 0 { "" } else { "; " };
            write!(f, "{before}line {number} is damaged: {quoted}")?;
        }
        match self.0.len() {
            count if count > MAX_QUOTED_LINES => write!(f, "; {count} lines are damaged in total"),
            _ => Ok(()),
        }
    }
}

impl Contents {
    /// Parses complete lines; `None` if another version of the program has written them.
    fn parse(finished: &[u8]) -> Option<Self> {
        let mut contents = Self { len: finished.len() as u64, ..Self::default() };
        let mut lines = (1..).zip(finished.split_inclusive(|byte| *byte == b'\n'));
        if let Some((number, first)) = lines.next() {
            let first = without_newline(first);
            if first != FIRST_LINE.as_bytes() {
                if first.starts_with(FIRST_WORDS.as_bytes()) {
                    return None;
                }
                contents.damage.add(number, first);
            }
        }
        lines.for_each(|(number, line)| contents.add(number, without_newline(line)));
        Some(contents)
    }

    pub(super) fn add(&mut self, number: usize, bytes: &[u8]) {
        let Ok(line) = str::from_utf8(bytes) else { return self.damage.add(number, bytes) };
        if line.ends_with(TORN) {
            return;
        }
        if let Some(Ok(undone)) = line.strip_prefix(UNDONE).map(str::parse::<Undo>) {
            self.entries.retain(|entry| undone != *entry);
        } else if let Ok(namespace) = line.parse::<NetnsId>() {
            self.namespace = Some(namespace);
        } else if let Ok(undo) = line.parse::<Undo>() {
            self.entries.push(undo);
        } else {
            self.damage.add(number, bytes);
        }
    }

    /// Whether the changes include the packet filter of an instance.
    pub(super) fn names_guard(&self) -> bool {
        self.entries.iter().any(|entry| matches!(entry, Undo::Guard { .. }))
    }
}

fn without_newline(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").unwrap_or(line)
}

/// Reads a file.
pub(super) fn read(file: &mut File, path: &Path) -> Result<Contents, Error> {
    let refused = |reason: String| Error::other(path.display().to_string(), reason);
    let mut bytes = Vec::new();
    file.take(MAX_LEN).read_to_end(&mut bytes).map_err(|error| file_error(path, error))?;
    if bytes.len() as u64 >= MAX_LEN {
        return Err(refused(format!("too long for a journal; {WHEN_TO_REMOVE}")));
    }
    let last_break = bytes.iter().rposition(|byte| *byte == b'\n');
    let finished = last_break.and_then(|end| bytes.get(..=end)).unwrap_or_default();
    Contents::parse(finished)
        .ok_or_else(|| refused(format!("not a journal of this version; {WHEN_TO_REMOVE}")))
}

/// Advice about a file that cannot be used.
pub(super) const WHEN_TO_REMOVE: &str = "remove it when nothing of its instance is left";
