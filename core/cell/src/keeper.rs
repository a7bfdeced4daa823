//! The keeper of an endpoint's state: claims it at a start, and writes what changes.

use crate::StoreKeys;
use crate::claim::{Next, SlotClaim, StartError};
use crate::outbox::{ChangeId, Outbox};
use crate::records::{KeptRecord, KeptRecords, StoredRecord};
use crate::seal::Sealer;
use crate::writes::{CurrentWrite, Numbers};
use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate::{Context, Endpoint, IkeRecord, OwnedRecord};
use casemate_ike::{IkeSaId, Transmit};
use casemate_sa::Instant;
use casemate_store::{Completion, Key, Lease, Outcome, Request, RequestId, Revision, Store, StoreError};
use core::time::Duration;

/// Interval in which reserves are compared with their use.
const CHECK: Duration = Duration::from_millis(250);
/// The lease of a single machine: its store ends it when another process opens the store.
const SINGLE_LEASE: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Keeps the state of an endpoint in a store.
pub struct Keeper<S> {
    pub(crate) store: S,
    pub(crate) keys: StoreKeys,
    pub(crate) sealer: Sealer,
    pub(crate) state: State,
    pub(crate) last_request: u64,
    pub(crate) records: KeptRecords,
    pub(crate) outbox: Outbox,
    /// The write in progress. There is one at a time: otherwise a later one could be executed without an
    /// earlier one, and a Child SA that has moved to another IKE SA would be in no record.
    pub(crate) current: Option<CurrentWrite>,
    /// Changes that the next write completes.
    pub(crate) waiting: Vec<ChangeId>,
    /// Our SPIs of IKE SAs whose entries are to be deleted.
    pub(crate) ended: Vec<u64>,
    /// Whether the endpoint has not been asked yet what it has restored.
    pub(crate) has_restorable: bool,
    pub(crate) checked_at: Instant,
    pub(crate) retry_at: Option<Instant>,
    pub(crate) problem: Option<StoreError>,
    pub(crate) writes_done: u64,
    /// Whether the ownership ends after the write in progress.
    pub(crate) is_ending: bool,
}

pub(crate) enum State {
    New {
        node: Vec<u8>,
    },
    Claiming {
        claim: Box<SlotClaim>,
        request: RequestId,
    },
    Owner(Ownership),
    /// Another owner has the slot, or the store is damaged.
    Lost,
}

/// Which write the messages of an IKE SA wait for.
enum WaitsFor {
    Current,
    NextWrite,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Ownership {
    pub(crate) lease: Lease,
    pub(crate) epoch: Revision,
    /// Takeover count.
    pub(crate) owner: u64,
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
            current: None,
            waiting: Vec::new(),
            ended: Vec::new(),
            has_restorable: true,
            checked_at: Instant::ZERO,
            retry_at: None,
            problem: None,
            writes_done: 0,
            is_ending: false,
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
            let (claim, request) = SlotClaim::begin(self.keys.clone(), node, SINGLE_LEASE);
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
        let reserves = &mut self.records.reserves;
        let kept = KeptRecord::restored(&stored, &mut record, (opened.owner, owner), reserves)?;
        record.advance(Duration::from_micros(unix_time.saturating_sub(stored.written_at)));
        let owners = owner.checked_sub(kept.created_by()).and_then(|owners| u16::try_from(owners).ok())?;
        self.records.by_spi.insert(record.own_spi(), kept);
        Some(OwnedRecord { record, owners })
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
        let (mut unwritten, mut in_progress) = (Vec::new(), Vec::new());
        for ike in endpoint.take_changed() {
            match self.note_change(ike, endpoint, now) {
                Some((spi, WaitsFor::NextWrite)) => unwritten.push(spi),
                Some((spi, WaitsFor::Current)) => in_progress.push(spi),
                None => {}
            }
        }
        self.records.reserves.retain(|spi, _| endpoint.sas_of_spi(*spi).is_some());
        if core::mem::take(&mut self.has_restorable) {
            self.forget_not_restored();
        }
        if let Some(current) = self.current.as_mut().filter(|_| !in_progress.is_empty()) {
            current.changes.push(self.outbox.add(in_progress));
        }
        if !unwritten.is_empty() {
            self.waiting.push(self.outbox.add(unwritten));
        }
        let mut free = self.begin_write(endpoint, unix_time, context);
        free.append(&mut transmits);
        free.into_iter().filter_map(|transmit| self.outbox.hold(transmit)).collect()
    }

