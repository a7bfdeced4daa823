//! Sections and keys as the files write them: nested, merged, not yet interpreted.
//!
//! A section that is written twice is one section: keys of the second replace those of the first. References are kept as
//! names, because the section that they name may come later; [`super::view`] follows them.

use super::problem::Place;
use std::collections::{HashMap, HashSet};
use std::fmt;
use zeroize::Zeroizing;

/// The text of a value, and where it stands. It may be a secret.
#[derive(Clone)]
pub(super) struct Value {
    pub(super) text: Zeroizing<String>,
    pub(super) place: Place,
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Value at {}", self.place)
    }
}

/// Names a section of a [`Tree`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct SectionId(usize);

/// What stands between two braces.
#[derive(Debug)]
pub(super) struct Section {
    /// Where it was first opened.
    pub(super) place: Place,
    /// Keys and their values, in the order of their first mention.
    pub(super) keys: Vec<(String, Value)>,
    /// Sections inside, in the order of their first mention.
    pub(super) sections: Vec<(String, SectionId)>,
    /// Absolute names of the sections it inherits from.
    pub(super) references: Vec<Reference>,
    key_index: HashMap<String, usize>,
    section_index: HashMap<String, SectionId>,
}

/// The name of a section to inherit from.
#[derive(Debug, Clone)]
pub(super) struct Reference {
    pub(super) name: String,
    pub(super) place: Place,
}

impl Section {
    fn new(place: Place) -> Self {
        Self {
            place,
            keys: Vec::new(),
            sections: Vec::new(),
            references: Vec::new(),
            key_index: HashMap::new(),
            section_index: HashMap::new(),
        }
    }

    /// The value of a key, which is empty if the key was cleared.
    pub(super) fn key(&self, name: &str) -> Option<&Value> {
        self.keys.get(*self.key_index.get(name)?).map(|(_, value)| value)
    }

    /// The section of this name inside.
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
    /// The section around everything.
    pub(super) const ROOT: SectionId = SectionId(0);

    /// No key and no section yet.
    pub(super) fn new(place: Place) -> Self {
        Self { sections: vec![Section::new(place)] }
    }

    /// A section; `None` never happens with an id of this tree.
    pub(super) fn get(&self, id: SectionId) -> Option<&Section> {
        self.sections.get(id.0)
    }

    /// Opens the section `name` inside of `parent`: a new one, or the one that is there already.
    pub(super) fn open(&mut self, parent: SectionId, name: &str, place: Place) -> SectionId {
        if let Some(id) = self.get(parent).and_then(|section| section.section(name)) {
            return id;
        }
        let id = SectionId(self.sections.len());
        self.sections.push(Section::new(place));
        if let Some(section) = self.sections.get_mut(parent.0) {
            section.section_index.insert(name.to_owned(), id);
            section.sections.push((name.to_owned(), id));
        }
        id
    }

    /// Gives a key its value, instead of the one it had.
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

    /// Names of the outermost sections that others inherit from.
    pub(super) fn templates(&self) -> HashSet<&str> {
        let references = self.sections.iter().flat_map(|section| &section.references);
        references.filter_map(|reference| reference.name.split('.').next()).collect()
    }

    /// Lets a section inherit from another one as well.
    pub(super) fn refer(&mut self, section: SectionId, reference: Reference) {
        if let Some(section) = self.sections.get_mut(section.0) {
            section.references.push(reference);
        }
    }
}
