//! The writes of a keeper: transactions with records, and what follows when they are written or have failed.

use crate::data_keys::{DataKeyId, MAX_KEY_WRITES};
use crate::ending::Ending;
use crate::handover::HandoverStep;
use crate::keeper::{Keeper, State};
use crate::outbox::{Batch, ChangeId};
use crate::records::{NamedReserves, StoredRecord};
use crate::reentry::Reentry;
use crate::used_numbers;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use casemate::{Context, Endpoint};
use casemate_ike::{IkeSaId, Transmit};
use casemate_sa::Instant;
use casemate_store::{Comparison, MAX_WRITES, Request, RequestId, Store, StoreError, Transaction, Write};
use core::time::Duration;

/// Pause after a failed write.
pub(crate) const RETRY: Duration = Duration::from_millis(500);

/// Most entries with numbers of the former owner that a transaction deletes.
pub(crate) const MAX_DELETED: usize = 4;
/// Most records of a transaction: there is room for writes of data keys, and for these.
const MAX_RECORDS: usize = MAX_WRITES - MAX_KEY_WRITES - MAX_DELETED;
/// A transaction has no further record after this number of bytes. etcd's default limit is 1.5 MiB.
const MAX_BYTES: usize = 512 << 10;

/// The write of an entry, or its deletion.
pub(crate) struct PreparedWrite {
    write: Write,
    /// `None` unless it is the entry of an IKE SA.
    facts: Option<WriteFacts>,
}

/// What a transaction says of the entry of an IKE SA.
pub(crate) struct WriteFacts {
    /// Our SPI of the IKE SA.
    pub(crate) spi: u64,
    /// The key of the record; `None` for a deletion.
    pub(crate) data_key: Option<DataKeyId>,
    /// The reserves that the record names.
    pub(crate) named: NamedReserves,
}

/// Transactions that are executed one after the other.
pub(crate) struct CurrentWrite {
    /// The request of the first one. The others are not submitted yet.
    pub(crate) request: RequestId,
    /// What the first one writes.
    submitted: Vec<WriteFacts>,
    /// Number of the entries with numbers of the former owner that it deletes.
    deleted: usize,
    left: VecDeque<PreparedWrite>,
    /// Changes that are written with the last one.
    pub(crate) changes: Vec<ChangeId>,
}

impl CurrentWrite {
    /// Number of transactions that are not completed.
    pub(crate) fn transactions(&self) -> usize {
        self.left.len().div_ceil(MAX_RECORDS).saturating_add(1)
    }
}

impl<S: Store> Keeper<S> {
    /// Writes the oldest changes, unless a write is in progress or has just failed. Returns messages that do
    /// not wait any more, because there is nothing to write.
    pub(crate) fn begin_write(
        &mut self,
        endpoint: &mut Endpoint,
        unix_time: u64,
        context: &mut Context<'_>,
    ) -> Vec<Transmit> {
        let now = context.now;
        let mut released = Vec::new();
        if matches!(self.ending, Ending::LastNumbers(_)) {
            if self.current.is_none() {
                self.revoke();
            }
            return released;
        }
        self.retry_at = self.retry_at.filter(|at| now < *at);
        if self.may_write() && self.data_keys.is_changing() {
            self.submit(VecDeque::new(), Vec::new(), now);
        }
        if self.may_write() {
            self.data_keys.replace_if_due(now);
            self.data_keys.take_due(now).into_iter().for_each(|spi| self.outbox.add([spi]));
        }
        while self.may_write() {
            let Batch { changes, mut spis } = self.outbox.take(MAX_RECORDS);
            // The youngest IKE SA comes first, in case there are more than one transaction can write: until
            // all are written, the state of the oldest one holds. Deletions come last.
            spis.sort_unstable_by_key(|spi| core::cmp::Reverse(self.ike_of(*spi)));
            let prepare = |spi| self.prepare(spi, endpoint, unix_time, context);
            let writes: VecDeque<PreparedWrite> = spis.into_iter().filter_map(prepare).collect();
            if !writes.is_empty() || self.data_keys.has_unused() {
                self.submit(writes, changes, now);
            } else if !changes.is_empty() {
                released.extend(self.outbox.written(changes));
            } else if self.ending == Ending::HandingOver(HandoverStep::Writing) {
                if self.needs_write_before_release(context) {
                    self.submit(VecDeque::new(), Vec::new(), now);
                } else {
                    self.release();
                }
            } else if self.ending == Ending::Writing {
                self.ending = Ending::WritingNumbers;
                let numbers = self.prepare_numbers(endpoint, context);
                if !numbers.is_empty() || !self.former_numbers.is_empty() {
                    self.submit(numbers, Vec::new(), now);
                }
            } else {
                if self.ending == Ending::WritingNumbers {
                    self.revoke();
                }
                break;
            }
        }
        released
    }

