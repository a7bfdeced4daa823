//! The writes of a keeper: transactions with records, and what follows when they are written or have failed.

use crate::data_keys::MAX_KEY_WRITES;
use crate::keeper::{Keeper, State};
use crate::outbox::ChangeId;
use crate::records::{KeptRecord, NamedReserves, StoredRecord, note_written};
use crate::reentry::Reentry;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use casemate::{Context, Endpoint};
use casemate_ike::{IkeSaId, Transmit};
use casemate_sa::Instant;
use casemate_store::{Comparison, MAX_WRITES, Request, RequestId, Store, StoreError, Transaction, Write};
use core::time::Duration;

/// Pause after a failed write.
pub(crate) const RETRY: Duration = Duration::from_millis(500);

/// Sequence numbers in a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Numbers {
    /// Those that are reserved.
    Reserved,
    /// Those that were used: nothing is sent or received after them.
    Used,
}

/// A write, and the reserves that it names; `None` for a deletion.
#[derive(Clone)]
pub(crate) struct PreparedWrite {
    /// Our SPI of the IKE SA.
    pub(crate) spi: u64,
    pub(crate) write: Write,
    pub(crate) named: Option<NamedReserves>,
}

/// Transactions that are executed one after the other.
pub(crate) struct CurrentWrite {
    /// The request of the first one. The others are not submitted yet.
    pub(crate) request: RequestId,
    submitted: Vec<PreparedWrite>,
    left: VecDeque<Vec<PreparedWrite>>,
    /// Changes that are written with the last one.
    pub(crate) changes: Vec<ChangeId>,
}

impl CurrentWrite {
    /// Number of transactions that are not completed.
    pub(crate) fn transactions(&self) -> usize {
        self.left.len().saturating_add(1)
    }
}

impl<S: Store> Keeper<S> {
    /// Writes what is due, unless a write is in progress or has just failed. Returns messages that do not
    /// wait any more, because there is nothing to write.
    pub(crate) fn begin_write(
        &mut self,
        endpoint: &mut Endpoint,
        unix_time: u64,
        context: &mut Context<'_>,
    ) -> Vec<Transmit> {
        let now = context.now;
        let must_wait = self.current.is_some()
            || self.reentry != Reentry::NotNeeded
            || self.is_ending
            || self.retry_at.is_some_and(|at| now < at);
        if must_wait || !matches!(self.state, State::Owner(_)) {
            return Vec::new();
        }
        self.retry_at = None;
        let mut writes = Vec::new();
        self.data_keys.replace_if_due(now);
        let encrypted_with_former_keys = self.data_keys.take_due(now);
        for ike in self.records.due(now, &encrypted_with_former_keys) {
            writes.extend(self.prepare(ike, Numbers::Reserved, endpoint, unix_time, context));
        }
        // The youngest IKE SA comes first: until all are written, the state of the oldest one holds.
        writes.reverse();
        writes.extend(self.deletions());
        let changes = core::mem::take(&mut self.waiting);
        let mut transactions = chunks(&writes);
        if transactions.is_empty() && self.data_keys.has_unused() {
            transactions.push_back(Vec::new());
        }
        self.submit_next(transactions, changes, now)
    }

    /// Deletions of the records of IKE SAs that have ended.
    fn deletions(&mut self) -> Vec<PreparedWrite> {
        let ended = core::mem::take(&mut self.ended);
        let delete = |spi| PreparedWrite { spi, write: Write::Delete(self.keys.record(spi)), named: None };
        ended.into_iter().map(delete).collect()
    }

    /// Writes records and deletions after the write in progress, and then ends the ownership.
    pub(crate) fn end_with(&mut self, mut writes: Vec<PreparedWrite>, now: Instant) {
        writes.extend(self.deletions());
        let mut changes = core::mem::take(&mut self.waiting);
        self.is_ending = true;
        if self.reentry != Reentry::NotNeeded || !matches!(self.state, State::Owner(_)) {
            return self.revoke();
        }
        let mut transactions = chunks(&writes);
        if self.data_keys.are_all_former() {
            // Deletes data keys when all records are deleted.
            transactions.push_back(Vec::new());
        }
        if let Some(current) = &mut self.current {
            current.left.append(&mut transactions);
            current.changes.append(&mut changes);
            return;
        }
        // Without writes, there is nothing that messages wait for.
        let _ = self.submit_next(transactions, changes, now);
    }

