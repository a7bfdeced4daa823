//! Profiles: rules about algorithms, each with its source.

use super::algorithm::{Algorithm, Kind, Use};
use super::reader::{self, ProfileError};
use super::status::RequirementLevel;
use std::fs;
use std::path::Path;

/// Built-in profiles: name and text. The first two are always in force.
const BUILT_IN: [(&str, &str); 6] = [
    ("rfc8221", include_str!("../../profiles/rfc8221.toml")),
    ("rfc8247", include_str!("../../profiles/rfc8247.toml")),
    ("iot", include_str!("../../profiles/iot.toml")),
    ("cnsa", include_str!("../../profiles/cnsa.toml")),
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
        reader::read(file, text)
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
