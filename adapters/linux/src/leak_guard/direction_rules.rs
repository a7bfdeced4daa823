//! The policies of one direction as groups of chains and sets.

use super::GuardChanges;
use super::set_key::{
    SetKey, SetShape, ShapedKey, for_fragments, is_exact, is_visible_in_fragments, matching,
};
use crate::setup::desired_state::PolicyRank;
use casemate_sa::Selector;
use casemate_wire::invariant::OrBroken;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Elements to add to a set and to remove from it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SetChange {
    /// Name of the set.
    pub(crate) set: String,
    /// Shape of its elements.
    pub(crate) shape: SetShape,
    /// Elements to add.
    pub(crate) add: Vec<SetKey>,
    /// Elements to remove.
    pub(crate) remove: Vec<SetKey>,
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
pub(super) struct DirectionRules {
    /// Prefix of the names of its chains.
    name: &'static str,
    /// The policies that bypass traffic.
    bypasses: BTreeMap<PolicyRank, BypassRule>,
    /// The policies that drop traffic, by the number of bypasses before them.
    groups: BTreeMap<usize, RuleGroup>,
    /// Rule groups that differ from those of the kernel.
    changed: BTreeSet<usize>,
}

/// A policy that bypasses traffic.
#[derive(Debug)]
struct BypassRule {
    rule: String,
    /// Whether it applies to fragments. RFC 4301 section 7.4: a later fragment must not pass because of
    /// ports.
    for_fragments: bool,
}

/// Policies that drop packets, between two bypasses.
///
/// One chain judges whole packets, a second one fragments. Fragments show everything that most policies
/// match, and both chains look up such policies in the same set. For a policy with ports, the second chain
/// has an element of its own, without the ports.
#[derive(Debug, Default)]
struct RuleGroup {
    /// Elements, and the number of policies for each.
    sets: BTreeMap<SetId, BTreeMap<SetKey, u32>>,
    /// Rules of policies that cannot be elements, and the number of policies for each.
    rules: BTreeMap<DropRule, u32>,
    /// The sets that the kernel has.
    kernel_sets: BTreeSet<SetId>,
    /// Elements that only the kernel has, or that only the desired filter has.
    changed_elements: BTreeSet<SetElement>,
    /// The kernel has other sets or rules.
    rules_changed: bool,
}

/// Identifies a set of a rule group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct SetId {
    shape: SetShape,
    scope: Scope,
}

/// An element of a set of a rule group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct SetElement {
    set: SetId,
    key: SetKey,
}

/// A rule that drops packets.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct DropRule {
    /// Matching expressions, each followed by a space.
    matching: String,
    scope: Scope,
}

/// The packets to which a set or a rule applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Scope {
    All,
    Whole,
    Fragments,
}

impl DirectionRules {
    pub(super) const fn new(name: &'static str) -> Self {
        Self { name, bypasses: BTreeMap::new(), groups: BTreeMap::new(), changed: BTreeSet::new() }
    }

    /// Adds a policy that bypasses traffic. All of these come before any policy that drops.
    pub(super) fn add_bypass(&mut self, rank: PolicyRank, selector: &Selector) {
        // A rule that matches more packets than the policy would bypass the protection of others.
        if is_exact(selector) {
            let rule = format!("{}accept", matching(selector));
            self.bypasses.insert(rank, BypassRule { rule, for_fragments: is_visible_in_fragments(selector) });
        }
    }

    /// Adds a policy that drops traffic.
    pub(super) fn add(&mut self, rank: PolicyRank, selector: &Selector) {
        let index = self.group_of(rank);
        self.groups.entry(index).or_default().add(selector);
        self.changed.insert(index);
    }

    /// Removes a policy that drops traffic.
    pub(super) fn remove(&mut self, rank: PolicyRank, selector: &Selector) {
        let index = self.group_of(rank);
        if let Some(group) = self.groups.get_mut(&index).or_report(ADDED_BEFORE) {
            group.remove(selector);
            self.changed.insert(index);
        }
    }

    /// Index of the rule group for this rank. Only the policies of the configuration bypass traffic, so there
    /// are few to count.
    fn group_of(&self, rank: PolicyRank) -> usize {
        self.bypasses.range(..rank).count()
    }

