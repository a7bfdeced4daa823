//! The keeper of an endpoint's state: claims it at a start, and writes what changes.

use crate::claim::{Claim, Next, StartError};
use crate::keys::StoreKeys;
use crate::outbox::{ChangeId, Outbox};
use crate::records::{KeptRecord, KeptRecords, NamedReserves, StoredRecord};
use crate::seal::Sealer;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use casemate::{Context, Endpoint, IkeRecord, OwnedRecord};
use casemate_ike::{IkeSaId, Transmit};
use casemate_sa::Instant;
use casemate_store::{
    Comparison, Completion, Key, Lease, MAX_WRITES, Outcome, Request, RequestId, Revision, Store, StoreError,
    Transaction, Write,
};
use core::time::Duration;

/// Interval in which reserves are compared with their use.
const CHECK: Duration = Duration::from_millis(250);
/// Pause after a failed write.
const RETRY: Duration = Duration::from_millis(500);
/// The lease of a single machine: its store ends it when another process opens the store.
const SINGLE_LEASE: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Keeps the state of an endpoint in a store.
pub struct Keeper<S> {
    store: S,
    keys: StoreKeys,
    sealer: Sealer,
    state: State,
    last_request: u64,
    records: KeptRecords,
    outbox: Outbox,
    /// Writes that are not completed.
    writes: BTreeMap<RequestId, PendingWrite>,
    /// Number of transactions of each change that are not written yet.
    unwritten: BTreeMap<ChangeId, usize>,
    /// Changes of which a transaction has failed, once for each.
    failed: Vec<ChangeId>,
    /// Failed changes that end with another one.
    followed: BTreeMap<ChangeId, Vec<ChangeId>>,
    /// Our SPIs of IKE SAs whose entries are to be deleted.
    ended: Vec<u64>,
    checked_at: Instant,
    retry_at: Option<Instant>,
    problem: Option<StoreError>,
    writes_done: u64,
}

enum State {
    New {
        node: Vec<u8>,
    },
    Claiming {
        claim: Box<Claim>,
        request: RequestId,
    },
    Owner(Ownership),
    /// Another owner has the slot, or the store is damaged.
    Lost,
}

#[derive(Debug, Clone, Copy)]
struct Ownership {
    lease: Lease,
    epoch: Revision,
    /// Takeover count.
    owner: u64,
}

/// What waits for a write.
#[derive(Debug, PartialEq, Eq)]
enum Waiting {
    Nothing,
    /// Messages of its IKE SAs.
    Messages,
    /// Changes of which a transaction has failed.
    Changes(Vec<ChangeId>),
}

/// Sequence numbers in a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Numbers {
    /// Those that are reserved.
    Reserved,
    /// Those that were used: nothing is sent or received after them.
    Used,
}

/// A write, and the reserves that it names; `None` for a deletion.
#[derive(Clone)]
struct PreparedWrite {
    /// Our SPI of the IKE SA.
    spi: u64,
    write: Write,
    named: Option<NamedReserves>,
}

/// A transaction in the store.
struct PendingWrite {
    change: Option<ChangeId>,
    /// What it writes, by our SPI; `None` for a deletion.
    records: Vec<(u64, Option<NamedReserves>)>,
}

/// Progress of a start.
#[derive(Debug)]
pub enum Started {
    /// The store has not answered yet: call again when it has.
    Waiting,
    /// The state of the former owner, for [`Endpoint::configure_and_restore`].
    Records {
        /// IKE SAs to restore.
        records: Vec<OwnedRecord>,
        /// Number of records that cannot be read: of another data key, version or owner. They are deleted.
        unreadable: usize,
    },
}

