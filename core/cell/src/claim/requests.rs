//! The requests of a claim.

use super::{SeenProofs, SlotClaim, Step, WATCH};
use crate::read;
use crate::start::SlotContents;
use alloc::vec::Vec;
use casemate_store::{Comparison, Key, Lease, Request, Revision, Transaction, Write};

impl SlotClaim {
    /// The request of the present step.
    pub(super) fn request_of_step(&self) -> Request {
        match &self.step {
            Step::Lease => Request::NewLease(self.tenure.lease()),
            Step::Key => read(self.keys.wrapping_key(), &[]),
            Step::NewKey(proof) => {
                Request::Commit(self.create(self.keys.wrapping_key(), proof.clone(), None))
            }
            Step::Register => {
                let key = self.keys.node(&self.node);
                Request::Commit(self.create(key, self.registration.clone(), self.lease()))
            }
            Step::Drained | Step::Standby => read(self.keys.drained(&self.node), &[]),
            Step::Slot => read(self.keys.owner(), &[]),
            Step::Watch(after) => {
                let from = Revision(after.0.saturating_add(1));
                Request::Watch { watch: WATCH, prefix: self.keys.owner(), from }
            }
            Step::Readable(known) => read(self.keys.data_keys(), known),
            Step::Count => read(self.keys.takeovers(), &[]),
            Step::Commit { owner, counted } => Request::Commit(self.transaction(*owner, *counted)),
            Step::DataKeys(SlotContents { data_keys, .. }) => read(self.keys.data_keys(), data_keys),
            Step::Records(SlotContents { records, .. }) => read(self.keys.records(), records),
        }
    }

    /// Creates an entry that does not exist.
    fn create(&self, key: Key, value: Vec<u8>, lease: Option<Lease>) -> Transaction {
        Transaction {
            comparisons: [Comparison::Created(key.clone(), Revision::ABSENT)].into(),
            writes: [Write::Put { key, value, lease }].into(),
        }
    }

    /// Enters this owner if there is none, and counts it. In a cell, the wrapping key is still the one that
    /// this node has seen.
    fn transaction(&self, owner: u64, counted: Revision) -> Transaction {
        let (slot, takeovers) = (self.keys.owner(), self.keys.takeovers());
        let proofs = self.proofs.map(|SeenProofs { changed, .. }| (self.keys.wrapping_key(), changed));
        let proofs = proofs.map(|(key, changed)| Comparison::Changed(key, changed));
        Transaction {
            comparisons: [
                Comparison::Created(slot.clone(), Revision::ABSENT),
                Comparison::Changed(takeovers.clone(), counted),
            ]
            .into_iter()
            .chain(proofs)
            .collect(),
            writes: [
                Write::Put { key: slot, value: self.node.clone(), lease: self.lease() },
                Write::Put { key: takeovers, value: owner.to_be_bytes().into(), lease: None },
            ]
            .into(),
        }
    }
}
