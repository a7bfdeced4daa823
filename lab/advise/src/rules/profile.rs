//! Profiles: rules about algorithms, each with its source, and their reader in TOML. Errors name the line,
//! the value and the expectation.

use super::{Algorithm, Kind, RequirementLevel, Use};
use std::path::Path;
use std::{fmt, fs};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Built-in profiles: name and text. The first two are always in force.
const BUILT_IN: [(&str, &str); 7] = [
    ("rfc8221", include_str!("../../profiles/rfc8221.toml")),
    ("rfc8247", include_str!("../../profiles/rfc8247.toml")),
    ("iot", include_str!("../../profiles/iot.toml")),
    ("cnsa", include_str!("../../profiles/cnsa.toml")),
    ("cnsa2", include_str!("../../profiles/cnsa2.toml")),
    ("suite-b-128", include_str!("../../profiles/suite-b-128.toml")),
    ("suite-b-256", include_str!("../../profiles/suite-b-256.toml")),
];

/// Number of built-in profiles that are always in force.
const ALWAYS: usize = 2;

/// A set of rules about algorithms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Name.
    pub name: String,
    /// Title for the user.
    pub title: String,
    /// Date on which the sources were read, as `2026-11-22`.
    pub read: String,
    /// Whether the profile is historic: for comparison, not for use.
    pub is_history: bool,
    /// Requirements that Casemate cannot satisfy: what is required, and why it is not satisfied.
    pub unmet: Vec<String>,
    pub(super) rules: Vec<Rule>,
    pub(super) otherwise: Vec<Otherwise>,
}

/// Ruling on one algorithm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruling {
    /// Requirement level.
    pub status: RequirementLevel,
    /// Source: RFC and section.
    pub source: String,
    /// Restriction or explanation.
    pub note: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) used_by: Use,
    pub(super) kind: Kind,
    pub(super) name: String,
    /// Key lengths in bits to which the rule applies; all if empty.
    pub(super) bits: Vec<u16>,
    pub(super) ruling: Ruling,
}

/// Ruling on algorithms that no rule names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Otherwise {
    pub(super) used_by: Use,
    pub(super) kind: Kind,
    pub(super) ruling: Ruling,
}

impl Profile {
    /// Returns the profiles that are always in force: RFC 8221 and RFC 8247.
    pub fn always() -> Result<Vec<Self>, ProfileError> {
        let (always, _) = BUILT_IN.split_at(ALWAYS.min(BUILT_IN.len()));
        always.iter().map(|(name, text)| Self::parse(name, text)).collect()
    }

    /// Returns all built-in profiles.
    pub fn built_in() -> Result<Vec<Self>, ProfileError> {
        BUILT_IN.iter().map(|(name, text)| Self::parse(name, text)).collect()
    }

    /// Returns the built-in profile of this name, or reads a file.
    pub fn named(name: &str) -> Result<Self, ProfileError> {
        if let Some((name, text)) = BUILT_IN.iter().find(|(known, _)| *known == name) {
            return Self::parse(name, text);
        }
        let text = fs::read_to_string(Path::new(name)).map_err(|error| {
            let known: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
            let expected = format!("a file, or one of {} was expected", known.join(", "));
            ProfileError::new(name, None, format!("{error}: {expected}"))
        })?;
        Self::parse(name, &text)
    }

    /// Parses a profile. `file` is the name that errors mention.
    pub fn parse(file: &str, text: &str) -> Result<Self, ProfileError> {
        read(file, text)
    }

    /// Returns the ruling on an algorithm: by its name, otherwise by its type.
    pub fn ruling(&self, algorithm: &Algorithm) -> Option<&Ruling> {
        let of_kind = |used_by: Use, kind: Kind| used_by == algorithm.used_by && kind == algorithm.kind;
        let named = self.rules.iter().find(|rule| {
            let has_bits =
                rule.bits.is_empty() || algorithm.bits.is_some_and(|bits| rule.bits.contains(&bits));
            of_kind(rule.used_by, rule.kind) && rule.name == algorithm.name && has_bits
        });
        let otherwise = || self.otherwise.iter().find(|other| of_kind(other.used_by, other.kind));
        named.map(|rule| &rule.ruling).or_else(|| otherwise().map(|other| &other.ruling))
    }
}

