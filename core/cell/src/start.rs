//! The start of a keeper: it claims the state, and reads the records of the former owner. What a start
//! depends on, and why it fails.

use crate::begin::Beginning;
use crate::data_keys::{FormerKeys, OpenedRecord};
use crate::keeper::{Keeper, Ownership, State};
use crate::lease::NodeLease;
use crate::records::StoredRecord;
use crate::wrapping::{NeededKeys, WrappingKeys};
use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate::{IkeRecord, OwnedRecord};
use casemate_crypto::{Providers, Rng};
use casemate_sa::Instant;
use casemate_store::{Entry, Revision, Store, StoreError};
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
    /// The data keys in the store are encrypted with a wrapping key that this process does not have.
    WrappingKey,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Owned => f.write_str("another process uses it"),
            Self::Unexpected => f.write_str("it has entries of another kind"),
            Self::LaterOwner => f.write_str("it has records of a later owner, so it was set back"),
            Self::WrappingKey => f.write_str(
                "its data keys are encrypted with another wrapping key: that key was expected, as the first \
                 or the second one",
            ),
        }
    }
}

impl core::error::Error for StartError {}

/// What a claim needs of its host.
pub(crate) struct ClaimContext<'a> {
    pub(crate) wrapping: &'a WrappingKeys,
    pub(crate) rng: &'a mut dyn Rng,
    pub(crate) now: Instant,
}

/// A claimed slot.
#[derive(Debug)]
pub(crate) struct Claimed {
    pub(crate) lease: NodeLease,
    pub(crate) contents: SlotContents,
    /// Whether this node has seen another owner since its start.
    pub(crate) has_seen_owner: bool,
}

/// What a new owner finds in the store.
#[derive(Debug)]
pub(crate) struct SlotContents {
    /// Revision at which the slot was last changed.
    pub(crate) epoch: Revision,
    /// Number of owners, this one included.
    pub(crate) owner: u64,
    /// The wrapping keys that the proofs name; `None` on a single machine.
    pub(crate) proved: Option<NeededKeys>,
    pub(crate) data_keys: Vec<Entry>,
    pub(crate) records: Vec<Entry>,
}

impl SlotContents {
    /// Nothing yet, for an owner with this takeover count.
    pub(crate) const fn new(epoch: Revision, owner: u64, proved: Option<NeededKeys>) -> Self {
        Self { epoch, owner, proved, data_keys: Vec::new(), records: Vec::new() }
    }
}

/// An owner that reads records.
#[derive(Debug, Clone, Copy)]
struct Successor {
    /// Takeover count.
    owner: u64,
    /// Whether there was another owner until now.
    has_seen_owner: bool,
    /// Microseconds since 1970.
    unix_time: u64,
}

/// Progress of a start.
#[derive(Debug)]
pub enum Started {
    /// The store has not answered yet: call again when it has.
    Waiting,
    /// The state of the former owner, for
    /// [`configure_and_restore`](casemate::Endpoint::configure_and_restore), and then for
    /// [`begin`](Keeper::begin).
    Records {
        /// IKE SAs to restore.
        records: Vec<OwnedRecord>,
        /// Number of records that cannot be used: without their data key, or of another version or store.
        /// They are deleted.
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
    pub fn start(
        &mut self,
        unix_time: u64,
        now: Instant,
        providers: &Providers<'_>,
        rng: &mut dyn Rng,
    ) -> Result<Started, StartError> {
        let State::Claiming(claim) = &mut self.state else { return Err(StartError::Unexpected) };
        let requests = &mut self.requests;
        if self.is_node {
            self.members.poll(&self.keys, now, requests);
        }
        let mut of_claim = ClaimContext { wrapping: self.data_keys.wrapping(), rng, now };
        while let Some(event) = requests.store.next_event() {
            claim.watched(&event, now);
        }
        claim.poll(now, requests);
        while let Some(completion) = requests.store.next_completion() {
            let Some(completion) = self.members.completed(&self.keys, completion) else { continue };
            if let Some(claimed) = claim.completed(completion, &mut of_claim)? {
                let Claimed { lease, contents, has_seen_owner } = claimed;
                let former = self.data_keys.restore(&contents, providers, rng, now)?;
                let SlotContents { epoch, owner, records, .. } = contents;
                self.state = State::Owner(Box::new(Ownership { lease, epoch, owner }));
                let successor = Successor { owner, has_seen_owner, unix_time };
                return Ok(self.restorable(records, former, successor));
            }
            claim.poll(now, requests);
        }
        Ok(Started::Waiting)
    }

    /// The IKE SAs of entries of the store.
    fn restorable(&mut self, entries: Vec<Entry>, former: FormerKeys, successor: Successor) -> Started {
        let mut records = Vec::new();
        let mut unreadable: usize = 0;
        let first_behind = self.keys.handover();
        let (behind, entries): (Vec<_>, Vec<_>) =
            entries.into_iter().partition(|entry| entry.key >= first_behind);
        for Entry { key, value, .. } in entries {
            let opened = former.open(&key, &value);
            match opened.and_then(|opened| self.read(&opened, successor)) {
                Some(record) => records.push(record),
                None => {
                    unreadable = unreadable.saturating_add(1);
                    spi_of(&key).into_iter().for_each(|spi| self.outbox.add([spi]));
                }
            }
        }
        self.beginning = Some(Beginning::new(former, behind, self));
        Started::Records { records, unreadable }
    }

    /// The IKE SA of a record; `None` if it cannot be read.
    fn read(&mut self, opened: &OpenedRecord, successor: Successor) -> Option<OwnedRecord> {
        let Successor { owner, has_seen_owner, unix_time } = successor;
        let stored: StoredRecord = minicbor::decode(&opened.text).ok()?;
        // Contents that were restored from a copy may be older than what was sent.
        if stored.store != self.requests.store.identity() {
            return None;
        }
        let mut record = IkeRecord::decode(&stored.record).ok()?;
        let elapsed = Duration::from_micros(unix_time.saturating_sub(stored.written_at));
        record.advance_by_clocks(elapsed, has_seen_owner);
        let owners = owner.checked_sub(stored.created_by)?;
        let owners = u16::try_from(owners).ok()?;
        self.records.add_restored(stored.created_by, &mut record, opened.owner, owner)?;
        Some(OwnedRecord { record, owners })
    }
}

/// The SPI in the name of an entry.
pub(crate) fn spi_of(key: &[u8]) -> Option<u64> {
    let digits = core::str::from_utf8(key.rsplit(|byte| *byte == b'/').next()?).ok()?;
    u64::from_str_radix(digits, 16).ok()
}
