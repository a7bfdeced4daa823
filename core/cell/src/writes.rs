//! The writes of a keeper: transactions with records, and what follows when they are written or have failed.

use crate::StoreKeys;
use crate::keeper::{Keeper, Ownership, State};
use crate::outbox::ChangeId;
use crate::records::{KeptRecords, NamedReserves, StoredRecord, note_written};
use alloc::vec::Vec;
use casemate::{Context, Endpoint};
use casemate_ike::{IkeSaId, Transmit};
use casemate_sa::Instant;
use casemate_store::{Comparison, MAX_WRITES, Request, Store, StoreError, Transaction, Write};
use core::time::Duration;

/// Pause after a failed write.
const RETRY: Duration = Duration::from_millis(500);

/// What waits for a write.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    Nothing,
    /// Messages of its IKE SAs.
    Messages,
    /// Changes of which a transaction has failed.
    Changes(Vec<ChangeId>),
}

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

/// A transaction in the store.
pub(crate) struct PendingWrite {
    pub(crate) change: Option<ChangeId>,
    /// What it writes, by our SPI; `None` for a deletion.
    pub(crate) records: Vec<(u64, Option<NamedReserves>)>,
}

impl<S: Store> Keeper<S> {
    /// Writes the records of IKE SAs. Returns messages that do not wait any more, because there is nothing to
    /// write.
    pub(crate) fn write(
        &mut self,
        ikes: Vec<IkeSaId>,
        waiting: Waiting,
        endpoint: &mut Endpoint,
        unix_time: u64,
        context: &mut Context<'_>,
    ) -> Vec<Transmit> {
        let State::Owner(ownership) = self.state else { return Vec::new() };
        let mut writes = Vec::new();
        for ike in ikes {
            writes.extend(self.prepare(ike, ownership, Numbers::Reserved, endpoint, unix_time, context));
        }
        // The youngest IKE SA comes first: until all are written, the state of the oldest one holds.
        writes.reverse();
        let chunks: Vec<Vec<PreparedWrite>> = writes.chunks(MAX_WRITES).map(<[_]>::to_vec).collect();
        let spis = writes.iter().map(|write| write.spi).collect();
        let change = match waiting {
            Waiting::Nothing => None,
            Waiting::Messages => Some(self.add_change(spis, &chunks, Vec::new())),
            Waiting::Changes(failed) => Some(self.add_change(spis, &chunks, failed)),
        };
        if let Some(change) = change.filter(|_| chunks.is_empty()) {
            return self.change_written(change);
        }
        chunks.into_iter().for_each(|chunk| self.commit(chunk, change, ownership, context.now));
        Vec::new()
    }

    pub(crate) fn add_change(
        &mut self,
        spis: Vec<u64>,
        chunks: &[Vec<PreparedWrite>],
        failed: Vec<ChangeId>,
    ) -> ChangeId {
        let change = self.outbox.add(spis);
        self.unwritten.insert(change, chunks.len());
        self.followed.insert(change, failed);
        change
    }

