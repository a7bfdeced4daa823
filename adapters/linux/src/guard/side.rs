//! The policies of one direction as layers of chains and sets.

use super::Difference;
use super::shape::{Key, Shape, for_fragments, is_exact, is_shown_by_fragments, matching};
use crate::rank::Rank;
use casemate_sa::Selector;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Elements that come into one set and leave it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SetChange {
    /// Name of the set.
    pub(crate) set: String,
    /// The shape of its elements.
    pub(crate) shape: Shape,
    /// They come.
    pub(crate) add: Vec<Key>,
    /// They go.
    pub(crate) remove: Vec<Key>,
}

impl SetChange {
    /// Writes the change as commands for `nft -f -`.
    pub(super) fn write(&self, table: &str, script: &mut String) {
        for (command, keys) in [("add", &self.add), ("delete", &self.remove)] {
            if !keys.is_empty() {
                let _ = writeln!(script, "{command} element inet {table} {} {{ {} }}", self.set, list(keys));
            }
        }
    }
}

/// The policies of one direction.
#[derive(Debug)]
pub(super) struct Side {
    /// Name of its chain.
    name: &'static str,
    /// The policies that pass packets.
    passing: BTreeMap<Rank, Passing>,
    /// Those that drop them, by how many that pass packets come before.
    layers: BTreeMap<usize, Layer>,
    /// Layers that the kernel has in another way.
    touched: BTreeSet<usize>,
}

/// A policy that passes packets.
#[derive(Debug)]
struct Passing {
    rule: String,
    /// Whether it can be judged for a fragment. RFC 4301 section 7.4: a later fragment does not pass because
    /// of ports.
    for_fragments: bool,
}

/// Policies that drop packets, between two that pass them.
///
/// Its chain judges whole packets, a second one fragments. Most policies are told from others by what each
/// fragment shows, and both chains look them up in the same set. For a policy with ports the second chain has
/// an element of its own, without them.
#[derive(Debug, Default)]
struct Layer {
    /// Elements, and how many policies ask for each.
    sets: BTreeMap<SetId, BTreeMap<Key, u32>>,
    /// Policies that are no elements, as matching expressions.
    rules: BTreeMap<(String, Judges), u32>,
    /// The sets that the kernel has.
    standing: BTreeSet<SetId>,
    /// Elements that the kernel has and that are not wanted any more, or the other way round.
    differing: BTreeSet<(SetId, Key)>,
    /// The kernel has other sets or rules.
    reshaped: bool,
}

/// Names a set of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct SetId {
    shape: Shape,
    judges: Judges,
}

/// Which packets a set or a rule is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Judges {
    All,
    Whole,
    Fragments,
}

impl Side {
    pub(super) const fn new(name: &'static str) -> Self {
        Self { name, passing: BTreeMap::new(), layers: BTreeMap::new(), touched: BTreeSet::new() }
    }