    /// Marks everything as applied to the kernel.
    pub(super) fn mark_applied(&mut self) {
        self.changed.clear();
        for group in self.groups.values_mut() {
            group.kernel_sets = group.sets.keys().copied().collect();
            group.changed_elements.clear();
            group.rules_changed = false;
        }
    }

    /// Takes the changes that the kernel needs. They count as applied.
    pub(super) fn take_changes(&mut self, table: &str, changes: &mut GuardChanges) {
        for index in std::mem::take(&mut self.changed) {
            let prefix = format!("{}{index}", self.name);
            if let Some(group) = self.groups.get_mut(&index).or_report("a group that has changed exists") {
                group.take_changes(table, &prefix, changes);
            }
        }
    }

    /// Writes the sets and chains of all rule groups.
    pub(super) fn write_groups(&self, text: &mut String) {
        let empty = RuleGroup::default();
        for index in 0..=self.bypasses.len() {
            let prefix = format!("{}{index}", self.name);
            self.groups.get(&index).unwrap_or(&empty).write(&prefix, text);
        }
    }

    /// Writes the two chains that call the rule groups in order: for whole packets, and for fragments.
    pub(super) fn write_dispatch_chains(&self, text: &mut String) {
        let name = self.name;
        for (chain, suffix, of_fragments) in [("whole", "", false), ("fragment", FRAGMENTS, true)] {
            let _ = writeln!(text, "  chain {name}_{chain} {{\n    jump {name}0{suffix}");
            for (index, bypass) in (1..).zip(self.bypasses.values()) {
                if bypass.for_fragments || !of_fragments {
                    let _ = writeln!(text, "    {}", bypass.rule);
                }
                let _ = writeln!(text, "    jump {name}{index}{suffix}");
            }
            text.push_str("  }\n");
        }
    }
}

impl RuleGroup {
    fn add(&mut self, selector: &Selector) {
        for part in ScopedSelector::parts(selector) {
            let Some(element) = part.element() else {
                self.rules_changed |= count_up(&mut self.rules, part.rule());
                continue;
            };
            let elements = self.sets.entry(element.set).or_default();
            self.rules_changed |= elements.is_empty();
            if count_up(elements, element.key) {
                self.toggle_difference(element);
            }
        }
    }

    fn remove(&mut self, selector: &Selector) {
        for part in ScopedSelector::parts(selector) {
            let Some(element) = part.element() else {
                self.rules_changed |= count_down(&mut self.rules, &part.rule());
                continue;
            };
            let Some(elements) = self.sets.get_mut(&element.set).or_report(ADDED_BEFORE) else { continue };
            let is_gone = count_down(elements, &element.key);
            if elements.is_empty() {
                self.sets.remove(&element.set);
                self.rules_changed = true;
            }
            if is_gone {
                self.toggle_difference(element);
            }
        }
    }

    /// Toggles a difference: an element that is added and removed before the kernel has it is no difference.
    fn toggle_difference(&mut self, element: SetElement) {
        if !self.changed_elements.remove(&element) {
            self.changed_elements.insert(element);
        }
    }

    fn take_changes(&mut self, table: &str, prefix: &str, changes: &mut GuardChanges) {
        let old_sets = std::mem::replace(&mut self.kernel_sets, self.sets.keys().copied().collect());
        if std::mem::take(&mut self.rules_changed) {
            self.rewrite_chains(&old_sets, table, prefix, &mut changes.script);
        }
        for SetElement { set, key } in std::mem::take(&mut self.changed_elements) {
            // A new set was created with its elements, and a removed set took its elements along.
            if let Some(elements) = self.sets.get(&set).filter(|_| old_sets.contains(&set)) {
                changes.element(set.name(prefix), set.shape, key, elements.contains_key(&key));
            }
        }
    }

    /// Rewrites the rules of the chains, and adds and removes the sets that they need.
    fn rewrite_chains(&self, old_sets: &BTreeSet<SetId>, table: &str, prefix: &str, script: &mut String) {
        for (set, elements) in self.sets.iter().filter(|(set, _)| !old_sets.contains(set)) {
            let (name, body) = (set.name(prefix), body(&set.shape, elements));
            let _ = writeln!(script, "add set inet {table} {name} {body}");
        }
        for (suffix, excluded) in CHAINS {
            let _ = writeln!(script, "flush chain inet {table} {prefix}{suffix}");
            for rule in self.chain(prefix, excluded) {
                let _ = writeln!(script, "add rule inet {table} {prefix}{suffix} {rule}");
            }
        }
        for set in old_sets.iter().filter(|set| !self.sets.contains_key(set)) {
            let _ = writeln!(script, "delete set inet {table} {}", set.name(prefix));
        }
    }

