//! Which keys and sections there are, and the reading of a section by them.
//!
//! Each section of swanctl.conf has a [`Schema`], where every key of strongSwan is found: those that are read, and those that
//! only some values are taken of, because what they ask for does not exist here. [`Keys`] holds a section to it.

use super::problem::{Place, Problem};
use super::tree::Value;
use super::value::{self, Read};
use super::view::View;
use std::cell::RefCell;
use std::collections::BTreeSet;

/// How many characters of a value a message repeats.
const LONGEST_SHOWN: usize = 60;

/// What may stand in a kind of section.
pub(super) struct Schema {
    pub(super) keys: &'static [(&'static str, Rule)],
    /// Sections by the beginnings of their names; `=` in front for a whole name.
    pub(super) sections: &'static [&'static str],
}

/// What is done with a key.
#[derive(Clone, Copy)]
pub(super) enum Rule {
    /// It is read.
    Take,
    /// It is read, and so are all keys whose names begin so.
    TakeAll,
    /// It makes no difference with IKEv2 or to this data path.
    NoEffect,
    /// Only `no` is taken, for this reason.
    Off(&'static str),
    /// Only these values are taken, for this reason.
    Only(&'static [&'static str], &'static str),
    /// No value is taken, for this reason.
    Never(&'static str),
}

/// What was found so far, in the order of files and lines. The same is said once, however often a section is inherited.
#[derive(Default)]
pub(super) struct Problems {
    errors: RefCell<BTreeSet<Problem>>,
    warnings: RefCell<BTreeSet<Problem>>,
}

impl Problems {
    /// Notes an error.
    pub(super) fn wrong(&self, place: &Place, text: String) {
        self.errors.borrow_mut().insert(Problem::new(place, text));
    }

    /// Notes what is odd, but no error.
    pub(super) fn warn(&self, place: &Place, text: String) {
        self.warnings.borrow_mut().insert(Problem::new(place, text));
    }

    /// Errors, and warnings.
    pub(super) fn into_inner(self) -> (BTreeSet<Problem>, BTreeSet<Problem>) {
        (self.errors.into_inner(), self.warnings.into_inner())
    }
}

/// A section whose keys are known to be right by name.
pub(super) struct Keys<'a> {
    view: &'a View<'a, 'a>,
    problems: &'a Problems,
}

impl<'a> Keys<'a> {
    /// Holds a section to its schema.
    pub(super) fn new(view: &'a View<'a, 'a>, schema: &Schema, problems: &'a Problems) -> Self {
        let keys = Self { view, problems };
        for (name, value) in view.keys() {
            if let Err(why) = schema.allows(name, value) {
                keys.problem(&value.place, name, &why);
            }
        }
        for section in view.sections() {
            if let (Err(why), Some(place)) = (schema.allows_section(section.name()), section.place()) {
                keys.problem(place, section.name(), &why);
            }
        }
        keys
    }

    fn problem(&self, place: &Place, name: &str, why: &str) {
        self.problems.wrong(place, format!("{}: {why}", self.view.path_of(name)));
    }

    /// Whether the key has a value.
    pub(super) fn has(&self, name: &str) -> bool {
        self.view.key(name).is_some()
    }

    /// The value of a key. What cannot be read becomes a problem, and counts as not there.
    pub(super) fn get<T>(&self, name: &str, read: impl FnOnce(&str) -> Read<T>) -> Option<T> {
        let value = self.view.key(name)?;
        match read(&value.text) {
            Ok(value) => Some(value),
            Err(why) => {
                self.problem(&value.place, name, &format!("{}: {why}", shown(&value.text)));
                None
            }
        }
    }

    /// The value of a key of which no message shows anything.
    pub(super) fn secret<T>(&self, name: &str, read: impl FnOnce(&str) -> Read<T>) -> Option<T> {
        let value = self.view.key(name)?;
        match read(&value.text) {
            Ok(value) => Some(value),
            Err(why) => {
                self.problem(&value.place, name, &why);
                None
            }
        }
    }

    /// The values of a key, between commas.
    pub(super) fn list<T>(&self, name: &str, read: impl Fn(&str) -> Read<T>) -> Vec<T> {
        let Some(value) = self.view.key(name) else { return Vec::new() };
        let mut list = Vec::new();
        for item in value::items(&value.text) {
            match read(item) {
                Ok(item) => list.push(item),
                Err(why) => self.problem(&value.place, name, &format!("{}: {why}", shown(item))),
            }
        }
        list
    }

    /// The values of all keys whose names begin with `front`.
    pub(super) fn all<T>(&self, front: &str, read: impl Fn(&str) -> Read<T>) -> Vec<T> {
        let keys = self.view.keys();
        keys.iter()
            .filter(|(name, _)| name.starts_with(front))
            .filter_map(|(name, _)| self.get(name, &read))
            .collect()
    }

