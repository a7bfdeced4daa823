//! What an owner does after a write without an answer: it enters itself in its slot again.
//!
//! The write may be executed late, after other writes of this owner, and would then bring back an old record.
//! Writes compare the revision at which the slot was last changed. So entering the same owner again voids all
//! earlier requests, and only then is the next record written (docs/decisions/0140-cells.md, rule 1).

use crate::keeper::{Keeper, Ownership, State};
use crate::writes::RETRY;
use casemate_sa::Instant;
use casemate_store::{
    Comparison, Entry, Outcome, Range, Request, RequestId, Revision, Store, StoreError, Transaction, Write,
};

/// Progress of a re-entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Reentry {
    /// All writes have had an answer.
    #[default]
    NotNeeded,
    /// Nothing was submitted yet, or it has failed.
    Needed,
    /// The owner is being entered.
    Entering(RequestId),
    /// The slot had changed: an earlier attempt may have succeeded. Reads the slot.
    Reading(RequestId),
}

impl<S: Store> Keeper<S> {
    /// Submits the next step of a re-entry.
    pub(crate) fn reenter(&mut self, now: Instant) {
        let State::Owner(ownership) = &self.state else { return };
        let Ownership { lease, epoch, .. } = &**ownership;
        if self.reentry != Reentry::Needed || self.retry_at.is_some_and(|at| now < at) {
            return;
        }
        let slot = self.keys.owner();
        let transaction = Transaction {
            comparisons: [Comparison::Changed(slot.clone(), *epoch)].into(),
            writes: [Write::Put { key: slot, value: self.node.clone(), lease: Some(lease.lease()) }].into(),
        };
        match self.requests.submit(Request::Commit(transaction)) {
            Some(request) => self.reentry = Reentry::Entering(request),
            None => self.retry_at = Some(now.after(RETRY)),
        }
    }

    /// Takes the end of a request. Returns whether it belonged to a re-entry.
    pub(crate) fn reentry_completed(
        &mut self,
        id: RequestId,
        outcome: &Result<Outcome, StoreError>,
        now: Instant,
    ) -> bool {
        match self.reentry {
            Reentry::Entering(request) if request == id => self.entered(outcome, now),
            Reentry::Reading(request) if request == id => self.slot_read(outcome, now),
            _ => return false,
        }
        true
    }

    fn entered(&mut self, outcome: &Result<Outcome, StoreError>, now: Instant) {
        match outcome {
            Ok(Outcome::Committed(revision)) => self.begin_epoch(*revision),
            Ok(_) => {
                let range = Range { prefix: self.keys.owner(), after: None, limit: 1 };
                self.reentry = match self.requests.submit(Request::Read(range)) {
                    Some(request) => Reentry::Reading(request),
                    None => Reentry::Needed,
                };
            }
            Err(error) => self.reentry_failed(*error, now),
        }
    }

    /// An earlier attempt has succeeded if the slot still has the lease of this process. Its name alone would
    /// prove nothing.
    fn slot_read(&mut self, outcome: &Result<Outcome, StoreError>, now: Instant) {
        let State::Owner(ownership) = &self.state else { return };
        let lease = ownership.lease.lease();
        let is_own = |entry: &&Entry| entry.lease == Some(lease) && entry.key == self.keys.owner();
        match outcome {
            Ok(Outcome::Entries { entries, .. }) => match entries.iter().find(is_own) {
                Some(entry) => self.begin_epoch(entry.changed),
                None => self.state = State::Lost,
            },
            Ok(_) => self.state = State::Lost,
            Err(error) => self.reentry_failed(*error, now),
        }
    }

    fn begin_epoch(&mut self, revision: Revision) {
        self.reentry = Reentry::NotNeeded;
        self.retry_at = None;
        if let State::Owner(ownership) = &mut self.state {
            ownership.epoch = revision;
        }
    }

    fn reentry_failed(&mut self, error: StoreError, now: Instant) {
        self.problem = Some(error);
        match error {
            StoreError::Damaged => self.state = State::Lost,
            StoreError::Unavailable | StoreError::Refused => {
                self.reentry = Reentry::Needed;
                self.retry_at = Some(now.after(RETRY));
            }
        }
    }
}
