//! The change of the wrapping key.
//!
//! A node that has two wrapping keys becomes the owner of a store whose data keys are encrypted with the
//! second one. Before its first other write, it encrypts them again with the first one, in transactions that
//! compare its epoch. In a cell, each of them writes the proofs, too ([`wrapping`](crate::wrapping)): those
//! of both keys, and with the last data key that of the first one alone. So each proof that the store needs
//! is there at every moment. A claim compares the revision of the proofs, so that a node without one of these
//! keys does not become the owner, also if it has waited since before the change.
//!
//! One transaction is enough unless the store has very many data keys.

use crate::StoreKeys;
use crate::data_keys::DataKeyId;
use crate::seal::SealError;
use crate::wrapping::{NeededKeys, WrappingKeys};
use crate::writes::MAX_DELETED;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use casemate_crypto::Rng;
use casemate_store::{MAX_WRITES, Write};

/// Most data keys of a transaction, beside the proofs.
const MAX_REWRAPPED: usize = MAX_WRITES - MAX_DELETED - 1;

/// Values of the entry with the proofs.
struct Proofs {
    both: Vec<u8>,
    first: Vec<u8>,
}

/// A change in progress.
pub(crate) struct KeyChange {
    /// The data keys that the second key has encrypted in the store, encrypted with the first one.
    left: BTreeMap<DataKeyId, Vec<u8>>,
    /// `None` on a single machine, whose store has no proofs.
    proofs: Option<Proofs>,
}

impl KeyChange {
    /// The change that the store needs; `None` if its proofs name the first key alone, and there is no data
    /// key of the second one. `proved` is `None` on a single machine.
    pub(crate) fn new(
        keys: &StoreKeys,
        wrapping: &WrappingKeys,
        left: BTreeMap<DataKeyId, Vec<u8>>,
        proved: Option<NeededKeys>,
        rng: &mut dyn Rng,
    ) -> Result<Option<Self>, SealError> {
        let Some(second) = wrapping.second() else { return Ok(None) };
        if left.is_empty() && proved != Some(NeededKeys::Second) {
            return Ok(None);
        }
        let entry = keys.wrapping_key();
        let mut proofs = || {
            let first = wrapping.first().proof(&entry, rng)?;
            Ok(Proofs { both: [second.proof(&entry, rng)?, first.clone()].concat(), first })
        };
        let proofs = proved.map(|_| proofs()).transpose()?;
        Ok(Some(Self { left, proofs }))
    }

    /// The writes of the next transaction, and the data keys among them.
    pub(crate) fn writes(&self, keys: &StoreKeys) -> (Vec<Write>, Vec<DataKeyId>) {
        let put = |key, value: &Vec<u8>| Write::Put { key, value: value.clone(), lease: None };
        let is_last = self.left.len() <= MAX_REWRAPPED;
        let proofs = self.proofs.iter().map(|Proofs { both, first }| if is_last { first } else { both });
        let rewrapped = self.left.iter().take(MAX_REWRAPPED);
        let writes = proofs.map(|proofs| put(keys.wrapping_key(), proofs));
        let writes = writes.chain(rewrapped.clone().map(|(id, wrapped)| put(keys.data_key(*id), wrapped)));
        (writes.collect(), rewrapped.map(|(id, _)| *id).collect())
    }

    /// Notes that a transaction with these data keys is executed. Returns whether it was the last one.
    pub(crate) fn written(&mut self, rewrapped: &[DataKeyId]) -> bool {
        self.left.retain(|id, _| !rewrapped.contains(id));
        self.left.is_empty()
    }
}
