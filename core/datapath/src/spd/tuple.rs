//! Tuple-space search: the index behind the policy table.
//!
//! Rules whose two address ranges are prefixes are grouped by their pair of prefix lengths, a tuple. Within a tuple all
//! rules that can match a packet have the same masked addresses, so one hash probe finds them. Tuples are visited by
//! their best rule and the search ends when no later one can win: its cost follows the number of different length pairs
//! (a handful in practice) and of rules with one address pair, not the number of policies. Ranges that are no prefixes
//! are few; they are searched in order. The index only proposes: `fits` has the last word.

use super::hash::KeyedHash;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use casemate_sa::{AddrRange, Selector};
use casemate_wire::flow::FlowKey;
use core::net::IpAddr;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

/// One policy in the index. Its order is the order of precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rule {
    /// Lower comes first.
    pub(super) priority: u32,
    /// Order of insertion.
    pub(super) serial: u64,
    /// Where the policy is stored.
    pub(super) slot: u32,
}

/// The index over the rules of one IP version.
#[derive(Debug, Default)]
pub(super) struct TupleSpace {
    /// By best rule.
    tuples: Vec<Tuple>,
    buckets: HashTable<Bucket>,
    /// Rules with a range that is no prefix, in order.
    ranges: Vec<Rule>,
}

/// All rules with one pair of prefix lengths; never empty.
#[derive(Debug)]
struct Tuple {
    shape: Shape,
    /// The first of `rules`, at hand.
    best: Rule,
    /// As [`Rule::words`].
    rules: BTreeSet<[u64; 3]>,
}

/// All rules with one pair of prefixes, in order; never empty.
#[derive(Debug)]
struct Bucket {
    key: Key,
    rules: Vec<Rule>,
}

/// A pair of prefix lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Shape {
    src_len: u8,
    dst_len: u8,
}

/// A pair of prefixes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    src: u128,
    dst: u128,
    shape: Shape,
}

impl TupleSpace {
    /// The first rule in order of precedence that `fits`, among those whose addresses match.
    pub(super) fn first(
        &self,
        hash: &KeyedHash,
        flow: &FlowKey,
        fits: impl Fn(&Rule) -> bool,
    ) -> Option<Rule> {
        let (src, dst) = (left_aligned(flow.src()), left_aligned(flow.dst()));
        let mut best = None;
        for tuple in &self.tuples {
            if best.is_some_and(|best| best < tuple.best) {
                break;
            }
            let key = tuple.shape.key(src, dst);
            if let Some(bucket) = self.buckets.find(hash.of(&key), |bucket| bucket.key == key) {
                best = better(&bucket.rules, best, &fits);
            }
        }
        better(&self.ranges, best, &fits)
    }

    /// Adds a rule.
    pub(super) fn insert(&mut self, hash: &KeyedHash, selector: &Selector, rule: Rule) {
        let Some(key) = Key::of(selector) else {
            return insert_in_order(&mut self.ranges, rule);
        };
        match self.buckets.entry(hash.of(&key), |bucket| bucket.key == key, |bucket| hash.of(&bucket.key)) {
            Entry::Occupied(mut entry) => insert_in_order(&mut entry.get_mut().rules, rule),
            Entry::Vacant(entry) => {
                entry.insert(Bucket { key, rules: Vec::from([rule]) });
            }
        }
        let mut tuple = self.take_tuple(key.shape).unwrap_or_else(|| Tuple::new(key.shape, rule));
        tuple.rules.insert(rule.words());
        tuple.best = tuple.best.min(rule);
        self.place_tuple(tuple);
    }

    /// Takes out a rule that was inserted with this selector.
    pub(super) fn remove(&mut self, hash: &KeyedHash, selector: &Selector, rule: Rule) {
        let Some(key) = Key::of(selector) else {
            return remove_in_order(&mut self.ranges, rule);
        };
        if let Ok(mut entry) = self.buckets.find_entry(hash.of(&key), |bucket| bucket.key == key) {
            remove_in_order(&mut entry.get_mut().rules, rule);
            if entry.get().rules.is_empty() {
                entry.remove();
            }
        }
        let Some(mut tuple) = self.take_tuple(key.shape) else { return };
        tuple.rules.remove(&rule.words());
        if let Some(best) = tuple.rules.first() {
            tuple.best = Rule::from_words(*best);
            self.place_tuple(tuple);
        }
    }

    fn take_tuple(&mut self, shape: Shape) -> Option<Tuple> {
        let at = self.tuples.iter().position(|tuple| tuple.shape == shape)?;
        Some(self.tuples.remove(at))
    }

    fn place_tuple(&mut self, tuple: Tuple) {
        let at = self.tuples.partition_point(|other| other.best < tuple.best);
        self.tuples.insert(at, tuple);
    }
}

#[cfg(test)]
impl TupleSpace {
    /// What searches rely on, and that nothing is left of rules that were removed.
    pub(super) fn assert_sound(&self) {
        assert!(self.tuples.is_sorted_by_key(|tuple| tuple.best));
        assert!(self.tuples.iter().all(|tuple| tuple.rules.first() == Some(&tuple.best.words())));
        assert!(self.buckets.iter().all(|bucket| !bucket.rules.is_empty() && bucket.rules.is_sorted()));
        let in_tuples = self.tuples.iter().map(|tuple| tuple.rules.len()).sum::<usize>();
        assert_eq!(self.buckets.iter().map(|bucket| bucket.rules.len()).sum::<usize>(), in_tuples);
    }
}

impl Tuple {
    fn new(shape: Shape, first: Rule) -> Self {
        Self { shape, best: first, rules: BTreeSet::new() }
    }
}

impl Rule {
    /// In the order of precedence. Of the same type as what the trees of the SAD hold, so that there is one kind of tree in the
    /// code.
    fn words(self) -> [u64; 3] {
        [self.priority.into(), self.serial, self.slot.into()]
    }

    /// What `words` made.
    const fn from_words([priority, serial, slot]: [u64; 3]) -> Self {
        Self { priority: priority as u32, serial, slot: slot as u32 }
    }
}

impl Shape {
    /// The prefixes of these lengths that hold the two addresses.
    fn key(self, src: u128, dst: u128) -> Key {
        Key { src: src & prefix_mask(self.src_len), dst: dst & prefix_mask(self.dst_len), shape: self }
    }
}

impl Key {
    /// The selector's prefixes, if its ranges are prefixes.
    fn of(selector: &Selector) -> Option<Self> {
        let prefix = |range: &AddrRange| Some((left_aligned(range.first()), range.prefix_len()?));
        let ((src, src_len), (dst, dst_len)) = (prefix(&selector.src)?, prefix(&selector.dst)?);
        Some(Shape { src_len, dst_len }.key(src, dst))
    }
}

/// The first of `rules` that fits if it comes before `best`, else `best`.
fn better(rules: &[Rule], best: Option<Rule>, fits: impl Fn(&Rule) -> bool) -> Option<Rule> {
    let earlier = rules.iter().take_while(|rule| best.is_none_or(|best| **rule < best));
    earlier.copied().find(|rule| fits(rule)).or(best)
}

/// Rules have different serials, so none is ever found.
fn insert_in_order(rules: &mut Vec<Rule>, rule: Rule) {
    let at = rules.partition_point(|other| *other < rule);
    rules.insert(at, rule);
}

fn remove_in_order(rules: &mut Vec<Rule>, rule: Rule) {
    if let Ok(at) = rules.binary_search(&rule) {
        rules.remove(at);
    }
}

/// The address in the upper bits, so that prefixes of both versions are masked alike.
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