    /// Whether something is to be written before the slot is given up: the deletion of former numbers, or the
    /// data key that will encrypt the last numbers. The next owner reads the data keys before these numbers.
    fn needs_write_before_release(&mut self, context: &mut Context<'_>) -> bool {
        let State::Owner(ownership) = &self.state else { return false };
        let needs_key = self.records.len() > 0 && self.data_keys.prepare(ownership.owner, context);
        needs_key || !self.former_numbers.is_empty()
    }

    /// Whether the next write may begin.
    pub(crate) fn may_write(&self) -> bool {
        matches!(self.state, State::Owner(_))
            && self.current.is_none()
            && self.reentry == Reentry::NotNeeded
            && self.retry_at.is_none()
            && matches!(
                self.ending,
                Ending::No
                    | Ending::HandingOver(HandoverStep::Writing)
                    | Ending::Writing
                    | Ending::WritingNumbers
            )
    }

    fn ike_of(&self, spi: u64) -> Option<IkeSaId> {
        self.records.by_spi.get(&spi)?.ike()
    }

    /// Submits the first of these writes as a transaction, with those of data keys.
    pub(crate) fn submit(&mut self, mut left: VecDeque<PreparedWrite>, changes: Vec<ChangeId>, now: Instant) {
        let State::Owner(ownership) = &self.state else { return };
        let epoch = ownership.epoch;
        let first = left.drain(..first_transaction(&left));
        let (mut writes, facts): (Vec<Write>, Vec<_>) =
            first.map(|PreparedWrite { write, facts }| (write, facts)).unzip();
        let submitted = facts.into_iter().flatten().collect();
        let mut deleted = 0;
        let comparison = match self.ending {
            Ending::LastNumbers(released) => {
                let handover = self.keys.handover();
                if left.is_empty() {
                    writes.push(Write::Delete(handover.clone()));
                }
                Comparison::Created(handover, released)
            }
            _ => {
                writes.extend(self.data_keys.writes());
                deleted = self.former_numbers.len().min(MAX_DELETED);
                writes.extend(self.former_numbers.iter().take(deleted).cloned().map(Write::Delete));
                Comparison::Changed(self.keys.owner(), epoch)
            }
        };
        let comparisons = [comparison].into();
        match self.requests.submit(Request::Commit(Transaction { comparisons, writes })) {
            Some(request) => self.current = Some(CurrentWrite { request, submitted, deleted, left, changes }),
            None => self.write_failed(changes, StoreError::Unavailable, now),
        }
    }

