//! Profiles as TOML. Every error has the line, what is there, and what was expected.

use super::algorithm::{Kind, Use};
use super::profile::{Otherwise, Profile, Rule, Ruling};
use super::status::Status;
use std::fmt;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Why a profile cannot be used.
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
    let place = Place { file, text };
    let table = DeTable::parse(text).map_err(|error| {
        place.wrong(
            error.span().map_or(0, |span| span.start),
            format!("{}: TOML was expected", error.message()),
        )
    })?;
    let top = Fields { place, at: 0, table: table.get_ref() };
    top.only(&["name", "title", "read", "history", "rule", "otherwise"])?;
    let profile = Profile {
        name: top.text("name")?.0.to_owned(),
        title: top.text("title")?.0.to_owned(),
        read: top.text("read")?.0.to_owned(),
        is_history: top.truth("history")?,
        rules: top.tables("rule")?.iter().map(rule).collect::<Result<_, _>>()?,
        otherwise: top.tables("otherwise")?.iter().map(otherwise).collect::<Result<_, _>>()?,
    };
    if profile.rules.is_empty() && profile.otherwise.is_empty() {
        return Err(place.wrong(0, "no rule: [[rule]] or [[otherwise]] was expected"));
    }
    Ok(profile)
}

fn rule(fields: &Fields<'_>) -> Result<Rule, ProfileError> {
    fields.only(&["use", "kind", "name", "bits", "status", "source", "note"])?;
    Ok(Rule {
        used_by: fields.choice("use", &Use::ALL.map(|used_by| (used_by.word(), used_by)))?,
        kind: fields.choice("kind", &Kind::ALL.map(|kind| (kind.word(), kind)))?,
        name: fields.text("name")?.0.to_owned(),
        bits: fields.numbers("bits")?,
        ruling: ruling(fields)?,
    })
}

fn otherwise(fields: &Fields<'_>) -> Result<Otherwise, ProfileError> {
    fields.only(&["use", "kind", "status", "source", "note"])?;
    Ok(Otherwise {
        used_by: fields.choice("use", &Use::ALL.map(|used_by| (used_by.word(), used_by)))?,
        kind: fields.choice("kind", &Kind::ALL.map(|kind| (kind.word(), kind)))?,
        ruling: ruling(fields)?,
    })
}

fn ruling(fields: &Fields<'_>) -> Result<Ruling, ProfileError> {
    let (source, at) = fields.text("source")?;
    if source.trim().is_empty() {
        return Err(fields.place.wrong(at, "`source` is empty: where it says so was expected"));
    }
    let note = fields.table.contains_key("note").then(|| fields.text("note")).transpose()?;
    Ok(Ruling {
        status: fields.choice("status", &Status::ALL.map(|status| (status.words(), status)))?,
        source: source.to_owned(),
        note: note.map(|(note, _)| note.to_owned()),
    })
}

#[derive(Clone, Copy)]
struct Place<'t> {
    file: &'t str,
    text: &'t str,
}

impl Place<'_> {
    fn wrong(self, at: usize, text: impl Into<String>) -> ProfileError {
        let before = self.text.get(..at).unwrap_or_default();
        ProfileError::new(self.file, Some(before.matches('\n').count() + 1), text)
    }
}

/// One table, with the offset at which it stands.
struct Fields<'t> {
    place: Place<'t>,
    at: usize,
    table: &'t DeTable<'t>,
}

impl<'t> Fields<'t> {
    fn only(&self, known: &[&str]) -> Result<(), ProfileError> {
        let unknown = self.table.keys().find(|key| !known.contains(&key.get_ref().as_ref()));
        match unknown {
            None => Ok(()),
            Some(key) => Err(self.place.wrong(
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
            self.place.wrong(self.at, format!("`{key}` is missing: {key} = \"...\" was expected"))
        })?;
        match value.get_ref() {
            DeValue::String(text) => Ok((text, value.span().start)),
            _ => Err(self.place.wrong(value.span().start, format!("`{key}`: a text in quotes was expected"))),
        }
    }

    fn choice<T: Copy>(&self, key: &str, choices: &[(&str, T)]) -> Result<T, ProfileError> {
        let (text, at) = self.text(key)?;
        if let Some((_, chosen)) = choices.iter().find(|(word, _)| *word == text) {
            return Ok(*chosen);
        }
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        Err(self.place.wrong(at, format!("`{key} = \"{text}\"`: one of {} was expected", words.join(", "))))
    }

    /// Whether it says `true`; it may be left out.
    fn truth(&self, key: &str) -> Result<bool, ProfileError> {
        match self.find(key).map(|value| (value.get_ref(), value.span().start)) {
            None => Ok(false),
            Some((DeValue::Boolean(truth), _)) => Ok(*truth),
            Some((_, at)) => Err(self.place.wrong(at, format!("`{key}`: true or false was expected"))),
        }
    }

    /// A list of numbers, which may be left out.
    fn numbers(&self, key: &str) -> Result<Vec<u16>, ProfileError> {
        let Some(value) = self.find(key) else { return Ok(Vec::new()) };
        let numbers = match value.get_ref() {
            DeValue::Array(items) => {
                items.iter().map(|item| number(item.get_ref())).collect::<Option<Vec<u16>>>()
            }
            _ => None,
        };
        numbers.filter(|numbers| !numbers.is_empty()).ok_or_else(|| {
            self.place.wrong(value.span().start, format!("`{key}`: a list such as [128, 256] was expected"))
        })
    }

    /// The tables `[[key]]`, of which there may be none.
    fn tables(&self, key: &str) -> Result<Vec<Fields<'t>>, ProfileError> {
        let Some(value) = self.find(key) else { return Ok(Vec::new()) };
        let wrong = |at| self.place.wrong(at, format!("`{key}`: [[{key}]] was expected"));
        let DeValue::Array(items) = value.get_ref() else { return Err(wrong(value.span().start)) };
        let table = |item: &'t Spanned<DeValue<'t>>| match item.get_ref() {
            DeValue::Table(table) => Ok(Fields { place: self.place, at: item.span().start, table }),
            _ => Err(wrong(item.span().start)),
        };
        items.iter().map(table).collect()
    }
}

fn number(value: &DeValue<'_>) -> Option<u16> {
    let DeValue::Integer(number) = value else { return None };
    u16::from_str_radix(number.as_str(), number.radix()).ok()
}
