//! The ordered policies of one direction (RFC 4301 section 4.4.1: "The SPD is an ordered database").
//!
//! A slab stores the policies, and [`tuple`](super::tuple) finds the policy that decides. Used after a miss
//! in the flow cache. The table does not depend on SAs. Its size is bounded; a full table rejects new
//! policies.

use super::KeyedHash;
use super::policy::{Action, Policy};
use super::tuple::{Rule, TupleSpace};
use crate::slab::{Full, Slab, SlotKey};
use alloc::vec::Vec;
use casemate_sa::table::MapKey;
use casemate_sa::{AddrRange, Selector, SpdId};
use casemate_wire::flow::FlowKey;
use core::fmt;

/// Identifier of one policy. It is not used again after the policy is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyId {
    slot: u32,
    generation: u32,
}

impl fmt::Display for PolicyId {
    /// Writes the two numbers, for a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.slot, self.generation)
    }
}

impl MapKey for PolicyId {
    fn words(self) -> [u64; 2] {
        [self.slot.into(), self.generation.into()]
    }
}

/// Result of a look-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup<'a> {
    /// This policy is the first that matches.
    Match(PolicyId, &'a Policy),
    /// The first policy that might match needs ports or a protocol that the flow hides. The packet must be
    /// reassembled or dropped: a port selector cannot match a non-initial fragment (RFC 4301 section
    /// 4.4.1.1).
    NeedsPorts,
    /// No policy matches. The packet must be discarded (RFC 4301 section 5.2 step 3b).
    NoMatch,
}

/// Why a policy was not inserted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InsertError {
    /// The table has reached its limit.
    TableFull {
        /// Maximum number of policies.
        limit: usize,
    },
    /// Source and destination have different IP versions (RFC 4301 section 4.4.1.1: "not a mix of address
    /// types").
    MixedVersions {
        /// The source range.
        src: AddrRange,
        /// The destination range.
        dst: AddrRange,
    },
}

/// The SPDs of one direction.
#[derive(Debug)]
pub struct PolicyTable {
    policies: Slab<Stored>,
    limit: usize,
    next_serial: u64,
    hash: KeyedHash,
    v4: TupleSpace,
    v6: TupleSpace,
}

#[derive(Debug)]
struct Stored {
    /// Order of insertion.
    serial: u64,
    policy: Policy,
}

impl Stored {
    /// The entry of the index for this policy.
    const fn rule(&self, slot: u32) -> Rule {
        Rule { priority: self.policy.priority, serial: self.serial, slot }
    }
}

impl PolicyTable {
    /// An empty table for at most `limit` policies. `seed` should be random, so that hash collisions are
    /// unpredictable.
    pub fn new(limit: usize, seed: u64) -> Self {
        Self {
            policies: Slab::new(),
            limit,
            next_serial: 0,
            hash: KeyedHash::new(seed),
            v4: TupleSpace::default(),
            v6: TupleSpace::default(),
        }
    }

    /// Adds a policy after those of the same priority.
    pub fn insert(&mut self, policy: Policy) -> Result<PolicyId, InsertError> {
        let (spd, selector) = (policy.spd, policy.selector);
        if selector.src.is_ipv4() != selector.dst.is_ipv4() {
            return Err(InsertError::MixedVersions { src: selector.src, dst: selector.dst });
        }
        let full = InsertError::TableFull { limit: self.limit };
        if self.policies.len() >= self.limit {
            return Err(full);
        }
        let (priority, serial) = (policy.priority, self.next_serial);
        let SlotKey { slot, generation } =
            self.policies.insert(Stored { serial, policy }).map_err(|Full| full)?;
        let rule = Rule { priority, serial, slot };
        // 64 bits never wrap in practice.
        self.next_serial = self.next_serial.wrapping_add(1);
        let (space, hash) = self.space_mut(&selector);
        space.insert(hash, spd, &selector, rule);
        Ok(PolicyId { slot, generation })
    }

    /// Removes a policy and returns it; `None` if it does not exist.
    pub fn remove(&mut self, id: PolicyId) -> Option<Policy> {
        let stored = self.policies.remove(id.slot, id.generation)?;
        let (rule, policy) = (stored.rule(id.slot), stored.policy);
        let (space, hash) = self.space_mut(&policy.selector);
        space.remove(hash, policy.spd, &policy.selector, rule);
        Some(policy)
    }

    /// The policy with this ID, if it exists.
    pub fn get(&self, id: PolicyId) -> Option<&Policy> {
        self.policies.get(id.slot, id.generation).map(|stored| &stored.policy)
    }

    /// All policies in order of precedence: by priority, then by insertion. Sorts; not meant for each packet.
    pub fn iter(&self) -> impl Iterator<Item = (PolicyId, &Policy)> {
        let mut rules: Vec<Rule> = self.policies.iter().map(|(slot, _, stored)| stored.rule(slot)).collect();
        rules.sort_unstable();
        rules.into_iter().filter_map(|rule| self.by_rule(rule))
    }