    /// The write of the record of an IKE SA.
    fn prepare(
        &mut self,
        spi: u64,
        endpoint: &mut Endpoint,
        unix_time: u64,
        context: &mut Context<'_>,
    ) -> Option<PreparedWrite> {
        let State::Owner(ownership) = &self.state else { return None };
        let owner = ownership.owner;
        let key = self.keys.record(spi);
        let Some(kept) = self.records.by_spi.get(&spi) else {
            let facts = WriteFacts { spi, data_key: None, named: NamedReserves::new() };
            return Some(PreparedWrite { write: Write::Delete(key), facts: Some(facts) });
        };
        let (ike, created_by) = (kept.ike()?, kept.created_by());
        let mut record = endpoint.record(ike, context.now)?;
        self.records.note(ike, &mut record, owner, endpoint, context.now);
        let stored = StoredRecord {
            created_by,
            written_at: unix_time,
            record: record.encode().ok()?.expose().to_vec().into(),
            store: self.requests.store.identity(),
        };
        let bytes = stored.into_bytes()?;
        let (value, data_key) = self.data_keys.seal(owner, spi, &bytes, context)?;
        let named = self.records.begin_write(record, context.now);
        let facts = WriteFacts { spi, data_key: Some(data_key), named };
        Some(PreparedWrite { write: Write::Put { key, value, lease: None }, facts: Some(facts) })
    }

    /// The entries with the numbers that were used.
    pub(crate) fn prepare_numbers(
        &mut self,
        endpoint: &Endpoint,
        context: &mut Context<'_>,
    ) -> VecDeque<PreparedWrite> {
        let State::Owner(ownership) = &self.state else { return VecDeque::new() };
        let owner = ownership.owner;
        let all = self.records.used_numbers(endpoint);
        let texts = used_numbers::encode(&all, self.requests.store.identity());
        let mut prepared = VecDeque::new();
        for (number, text) in texts.iter().enumerate() {
            let key = self.keys.used_numbers(number);
            // Without it, the reserves of the records count.
            let Some((value, _)) = self.data_keys.encrypt(owner, &key, text, context) else { continue };
            self.former_numbers.retain(|former| *former != key);
            prepared.push_back(PreparedWrite { write: Write::Put { key, value, lease: None }, facts: None });
        }
        prepared
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
        let CurrentWrite { submitted, deleted, left, changes, .. } = current;
        self.former_numbers.drain(..deleted);
        self.data_keys.written(&submitted);
        submitted.iter().for_each(|facts| self.records.written(&facts.named, endpoint));
        if left.is_empty() {
            return self.outbox.written(changes);
        }
        self.submit(left, changes, now);
        Vec::new()
    }

    /// Lets the changes of a write wait again.
    pub(crate) fn write_failed(&mut self, changes: Vec<ChangeId>, error: StoreError, now: Instant) {
        self.problem = Some(error);
        self.retry_at = Some(now.after(RETRY));
        self.outbox.put_back(changes);
        match self.ending {
            Ending::No => {}
            Ending::HandingOver(_) => self.ending = Ending::HandingOver(HandoverStep::Failed),
            _ => self.revoke(),
        }
    }
}

/// Number of the first of these writes that one transaction executes.
fn first_transaction(writes: &VecDeque<PreparedWrite>) -> usize {
    let size = |PreparedWrite { write, .. }: &PreparedWrite| match write {
        Write::Put { value, .. } => value.len(),
        Write::Delete(_) => 0,
    };
    let mut bytes: usize = 0;
    let fits = |write: &&PreparedWrite| {
        let is_first = bytes == 0;
        bytes = bytes.saturating_add(size(write));
        is_first || bytes <= MAX_BYTES
    };
    writes.iter().take(MAX_RECORDS).take_while(fits).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_are_limited_in_writes_and_bytes() {
        let put = |len| PreparedWrite {
            write: Write::Put { key: Vec::new(), value: alloc::vec![0; len], lease: None },
            facts: None,
        };
        let deletion = || PreparedWrite { write: Write::Delete(Vec::new()), facts: None };
        let first = |writes: Vec<PreparedWrite>| first_transaction(&writes.into());
        assert_eq!(first(Vec::new()), 0);
        assert_eq!(first((0..200).map(|_| put(1_000)).collect()), MAX_RECORDS);
        assert_eq!(first((0..200).map(|_| deletion()).collect()), MAX_RECORDS);
        assert_eq!(first((0..200).map(|_| put(48 << 10)).collect()), MAX_BYTES / (48 << 10));
        // One write of any size is executed.
        assert_eq!(first([put(2 * MAX_BYTES), put(1)].into()), 1);
    }
}