/// Error in a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileError {
    file: String,
    line: Option<usize>,
    text: String,
}

impl ProfileError {
    pub(super) fn new(file: &str, line: Option<usize>, text: impl Into<String>) -> Self {
        Self { file: file.into(), line, text: text.into() }
    }
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file, self.text),
            None => write!(f, "{}: {}", self.file, self.text),
        }
    }
}

impl std::error::Error for ProfileError {}

pub(super) fn read(file: &str, text: &str) -> Result<Profile, ProfileError> {
    let place = Document { file, text };
    let table = DeTable::parse(text).map_err(|error| {
        place.error_at(
            error.span().map_or(0, |span| span.start),
            format!("{}: TOML was expected", error.message()),
        )
    })?;
    let top = Fields { document: place, offset: 0, table: table.get_ref() };
    top.deny_unknown(&["name", "title", "read", "history", "unmet", "rule", "otherwise"])?;
    let profile = Profile {
        name: top.text("name")?.0.to_owned(),
        title: top.text("title")?.0.to_owned(),
        read: top.text("read")?.0.to_owned(),
        is_history: top.boolean("history")?,
        unmet: top.texts("unmet")?,
        rules: top.tables("rule")?.iter().map(rule).collect::<Result<_, _>>()?,
        otherwise: top.tables("otherwise")?.iter().map(otherwise).collect::<Result<_, _>>()?,
    };
    if profile.rules.is_empty() && profile.otherwise.is_empty() {
        return Err(place.error_at(0, "no rule: [[rule]] or [[otherwise]] was expected"));
    }
    Ok(profile)
}

fn rule(fields: &Fields<'_>) -> Result<Rule, ProfileError> {
    fields.deny_unknown(&["use", "kind", "name", "bits", "status", "source", "note"])?;
    Ok(Rule {
        used_by: fields.choice("use", &Use::ALL.map(|used_by| (used_by.word(), used_by)))?,
        kind: fields.choice("kind", &Kind::ALL.map(|kind| (kind.word(), kind)))?,
        name: fields.text("name")?.0.to_owned(),
        bits: fields.numbers("bits")?,
        ruling: ruling(fields)?,
    })
}

fn otherwise(fields: &Fields<'_>) -> Result<Otherwise, ProfileError> {
    fields.deny_unknown(&["use", "kind", "status", "source", "note"])?;
    Ok(Otherwise {
        used_by: fields.choice("use", &Use::ALL.map(|used_by| (used_by.word(), used_by)))?,
        kind: fields.choice("kind", &Kind::ALL.map(|kind| (kind.word(), kind)))?,
        ruling: ruling(fields)?,
    })
}

fn ruling(fields: &Fields<'_>) -> Result<Ruling, ProfileError> {
    let (source, at) = fields.text("source")?;
    if source.trim().is_empty() {
        return Err(fields.document.error_at(at, "`source` is empty: an RFC and section was expected"));
    }
    let note = fields.table.contains_key("note").then(|| fields.text("note")).transpose()?;
    Ok(Ruling {
        status: fields.choice("status", &RequirementLevel::ALL.map(|status| (status.words(), status)))?,
        source: source.to_owned(),
        note: note.map(|(note, _)| note.to_owned()),
    })
}

#[derive(Clone, Copy)]
struct Document<'t> {
    file: &'t str,
    text: &'t str,
}

impl Document<'_> {
    fn error_at(self, at: usize, text: impl Into<String>) -> ProfileError {
        let before = self.text.get(..at).unwrap_or_default();
        ProfileError::new(self.file, Some(before.matches('\n').count() + 1), text)
    }
}

/// A table and its offset in the text.
struct Fields<'t> {
    document: Document<'t>,
    offset: usize,
    table: &'t DeTable<'t>,
}

