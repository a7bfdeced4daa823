//! A section as its reader sees it: its own keys and sections, then those it inherits.
//!
//! References are followed when somebody looks, so that they may name sections that come later (strongswan.conf(5),
//! "referencing other sections"). A [`View`] is a list of sections of the tree; the first that has a key gives its value.

use super::problem::{Place, Problem};
use super::tree::{Reference, Section, SectionId, Tree, Value};
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, HashSet};

/// How many references lead from one section to the next, at most.
const MAX_DEPTH: usize = 16;

/// Follows references in a tree, and remembers what went wrong.
pub(super) struct Resolver<'t> {
    tree: &'t Tree,
    problems: RefCell<BTreeSet<Problem>>,
    /// What each section was found to consist of; nothing while it is being found out.
    known: RefCell<HashMap<SectionId, Option<Vec<SectionId>>>>,
}

impl<'t> Resolver<'t> {
    pub(super) fn new(tree: &'t Tree) -> Self {
        Self { tree, problems: RefCell::default(), known: RefCell::default() }
    }

    /// The section around everything.
    pub(super) fn root(&self) -> View<'_, 't> {
        View { resolver: self, layers: vec![Tree::ROOT], path: String::new() }
    }

    /// References that lead nowhere.
    pub(super) fn into_problems(self) -> BTreeSet<Problem> {
        self.problems.into_inner()
    }

    /// A section, and behind it what it inherits from, from left to right.
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
                    self.wrong(reference, "it leads back to this section");
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
                self.wrong(reference, &format!("more than {MAX_DEPTH} references lead here"));
                return layers;
            }
            let mut found = vec![Tree::ROOT];
            for part in reference.name.split('.') {
                found = self.descend(&found, part, depth.saturating_add(1));
            }
            if found.is_empty() {
                self.wrong(reference, "there is no such section");
            }
            merge(&mut layers, found);
        }
        layers
    }

    /// The sections of this name inside of any of `layers`, with what they inherit.
    fn descend(&self, layers: &[SectionId], name: &str, depth: usize) -> Vec<SectionId> {
        let mut found = Vec::new();
        for layer in layers {
            if let Some(inside) = self.tree.get(*layer).and_then(|section| section.section(name)) {
                merge(&mut found, self.expand(inside, depth));
            }
        }
        found
    }

    fn wrong(&self, reference: &Reference, why: &str) {
        let text = format!("reference to `{}`: {why}", reference.name);
        self.problems.borrow_mut().insert(Problem::new(&reference.place, text));
    }
}

/// Adds what is not in the list yet.
fn merge(layers: &mut Vec<SectionId>, more: Vec<SectionId>) {
    for layer in more {
        if !layers.contains(&layer) {
            layers.push(layer);
        }
    }
}

/// A section with everything it inherits.
pub(super) struct View<'r, 't> {
    resolver: &'r Resolver<'t>,
    layers: Vec<SectionId>,
    /// Names of the sections around it and its own, with dots between.
    path: String,
}

impl<'r, 't> View<'r, 't> {
    /// The full name of this section.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// The full name of what is called `name` in this section.
    pub(super) fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// The last part of the path.
    pub(super) fn name(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or_default()
    }

    fn sections_of_layers(&self) -> impl Iterator<Item = &'t Section> {
        self.layers.iter().filter_map(|layer| self.resolver.tree.get(*layer))
    }

    /// Where this section begins.
    pub(super) fn place(&self) -> Option<&'t Place> {
        self.sections_of_layers().next().map(|section| &section.place)
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

    /// The value of a key. An empty one clears what would be inherited.
    pub(super) fn key(&self, name: &str) -> Option<&'t Value> {
        let value = self.sections_of_layers().find_map(|section| section.key(name))?;
        if value.text.is_empty() { None } else { Some(value) }
    }

    /// The sections inside, in the order of the files.
    pub(super) fn sections(&self) -> Vec<View<'r, 't>> {
        let mut seen = HashSet::new();
        self.sections_of_layers()
            .flat_map(|section| &section.sections)
            .filter(|(name, _)| seen.insert(name.as_str()))
            .map(|(name, _)| self.section(name))
            .collect()
    }

    fn section(&self, name: &str) -> View<'r, 't> {
        View {
            resolver: self.resolver,
            layers: self.resolver.descend(&self.layers, name, 0),
            path: self.path_of(name),
        }
    }
}