    /// Forgets the IKE SAs of the former owner that the endpoint did not restore.
    fn forget_not_restored(&mut self) {
        let KeptRecords { by_spi, spis, .. } = &mut self.records;
        let restored: alloc::collections::BTreeSet<u64> = spis.values().copied().collect();
        self.ended.extend(by_spi.keys().filter(|spi| !restored.contains(spi)));
        by_spi.retain(|spi, _| restored.contains(spi));
    }

    /// Notes the state of an IKE SA. Returns our SPI of it if its messages have to wait.
    fn note_change(
        &mut self,
        ike: IkeSaId,
        endpoint: &mut Endpoint,
        now: Instant,
    ) -> Option<(u64, WaitsFor)> {
        let State::Owner(Ownership { owner, .. }) = self.state else { return None };
        let Some(mut record) = endpoint.record(ike, now) else {
            let spi = self.records.spis.remove(&ike)?;
            self.records.by_spi.remove(&spi);
            self.ended.push(spi);
            return Some((spi, WaitsFor::NextWrite));
        };
        let spi = record.own_spi();
        self.records.spis.insert(ike, spi);
        let kept = self.records.by_spi.entry(spi).or_insert_with(|| KeptRecord::new(owner));
        let must_write = kept.note(&mut record, &mut self.records.reserves, endpoint, now);
        match (must_write, kept.is_being_written()) {
            (true, _) => Some((spi, WaitsFor::NextWrite)),
            // The record in progress may contain the change already.
            (false, true) => Some((spi, WaitsFor::Current)),
            (false, false) => None,
        }
    }

    pub(crate) fn submit(&mut self, request: Request) -> Result<RequestId, Request> {
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
            let Some(current) = self.current.take_if(|current| current.request == id) else { continue };
            match outcome {
                Ok(Outcome::Committed(_)) => released.extend(self.written(current, endpoint, context.now)),
                Ok(_) => self.state = State::Lost,
                Err(StoreError::Damaged) => {
                    self.problem = Some(StoreError::Damaged);
                    self.state = State::Lost;
                }
                Err(error) => self.write_failed(current, error, context.now),
            }
        }
        let elapsed = context.now.since(self.checked_at);
        if is_urgent || elapsed >= CHECK {
            self.checked_at = context.now;
            self.records.grow(endpoint, elapsed);
        }
        released.extend(self.begin_write(endpoint, unix_time, context));
        released
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
        self.end_with(writes, context.now);
    }

    /// Deletes all records, and ends the ownership, as [`finish`](Self::finish).
    pub fn clear(&mut self, now: Instant) {
        let KeptRecords { by_spi, .. } = core::mem::take(&mut self.records);
        self.ended.extend(by_spi.into_keys());
        self.end_with(Vec::new(), now);
    }

    /// The store.
    pub const fn store(&mut self) -> &mut S {
        &mut self.store
    }

    /// Whether all transactions are completed.
    pub fn is_idle(&self) -> bool {
        self.current.is_none()
    }

    /// The present state.
    pub fn status(&self) -> KeeperStatus {
        KeeperStatus {
            owner: if let State::Owner(Ownership { owner, .. }) = self.state { owner } else { 0 },
            records: self.records.spis.len(),
            writes: self.writes_done,
            pending: self.current.as_ref().map_or(0, CurrentWrite::transactions),
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
