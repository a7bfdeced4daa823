//! The known keys and sections, and access to the keys of a section.
//!
//! Each section of swanctl.conf has a [`Schema`] that lists every key of strongSwan: keys that are read,
//! and keys of which only some values are accepted because the feature does not exist here. [`Keys`]
//! checks a section against its schema and reads its values.

use super::problem::{Location, Problems};
use super::resolved::Resolved;
use super::suggestion::{unknown, unknown_key};
use super::tree::Value;
use super::value::{self, Parsed};
use casemate_strongswan::proposal;
use std::path::PathBuf;

/// Maximum number of characters of a value in a message.
const MAX_SHOWN_LEN: usize = 60;

/// The allowed keys and sections of one kind of section.
pub(super) struct Schema {
    pub(super) keys: &'static [(&'static str, Rule)],
    /// Prefixes of section names; a leading `=` means the whole name.
    pub(super) sections: &'static [&'static str],
}

/// How a key is handled.
#[derive(Clone, Copy)]
pub(super) enum Rule {
    /// The key is read.
    Read,
    /// The key and all keys that begin with its name are read.
    ReadPrefix,
    /// The key has no effect with IKEv2 or on this data path.
    Ignored,
    /// Only `no` is accepted, for this reason.
    OnlyNo(&'static str),
    /// Only these values are accepted, for this reason.
    Only(&'static [&'static str], &'static str),
    /// No value is accepted, for this reason.
    Refused(&'static str),
}

/// A section whose key names have been checked against a schema.
pub(super) struct Keys<'a> {
    resolved: &'a Resolved<'a, 'a>,
    problems: &'a Problems,
}

impl<'a> Keys<'a> {
    /// Checks a section against its schema and records unknown or refused keys.
    pub(super) fn new(resolved: &'a Resolved<'a, 'a>, schema: &Schema, problems: &'a Problems) -> Self {
        let keys = Self { resolved, problems };
        for (name, value) in resolved.keys() {
            if let Err(why) = schema.allows(name, value) {
                // Values that are not supported have no effect, so nothing follows from them.
                match schema.rule(name) {
                    None => keys.unreadable(&value.location, name, &why),
                    Some(_) => keys.problem(&value.location, name, &why),
                }
            } else if let Some(key) = schema.odd_prefix(name) {
                keys.warn(
                    name,
                    &format!(
                        "it counts as one more `{key}`, as in strongSwan: `{key}`, `{key}2` or \
                         `{key}-b` was expected"
                    ),
                );
            }
        }
        for section in resolved.sections() {
            if let (Err(why), Some(location)) = (schema.allows_section(section.name()), section.location()) {
                keys.unreadable(location, section.name(), &why);
            }
        }
        keys
    }

    fn problem(&self, location: &Location, name: &str, why: &str) {
        self.problems.error(location, format!("{}: {why}", self.resolved.path_of(name)));
    }

    /// Records an error about a value that another one takes the place of.
    fn unreadable(&self, location: &Location, name: &str, why: &str) {
        self.problem(location, name, why);
        self.problems.note_unreadable(self.resolved.path());
    }

    /// Whether the key has a value.
    pub(super) fn has(&self, name: &str) -> bool {
        self.resolved.key(name).is_some()
    }

    /// The value of a key. A malformed value is recorded as an error and counts as missing.
    pub(super) fn get<T>(&self, name: &str, read: impl FnOnce(&str) -> Parsed<T>) -> Option<T> {
        let value = self.resolved.key(name)?;
        match read(&value.text) {
            Ok(value) => Some(value),
            Err(why) => {
                self.unreadable(&value.location, name, &format!("{}: {why}", shown(&value.text)));
                None
            }
        }
    }

    /// Like [`get`](Self::get) for a secret: no message contains the value.
    pub(super) fn secret<T>(&self, name: &str, read: impl FnOnce(&str) -> Parsed<T>) -> Option<T> {
        let value = self.resolved.key(name)?;
        match read(&value.text) {
            Ok(value) => Some(value),
            Err(why) => {
                self.unreadable(&value.location, name, &why);
                None
            }
        }
    }

    /// The comma-separated values of a key.
    pub(super) fn list<T>(&self, name: &str, read: impl Fn(&str) -> Parsed<T>) -> Vec<T> {
        let Some(value) = self.resolved.key(name) else { return Vec::new() };
        let mut list = Vec::new();
        for item in value::list_items(&value.text) {
            match read(item) {
                Ok(item) => list.push(item),
                Err(why) => self.unreadable(&value.location, name, &format!("{}: {why}", shown(item))),
            }
        }
        list
    }

    /// The proposals of a key. What they allow and is probably not meant gives warnings.
    pub(super) fn proposals<T>(&self, name: &str, parse: fn(&str) -> Parsed<Vec<T>>) -> Vec<T> {
        let read = |item: &str| Ok((parse(item)?, proposal::warnings(item)));
        let (proposals, warnings): (Vec<_>, Vec<_>) = self.list(name, read).into_iter().unzip();
        warnings.iter().flatten().for_each(|warning| self.warn(name, warning));
        proposals.into_iter().flatten().collect()
    }

    /// The URIs of a key, separated by commas. Those in single quotes may contain commas.
    pub(super) fn uris<T>(&self, name: &str, read: impl Fn(&str) -> Parsed<T>) -> Vec<T> {
        let Some(value) = self.resolved.key(name) else { return Vec::new() };
        let mut list = Vec::new();
        for item in value::uris(&value.text) {
            match read(item) {
                Ok(item) => list.push(item),
                Err(why) => self.unreadable(&value.location, name, &format!("{}: {why}", shown(item))),
            }
        }
        list
    }

