//! Numbers of SPDs that belong to Child SAs and IKE SAs.

use alloc::collections::BTreeMap;
use casemate_sa::table::OrderedMap;
use casemate_sa::{OwnSpd, SpdId, SpdNumbers, SpdOwner};

/// Which of the SPDs of an owner it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key {
    owner: SpdOwner,
    direction: KeyDirection,
    numbers: SpdNumbers,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyDirection {
    Both,
    Outbound,
    Inbound,
}

impl Key {
    pub(super) const fn new(own: &OwnSpd, is_outbound: bool) -> Self {
        let direction = match (own.per_direction, is_outbound) {
            (false, _) => KeyDirection::Both,
            (true, true) => KeyDirection::Outbound,
            (true, false) => KeyDirection::Inbound,
        };
        Self { owner: own.owner, direction, numbers: own.numbers }
    }

    pub(super) fn is_of_ike(&self) -> bool {
        self.owner == SpdOwner::IkeSa
    }
}

/// The numbers in use.
#[derive(Default)]
pub(super) struct Numbers {
    /// How many SAs and IKE SAs have each number.
    holders: OrderedMap<u32, u32>,
    /// The number of each range that was assigned last, by the first of the range.
    last: BTreeMap<u32, u32>,
}

impl Numbers {
    /// The next number that is not in use. A released number is used again as late as possible: scripts may
    /// still be at work on its interface. `None` if all are in use.
    pub(super) fn next(&self, numbers: SpdNumbers, is_taken: impl Fn(SpdId) -> bool) -> Option<SpdId> {
        let after = self.last.get(&numbers.first()).map_or(numbers.first(), |last| last.saturating_add(1));
        let mut candidates = (after..=numbers.last()).chain(numbers.first()..=numbers.last());
        let is_free = |number: &u32| !self.holders.contains(*number) && !is_taken(SpdId::new(*number));
        candidates.find(is_free).map(SpdId::new)
    }

    /// Notes that a number is in use. Nobody has it yet.
    pub(super) fn take(&mut self, key: Key, spd: SpdId) {
        self.holders.insert(spd.number(), 0);
        self.last.insert(key.numbers.first(), spd.number());
    }

    /// Adds a holder. Numbers that are not from a range stay as they are.
    pub(super) fn hold(&mut self, spd: SpdId) {
        if let Some(holders) = self.holders.get_mut(spd.number()) {
            *holders = holders.saturating_add(1);
        }
    }

    /// Removes a holder. Returns whether it was the last one.
    pub(super) fn release(&mut self, spd: SpdId) -> bool {
        let Some(holders) = self.holders.get_mut(spd.number()) else { return false };
        *holders = holders.saturating_sub(1);
        let is_free = *holders == 0;
        if is_free {
            self.holders.remove(spd.number());
        }
        is_free
    }
}
