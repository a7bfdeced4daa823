//! The state of store and owners during handovers.

/// What a record says: the owner that has written it, and the last number of its reserve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Record {
    pub(super) writer: u8,
    pub(super) until: u8,
}

/// The entry with the numbers that an owner has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Used {
    pub(super) owner: u8,
    pub(super) last: u8,
}

/// What an owner does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// It has claimed the slot and read the record. It looks whether there is a handover.
    Claimed,
    /// There is no handover. It reads the used numbers.
    NoHandover,
    /// It has read this, and makes sure that it still has the slot.
    Confirming(Option<Used>),
    /// Only with [`Defect::HandoverReadLast`](super::Defect::HandoverReadLast): it has read this, and looks
    /// whether there is a handover.
    ReadEarly(Option<Used>),
    /// It uses its numbers, from now on until it stops.
    Active,
    /// It gives up the slot.
    Releasing,
    /// It has given up the slot.
    Released,
    /// It uses no number any more.
    Stopped {
        /// Whether it deletes its entry for the handover.
        deletes: bool,
    },
}

/// An owner, or a former one. Its takeover count is its position, from 1 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner {
    pub(super) phase: Phase,
    /// The record that it has read.
    pub(super) record: Record,
    /// It may use the numbers above `after`, up to `until`.
    pub(super) after: u8,
    pub(super) until: u8,
    /// Numbers that it has used, as bits.
    pub(super) used: u32,
    /// The used numbers with which it has begun.
    pub(super) began_with: Option<Used>,
    /// Whether it has seen used numbers, and deletes them with one of its writes.
    pub(super) deletes_used: bool,
    /// Whether it waits for an answer.
    pub(super) waits: bool,
}

impl Owner {
    pub(super) const fn claimed(record: Record) -> Self {
        Self {
            phase: Phase::Claimed,
            record,
            after: 0,
            until: 0,
            used: 0,
            began_with: None,
            deletes_used: false,
            waits: false,
        }
    }

    /// The last number that it has used.
    pub(super) fn last(&self) -> u8 {
        let highest = u32::BITS - 1 - (self.used | 1).leading_zeros();
        self.after.max(highest as u8)
    }

    pub(super) const fn uses_numbers(&self) -> bool {
        matches!(self.phase, Phase::Active | Phase::Releasing | Phase::Released)
    }
}

/// A transaction of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Request {
    /// Deletes the entry for the handover of a former owner.
    Void,
    /// Writes nothing.
    Confirm,
    /// Writes the record of the SA, or only others.
    Write {
        /// The end of the reserve that the record of the SA names; `None` without that record.
        until: Option<u8>,
        /// Whether it deletes the used numbers of a former owner.
        deletes_used: bool,
    },
    /// Gives up the slot, and makes the entry for the handover.
    Release,
    /// Writes the used numbers of an owner that has the slot.
    Numbers(u8),
    /// The same of an owner that has handed over.
    LastNumbers {
        /// The last number that it has used.
        last: u8,
        /// Whether it deletes the entry for the handover.
        is_last: bool,
    },
    /// Deletes the entry for the handover, after the numbers.
    End,
}

/// A state of store and owners.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// The owner that the slot names.
    pub(super) slot: Option<u8>,
    /// The owner that has made the entry for the handover.
    pub(super) handover: Option<u8>,
    pub(super) record: Record,
    pub(super) used: Option<Used>,
    pub(super) owners: Vec<Owner>,
    /// Requests on the way to the store, with their owners, sorted.
    pub(super) requests: Vec<(u8, Request)>,
    /// Writes of records so far.
    pub(super) writes: u8,
    /// Whether an owner has deleted the entry for a handover before numbers were written.
    pub(super) has_voided: bool,
    /// The last owner whose numbers were written after a handover.
    pub(super) handed_over: Option<u8>,
}