    /// A policy that passes packets comes, before any that drops them.
    pub(super) fn pass(&mut self, rank: Rank, selector: &Selector) {
        // A rule for more packets than the policy would let through what others protect.
        if is_exact(selector) {
            let rule = format!("{}accept", matching(selector));
            self.passing.insert(rank, Passing { rule, for_fragments: is_shown_by_fragments(selector) });
        }
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
    pub(super) fn update(&mut self, table: &str, difference: &mut Difference) {
        for at in std::mem::take(&mut self.touched) {
            let prefix = format!("{}{at}", self.name);
            if let Some(layer) = self.layers.get_mut(&at) {
                layer.update(table, &prefix, difference);
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

    /// Writes the two chains that ask the layers in their order: for whole packets, and for fragments.
    pub(super) fn order(&self, text: &mut String) {
        let name = self.name;
        for (chain, suffix, of_fragments) in [("whole", "", false), ("fragment", FRAGMENTS, true)] {
            let _ = writeln!(text, "  chain {name}_{chain} {{\n    jump {name}0{suffix}");
            for (at, passing) in (1..).zip(self.passing.values()) {
                if passing.for_fragments || !of_fragments {
                    let _ = writeln!(text, "    {}", passing.rule);
                }
                let _ = writeln!(text, "    jump {name}{at}{suffix}");
            }
            text.push_str("  }\n");
        }
    }
}

impl Layer {
    fn add(&mut self, selector: &Selector) {
        for (selector, judges) in parts(selector) {
            let Some((set, key)) = SetId::of(&selector, judges) else {
                self.reshaped |= count_up(&mut self.rules, (matching(&selector), judges));
                continue;
            };
            let elements = self.sets.entry(set).or_default();
            self.reshaped |= elements.is_empty();
            if count_up(elements, key) {
                self.differs(set, key);
            }
        }
    }

    fn remove(&mut self, selector: &Selector) {
        for (selector, judges) in parts(selector) {
            let Some((set, key)) = SetId::of(&selector, judges) else {
                self.reshaped |= count_down(&mut self.rules, &(matching(&selector), judges));
                continue;
            };
            let Some(elements) = self.sets.get_mut(&set) else { continue };
            let gone = count_down(elements, &key);
            if elements.is_empty() {
                self.sets.remove(&set);
                self.reshaped = true;
            }
            if gone {
                self.differs(set, key);
            }
        }
    }

    /// An element that came and went before the kernel heard of it does not differ any more.
    fn differs(&mut self, set: SetId, key: Key) {
        if !self.differing.remove(&(set, key)) {
            self.differing.insert((set, key));
        }
    }

    fn update(&mut self, table: &str, prefix: &str, difference: &mut Difference) {
        let standing = std::mem::replace(&mut self.standing, self.sets.keys().copied().collect());
        if std::mem::take(&mut self.reshaped) {
            self.reshape(&standing, table, prefix, &mut difference.script);
        }
        for (set, key) in std::mem::take(&mut self.differing) {
            // A new set has come with its elements, and one that is gone has taken its own along.
            if let Some(elements) = self.sets.get(&set).filter(|_| standing.contains(&set)) {
                difference.element(set.name(prefix), (set.shape, key), elements.contains_key(&key));
            }
        }
    }

    /// Gives the chains their rules anew, and the table the sets that these need.
    fn reshape(&self, standing: &BTreeSet<SetId>, table: &str, prefix: &str, script: &mut String) {
        for (set, elements) in self.sets.iter().filter(|(set, _)| !standing.contains(set)) {
            let (name, body) = (set.name(prefix), body(&set.shape, elements));
            let _ = writeln!(script, "add set inet {table} {name} {body}");
        }
        for (suffix, left_out) in CHAINS {
            let _ = writeln!(script, "flush chain inet {table} {prefix}{suffix}");
            for rule in self.chain(prefix, left_out) {
                let _ = writeln!(script, "add rule inet {table} {prefix}{suffix} {rule}");
            }
        }
        for set in standing.iter().filter(|set| !self.sets.contains_key(set)) {
            let _ = writeln!(script, "delete set inet {table} {}", set.name(prefix));
        }
    }

    /// Writes the sets and the chains.
    fn write(&self, prefix: &str, text: &mut String) {
        for (set, elements) in &self.sets {
            let _ = writeln!(text, "  set {} {}", set.name(prefix), body(&set.shape, elements));
        }
        for (suffix, left_out) in CHAINS {
            let _ = writeln!(text, "  chain {prefix}{suffix} {{");
            for rule in self.chain(prefix, left_out) {
                let _ = writeln!(text, "    {rule}");
            }
            text.push_str("  }\n");
        }
    }

    /// The rules of a chain: all but those for other packets.
    fn chain(&self, prefix: &str, left_out: Judges) -> impl Iterator<Item = String> {
        let sets = self.sets.keys().filter(move |set| set.judges != left_out);
        let lookups = sets.map(move |set| set.shape.lookup(&set.name(prefix)) + " ");
        let rules = self.rules.keys().filter(move |(_, judges)| *judges != left_out);
        let rules = rules.map(|(matching, _)| matching.clone());
        lookups.chain(rules).map(|matching| format!("{matching}counter drop"))
    }
}

/// What is behind the name of a layer's chain for fragments, and of sets that only this chain uses.
const FRAGMENTS: &str = "_frag";

/// The chains of a layer, and what is not for each.
const CHAINS: [(&str, Judges); 2] = [("", Judges::Fragments), (FRAGMENTS, Judges::Whole)];

/// A policy as one selector for all packets, or as one for whole packets and one for fragments.
fn parts(selector: &Selector) -> impl Iterator<Item = (Selector, Judges)> {
    let shown = match Shape::of(selector) {
        Some((shape, _)) => shape.is_shown_by_fragments(),
        None => is_shown_by_fragments(selector),
    };
    let judges = if shown { Judges::All } else { Judges::Whole };
    let of_fragments = (!shown).then(|| (for_fragments(selector), Judges::Fragments));
    std::iter::once((*selector, judges)).chain(of_fragments)
}

impl SetId {
    fn of(selector: &Selector, judges: Judges) -> Option<(Self, Key)> {
        Shape::of(selector).map(|(shape, key)| (Self { shape, judges }, key))
    }

    /// Different from those of other sets of the layer: the shape says whether a set is for all packets or
    /// for whole ones.
    fn name(&self, prefix: &str) -> String {
        let suffix = if self.judges == Judges::Fragments { FRAGMENTS } else { "" };
        format!("{prefix}_{}{suffix}", self.shape.name())
    }
}

/// What stands behind the name of a set.
fn body(shape: &Shape, elements: &BTreeMap<Key, u32>) -> String {
    format!("{{ type {}; elements = {{ {} }} }}", shape.set_type(), list(elements.keys()))
}

/// Elements as nft lists them.
fn list<'k>(keys: impl IntoIterator<Item = &'k Key>) -> String {
    let keys: Vec<String> = keys.into_iter().map(ToString::to_string).collect();
    keys.join(", ")
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
