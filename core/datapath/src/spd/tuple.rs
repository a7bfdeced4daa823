//! Tuple-space search: the index of the policy table.
//!
//! Rules whose two address ranges are prefixes are grouped by their pair of prefix lengths, a tuple. All
//! rules of a tuple that can match a packet have the same masked addresses, so one hash probe finds them. The
//! search visits the tuples in the order of their best rules and ends when no later tuple can have a better
//! rule. With several SPDs, each has its own rules for a pair of prefixes. The cost depends on the number of
//! different pairs of prefix lengths (a handful in practice) and on the number of rules with one pair of
//! addresses, not on the number of policies. Ranges that are not prefixes are few; they are searched in
//! order. The index only finds candidates; `fits` decides.

use super::KeyedHash;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use casemate_sa::{AddrRange, Selector, SpdId};
use casemate_wire::flow::FlowKey;
use casemate_wire::invariant::OrBroken;
use core::net::IpAddr;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

/// One policy in the index. Ordered by precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rule {
    /// The lowest value takes precedence.
    pub(super) priority: u32,
    /// Order of insertion.
    pub(super) serial: u64,
    /// Slot of the policy.
    pub(super) slot: u32,
}

/// The index of the rules of one IP version.
#[derive(Debug, Default)]
pub(super) struct TupleSpace {
    /// Ordered by best rule.
    tuples: Vec<Tuple>,
    buckets: HashTable<Bucket>,
    /// Rules with a range that is not a prefix, in order.
    ranges: Vec<Rule>,
}

/// All rules with one pair of prefix lengths; never empty.
#[derive(Debug)]
struct Tuple {
    lens: PrefixLens,
    /// Copy of the first of `rules`.
    best: Rule,
    /// The rules as [`Rule::words`].
    rules: BTreeSet<[u64; 3]>,
}

/// All rules with one pair of prefixes, in order; never empty.
#[derive(Debug)]
struct Bucket {
    key: PrefixPair,
    rules: Vec<Rule>,
}

/// A pair of prefix lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct PrefixLens {
    src_len: u8,
    dst_len: u8,
}

/// A pair of prefixes in an SPD.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct PrefixPair {
    spd: SpdId,
    src: u128,
    dst: u128,
    lens: PrefixLens,
}

impl TupleSpace {
    /// The first rule in order of precedence whose addresses match and that `fits`.
    pub(super) fn first(
        &self,
        hash: &KeyedHash,
        spd: SpdId,
        flow: &FlowKey,
        fits: impl Fn(&Rule) -> bool,
    ) -> Option<Rule> {
        let (src, dst) = (left_aligned(flow.src()), left_aligned(flow.dst()));
        let mut best = None;
        for tuple in &self.tuples {
            if best.is_some_and(|best| best < tuple.best) {
                break;
            }
            let key = tuple.lens.key(spd, src, dst);
            if let Some(bucket) = self.buckets.find(hash.of(&key), |bucket| bucket.key == key) {
                best = first_fit(&bucket.rules, best, &fits);
            }
        }
        first_fit(&self.ranges, best, &fits)
    }

    /// Adds a rule.
    pub(super) fn insert(&mut self, hash: &KeyedHash, spd: SpdId, selector: &Selector, rule: Rule) {
        let Some(key) = PrefixPair::of(spd, selector) else {
            return insert_in_order(&mut self.ranges, rule);
        };
        match self.buckets.entry(hash.of(&key), |bucket| bucket.key == key, |bucket| hash.of(&bucket.key)) {
            Entry::Occupied(mut entry) => insert_in_order(&mut entry.get_mut().rules, rule),
            Entry::Vacant(entry) => {
                entry.insert(Bucket { key, rules: Vec::from([rule]) });
            }
        }
        let mut tuple = self.take_tuple(key.lens).unwrap_or_else(|| Tuple::new(key.lens, rule));
        tuple.rules.insert(rule.words());
        tuple.best = tuple.best.min(rule);
        self.place_tuple(tuple);
    }

