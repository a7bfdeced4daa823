//! The protocol that is checked: its formula, the ways to break it on purpose, and the bounds of a run.

/// What the model checks: the protocol of docs/decisions/0140-cells.md, or one with a defect.
#[derive(Debug, Clone, Copy)]
pub struct Protocol {
    /// Size of a block of sequence numbers, B in 0140, where it is 2^14.
    pub block: u8,
    /// The defect; `None` for the protocol as it should be.
    pub defect: Option<Defect>,
}

/// A way to break the protocol. A test expects a counterexample for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Defect {
    /// Writes of records compare nothing.
    NoEpochComparison,
    /// Writes of records compare the create revision of the slot, and the owner does not enter itself again
    /// after a write without an answer.
    CreateRevisionAsEpoch,
    /// As before, but each write also compares the revision at which the record was last changed.
    RecordRevisionCompared,
    /// The takeover count is increased by a second transaction after the claim.
    CountIncreasedLater,
    /// The claim does not compare the revision of the takeover count that the node has read.
    CountNotCompared,
    /// A node that finds its lease in a slot takes any takeover count, also one that is not of its claim.
    CountOfAnotherClaim,
    /// The range of an owner begins one block too early.
    RangeBeginsEarly,
    /// The range of an owner ends one block too late.
    RangeEndsLate,
    /// The range of an owner is the block after `reserved`, without regard to the takeover counts.
    RangeIgnoresCount,
    /// An owner uses an extension of its reserve before the write is confirmed.
    ExtensionBeforeConfirmation,
    /// The first extension of an owner adds a block to the `reserved` that it has read, not to the end of
    /// its range.
    ExtensionIgnoresCount,
    /// A change of an IKE SA writes the new takeover count, but leaves `reserved` and `accepted` as they
    /// were.
    CountWithoutReserved,
    /// An owner sends as long as it believes that it owns the slot, without regard to its reserve.
    FenceInsteadOfReserves,
    /// Records are read before the slot is claimed, while it has another owner.
    RecordsReadBeforeClaim,
    /// Records come from a watch that is behind.
    RecordsOfOldWatch,
    /// A node recognizes its slot by the name of the node, also after a restart.
    OwnershipByName,
    /// A node that claims a slot again uses the record that it had in memory.
    RecordKeptInMemory,
    /// An owner accepts every sequence number that it has not seen itself.
    InboundWithoutReserve,
    /// An owner submits a write of a record before the one before is answered.
    SecondWriteBeforeAnswer,
    /// A response leaves when the write of its record is submitted.
    ResponseBeforeWrite,
    /// A change whose write has no answer is undone, with the counter of the IVs.
    IvCounterUndone,
    /// IVs of IKE messages do not begin with the takeover count.
    IvWithoutCount,
    /// A store that was restored from a backup has the same identity: only nodes that have seen a later
    /// revision refuse it.
    RestoreSeenByRevisionOnly,
    /// Nothing refuses a store that was restored from a backup.
    RestoreNotSeen,
}

impl Defect {
    /// All defects.
    pub const ALL: [Self; 24] = [
        Self::NoEpochComparison,
        Self::CreateRevisionAsEpoch,
        Self::RecordRevisionCompared,
        Self::CountIncreasedLater,
        Self::CountNotCompared,
        Self::CountOfAnotherClaim,
        Self::RangeBeginsEarly,
        Self::RangeEndsLate,
        Self::RangeIgnoresCount,
        Self::ExtensionBeforeConfirmation,
        Self::ExtensionIgnoresCount,
        Self::CountWithoutReserved,
        Self::FenceInsteadOfReserves,
        Self::RecordsReadBeforeClaim,
        Self::RecordsOfOldWatch,
        Self::OwnershipByName,
        Self::RecordKeptInMemory,
        Self::InboundWithoutReserve,
        Self::SecondWriteBeforeAnswer,
        Self::ResponseBeforeWrite,
        Self::IvCounterUndone,
        Self::IvWithoutCount,
        Self::RestoreSeenByRevisionOnly,
        Self::RestoreNotSeen,
    ];
}