    /// Submits the first of these transactions. Returns the messages of the changes if there is none.
    fn submit_next(
        &mut self,
        mut left: VecDeque<Vec<PreparedWrite>>,
        changes: Vec<ChangeId>,
        now: Instant,
    ) -> Vec<Transmit> {
        let State::Owner(ownership) = &self.state else { return Vec::new() };
        let epoch = ownership.epoch;
        let Some(submitted) = left.pop_front() else {
            if self.is_ending {
                self.revoke();
            }
            return changes.into_iter().flat_map(|change| self.outbox.written(change)).collect();
        };
        let comparisons = [Comparison::Changed(self.keys.owner(), epoch)].into();
        let of_records = submitted.iter().map(|prepared| prepared.write.clone());
        let writes = of_records.chain(self.data_keys.writes()).collect();
        let request = self.requests.submit(Request::Commit(Transaction { comparisons, writes }));
        let is_submitted = request.is_some();
        let request = request.unwrap_or(RequestId(0));
        let current = CurrentWrite { request, submitted, left, changes };
        if is_submitted {
            self.current = Some(current);
        } else {
            self.write_failed(current, StoreError::Unavailable, now);
        }
        Vec::new()
    }

    /// Ends the lease, and with it the ownership.
    fn revoke(&mut self) {
        if let Some(lease) = self.lease() {
            self.revocation = self.requests.submit(Request::Revoke(lease));
        }
    }

    /// The write of the record of an IKE SA.
    pub(crate) fn prepare(
        &mut self,
        ike: IkeSaId,
        numbers: Numbers,
        endpoint: &mut Endpoint,
        unix_time: u64,
        context: &mut Context<'_>,
    ) -> Option<PreparedWrite> {
        let State::Owner(ownership) = &self.state else { return None };
        let owner = ownership.owner;
        let mut record = endpoint.record(ike, context.now)?;
        let spi = record.own_spi();
        let kept = self.records.by_spi.get_mut(&spi)?;
        if numbers == Numbers::Reserved {
            kept.note(&mut record, &mut self.records.reserves, endpoint, context.now);
        }
        let key = self.keys.record(spi);
        let stored = StoredRecord {
            created_by: kept.created_by(),
            written_at: unix_time,
            record: record.encode().ok()?.expose().to_vec().into(),
            store: self.requests.store.identity(),
        };
        let bytes = stored.into_bytes()?;
        let value = self.data_keys.seal(owner, spi, &bytes, context)?;
        let named = kept.begin_write(record, &self.records.reserves, context.now);
        Some(PreparedWrite { spi, write: Write::Put { key, value, lease: None }, named: Some(named) })
    }

    /// Notes that the submitted transaction is executed, and continues. Returns the messages of the changes
    /// if it was the last one.
    pub(crate) fn written(
        &mut self,
        current: CurrentWrite,
        endpoint: &mut Endpoint,
        now: Instant,
    ) -> Vec<Transmit> {
        self.problem = None;
        self.writes_done = self.writes_done.saturating_add(1);
        self.data_keys.written(current.submitted.iter().map(|prepared| (prepared.spi, &prepared.write)));
        for PreparedWrite { spi, named, .. } in &current.submitted {
            self.records.by_spi.get_mut(spi).into_iter().for_each(KeptRecord::end_write);
            named.iter().for_each(|named| note_written(&mut self.records.reserves, named, endpoint));
        }
        self.submit_next(current.left, current.changes, now)
    }

    /// Writes the same IKE SAs again later, with their state of then.
    pub(crate) fn write_failed(&mut self, current: CurrentWrite, error: StoreError, now: Instant) {
        self.problem = Some(error);
        self.retry_at = Some(now.after(RETRY));
        let CurrentWrite { submitted, left, mut changes, .. } = current;
        for PreparedWrite { spi, named, .. } in submitted.into_iter().chain(left.into_iter().flatten()) {
            match (named, self.records.by_spi.get_mut(&spi)) {
                (Some(_), Some(kept)) => kept.write_failed(),
                // It has ended meanwhile, and its entry is deleted.
                (Some(_), None) => {}
                (None, _) => self.ended.push(spi),
            }
        }
        changes.append(&mut self.waiting);
        self.waiting = changes;
        if self.is_ending {
            self.revoke();
        }
    }
}

/// Splits writes into transactions, with room for those of data keys.
fn chunks(writes: &[PreparedWrite]) -> VecDeque<Vec<PreparedWrite>> {
    let most = MAX_WRITES.saturating_sub(MAX_KEY_WRITES);
    writes.chunks(most).map(<[_]>::to_vec).collect()
}