    /// Writes the sets and the chains.
    fn write(&self, prefix: &str, text: &mut String) {
        for (set, elements) in &self.sets {
            let _ = writeln!(text, "  set {} {}", set.name(prefix), body(&set.shape, elements));
        }
        for (suffix, excluded) in CHAINS {
            let _ = writeln!(text, "  chain {prefix}{suffix} {{");
            for rule in self.chain(prefix, excluded) {
                let _ = writeln!(text, "    {rule}");
            }
            text.push_str("  }\n");
        }
    }

    /// The rules of a chain: all except those for other packets.
    fn chain(&self, prefix: &str, excluded: Scope) -> impl Iterator<Item = String> {
        let sets = self.sets.keys().filter(move |set| set.scope != excluded);
        let lookups = sets.map(move |set| set.shape.lookup(&set.name(prefix)) + " ");
        let rules = self.rules.keys().filter(move |rule| rule.scope != excluded);
        let rules = rules.map(|rule| rule.matching.clone());
        lookups.chain(rules).map(|matching| format!("{matching}counter drop"))
    }
}

/// Suffix of the chain for fragments of a rule group, and of sets that only this chain uses.
const FRAGMENTS: &str = "_frag";

/// The chains of a rule group, and the scope that each excludes.
const CHAINS: [(&str, Scope); 2] = [("", Scope::Fragments), (FRAGMENTS, Scope::Whole)];

/// A selector for some of the packets of a policy.
struct ScopedSelector {
    selector: Selector,
    scope: Scope,
}

impl ScopedSelector {
    /// Converts a policy to one selector for all packets, or to one for whole packets and one for fragments.
    fn parts(selector: &Selector) -> impl Iterator<Item = Self> {
        let is_visible = match ShapedKey::of(selector) {
            Some(ShapedKey { shape, .. }) => shape.is_visible_in_fragments(),
            None => is_visible_in_fragments(selector),
        };
        let scope = if is_visible { Scope::All } else { Scope::Whole };
        let of_fragments =
            (!is_visible).then(|| Self { selector: for_fragments(selector), scope: Scope::Fragments });
        std::iter::once(Self { selector: *selector, scope }).chain(of_fragments)
    }

    /// The selector as an element of a set, if it can be one.
    fn element(&self) -> Option<SetElement> {
        let ShapedKey { shape, key } = ShapedKey::of(&self.selector)?;
        Some(SetElement { set: SetId { shape, scope: self.scope }, key })
    }

    /// The selector as a rule.
    fn rule(&self) -> DropRule {
        DropRule { matching: matching(&self.selector), scope: self.scope }
    }
}

impl SetId {
    /// Name of the set, unique in its rule group: the shape determines whether a set is for all packets or
    /// for whole ones.
    fn name(&self, prefix: &str) -> String {
        let suffix = if self.scope == Scope::Fragments { FRAGMENTS } else { "" };
        format!("{prefix}_{}{suffix}", self.shape.name())
    }
}

/// Definition of a set, behind its name.
fn body(shape: &SetShape, elements: &BTreeMap<SetKey, u32>) -> String {
    format!("{{ type {}; elements = {{ {} }} }}", shape.set_type(), list(elements.keys()))
}

/// Elements as nft lists them.
fn list<'k>(keys: impl IntoIterator<Item = &'k SetKey>) -> String {
    let keys: Vec<String> = keys.into_iter().map(ToString::to_string).collect();
    keys.join(", ")
}

const ADDED_BEFORE: &str = "a removed selector was added before";

/// Counts a use. Returns whether it is the first one.
fn count_up<K: Ord>(counts: &mut BTreeMap<K, u32>, key: K) -> bool {
    let count = counts.entry(key).or_default();
    *count = count.saturating_add(1);
    *count == 1
}

/// Removes a use. Returns whether it was the last one.
fn count_down<K: Ord>(counts: &mut BTreeMap<K, u32>, key: &K) -> bool {
    let Some(count) = counts.get_mut(key).or_report(ADDED_BEFORE) else { return false };
    *count = count.checked_sub(1).or_broken(ADDED_BEFORE, 0);
    *count == 0 && counts.remove(key).is_some()
}