/// How often each thing may happen in one run. The space of states is finite because of these bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Bounds {
    /// Number of nodes.
    pub nodes: u8,
    /// Highest takeover count.
    pub takeovers: u8,
    /// Extensions of the reserves, by all owners together.
    pub extensions: u8,
    /// Crashes of nodes.
    pub crashes: u8,
    /// Requests whose answer a node does not wait for any longer. The store may still execute them.
    pub unanswered: u8,
    /// IKE requests of the peer.
    pub ike_requests: u8,
    /// Responses to liveness checks, which leave without a write.
    pub liveness: u8,
    /// Packets of the peer; the network may deliver each of them to any node at any time, again and again.
    pub inbound: u8,
    /// Deletions of the SA.
    pub deletions: u8,
    /// Restorations of the store from a backup.
    pub restorations: u8,
    /// Whether the owners send packets of the SA.
    pub outbound: bool,
    /// Whether the run begins with a record of a former owner. Otherwise the first owner negotiates the SA.
    pub stored: bool,
    /// Whether the state remembers which situations occurred. It multiplies the number of states.
    pub situations: bool,
}

impl Bounds {
    /// Two nodes, three owners, and nothing else.
    pub const SMALL: Self = Self {
        nodes: 2,
        takeovers: 3,
        extensions: 0,
        crashes: 0,
        unanswered: 0,
        ike_requests: 0,
        liveness: 0,
        inbound: 0,
        deletions: 0,
        restorations: 0,
        outbound: false,
        stored: false,
        situations: false,
    };
}

/// Highest sequence number of a run: the observer has one bit for each.
pub const HIGHEST_NUMBER: u8 = 31;

impl Bounds {
    /// Highest sequence number that an owner may have: one block for each owner and each extension, and one
    /// more with [`Defect::RangeEndsLate`].
    #[must_use]
    pub fn highest_number(&self, block: u8) -> u8 {
        self.takeovers.saturating_add(self.extensions).saturating_add(1).saturating_mul(block)
    }
}

/// Sequence numbers that an owner may use: those from `first` to `last`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// Lowest number.
    pub first: u8,
    /// Highest number.
    pub last: u8,
}

impl Protocol {
    /// The protocol without a defect, with blocks of this size.
    #[must_use]
    pub const fn new(block: u8) -> Self {
        Self { block, defect: None }
    }

    /// The protocol with a defect, and blocks of one number.
    #[must_use]
    pub const fn broken(defect: Defect) -> Self {
        Self { block: 1, defect: Some(defect) }
    }

    /// Whether the protocol has this defect.
    #[must_use]
    pub fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    /// The range of an owner with takeover count `count` that reads `end` (`reserved` or `accepted`) in a
    /// record of count `written`: `end + (c - r - 1) * B + 1` to `end + (c - r) * B`. `None` if the record is
    /// of a later owner, or of this one.
    #[must_use]
    pub fn range(&self, end: u8, written: u8, count: u8) -> Option<Range> {
        let owners = match self.defect {
            Some(Defect::RangeIgnoresCount) => 1,
            // Only with this defect does a node find a record of its own count.
            Some(Defect::OwnershipByName) if written == count => {
                return Some(Range { first: end.saturating_sub(self.block) + 1, last: end });
            }
            _ => count.checked_sub(written).filter(|owners| *owners > 0)?,
        };
        let mut range = Range { first: end + (owners - 1) * self.block + 1, last: end + owners * self.block };
        match self.defect {
            Some(Defect::RangeBeginsEarly) => range.first = range.first.saturating_sub(self.block),
            Some(Defect::RangeEndsLate) => range.last += self.block,
            _ => {}
        }
        Some(range)
    }

    /// Whether a restored store has another identity than before.
    #[must_use]
    pub fn has_identities(&self) -> bool {
        !self.has(Defect::RestoreSeenByRevisionOnly) && !self.has(Defect::RestoreNotSeen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_successive_owners_are_adjacent() {
        let protocol = Protocol::new(4);
        assert_eq!(protocol.range(8, 1, 2), Some(Range { first: 9, last: 12 }));
        assert_eq!(protocol.range(8, 1, 3), Some(Range { first: 13, last: 16 }));
        assert_eq!(protocol.range(8, 2, 2), None, "a record of this owner");
        assert_eq!(protocol.range(8, 3, 2), None, "a record of a later owner");
    }
}