    /// A problem with a key, or with the section if the key has no value.
    pub(super) fn wrong(&self, name: &str, why: &str) {
        match (self.view.key(name), self.view.place()) {
            (Some(Value { place, .. }), _) | (None, Some(place)) => self.problem(place, name, why),
            (None, None) => {}
        }
    }

    /// A remark about a key that has a value.
    pub(super) fn warn(&self, name: &str, why: &str) {
        if let Some(value) = self.view.key(name) {
            self.problems.warn(&value.place, format!("{}: {why}", self.view.path_of(name)));
        }
    }

    /// A remark about the section.
    pub(super) fn warn_section(&self, why: &str) {
        if let Some(place) = self.view.place() {
            self.problems.warn(place, format!("{}: {why}", self.view.path()));
        }
    }

    /// A problem with the section.
    pub(super) fn wrong_section(&self, why: &str) {
        if let Some(place) = self.view.place() {
            self.problems.wrong(place, format!("{}: {why}", self.view.path()));
        }
    }
}

/// A value in a message.
fn shown(text: &str) -> String {
    let short: String = text.chars().take(LONGEST_SHOWN).collect();
    let more = if short.len() < text.len() { "..." } else { "" };
    format!("`{}{more}`", short.escape_debug())
}

impl Schema {
    fn rule(&self, name: &str) -> Option<Rule> {
        let exact = self.keys.iter().find(|(key, _)| *key == name);
        let begins = |(key, rule): &&(&str, Rule)| matches!(rule, Rule::TakeAll) && name.starts_with(key);
        exact.or_else(|| self.keys.iter().find(begins)).map(|(_, rule)| *rule)
    }

    fn allows(&self, name: &str, value: &Value) -> Result<(), String> {
        let rule = self.rule(name).ok_or_else(|| {
            let keys: Vec<&str> = self.keys.iter().map(|(key, _)| *key).collect();
            unknown("key", name, &keys)
        })?;
        match rule {
            Rule::Take | Rule::TakeAll | Rule::NoEffect => Ok(()),
            Rule::Off(_) if value::truth(&value.text) == Ok(false) => Ok(()),
            Rule::Off(why) => Err(format!("{}: {why}; only no is taken", shown(&value.text))),
            Rule::Only(values, _) if values.iter().any(|one| one.eq_ignore_ascii_case(&value.text)) => Ok(()),
            Rule::Only(values, why) => {
                Err(format!("{}: {why}; only {} is taken", shown(&value.text), value::or(values)))
            }
            Rule::Never(why) => Err(format!("this key is not supported: {why}")),
        }
    }

    fn allows_section(&self, name: &str) -> Result<(), String> {
        let is = |section: &&str| match section.strip_prefix('=') {
            Some(whole) => whole == name,
            None => name.starts_with(*section),
        };
        if self.sections.iter().any(is) {
            return Ok(());
        }
        let sections: Vec<&str> =
            self.sections.iter().map(|section| section.trim_start_matches('=')).collect();
        Err(unknown("section", name, &sections))
    }
}

/// What to say of a name that does not exist.
pub(super) fn unknown(kind: &str, name: &str, names: &[&str]) -> String {
    let near = names.iter().filter(|known| is_near(name, known)).min_by_key(|known| distance(name, known));
    match near {
        Some(near) => format!("not a {kind} of swanctl.conf; is `{near}` meant?"),
        None if names.is_empty() => format!("not a {kind} of swanctl.conf; none was expected here"),
        None => format!("not a {kind} of swanctl.conf; expected one of {}", names.join(", ")),
    }
}

fn is_near(name: &str, known: &str) -> bool {
    name.len() <= known.len().saturating_add(2) && distance(name, known) <= known.len().div_ceil(4).min(2)
}

/// How many characters have to be added, taken away or changed to make one word of the other (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (n, x) in a.chars().enumerate() {
        let mut diagonal = n;
        let mut left = n.saturating_add(1);
        let mut next = vec![left];
        for (y, above) in b.chars().zip(row.iter().skip(1)) {
            let changed = diagonal.saturating_add(usize::from(x != y));
            left = changed.min(left.saturating_add(1)).min(above.saturating_add(1));
            diagonal = *above;
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (a, b, expected) in
            [("", "", 0), ("a", "", 1), ("", "ab", 2), ("kitten", "sitting", 3), ("dpd_dely", "dpd_delay", 1)]
        {
            assert_eq!(distance(a, b), expected, "{a} {b}");
        }
    }

    #[test]
    fn near_names_are_suggested() {
        let names = ["rekey_time", "reauth_time", "id"];
        assert_eq!(unknown("key", "rekeytime", &names), "not a key of swanctl.conf; is `rekey_time` meant?");
        assert!(unknown("key", "foo", &names).ends_with("expected one of rekey_time, reauth_time, id"));
        assert!(unknown("key", &"x".repeat(10_000), &names).contains("expected one of"));
    }
}