    /// The values of all keys whose names begin with `prefix`.
    pub(super) fn all<T>(&self, prefix: &str, read: impl Fn(&str) -> Parsed<T>) -> Vec<T> {
        let keys = self.resolved.keys();
        keys.iter()
            .filter(|(name, _)| name.starts_with(prefix))
            .filter_map(|(name, _)| self.get(name, &read))
            .collect()
    }

    /// Records that a key names files, so that an error in one of them can name the line.
    pub(super) fn note_files<'f>(&self, name: &str, files: impl IntoIterator<Item = &'f PathBuf>) {
        let Some(value) = self.resolved.key(name) else { return };
        files.into_iter().for_each(|file| self.problems.note_file(file, &value.location));
    }

    /// Records that values contradict each other: an error about a key, or about the section if the key has
    /// no value. It is left out if a value could not be read that it may follow from
    /// ([`Problems::contradiction`]).
    pub(super) fn error(&self, name: &str, why: &str) {
        match (self.resolved.key(name), self.resolved.location()) {
            (Some(Value { location, .. }), _) | (None, Some(location)) => {
                let text = format!("{}: {why}", self.resolved.path_of(name));
                self.problems.contradiction(self.resolved.path(), location, text);
            }
            (None, None) => {}
        }
    }

    /// Records a warning about a key that has a value.
    pub(super) fn warn(&self, name: &str, why: &str) {
        if let Some(value) = self.resolved.key(name) {
            self.problems.warn(&value.location, format!("{}: {why}", self.resolved.path_of(name)));
        }
    }

    /// Records a warning about the section.
    pub(super) fn section_warning(&self, why: &str) {
        if let Some(location) = self.resolved.location() {
            self.problems.warn(location, format!("{}: {why}", self.resolved.path()));
        }
    }

    /// Like [`error`](Self::error), about the section.
    pub(super) fn section_error(&self, why: &str) {
        if let Some(location) = self.resolved.location() {
            let path = self.resolved.path();
            self.problems.contradiction(path, location, format!("{path}: {why}"));
        }
    }
}

/// Quotes a value for a message.
fn shown(text: &str) -> String {
    let short: String = text.chars().take(MAX_SHOWN_LEN).collect();
    let more = if short.len() < text.len() { "..." } else { "" };
    format!("`{}{more}`", short.escape_debug())
}

/// Kinds of sections of which a connection may have several, each with a suffix.
const ROUNDS: [&str; 2] = ["local", "remote"];

/// Whether the name of a section is that of this kind with a suffix. A name such as `locale` is another
/// word: the suffix does not begin with a character from a to z.
pub(super) fn is_kind(kind: &str, name: &str) -> bool {
    name.strip_prefix(kind).is_some_and(|suffix| {
        !ROUNDS.contains(&kind) || !suffix.starts_with(|first: char| first.is_ascii_lowercase())
    })
}

impl Schema {
    fn rule(&self, name: &str) -> Option<Rule> {
        let exact = self.keys.iter().find(|(key, _)| *key == name);
        let begins = |(key, rule): &&(&str, Rule)| matches!(rule, Rule::ReadPrefix) && name.starts_with(key);
        exact.or_else(|| self.keys.iter().find(begins)).map(|(_, rule)| *rule)
    }

    /// The key that this name begins with, followed by further characters, so that it may be a slip.
    fn odd_prefix(&self, name: &str) -> Option<&'static str> {
        if self.keys.iter().any(|(key, _)| *key == name) {
            return None;
        }
        let of = |(key, rule): &(&'static str, Rule)| {
            let suffix = name.strip_prefix(key).filter(|_| matches!(rule, Rule::ReadPrefix))?;
            suffix.starts_with(|first: char| first.is_ascii_alphabetic()).then_some(*key)
        };
        self.keys.iter().find_map(of)
    }

    fn allows(&self, name: &str, value: &Value) -> Result<(), String> {
        let rule = self.rule(name).ok_or_else(|| unknown_key(name, self))?;
        match rule {
            Rule::Read | Rule::ReadPrefix | Rule::Ignored => Ok(()),
            Rule::OnlyNo(_) if value::truth(&value.text) == Ok(false) => Ok(()),
            Rule::OnlyNo(why) => Err(format!("{}: {why}; only no is accepted", shown(&value.text))),
            Rule::Only(values, _) if values.iter().any(|one| one.eq_ignore_ascii_case(&value.text)) => Ok(()),
            Rule::Only(values, why) => {
                Err(format!("{}: {why}; only {} is accepted", shown(&value.text), value::or(values)))
            }
            Rule::Refused(why) => Err(format!("this key is not supported: {why}")),
        }
    }

    fn allows_section(&self, name: &str) -> Result<(), String> {
        let is = |section: &&str| match section.strip_prefix('=') {
            Some(whole) => whole == name,
            None => is_kind(section, name),
        };
        if self.sections.iter().any(is) {
            return Ok(());
        }
        let sections: Vec<&str> =
            self.sections.iter().map(|section| section.trim_start_matches('=')).collect();
        Err(unknown("section", name, &sections))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_of_rounds_are_no_words() {
        for name in ["local", "local1", "local-eap", "local_2", "localA"] {
            assert!(is_kind("local", name), "{name}");
        }
        assert!(!is_kind("local", "locale") && !is_kind("remote", "remotely") && is_kind("cert", "certa"));
    }
}