    /// Removes a rule that was inserted with this selector.
    pub(super) fn remove(&mut self, hash: &KeyedHash, spd: SpdId, selector: &Selector, rule: Rule) {
        let Some(key) = PrefixPair::of(spd, selector) else {
            return remove_in_order(&mut self.ranges, rule);
        };
        let entry = self.buckets.find_entry(hash.of(&key), |bucket| bucket.key == key);
        if let Some(mut entry) = entry.or_report(INSERTED) {
            remove_in_order(&mut entry.get_mut().rules, rule);
            if entry.get().rules.is_empty() {
                entry.remove();
            }
        }
        let Some(mut tuple) = self.take_tuple(key.lens).or_report(INSERTED) else {
            return;
        };
        tuple.rules.remove(&rule.words());
        if let Some(best) = tuple.rules.first() {
            tuple.best = Rule::from_words(*best);
            self.place_tuple(tuple);
        }
    }

    fn take_tuple(&mut self, lens: PrefixLens) -> Option<Tuple> {
        let at = self.tuples.iter().position(|tuple| tuple.lens == lens)?;
        Some(self.tuples.remove(at))
    }

    fn place_tuple(&mut self, tuple: Tuple) {
        let at = self.tuples.partition_point(|other| other.best < tuple.best);
        self.tuples.insert(at, tuple);
    }
}

const INSERTED: &str = "a removed rule was inserted before";

#[cfg(test)]
impl TupleSpace {
    /// Checks the invariants of searches, and that removed rules left nothing behind.
    pub(super) fn assert_sound(&self) {
        assert!(self.tuples.is_sorted_by_key(|tuple| tuple.best));
        assert!(self.tuples.iter().all(|tuple| tuple.rules.first() == Some(&tuple.best.words())));
        assert!(self.buckets.iter().all(|bucket| !bucket.rules.is_empty() && bucket.rules.is_sorted()));
        let in_tuples = self.tuples.iter().map(|tuple| tuple.rules.len()).sum::<usize>();
        assert_eq!(self.buckets.iter().map(|bucket| bucket.rules.len()).sum::<usize>(), in_tuples);
    }
}

impl Tuple {
    fn new(lens: PrefixLens, first: Rule) -> Self {
        Self { lens, best: first, rules: BTreeSet::new() }
    }
}

impl Rule {
    /// The rule in order of precedence. Same type as the entries of the SAD's trees, so that the code
    /// contains one kind of tree.
    fn words(self) -> [u64; 3] {
        [self.priority.into(), self.serial, self.slot.into()]
    }

    /// The inverse of `words`.
    const fn from_words([priority, serial, slot]: [u64; 3]) -> Self {
        Self { priority: priority as u32, serial, slot: slot as u32 }
    }
}

impl PrefixLens {
    /// The prefixes of these lengths that contain the two addresses.
    fn key(self, spd: SpdId, src: u128, dst: u128) -> PrefixPair {
        let (src, dst) = (src & prefix_mask(self.src_len), dst & prefix_mask(self.dst_len));
        PrefixPair { spd, src, dst, lens: self }
    }
}

impl PrefixPair {
    /// The selector's prefixes, if its ranges are prefixes.
    fn of(spd: SpdId, selector: &Selector) -> Option<Self> {
        let prefix = |range: &AddrRange| Some((left_aligned(range.first()), range.prefix_len()?));
        let ((src, src_len), (dst, dst_len)) = (prefix(&selector.src)?, prefix(&selector.dst)?);
        Some(PrefixLens { src_len, dst_len }.key(spd, src, dst))
    }
}

/// The first of `rules` that fits and comes before `best`, else `best`.
fn first_fit(rules: &[Rule], best: Option<Rule>, fits: impl Fn(&Rule) -> bool) -> Option<Rule> {
    let earlier = rules.iter().take_while(|rule| best.is_none_or(|best| **rule < best));
    earlier.copied().find(|rule| fits(rule)).or(best)
}

/// Rules have different serials, so no two are equal.
fn insert_in_order(rules: &mut Vec<Rule>, rule: Rule) {
    let at = rules.partition_point(|other| *other < rule);
    rules.insert(at, rule);
}

fn remove_in_order(rules: &mut Vec<Rule>, rule: Rule) {
    if let Some(at) = rules.binary_search(&rule).or_report(INSERTED) {
        rules.remove(at);
    }
}

/// The address in the upper bits, so that one mask works for prefixes of both IP versions.
fn left_aligned(addr: IpAddr) -> u128 {
    match addr {
        IpAddr::V4(addr) => u128::from(addr.to_bits()) << 96,
        IpAddr::V6(addr) => addr.to_bits(),
    }
}

/// The upper `len` bits.
fn prefix_mask(len: u8) -> u128 {
    !u128::MAX.checked_shr(u32::from(len)).unwrap_or(0)
}
