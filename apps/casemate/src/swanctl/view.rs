//! A section as its reader sees it: its own keys and sections, then those it inherits.
//!
//! References are followed when somebody looks, so that they may name sections that come later (strongswan.conf(5),
//! "referencing other sections"). A [`View`] is a list of sections of the tree; the first that has a key gives its value.

use super::problem::{Place, Problem};
use super::tree::{Section, SectionId, Tree, Value};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashSet};

/// How many references lead from one section to the next, at most.
const MAX_DEPTH: usize = 16;

/// How many sections are looked at in all. A real file is far below; a few lines that inherit from each other twice are not.
const MAX_STEPS: usize = 1_000_000;

/// Follows references in a tree, and remembers what went wrong.
pub(super) struct Resolver<'t> {
    tree: &'t Tree,
    problems: RefCell<BTreeSet<Problem>>,
    steps: Cell<usize>,
}

impl<'t> Resolver<'t> {
    pub(super) fn new(tree: &'t Tree) -> Self {
        Self { tree, problems: RefCell::default(), steps: Cell::new(0) }
    }

    /// The section around everything.
    pub(super) fn root(&self) -> View<'_, 't> {
        View { resolver: self, layers: self.expand(Tree::ROOT, 0), path: String::new() }
    }

    /// References that lead nowhere.
    pub(super) fn into_problems(self) -> BTreeSet<Problem> {
        self.problems.into_inner()
    }

    /// A section, and behind it what it inherits from, from left to right.
    fn expand(&self, id: SectionId, depth: usize) -> Vec<SectionId> {
        let mut layers = vec![id];
        let Some(section) = self.tree.get(id) else { return layers };
        for reference in &section.references {
            if depth >= MAX_DEPTH || self.steps.get() > MAX_STEPS {
                self.wrong(
                    &reference.place,
                    &reference.name,
                    "too many references: does one lead back to itself?",
                );
                return layers;
            }
            let found = self.find(&reference.name, depth.saturating_add(1));
            if found.is_empty() {
                self.wrong(&reference.place, &reference.name, "there is no such section");
            }
            merge(&mut layers, found);
        }
        layers
    }

    /// The sections that an absolute name stands for.
    fn find(&self, name: &str, depth: usize) -> Vec<SectionId> {
        let mut layers = vec![Tree::ROOT];
        for part in name.split('.') {
            layers = self.descend(&layers, part, depth);
        }
        layers
    }

    /// The sections of this name inside of any of `layers`.
    fn descend(&self, layers: &[SectionId], name: &str, depth: usize) -> Vec<SectionId> {
        let mut found = Vec::new();
        for layer in layers {
            self.steps.set(self.steps.get().saturating_add(1));
            if let Some(inside) = self.tree.get(*layer).and_then(|section| section.section(name)) {
                merge(&mut found, self.expand(inside, depth));
            }
        }
        found
    }

    fn wrong(&self, place: &Place, name: &str, why: &str) {
        self.problems.borrow_mut().insert(Problem::new(place, format!("reference to `{name}`: {why}")));
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