    /// Number of policies. Counts them; not meant for each packet.
    pub fn len(&self) -> usize {
        self.policies.iter().count()
    }

    /// Whether there is no policy.
    pub fn is_empty(&self) -> bool {
        self.policies.is_empty()
    }

    /// The first policy of an SPD, in order of precedence, that matches the flow. All fragments of a datagram
    /// get the same result: fields that one of the fragments hides are used for none (RFC 4301 section 7).
    pub fn lookup(&self, spd: SpdId, flow: &FlowKey) -> Lookup<'_> {
        let visible = flow.common_to_all_fragments();
        self.first_of(spd, flow, |policy| Fit::of(&policy.selector, &visible))
    }

    /// Looks up a flow that came through a tunnel, which BYPASS never admits. A BYPASS policy that only may
    /// match a fragment is skipped. If it does match, the first fragment shows that and is not admitted.
    pub fn lookup_tunnelled(&self, spd: SpdId, flow: &FlowKey) -> Lookup<'_> {
        let visible = flow.common_to_all_fragments();
        self.first_of(spd, flow, |policy| match policy.action {
            Action::Bypass if policy.selector.matches(flow) => Fit::Match,
            Action::Bypass => Fit::NoMatch,
            Action::Discard | Action::Protect(_) => Fit::of(&policy.selector, &visible),
        })
    }

    /// The first policy of an SPD that matches without the fields that fragments of the flow hide; `None` if
    /// there is none.
    pub fn lookup_visible(&self, spd: SpdId, flow: &FlowKey) -> Option<&Policy> {
        let visible = flow.common_to_all_fragments();
        let fit = |policy: &Policy| match policy.selector.matches(&visible) {
            true => Fit::Match,
            false => Fit::NoMatch,
        };
        match self.first_of(spd, flow, fit) {
            Lookup::Match(_, policy) => Some(policy),
            Lookup::NeedsPorts | Lookup::NoMatch => None,
        }
    }

    /// The first policy with the SPD, selector and priority of `first`, which matches the flow, that fulfils
    /// a condition. Several tunnels for the same traffic have such policies.
    pub fn find_equal(&self, flow: &FlowKey, first: &Policy, is_so: impl Fn(&Policy) -> bool) -> Lookup<'_> {
        let fit = |policy: &Policy| {
            let is_equal = policy.priority == first.priority && policy.selector == first.selector;
            if is_equal && is_so(policy) { Fit::Match } else { Fit::NoMatch }
        };
        self.first_of(first.spd, flow, fit)
    }

    /// The first policy of an SPD whose fit is not [`Fit::NoMatch`].
    fn first_of(&self, spd: SpdId, flow: &FlowKey, fit: impl Fn(&Policy) -> Fit) -> Lookup<'_> {
        let space = if flow.src().is_ipv4() { &self.v4 } else { &self.v6 };
        let may_fit = |rule: &Rule| {
            let stored = self.policies.slot(rule.slot);
            stored.is_some_and(|Stored { policy, .. }| policy.spd == spd && fit(policy) != Fit::NoMatch)
        };
        match space.first(&self.hash, spd, flow, may_fit).and_then(|rule| self.by_rule(rule)) {
            Some((id, policy)) if fit(policy) == Fit::Match => Lookup::Match(id, policy),
            Some(_) => Lookup::NeedsPorts,
            None => Lookup::NoMatch,
        }
    }

    fn space_mut(&mut self, selector: &Selector) -> (&mut TupleSpace, &KeyedHash) {
        (if selector.src.is_ipv4() { &mut self.v4 } else { &mut self.v6 }, &self.hash)
    }

    fn by_rule(&self, rule: Rule) -> Option<(PolicyId, &Policy)> {
        let stored = self.policies.slot(rule.slot)?;
        let id = PolicyId { slot: rule.slot, generation: self.policies.generation(rule.slot) };
        Some((id, &stored.policy))
    }
}

/// Whether a policy matches a flow.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fit {
    Match,
    /// Depends on fields that the flow hides (OPAQUE).
    MayMatch,
    NoMatch,
}

impl Fit {
    fn of(selector: &Selector, flow: &FlowKey) -> Self {
        match (selector.matches(flow), selector.may_match(flow)) {
            (true, _) => Self::Match,
            (false, true) => Self::MayMatch,
            (false, false) => Self::NoMatch,
        }
    }
}

impl fmt::Display for InsertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TableFull { limit } => write!(f, "policy table is full: it holds at most {limit}"),
            Self::MixedVersions { src, dst } => {
                write!(f, "selector {src} -> {dst} mixes IP versions: both must be IPv4 or both IPv6")
            }
        }
    }
}

impl core::error::Error for InsertError {}

#[cfg(test)]
mod tests;
