//! The start of a keeper: it claims the state, and reads the records of the former owner. What a start
//! depends on, and why it fails.

use crate::keeper::{Keeper, Ownership, State};
use crate::lease::NodeLease;
use crate::records::{KeptRecord, StoredRecord};
use crate::seal::Sealer;
use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate::{IkeRecord, OwnedRecord};
use casemate_crypto::Rng;
use casemate_sa::Instant;
use casemate_store::{Entry, Key, Revision, Store, StoreError};
use core::fmt;
use core::time::Duration;

/// The lease of a single machine: its store ends it when another process opens the store.
const SINGLE_LEASE: Duration = Duration::from_secs(10 * 365 * 86_400);

/// How an owner keeps its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tenure {
    /// Until another process of this machine opens the store, which one process at a time can have open.
    SingleMachine,
    /// For the time of a lease after each renewal. Other nodes wait for its end.
    Cell {
        /// Time of the lease, in whole seconds; at least the shortest lease of the store.
        lease: Duration,
    },
}

impl Tenure {
    pub(crate) const fn lease(self) -> Duration {
        match self {
            Self::SingleMachine => SINGLE_LEASE,
            Self::Cell { lease } => lease,
        }
    }
}

/// Why a start has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartError {
    /// The store has failed.
    Store(StoreError),
    /// Another process owns the slot.
    Owned,
    /// The store contains something else than expected.
    Unexpected,
    /// A record was written by a later owner than this one: the store is an older copy.
    LaterOwner,
    /// The other nodes of the cell use another data key.
    DataKey,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Owned => f.write_str("another process uses it"),
            Self::Unexpected => f.write_str("it has entries of another kind"),
            Self::LaterOwner => f.write_str("it has records of a later owner, so it was set back"),
            Self::DataKey => f.write_str("its records are encrypted with another data key"),
        }
    }
}

impl core::error::Error for StartError {}

/// What a claim needs of its host.
pub(crate) struct ClaimContext<'a> {
    pub(crate) sealer: &'a Sealer,
    pub(crate) rng: &'a mut dyn Rng,
    pub(crate) now: Instant,
}

/// A claimed slot.
#[derive(Debug)]
pub(crate) struct Claimed {
    pub(crate) lease: NodeLease,
    /// Revision at which the slot was last changed.
    pub(crate) epoch: Revision,
    /// Number of owners, this one included.
    pub(crate) owner: u64,
    /// The records.
    pub(crate) entries: Vec<Entry>,
}

/// Progress of a start.
#[derive(Debug)]
pub enum Started {
    /// The store has not answered yet: call again when it has.
    Waiting,
    /// The state of the former owner, for
    /// [`configure_and_restore`](casemate::Endpoint::configure_and_restore).
    Records {
        /// IKE SAs to restore.
        records: Vec<OwnedRecord>,
        /// Number of records that cannot be used: of another data key, version or store. They are deleted.
        unreadable: usize,
    },
}

impl<S: Store> Keeper<S> {
    /// Claims the state and reads the records of the former owner. In a cell, waits for the end of the
    /// present owner first. The caller calls this again when the store has completions or events, and at
    /// least every 250 ms. `unix_time` is in microseconds since 1970.
    ///
    /// # Errors
    ///
    /// [`StartError`]. On a single machine, the state belongs to another process, or the store has failed. A
    /// node of a cell goes on when the store does.
    pub fn start(&mut self, unix_time: u64, now: Instant, rng: &mut dyn Rng) -> Result<Started, StartError> {
        let State::Claiming(claim) = &mut self.state else { return Err(StartError::Unexpected) };
        let requests = &mut self.requests;
        if self.is_node {
            self.members.poll(&self.keys, now, requests);
        }
        let mut of_claim = ClaimContext { sealer: &self.sealer, rng, now };
        while let Some(event) = requests.store.next_event() {
            claim.watched(&event, now);
        }
        claim.poll(now, requests);
        while let Some(completion) = requests.store.next_completion() {
            let Some(completion) = self.members.completed(&self.keys, completion) else { continue };
            if let Some(claimed) = claim.completed(completion, &mut of_claim)? {
                let Claimed { lease, epoch, owner, entries } = claimed;
                self.state = State::Owner(Box::new(Ownership { lease, epoch, owner }));
                let entries = entries.into_iter().map(|entry| (entry.key, entry.value));
                return self.restorable(entries.collect(), owner, unix_time);
            }
            claim.poll(now, requests);
        }
        Ok(Started::Waiting)
    }

    /// The IKE SAs of entries of the store.
    fn restorable(
        &mut self,
        entries: Vec<(Key, Vec<u8>)>,
        owner: u64,
        unix_time: u64,
    ) -> Result<Started, StartError> {
        let mut records = Vec::new();
        let mut unreadable: usize = 0;
        for (key, value) in entries {
            match self.read(&key, &value, owner, unix_time)? {
                Some(record) => records.push(record),
                None => {
                    unreadable = unreadable.saturating_add(1);
                    spi_of(&key).into_iter().for_each(|spi| self.outbox.add([spi]));
                }
            }
        }
        Ok(Started::Records { records, unreadable })
    }

    /// The IKE SA of an entry; `None` if it cannot be read.
    fn read(
        &mut self,
        key: &[u8],
        value: &[u8],
        owner: u64,
        unix_time: u64,
    ) -> Result<Option<OwnedRecord>, StartError> {
        let Ok(opened) = self.sealer.open(key, value) else { return Ok(None) };
        if opened.owner >= owner {
            return Err(StartError::LaterOwner);
        }
        let Ok(stored) = minicbor::decode::<StoredRecord>(&opened.text) else { return Ok(None) };
        // Contents that were restored from a copy may be older than what was sent.
        if stored.store != self.requests.store.identity() {
            return Ok(None);
        }
        let Ok(mut record) = IkeRecord::decode(&stored.record) else { return Ok(None) };
        let reserves = &mut self.records.reserves;
        let kept = KeptRecord::restored(&stored, &mut record, (opened.owner, owner), reserves);
        let Some(kept) = kept else { return Ok(None) };
        record.advance(Duration::from_micros(unix_time.saturating_sub(stored.written_at)));
        let owners = owner.checked_sub(kept.created_by()).and_then(|owners| u16::try_from(owners).ok());
        let Some(owners) = owners else { return Ok(None) };
        self.records.by_spi.insert(record.own_spi(), kept);
        Ok(Some(OwnedRecord { record, owners }))
    }
}

/// The SPI in the name of an entry.
fn spi_of(key: &[u8]) -> Option<u64> {
    let digits = core::str::from_utf8(key.rsplit(|byte| *byte == b'/').next()?).ok()?;
    u64::from_str_radix(digits, 16).ok()
}
