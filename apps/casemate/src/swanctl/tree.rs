//! Sections and keys as the files give them: nested and merged, not yet interpreted.
//!
//! A section that is written twice is one section: keys of the second replace those of the first.
//! References are kept as names, because the referenced section may come later; [`super::resolved`]
//! follows them.

use super::problem::Location;
use std::collections::{HashMap, HashSet};
use std::fmt;
use zeroize::Zeroizing;

/// The text of a value and its location. The text may be a secret.
#[derive(Clone)]
pub(super) struct Value {
    pub(super) text: Zeroizing<String>,
    pub(super) location: Location,
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Value at {}", self.location)
    }
}

/// Index of a section in a [`Tree`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct SectionId(usize);

/// The content between two braces.
#[derive(Debug)]
pub(super) struct Section {
    /// Location of the first opening brace.
    pub(super) location: Location,
    /// Location of the last opening brace of another part of it, if it has several in the files.
    pub(super) reopened: Option<Location>,
    /// Keys and their values, in order of first appearance.
    pub(super) keys: Vec<(String, Value)>,
    /// Nested sections, in order of first appearance.
    pub(super) sections: Vec<(String, SectionId)>,
    /// Absolute names of the sections that this one inherits from.
    pub(super) references: Vec<Reference>,
    key_index: HashMap<String, usize>,
    section_index: HashMap<String, SectionId>,
}

/// The name of a section to inherit from.
#[derive(Debug, Clone)]
pub(super) struct Reference {
    pub(super) name: String,
    pub(super) location: Location,
}

impl Section {
    fn new(location: Location) -> Self {
        Self {
            location,
            reopened: None,
            keys: Vec::new(),
            sections: Vec::new(),
            references: Vec::new(),
            key_index: HashMap::new(),
            section_index: HashMap::new(),
        }
    }

    /// The value of a key; an empty value means that the key was cleared.
    pub(super) fn key(&self, name: &str) -> Option<&Value> {
        self.keys.get(*self.key_index.get(name)?).map(|(_, value)| value)
    }

    /// The nested section `name`.
    pub(super) fn section(&self, name: &str) -> Option<SectionId> {
        self.section_index.get(name).copied()
    }
}

/// All sections of a configuration.
#[derive(Debug)]
pub(super) struct Tree {
    sections: Vec<Section>,
}

impl Tree {
    /// The top level.
    pub(super) const ROOT: SectionId = SectionId(0);

    /// An empty tree.
    pub(super) fn new(location: Location) -> Self {
        Self { sections: vec![Section::new(location)] }
    }

    /// The section with this index; always `Some` for an index of this tree.
    pub(super) fn get(&self, id: SectionId) -> Option<&Section> {
        self.sections.get(id.0)
    }

    /// Opens the section `name` inside `parent`; creates it if it does not exist.
    pub(super) fn open(&mut self, parent: SectionId, name: &str, location: Location) -> SectionId {
        if let Some(id) = self.get(parent).and_then(|section| section.section(name)) {
            return id;
        }
        let id = SectionId(self.sections.len());
        self.sections.push(Section::new(location));
        if let Some(section) = self.sections.get_mut(parent.0) {
            section.section_index.insert(name.to_owned(), id);
            section.sections.push((name.to_owned(), id));
        }
        id
    }

    /// Notes that another part of the section begins.
    pub(super) fn reopen(&mut self, id: SectionId, location: Location) {
        if let Some(section) = self.sections.get_mut(id.0) {
            section.reopened = Some(location);
        }
    }

    /// Sets the value of a key and replaces an earlier one.
    pub(super) fn set(&mut self, section: SectionId, name: &str, value: Value) {
        let Some(section) = self.sections.get_mut(section.0) else { return };
        match section.key_index.get(name).and_then(|index| section.keys.get_mut(*index)) {
            Some((_, old)) => *old = value,
            None => {
                section.key_index.insert(name.to_owned(), section.keys.len());
                section.keys.push((name.to_owned(), value));
            }
        }
    }

    /// Names of the top-level sections that other sections inherit from.
    pub(super) fn templates(&self) -> HashSet<&str> {
        let references = self.sections.iter().flat_map(|section| &section.references);
        references.filter_map(|reference| reference.name.split('.').next()).collect()
    }

    /// Adds a section to inherit from.
    pub(super) fn refer(&mut self, section: SectionId, reference: Reference) {
        if let Some(section) = self.sections.get_mut(section.0) {
            section.references.push(reference);
        }
    }
}
