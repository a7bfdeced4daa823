//! A profile: rules about algorithms, each with where it says so.

use super::algorithm::{Algorithm, Kind, Use};
use super::reader::{self, ProfileError};
use super::status::Status;
use std::fs;
use std::path::Path;

/// Profiles that come with the program: their name and text. The first two are always in force.
const BUILT_IN: [(&str, &str); 6] = [
    ("rfc8221", include_str!("../../profiles/rfc8221.toml")),
    ("rfc8247", include_str!("../../profiles/rfc8247.toml")),
    ("iot", include_str!("../../profiles/iot.toml")),
    ("cnsa", include_str!("../../profiles/cnsa.toml")),
    ("suite-b-128", include_str!("../../profiles/suite-b-128.toml")),
    ("suite-b-256", include_str!("../../profiles/suite-b-256.toml")),
];

/// How many of them are always in force.
const ALWAYS: usize = 2;

/// Rules about algorithms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// What it is, for people.
    pub title: String,
    /// The day on which its sources were read, as `2026-11-22`.
    pub read: String,
    /// Whether it is of the past: kept to be compared with, not to be used.
    pub is_history: bool,
    pub(super) rules: Vec<Rule>,
    pub(super) otherwise: Vec<Otherwise>,
}

/// What is said of one algorithm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruling {
    /// The level.
    pub status: Status,
    /// Where it says so: RFC and section.
    pub source: String,
    /// What limits or explains it.
    pub note: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) used_by: Use,
    pub(super) kind: Kind,
    pub(super) name: String,
    /// For keys of these lengths; for all if there are none.
    pub(super) bits: Vec<u16>,
    pub(super) ruling: Ruling,
}

/// What is said of algorithms that no rule names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Otherwise {
    pub(super) used_by: Use,
    pub(super) kind: Kind,
    pub(super) ruling: Ruling,
}

impl Profile {
    /// Those that are always in force: RFC 8221 and RFC 8247.
    pub fn always() -> Result<Vec<Self>, ProfileError> {
        let (always, _) = BUILT_IN.split_at(ALWAYS.min(BUILT_IN.len()));
        always.iter().map(|(name, text)| Self::parse(name, text)).collect()
    }

    /// Every one that comes with the program.
    pub fn built_in() -> Result<Vec<Self>, ProfileError> {
        BUILT_IN.iter().map(|(name, text)| Self::parse(name, text)).collect()
    }

    /// The one of this name, or else the file.
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

    /// Reads a profile; `file` is its name in errors.
    pub fn parse(file: &str, text: &str) -> Result<Self, ProfileError> {
        reader::read(file, text)
    }

    /// What it says of an algorithm: by name, or else of its kind.
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