/// State of a keeper, for status output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeeperStatus {
    /// Number of owners of the state so far; 0 before the start.
    pub owner: u64,
    /// IKE SAs with a record.
    pub records: usize,
    /// Transactions that have been written.
    pub writes: u64,
    /// Transactions that are not completed.
    pub pending: usize,
    /// Messages that wait for them.
    pub held: usize,
    /// Messages that were dropped because too many waited.
    pub dropped: u64,
    /// Why the last transaction failed, if it did.
    pub problem: Option<StoreError>,
    /// Whether another owner has taken over, so that this one must end.
    pub is_lost: bool,
}

impl<S: Store> Keeper<S> {
    /// A keeper for a single machine. `node` names this process for readers of the store.
    pub fn new(store: S, keys: StoreKeys, sealer: Sealer, node: &[u8]) -> Self {
        Self {
            store,
            keys,
            sealer,
            state: State::New { node: node.into() },
            last_request: 0,
            records: KeptRecords::default(),
            outbox: Outbox::default(),
            writes: BTreeMap::new(),
            unwritten: BTreeMap::new(),
            failed: Vec::new(),
            followed: BTreeMap::new(),
            ended: Vec::new(),
            checked_at: Instant::ZERO,
            retry_at: None,
            problem: None,
            writes_done: 0,
        }
    }

    /// Claims the state and reads the records of the former owner. `unix_time` is in microseconds since 1970.
    ///
    /// # Errors
    ///
    /// [`StartError`]. The state belongs to another process, or the store has failed.
    pub fn start(&mut self, unix_time: u64) -> Result<Started, StartError> {
        if let State::New { node } = &mut self.state {
            let node = core::mem::take(node);
            let (claim, request) = Claim::begin(self.keys.clone(), node, SINGLE_LEASE);
            let request = self.submit(request).map_err(|_| StartError::Store(StoreError::Unavailable))?;
            self.state = State::Claiming { claim: Box::new(claim), request };
        }
        while let Some(Completion { id, outcome }) = self.store.next_completion() {
            let State::Claiming { claim, request } = &mut self.state else {
                return Err(StartError::Unexpected);
            };
            if id != *request {
                continue;
            }
            match claim.advance(outcome)? {
                Next::Request(next) => {
                    let next = self.submit(next).map_err(|_| StartError::Store(StoreError::Unavailable))?;
                    if let State::Claiming { request, .. } = &mut self.state {
                        *request = next;
                    }
                }
                Next::Done(claimed) => {
                    let (lease, epoch, owner) = (claimed.lease, claimed.epoch, claimed.owner);
                    self.state = State::Owner(Ownership { lease, epoch, owner });
                    let entries = claimed.entries.into_iter().map(|entry| (entry.key, entry.value));
                    return Ok(self.restorable(entries.collect(), owner, unix_time));
                }
            }
        }
        Ok(Started::Waiting)
    }

    /// The IKE SAs of entries of the store.
    fn restorable(&mut self, entries: Vec<(Key, Vec<u8>)>, owner: u64, unix_time: u64) -> Started {
        let mut records = Vec::new();
        let mut unreadable: usize = 0;
        for (key, value) in entries {
            match self.read(&key, &value, owner, unix_time) {
                Some(record) => records.push(record),
                None => {
                    unreadable = unreadable.saturating_add(1);
                    self.ended.extend(spi_of(&key));
                }
            }
        }
        Started::Records { records, unreadable }
    }

    fn read(&mut self, key: &[u8], value: &[u8], owner: u64, unix_time: u64) -> Option<OwnedRecord> {
        let opened = self.sealer.open(key, value).ok()?;
        let stored: StoredRecord = minicbor::decode(&opened.text).ok()?;
        let mut record = IkeRecord::decode(&stored.record).ok()?;
        let kept = KeptRecord::restored(&stored, &mut record, (opened.owner, owner))?;
        record.advance(Duration::from_micros(unix_time.saturating_sub(stored.written_at)));
        let owners = owner.checked_sub(kept.created_by()).and_then(|owners| u16::try_from(owners).ok())?;
        self.records.by_spi.insert(record.own_spi(), kept);
        Some(OwnedRecord { record, owners })
    }

