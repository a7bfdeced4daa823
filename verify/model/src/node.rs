//! A node: what it knows and believes. A crash takes all of it.
//!
//! A node has no clock. It may stop between any two steps, for any time, and go on with the step that it
//! was about to make: each of these steps may be made after the lease has ended. So the properties do not
//! depend on a clock; what the clock of the fence adds is checked in [`crate::fence`].

use crate::protocol::{Defect, Protocol, Range};
use crate::store::{Lease, Record};

/// A node of the cell.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Node {
    /// The lease that the node has, or believes to have.
    pub lease: Lease,
    /// How far the node is in taking the slot over.
    pub phase: Phase,
    /// Highest revision that the node has seen in an answer. Only in runs with restorations.
    pub seen: u8,
    /// Identity of the store since the node started; `None` before its first answer. Only in runs with
    /// restorations.
    pub identity: Option<u8>,
    /// A record that the node has read, or had, before it claimed the slot. Only with the defects
    /// `RecordsReadBeforeClaim` and `RecordKeptInMemory`.
    pub early_record: Option<Record>,
}

/// How far a node is in taking the slot over.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Phase {
    /// The node does not own the slot, and has begun nothing.
    Idle,
    /// The node has found the slot without an owner, and has read the takeover count and its revision.
    FoundFree {
        /// Takeover count, and the revision at which it was changed.
        takeovers: (u8, u8),
    },
    /// The node has submitted a claim.
    Claiming {
        /// Takeover count of the claim.
        count: u8,
    },
    /// The node has found its own lease in the slot, because a claim without an answer was executed.
    FoundOwn {
        /// Revision at which the slot was created.
        created: u8,
        /// Epoch of the slot.
        epoch: u8,
    },
    /// The node believes that it owns the slot, and has not read the record.
    Claimed {
        /// Epoch of the claim.
        epoch: u8,
        /// Takeover count of the claim.
        count: u8,
    },
    /// The node believes that it owns the slot, and has read the record.
    Owner(Owner),
    /// The node has noticed that the store lost confirmed writes, or is another one. Its operator is needed.
    Stopped,
}

/// An owner of the slot, or a former one that does not know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner {
    /// Revision at which the owner last entered itself.
    pub epoch: u8,
    /// Takeover count of its claim.
    pub count: u8,
    /// Identity of the store when the slot was claimed.
    pub identity: u8,
    /// Whether a request has no answer: the owner enters itself again before it writes.
    pub must_enter: bool,
    /// The SA; `None` if there is none.
    pub sa: Option<Sa>,
}

/// An SA in the memory of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sa {
    /// The record as the owner last read or wrote it.
    pub record: Record,
    /// Last sequence number that the owner sends.
    pub limit: u8,
    /// Last sequence number that the owner accepts.
    pub accept_to: u8,
    /// Revision of the record that the owner knows. Only with the defect `RecordRevisionCompared`.
    pub known: u8,
    /// What the owner writes, or has submitted. `Some(None)`: the deletion.
    pub planned: Option<Option<Record>>,
    /// Next sequence number to send.
    pub next: u8,
    /// Lowest sequence number that the owner accepts.
    pub accept_from: u8,
    /// Accepted sequence numbers, one bit each. It is the replay window, as wide as the numbers of a run.
    pub window: u16,
    /// Counter of the IVs.
    pub iv: u8,
    /// Value of `iv` before the planned change.
    pub iv_before: u8,
}

impl Node {
    /// A node with its first lease.
    #[must_use]
    pub fn new(node: u8) -> Self {
        Self {
            lease: Lease { node, number: 0 },
            phase: Phase::Idle,
            seen: 0,
            identity: None,
            early_record: None,
        }
    }

    /// Forgets everything but the number of the lease, and takes a new one.
    pub fn restart(&mut self) {
        let lease = Lease { node: self.lease.node, number: self.lease.number + 1 };
        *self = Self { lease, ..Self::new(self.lease.node) };
    }

    /// Gives the slot up, because the node has learned that it does not own it.
    pub fn lose_slot(&mut self, protocol: &Protocol) {
        let kept = self.owner().and_then(|owner| owner.sa).map(|sa| sa.record);
        self.phase = Phase::Idle;
        self.lease.number += 1;
        self.early_record = kept.filter(|_| protocol.has(Defect::RecordKeptInMemory));
    }

    /// The owner that the node believes to be.
    #[must_use]
    pub fn owner(&self) -> Option<&Owner> {
        match &self.phase {
            Phase::Owner(owner) => Some(owner),
            _ => None,
        }
    }

    /// The owner that the node believes to be, to change it.
    pub fn owner_mut(&mut self) -> Option<&mut Owner> {
        match &mut self.phase {
            Phase::Owner(owner) => Some(owner),
            _ => None,
        }
    }

    /// The epoch that the node believes to have.
    #[must_use]
    pub fn epoch(&self) -> Option<u8> {
        match &self.phase {
            Phase::Claimed { epoch, .. } => Some(*epoch),
            Phase::Owner(owner) => Some(owner.epoch),
            _ => None,
        }
    }
}

impl Sa {
    /// A new SA, whose keys no other node knows: its reserve is the first block, before any write.
    #[must_use]
    pub fn negotiated(protocol: &Protocol, count: u8, identity: u8) -> Self {
        let block = protocol.block;
        let record =
            Record { reserved: block, accepted: block, count, answered: 0, response: None, identity };
        let own = Range { first: 1, last: block };
        Self { planned: Some(Some(record)), ..Self::with(record, own, own) }
    }

    /// The SA of a record of a former owner. `None` if the record is not of a former owner.
    #[must_use]
    pub fn restored(protocol: &Protocol, read: Record, known: u8, count: u8) -> Option<Self> {
        let outbound = protocol.range(read.reserved, read.count, count)?;
        let mut inbound = protocol.range(read.accepted, read.count, count)?;
        if protocol.has(Defect::InboundWithoutReserve) {
            inbound.first = 1;
        }
        Some(Self { known, ..Self::with(read, outbound, inbound) })
    }

    fn with(record: Record, outbound: Range, inbound: Range) -> Self {
        Self {
            record,
            limit: outbound.last,
            accept_to: inbound.last,
            known: 0,
            planned: None,
            next: outbound.first,
            accept_from: inbound.first,
            window: 0,
            iv: 0,
            iv_before: 0,
        }
    }

    /// The record that this owner writes next: the ends of its own ranges, and its takeover count.
    #[must_use]
    pub fn next_record(&self, protocol: &Protocol, count: u8, identity: u8) -> Record {
        let mut record =
            Record { reserved: self.limit, accepted: self.accept_to, count, identity, ..self.record };
        if protocol.has(Defect::CountWithoutReserved) || protocol.has(Defect::ExtensionIgnoresCount) {
            record.reserved = self.record.reserved;
            record.accepted = self.record.accepted;
        }
        record
    }

    /// Applies the confirmation of the planned record.
    pub fn confirm(&mut self, protocol: &Protocol, written: Record, revision: u8) {
        let extended = written.reserved > self.record.reserved;
        if protocol.has(Defect::ExtensionIgnoresCount) && extended {
            self.limit += protocol.block;
        } else if !protocol.has(Defect::CountWithoutReserved) {
            (self.limit, self.accept_to) = (written.reserved, written.accepted);
        }
        (self.record, self.known, self.planned) = (written, revision, None);
    }
}
