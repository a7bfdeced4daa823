//! The policies of one direction as layers of chains and sets.

use super::Update;
use super::shape::{Key, Shape, matching};
use crate::rank::Rank;
use casemate_sa::Selector;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Elements that come into one set and leave it, as the kernel has them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SetChange {
    /// Name of the set.
    pub(crate) set: String,
    /// They come.
    pub(crate) add: Vec<Vec<u8>>,
    /// They go.
    pub(crate) remove: Vec<Vec<u8>>,
}

/// The policies of one direction.
#[derive(Debug)]
pub(super) struct Side {
    /// Name of its chain.
    name: &'static str,
    /// The policies that pass packets, as rules.
    passing: BTreeMap<Rank, String>,
    /// Those that drop them, by how many that pass packets come before.
    layers: BTreeMap<usize, Layer>,
    /// Layers that the kernel has in another way.
    touched: BTreeSet<usize>,
}

/// Policies that drop packets, between two that pass them.
#[derive(Debug, Default)]
struct Layer {
    /// Elements, and how many policies ask for each.
    sets: BTreeMap<Shape, BTreeMap<Key, u32>>,
    /// Policies that are no elements, as matching expressions.
    rules: BTreeMap<String, u32>,
    /// The sets that the kernel has.
    standing: BTreeSet<Shape>,
    /// Elements that the kernel has and that are not wanted any more, or the other way round.
    differing: BTreeSet<(Shape, Key)>,
    /// The kernel has other sets or rules.
    reshaped: bool,
}

impl Side {
    pub(super) const fn new(name: &'static str) -> Self {
        Self { name, passing: BTreeMap::new(), layers: BTreeMap::new(), touched: BTreeSet::new() }
    }

    /// A policy that passes packets comes, before any that drops them.
    pub(super) fn pass(&mut self, rank: Rank, selector: &Selector) {
        self.passing.insert(rank, format!("{}accept", matching(selector)));
    }

    /// A policy that drops packets comes.
    pub(super) fn add(&mut self, rank: Rank, selector: &Selector) {
        let at = self.layer_of(rank);
        self.layers.entry(at).or_default().add(selector);
        self.touched.insert(at);
    }

    /// A policy that drops packets goes.
    pub(super) fn remove(&mut self, rank: Rank, selector: &Selector) {
        let at = self.layer_of(rank);
        if let Some(layer) = self.layers.get_mut(&at) {
            layer.remove(selector);
            self.touched.insert(at);
        }
    }

    /// Few policies pass packets: those of the configuration.
    fn layer_of(&self, rank: Rank) -> usize {
        self.passing.range(..rank).count()
    }

    /// The kernel has all of it from now on.
    pub(super) fn settle(&mut self) {
        self.touched.clear();
        for layer in self.layers.values_mut() {
            layer.standing = layer.sets.keys().copied().collect();
            layer.differing.clear();
            layer.reshaped = false;
        }
    }

    /// What the kernel lacks, and what it has too much. It counts as done.
    pub(super) fn update(&mut self, table: &str, update: &mut Update) {
        for at in std::mem::take(&mut self.touched) {
            let prefix = format!("{}{at}", self.name);
            if let Some(layer) = self.layers.get_mut(&at) {
                layer.update(table, &prefix, update);
            }
        }
    }

    /// Writes the sets and chains of all layers.
    pub(super) fn layers(&self, text: &mut String) {
        let empty = Layer::default();
        for at in 0..=self.passing.len() {
            let prefix = format!("{}{at}", self.name);
            self.layers.get(&at).unwrap_or(&empty).write(&prefix, text);
        }
    }

    /// Writes the rules that ask the layers in their order.
    pub(super) fn order(&self, text: &mut String) {
        let _ = writeln!(text, "    jump {}0", self.name);
        for (at, rule) in (1..).zip(self.passing.values()) {
            let _ = writeln!(text, "    {rule}\n    jump {}{at}", self.name);
        }
    }
}

impl Layer {
    fn add(&mut self, selector: &Selector) {
        let Some((shape, key)) = Shape::of(selector) else {
            self.reshaped |= count_up(&mut self.rules, matching(selector));
            return;
        };
        let set = self.sets.entry(shape).or_default();
        self.reshaped |= set.is_empty();
        if count_up(set, key) {
            self.differs(shape, key);
        }
    }