    /// Drops the record of an IKE SA that was not restored.
    pub fn not_restored(&mut self, record: &IkeRecord) {
        if self.records.by_spi.remove(&record.own_spi()).is_some() {
            self.ended.push(record.own_spi());
        }
    }

    /// Writes what has changed in the endpoint, and holds the messages that depend on it. Returns the others.
    pub fn collect(
        &mut self,
        endpoint: &mut Endpoint,
        mut transmits: Vec<Transmit>,
        unix_time: u64,
        context: &mut Context<'_>,
    ) -> Vec<Transmit> {
        let now = context.now;
        let mut changed = Vec::new();
        for ike in endpoint.take_changed() {
            self.note_change(ike, endpoint, &mut changed, now);
        }
        if !changed.is_empty() {
            let mut free = self.write(changed, Waiting::Messages, endpoint, unix_time, context);
            free.extend(transmits);
            transmits = free;
        }
        self.delete_ended(now);
        transmits.into_iter().filter_map(|transmit| self.outbox.hold(transmit)).collect()
    }

    fn note_change(
        &mut self,
        ike: IkeSaId,
        endpoint: &mut Endpoint,
        changed: &mut Vec<IkeSaId>,
        now: Instant,
    ) {
        let State::Owner(Ownership { owner, .. }) = self.state else { return };
        let Some(mut record) = endpoint.record(ike, now) else {
            if let Some(spi) = self.records.spis.remove(&ike) {
                self.records.by_spi.remove(&spi);
                self.ended.push(spi);
            }
            return;
        };
        let spi = record.own_spi();
        self.records.spis.insert(ike, spi);
        let kept = self.records.by_spi.entry(spi).or_insert_with(|| KeptRecord::new(owner));
        if kept.note(&mut record, endpoint, now) {
            changed.push(ike);
        }
    }

