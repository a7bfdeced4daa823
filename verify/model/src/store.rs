//! The store: the entries of one slot, and requests on their way to it and back.
//!
//! A request is executed at any time after its submission, or never. Its answer arrives at any time after
//! that, or the node does not wait for it any longer; the store may then still execute the request.

use crate::protocol::{Defect, Protocol};

/// Lease of a node. A node takes a new one after a restart, and when it learns that the old one has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lease {
    /// The node.
    pub node: u8,
    /// Number of leases that the node had before.
    pub number: u8,
}

/// Entry of the slot: its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slot {
    /// Lease of the owner.
    pub lease: Lease,
    /// Revision at which the owner claimed the slot.
    pub created: u8,
    /// Revision at which the owner last entered itself.
    pub changed: u8,
}

/// A response of IKE. Two responses with the same `content` have the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Response {
    /// The IV: takeover count and counter of the owner that encrypted the response.
    pub iv: (u8, u8),
    /// Identifies the bytes.
    pub content: u8,
}

/// Record of the SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Record {
    /// Last sequence number that the writer may send.
    pub reserved: u8,
    /// Last sequence number that the writer may accept.
    pub accepted: u8,
    /// Takeover count of the writer.
    pub count: u8,
    /// Number of IKE requests of the peer that were answered.
    pub answered: u8,
    /// Response to the last of them.
    pub response: Option<Response>,
    /// Identity of the store for which the record was sealed.
    pub identity: u8,
}

/// What a node asks of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transaction {
    /// The slot has no owner, and the takeover count was last changed at `read_at`: enter this lease, set
    /// the takeover count.
    Claim {
        /// Revision of the takeover count that the node has read.
        read_at: u8,
        /// New takeover count.
        count: u8,
    },
    /// The slot was last changed at `epoch`: enter the same owner again.
    Enter {
        /// Epoch of the owner.
        epoch: u8,
    },
    /// The slot has this epoch: write the record, or delete it.
    Write {
        /// Epoch of the owner.
        epoch: u8,
        /// Revision of the record that the owner knows.
        known: u8,
        /// The record; `None` deletes it.
        record: Option<Record>,
    },
    /// Set the takeover count. Only with [`Defect::CountIncreasedLater`].
    SetCount(u8),
}

/// Answer to a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Answer {
    /// Whether all comparisons held.
    pub committed: bool,
    /// Revision of the store.
    pub revision: u8,
    /// Identity of the store.
    pub identity: u8,
}

/// A transaction on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Request {
    /// Lease of the node that submitted the request.
    pub lease: Lease,
    /// Whether the node waits for the answer.
    pub awaited: bool,
    /// The transaction.
    pub transaction: Transaction,
    /// The answer, on its way; `None` before the store has executed the transaction.
    pub answer: Option<Answer>,
}

/// What a backup contains.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Backup {
    revision: u8,
    takeovers: (u8, u8),
    record: Option<Record>,
    record_changed: u8,
}

/// The store.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Store {
    /// Number of transactions that were committed.
    pub revision: u8,
    /// The owner.
    pub slot: Option<Slot>,
    /// Takeover count, and the revision at which it was changed.
    pub takeovers: (u8, u8),
    /// The record of the SA.
    pub record: Option<Record>,
    /// Revision at which the record was changed; 0 if there is none.
    pub record_changed: u8,
    /// The record before its last change. Only with [`Defect::RecordsOfOldWatch`].
    pub previous: Option<Record>,
    /// Leases that have ended, of those that had a slot.
    pub ended: Vec<Lease>,
    /// Number of times that the store was restored from a backup under another identity.
    pub identity: u8,
    /// The backup.
    pub backup: Option<Box<Backup>>,
}

impl Store {
    /// Executes a transaction at one revision, or changes nothing.
    pub fn execute(&mut self, protocol: &Protocol, lease: Lease, transaction: Transaction) -> Answer {
        if !self.permits(protocol, lease, transaction) {
            return Answer { committed: false, revision: self.revision, identity: self.identity };
        }
        self.revision += 1;
        let revision = self.revision;
        match transaction {
            Transaction::Claim { count, .. } => {
                self.slot = Some(Slot { lease, created: revision, changed: revision });
                if !protocol.has(Defect::CountIncreasedLater) {
                    self.takeovers = (count, revision);
                }
            }
            Transaction::Enter { .. } => {
                if let Some(slot) = &mut self.slot {
                    slot.changed = revision;
                }
            }
            Transaction::Write { record, .. } => {
                if protocol.has(Defect::RecordsOfOldWatch) {
                    self.previous = self.record;
                }
                self.record = record;
                self.record_changed = if record.is_some() { revision } else { 0 };
            }
            Transaction::SetCount(count) => self.takeovers = (count, revision),
        }
        Answer { committed: true, revision, identity: self.identity }
    }

    /// Whether the comparisons of a transaction hold.
    fn permits(&self, protocol: &Protocol, lease: Lease, transaction: Transaction) -> bool {
        match transaction {
            Transaction::Claim { read_at, .. } => {
                self.slot.is_none()
                    && !self.ended.contains(&lease)
                    && (self.takeovers.1 == read_at || protocol.has(Defect::CountNotCompared))
            }
            Transaction::Enter { epoch } => self.epoch(protocol) == Some(epoch),
            Transaction::Write { epoch, known, .. } => {
                protocol.has(Defect::NoEpochComparison)
                    || self.epoch(protocol) == Some(epoch)
                        && (!protocol.has(Defect::RecordRevisionCompared) || self.record_changed == known)
            }
            Transaction::SetCount(_) => true,
        }
    }

    /// The epoch of the slot; `None` if it has no owner.
    #[must_use]
    pub fn epoch(&self, protocol: &Protocol) -> Option<u8> {
        let by_creation =
            protocol.has(Defect::CreateRevisionAsEpoch) || protocol.has(Defect::RecordRevisionCompared);
        self.slot.map(|slot| if by_creation { slot.created } else { slot.changed })
    }

    /// Ends the lease of the owner, which frees the slot.
    pub fn end_lease(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.ended.push(slot.lease);
            self.ended.sort_unstable();
        }
    }

    /// Makes a backup. A lease is not part of it.
    pub fn back_up(&mut self) {
        self.backup = Some(Box::new(Backup {
            revision: self.revision,
            takeovers: self.takeovers,
            record: self.record,
            record_changed: self.record_changed,
        }));
    }

    /// Restores the backup: revisions continue from it, and the lease of the owner has ended.
    pub fn restore(&mut self, protocol: &Protocol) {
        let Some(backup) = self.backup.take() else { return };
        self.end_lease();
        self.revision = backup.revision;
        self.takeovers = backup.takeovers;
        self.record = backup.record;
        self.record_changed = backup.record_changed;
        self.identity += u8::from(protocol.has_identities());
    }
}