    fn remove(&mut self, selector: &Selector) {
        let Some((shape, key)) = Shape::of(selector) else {
            self.reshaped |= count_down(&mut self.rules, &matching(selector));
            return;
        };
        let Some(set) = self.sets.get_mut(&shape) else { return };
        let gone = count_down(set, &key);
        if set.is_empty() {
            self.sets.remove(&shape);
            self.reshaped = true;
        }
        if gone {
            self.differs(shape, key);
        }
    }

    /// An element that came and went before the kernel heard of it does not differ any more.
    fn differs(&mut self, shape: Shape, key: Key) {
        if !self.differing.remove(&(shape, key)) {
            self.differing.insert((shape, key));
        }
    }

    fn update(&mut self, table: &str, prefix: &str, update: &mut Update) {
        let standing = std::mem::replace(&mut self.standing, self.sets.keys().copied().collect());
        if std::mem::take(&mut self.reshaped) {
            self.reshape(&standing, table, prefix, &mut update.script);
        }
        for (shape, key) in std::mem::take(&mut self.differing) {
            // A new set has come with its elements, and one that is gone has taken its own along.
            if let Some(set) = self.sets.get(&shape).filter(|_| standing.contains(&shape)) {
                update.element(set_name(prefix, &shape), key.bytes(&shape), set.contains_key(&key));
            }
        }
    }

    /// Gives the chain its rules anew, and the table the sets that these need.
    fn reshape(&self, standing: &BTreeSet<Shape>, table: &str, prefix: &str, script: &mut String) {
        for (shape, elements) in self.sets.iter().filter(|(shape, _)| !standing.contains(shape)) {
            let _ = writeln!(
                script,
                "add set inet {table} {} {}",
                set_name(prefix, shape),
                body(shape, elements)
            );
        }
        let _ = writeln!(script, "flush chain inet {table} {prefix}");
        for rule in self.chain(prefix) {
            let _ = writeln!(script, "add rule inet {table} {prefix} {rule}");
        }
        for shape in standing.iter().filter(|shape| !self.sets.contains_key(shape)) {
            let _ = writeln!(script, "delete set inet {table} {}", set_name(prefix, shape));
        }
    }

    /// Writes the sets and the chain.
    fn write(&self, prefix: &str, text: &mut String) {
        for (shape, elements) in &self.sets {
            let _ = writeln!(text, "  set {} {}", set_name(prefix, shape), body(shape, elements));
        }
        let _ = writeln!(text, "  chain {prefix} {{");
        for rule in self.chain(prefix) {
            let _ = writeln!(text, "    {rule}");
        }
        text.push_str("  }\n");
    }

    /// The rules of the chain.
    fn chain(&self, prefix: &str) -> impl Iterator<Item = String> {
        let lookups = self.sets.keys().map(move |shape| shape.lookup(&set_name(prefix, shape)) + " ");
        lookups.chain(self.rules.keys().cloned()).map(|matching| format!("{matching}counter drop"))
    }
}

fn set_name(prefix: &str, shape: &Shape) -> String {
    format!("{prefix}_{}", shape.name())
}

/// What stands behind the name of a set.
fn body(shape: &Shape, elements: &BTreeMap<Key, u32>) -> String {
    let elements: Vec<String> = elements.keys().map(ToString::to_string).collect();
    format!("{{ type {}; elements = {{ {} }} }}", shape.set_type(), elements.join(", "))
}

/// Whether it is the first of its kind.
fn count_up<K: Ord>(counts: &mut BTreeMap<K, u32>, key: K) -> bool {
    let count = counts.entry(key).or_default();
    *count = count.saturating_add(1);
    *count == 1
}

/// Whether it was the last of its kind.
fn count_down<K: Ord>(counts: &mut BTreeMap<K, u32>, key: &K) -> bool {
    let Some(count) = counts.get_mut(key) else { return false };
    *count = count.saturating_sub(1);
    *count == 0 && counts.remove(key).is_some()
}