    /// Writes the records of IKE SAs. Returns messages that do not wait any more, because there is nothing to
    /// write.
    fn write(
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
        let chunks = writes.chunks(MAX_WRITES).map(<[_]>::to_vec).collect();
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

    fn add_change(
        &mut self,
        spis: Vec<u64>,
        chunks: &Vec<Vec<PreparedWrite>>,
        failed: Vec<ChangeId>,
    ) -> ChangeId {
        let change = self.outbox.add(spis);
        self.unwritten.insert(change, chunks.len());
        self.followed.insert(change, failed);
        change
    }

    /// The write of the record of an IKE SA.
    fn prepare(
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
            kept.note(&mut record, endpoint, context.now);
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
        let named = kept.begin_write(record, context.now);
        Some(PreparedWrite { spi, write: Write::Put { key, value, lease: None }, named: Some(named) })
    }

    fn commit(
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
    fn delete_ended(&mut self, now: Instant) {
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

    fn submit(&mut self, request: Request) -> Result<RequestId, Request> {
        self.last_request = self.last_request.saturating_add(1);
        let id = RequestId(self.last_request);
        self.store.submit(id, request).map(|()| id)
    }

    /// Handles the completions of the store, extends reserves, and repeats what has failed. Returns the
    /// messages whose records are written now. `is_urgent` compares the reserves with their use at once.
    pub fn poll(
        &mut self,
        endpoint: &mut Endpoint,
        is_urgent: bool,
        unix_time: u64,
        context: &mut Context<'_>,
    ) -> Vec<Transmit> {
        let mut released = Vec::new();
        while let Some(Completion { id, outcome }) = self.store.next_completion() {
            let Some(pending) = self.writes.remove(&id) else { continue };
            match outcome {
                Ok(Outcome::Committed(_)) => released.extend(self.written(pending, endpoint)),
                Ok(_) => self.state = State::Lost,
                Err(StoreError::Damaged) => {
                    self.problem = Some(StoreError::Damaged);
                    self.state = State::Lost;
                }
                Err(error) => self.write_failed(pending, error, context.now),
            }
        }
        let elapsed = context.now.since(self.checked_at);
        if is_urgent || elapsed >= CHECK {
            self.checked_at = context.now;
            released.extend(self.check(elapsed, endpoint, unix_time, context));
        }
        released
    }

    /// Extends reserves, and writes what is due.
    fn check(
        &mut self,
        elapsed: Duration,
        endpoint: &mut Endpoint,
        unix_time: u64,
        context: &mut Context<'_>,
    ) -> Vec<Transmit> {
        let now = context.now;
        self.records.by_spi.values_mut().for_each(|kept| kept.grow(endpoint, elapsed));
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

    fn written(&mut self, pending: PendingWrite, endpoint: &mut Endpoint) -> Vec<Transmit> {
        self.problem = None;
        self.writes_done = self.writes_done.saturating_add(1);
        for (spi, named) in &pending.records {
            let kept = self.records.by_spi.get_mut(spi);
            if let (Some(kept), Some(named)) = (kept, named) {
                kept.written(named, endpoint);
            }
        }
        pending.change.map_or_else(Vec::new, |change| self.transaction_written(change))
    }

    /// Notes that a transaction of a change is written. Returns the messages of the change if it was the
    /// last.
    fn transaction_written(&mut self, change: ChangeId) -> Vec<Transmit> {
        let left = self.unwritten.get_mut(&change).map(|left| {
            *left = left.saturating_sub(1);
            *left
        });
        if left == Some(0) { self.change_written(change) } else { Vec::new() }
    }

    fn change_written(&mut self, change: ChangeId) -> Vec<Transmit> {
        self.unwritten.remove(&change);
        let mut released = self.outbox.written(change);
        for failed in self.followed.remove(&change).unwrap_or_default() {
            released.extend(self.transaction_written(failed));
        }
        released
    }

    /// Writes the same IKE SAs again later, with their state of then.
    fn write_failed(&mut self, pending: PendingWrite, error: StoreError, now: Instant) {
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

    /// Writes all records with the numbers that were used, and ends the ownership. No packet may be sent or
    /// received any more. The caller calls [`poll`](Self::poll) until [`is_idle`](Self::is_idle).
    pub fn finish(&mut self, endpoint: &mut Endpoint, unix_time: u64, context: &mut Context<'_>) {
        let State::Owner(ownership) = self.state else { return };
        let ikes: Vec<IkeSaId> = self.records.spis.keys().copied().collect();
        let mut writes = Vec::new();
        for ike in ikes {
            writes.extend(self.prepare(ike, ownership, Numbers::Used, endpoint, unix_time, context));
        }
        for chunk in writes.chunks(MAX_WRITES) {
            self.commit(chunk.to_vec(), None, ownership, context.now);
        }
        self.delete_ended(context.now);
        // Nothing depends on its result: the lease ends with the process.
        let _ = self.submit(Request::Revoke(ownership.lease));
    }

    /// The store.
    pub const fn store(&mut self) -> &mut S {
        &mut self.store
    }

    /// Whether all transactions are completed.
    pub fn is_idle(&self) -> bool {
        self.writes.is_empty()
    }

    /// The present state.
    pub fn status(&self) -> KeeperStatus {
        KeeperStatus {
            owner: if let State::Owner(Ownership { owner, .. }) = self.state { owner } else { 0 },
            records: self.records.spis.len(),
            writes: self.writes_done,
            pending: self.writes.len(),
            held: self.outbox.held(),
            dropped: self.outbox.dropped(),
            problem: self.problem,
            is_lost: matches!(self.state, State::Lost),
        }
    }
}

/// The SPI in the name of an entry.
fn spi_of(key: &[u8]) -> Option<u64> {
    let digits = core::str::from_utf8(key.rsplit(|byte| *byte == b'/').next()?).ok()?;
    u64::from_str_radix(digits, 16).ok()
}