    /// The write of the record of an IKE SA.
    pub(crate) fn prepare(
        &mut self,
        ike: IkeSaId,
        ownership: Ownership,
        numbers: Numbers,
        endpoint: &mut Endpoint,
        unix_time: u64,
        context: &mut Context<'_>,
    ) -> Option<PreparedWrite> {
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
            is_exact: numbers == Numbers::Used,
            record: record.encode().ok()?.expose().to_vec().into(),
        };
        let bytes = stored.into_bytes()?;
        let value = self.sealer.seal(&key, ownership.owner, &bytes, context.rng).ok()?;
        let named = kept.begin_write(record, &self.records.reserves, context.now);
        Some(PreparedWrite { spi, write: Write::Put { key, value, lease: None }, named: Some(named) })
    }

    pub(crate) fn commit(
        &mut self,
        chunk: Vec<PreparedWrite>,
        change: Option<ChangeId>,
        ownership: Ownership,
        now: Instant,
    ) {
        let comparisons = [Comparison::Created(self.keys.owner(), ownership.epoch)].into();
        let writes = chunk.iter().map(|prepared| prepared.write.clone()).collect();
        let records = chunk.into_iter().map(|PreparedWrite { spi, named, .. }| (spi, named)).collect();
        let pending = PendingWrite { change, records };
        match self.submit(Request::Commit(Transaction { comparisons, writes })) {
            Ok(id) => drop(self.writes.insert(id, pending)),
            Err(_) => self.write_failed(pending, StoreError::Unavailable, now),
        }
    }

    /// Deletes the records of IKE SAs that have ended.
    pub(crate) fn delete_ended(&mut self, now: Instant) {
        let State::Owner(ownership) = self.state else { return };
        let delete = |keys: &StoreKeys, spi| PreparedWrite {
            spi,
            write: Write::Delete(keys.record(spi)),
            named: None,
        };
        let ended = core::mem::take(&mut self.ended);
        for chunk in ended.chunks(MAX_WRITES) {
            let chunk = chunk.iter().map(|spi| delete(&self.keys, *spi)).collect();
            self.commit(chunk, None, ownership, now);
        }
    }

    /// Extends reserves, and writes what is due.
    pub(crate) fn check(
        &mut self,
        elapsed: Duration,
        endpoint: &mut Endpoint,
        unix_time: u64,
        context: &mut Context<'_>,
    ) -> Vec<Transmit> {
        let now = context.now;
        let KeptRecords { by_spi, reserves, .. } = &mut self.records;
        by_spi.values_mut().for_each(|kept| kept.grow(reserves, endpoint, elapsed));
        if self.retry_at.is_some_and(|at| now < at) {
            return Vec::new();
        }
        self.retry_at = None;
        let is_due = |spi| self.records.by_spi.get(spi).is_some_and(|kept| kept.is_due(now));
        let due: Vec<IkeSaId> =
            self.records.spis.iter().filter(|(_, spi)| is_due(spi)).map(|(ike, _)| *ike).collect();
        let failed = core::mem::take(&mut self.failed);
        let waiting = if failed.is_empty() { Waiting::Nothing } else { Waiting::Changes(failed) };
        let released = if due.is_empty() && waiting == Waiting::Nothing {
            Vec::new()
        } else {
            self.write(due, waiting, endpoint, unix_time, context)
        };
        self.delete_ended(now);
        released
    }

    pub(crate) fn written(&mut self, pending: PendingWrite, endpoint: &mut Endpoint) -> Vec<Transmit> {
        self.problem = None;
        self.writes_done = self.writes_done.saturating_add(1);
        for (_, named) in &pending.records {
            named.iter().for_each(|named| note_written(&mut self.records.reserves, named, endpoint));
        }
        pending.change.map_or_else(Vec::new, |change| self.transaction_written(change))
    }

    /// Notes that a transaction of a change is written. Returns the messages of the change if it was the
    /// last.
    pub(crate) fn transaction_written(&mut self, change: ChangeId) -> Vec<Transmit> {
        let left = self.unwritten.get_mut(&change).map(|left| {
            *left = left.saturating_sub(1);
            *left
        });
        if left == Some(0) { self.change_written(change) } else { Vec::new() }
    }

    pub(crate) fn change_written(&mut self, change: ChangeId) -> Vec<Transmit> {
        self.unwritten.remove(&change);
        let mut released = self.outbox.written(change);
        for failed in self.followed.remove(&change).unwrap_or_default() {
            released.extend(self.transaction_written(failed));
        }
        released
    }

    /// Writes the same IKE SAs again later, with their state of then.
    pub(crate) fn write_failed(&mut self, pending: PendingWrite, error: StoreError, now: Instant) {
        self.problem = Some(error);
        self.retry_at = Some(now.after(RETRY));
        for (spi, named) in pending.records {
            match (named, self.records.by_spi.get_mut(&spi)) {
                (Some(_), Some(kept)) => kept.write_failed(),
                // It has ended meanwhile, and its entry is deleted.
                (Some(_), None) => {}
                (None, _) => self.ended.push(spi),
            }
        }
        self.failed.extend(pending.change);
    }
}