impl<'t> Fields<'t> {
    fn deny_unknown(&self, known: &[&str]) -> Result<(), ProfileError> {
        let unknown = self.table.keys().find(|key| !known.contains(&key.get_ref().as_ref()));
        match unknown {
            None => Ok(()),
            Some(key) => Err(self.document.error_at(
                key.span().start,
                format!("`{}`: one of {} was expected", key.get_ref(), known.join(", ")),
            )),
        }
    }

    fn find(&self, key: &str) -> Option<&'t Spanned<DeValue<'t>>> {
        self.table.get(key)
    }

    fn text(&self, key: &str) -> Result<(&'t str, usize), ProfileError> {
        let value = self.find(key).ok_or_else(|| {
            self.document.error_at(self.offset, format!("`{key}` is missing: {key} = \"...\" was expected"))
        })?;
        match value.get_ref() {
            DeValue::String(text) => Ok((text, value.span().start)),
            _ => Err(self
                .document
                .error_at(value.span().start, format!("`{key}`: a text in quotes was expected"))),
        }
    }

    fn choice<T: Copy>(&self, key: &str, choices: &[(&str, T)]) -> Result<T, ProfileError> {
        let (text, at) = self.text(key)?;
        if let Some((_, chosen)) = choices.iter().find(|(word, _)| *word == text) {
            return Ok(*chosen);
        }
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        Err(self
            .document
            .error_at(at, format!("`{key} = \"{text}\"`: one of {} was expected", words.join(", "))))
    }

    /// Reads an optional boolean, `false` by default.
    fn boolean(&self, key: &str) -> Result<bool, ProfileError> {
        match self.find(key).map(|value| (value.get_ref(), value.span().start)) {
            None => Ok(false),
            Some((DeValue::Boolean(truth), _)) => Ok(*truth),
            Some((_, at)) => Err(self.document.error_at(at, format!("`{key}`: true or false was expected"))),
        }
    }

    /// Reads an optional list of numbers.
    fn numbers(&self, key: &str) -> Result<Vec<u16>, ProfileError> {
        let Some(value) = self.find(key) else { return Ok(Vec::new()) };
        let numbers = match value.get_ref() {
            DeValue::Array(items) => {
                items.iter().map(|item| number(item.get_ref())).collect::<Option<Vec<u16>>>()
            }
            _ => None,
        };
        numbers.filter(|numbers| !numbers.is_empty()).ok_or_else(|| {
            self.document
                .error_at(value.span().start, format!("`{key}`: a list such as [128, 256] was expected"))
        })
    }

    /// Reads an optional list of texts.
    fn texts(&self, key: &str) -> Result<Vec<String>, ProfileError> {
        let Some(value) = self.find(key) else { return Ok(Vec::new()) };
        let text = |item: &Spanned<DeValue<'_>>| match item.get_ref() {
            DeValue::String(text) => Some(text.to_string()),
            _ => None,
        };
        let texts = match value.get_ref() {
            DeValue::Array(items) => items.iter().map(text).collect(),
            _ => None,
        };
        texts.ok_or_else(|| {
            self.document.error_at(value.span().start, format!("`{key}`: a list of texts was expected"))
        })
    }

    /// Reads the tables `[[key]]`, of which there may be none.
    fn tables(&self, key: &str) -> Result<Vec<Fields<'t>>, ProfileError> {
        let Some(value) = self.find(key) else { return Ok(Vec::new()) };
        let wrong = |at| self.document.error_at(at, format!("`{key}`: [[{key}]] was expected"));
        let DeValue::Array(items) = value.get_ref() else { return Err(wrong(value.span().start)) };
        let table = |item: &'t Spanned<DeValue<'t>>| match item.get_ref() {
            DeValue::Table(table) => Ok(Fields { document: self.document, offset: item.span().start, table }),
            _ => Err(wrong(item.span().start)),
        };
        items.iter().map(table).collect()
    }
}

fn number(value: &DeValue<'_>) -> Option<u16> {
    let DeValue::Integer(number) = value else { return None };
    u16::from_str_radix(number.as_str(), number.radix()).ok()
}
