//! Sections with inherited keys and sections resolved.
//!
//! References are resolved on access, so that they may name sections that come later (strongswan.conf(5),
//! "referencing other sections"). A [`Resolved`] section is a list of sections of the tree; the first one
//! that has a key gives its value.

use super::problem::{Location, Problem};
use super::tree::{Reference, Section, SectionId, Tree, Value};
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Maximum length of a chain of references.
const MAX_DEPTH: usize = 16;

/// Resolves references in a tree and records errors.
pub(super) struct Resolver<'t> {
    tree: &'t Tree,
    problems: RefCell<BTreeSet<Problem>>,
    /// The layers of each section that was resolved; `None` while a section is being resolved.
    known: RefCell<HashMap<SectionId, Option<Vec<SectionId>>>>,
}

impl<'t> Resolver<'t> {
    pub(super) fn new(tree: &'t Tree) -> Self {
        Self { tree, problems: RefCell::default(), known: RefCell::default() }
    }

    /// The top level.
    pub(super) fn root(&self) -> Resolved<'_, 't> {
        Resolved { resolver: self, layers: vec![Tree::ROOT], path: String::new() }
    }

    /// Returns the broken references.
    pub(super) fn into_problems(self) -> BTreeSet<Problem> {
        self.problems.into_inner()
    }

    /// The section itself, then the sections that it inherits from, from left to right.
    fn expand(&self, id: SectionId, depth: usize) -> Vec<SectionId> {
        let known = self.known.borrow().get(&id).cloned();
        match (known, self.tree.get(id)) {
            (Some(Some(layers)), _) => layers,
            (None, Some(section)) => {
                self.known.borrow_mut().insert(id, None);
                let layers = self.follow(id, section, depth);
                self.known.borrow_mut().insert(id, Some(layers.clone()));
                layers
            }
            (Some(None), Some(section)) => {
                if let Some(reference) = section.references.first() {
                    self.error(reference, "the section inherits from itself");
                }
                vec![id]
            }
            (_, None) => Vec::new(),
        }
    }

    fn follow(&self, id: SectionId, section: &Section, depth: usize) -> Vec<SectionId> {
        let mut layers = vec![id];
        for reference in &section.references {
            if depth >= MAX_DEPTH {
                self.error(reference, &format!("references are nested more than {MAX_DEPTH} deep"));
                return layers;
            }
            let mut found = vec![Tree::ROOT];
            for part in reference.name.split('.') {
                found = self.descend(&found, part, depth.saturating_add(1));
            }
            if found.is_empty() {
                self.error(reference, "there is no such section");
            }
            merge(&mut layers, found);
        }
        layers
    }

    /// The sections `name` inside any of `layers`, with the sections that they inherit from.
    fn descend(&self, layers: &[SectionId], name: &str, depth: usize) -> Vec<SectionId> {
        let mut found = Vec::new();
        for layer in layers {
            if let Some(subsections) = self.tree.get(*layer).and_then(|section| section.section(name)) {
                merge(&mut found, self.expand(subsections, depth));
            }
        }
        found
    }

    fn error(&self, reference: &Reference, why: &str) {
        let text = format!("reference to `{}`: {why}", reference.name);
        self.problems.borrow_mut().insert(Problem::new(&reference.location, text));
    }
}

/// Appends the layers that are not in the list yet.
fn merge(layers: &mut Vec<SectionId>, more: Vec<SectionId>) {
    for layer in more {
        if !layers.contains(&layer) {
            layers.push(layer);
        }
    }
}

/// A section with everything that it inherits.
pub(super) struct Resolved<'r, 't> {
    resolver: &'r Resolver<'t>,
    layers: Vec<SectionId>,
    /// Names of the enclosing sections and of this one, separated by dots.
    path: String,
}

impl<'r, 't> Resolved<'r, 't> {
    /// The full name of the section.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// The full name of the key or section `name` in this section.
    pub(super) fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// The last part of the full name.
    pub(super) fn name(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or_default()
    }

    fn sections_of_layers(&self) -> impl Iterator<Item = &'t Section> {
        self.layers.iter().filter_map(|layer| self.resolver.tree.get(*layer))
    }

    /// Where another part of the section begins, if it has several.
    pub(super) fn reopened(&self) -> Option<&Location> {
        self.resolver.tree.get(*self.layers.first()?)?.reopened.as_ref()
    }

    /// Location of the section.
    pub(super) fn location(&self) -> Option<&'t Location> {
        self.sections_of_layers().next().map(|section| &section.location)
    }

    /// Every key that has a value, once, in the order of the files.
    pub(super) fn keys(&self) -> Vec<(&'t str, &'t Value)> {
        let mut seen = HashSet::new();
        self.sections_of_layers()
            .flat_map(|section| &section.keys)
            .filter(|(name, _)| seen.insert(name.as_str()))
            .filter(|(_, value)| !value.text.is_empty())
            .map(|(name, value)| (name.as_str(), value))
            .collect()
    }

    /// The value of a key. An empty value clears an inherited one.
    pub(super) fn key(&self, name: &str) -> Option<&'t Value> {
        let value = self.sections_of_layers().find_map(|section| section.key(name))?;
        if value.text.is_empty() { None } else { Some(value) }
    }

    /// The nested sections, in the order of the files.
    pub(super) fn sections(&self) -> Vec<Resolved<'r, 't>> {
        let mut seen = HashSet::new();
        self.sections_of_layers()
            .flat_map(|section| &section.sections)
            .filter(|(name, _)| seen.insert(name.as_str()))
            .map(|(name, _)| self.section(name))
            .collect()
    }

    fn section(&self, name: &str) -> Resolved<'r, 't> {
        Resolved {
            resolver: self.resolver,
            layers: self.resolver.descend(&self.layers, name, 0),
            path: self.path_of(name),
        }
    }
}
