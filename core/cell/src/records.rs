//! The records of this owner: what is stored of each IKE SA, and the reserves of its Child SAs.

use crate::reserve::{GrowingReserve, NumberUse, Reserve};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use casemate::{ChildSequence, Endpoint, IkeRecord, RecordChange};
use casemate_crypto::SecretBytes;
use casemate_ike::IkeSaId;
use casemate_sa::Instant;
use core::time::Duration;
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use zeroize::Zeroize as _;

/// Requests of the peer that changed nothing are recorded after this time, if nothing else is.
const LATEST: Duration = Duration::from_secs(30);

/// A record in the store, before its encryption.
#[derive(Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub(crate) struct StoredRecord {
    /// Takeover count of the owner that has set up the IKE SA.
    #[n(0)]
    pub(crate) created_by: u64,
    /// Microseconds since 1970 when it was written.
    #[n(1)]
    pub(crate) written_at: u64,
    /// The [`IkeRecord`], encoded. Number 2 was another field.
    #[n(3)]
    pub(crate) record: ByteVec,
    /// Identity of the store in which it was written.
    #[n(4)]
    pub(crate) store: Option<u64>,
}

/// The record contains keys.
impl Drop for StoredRecord {
    fn drop(&mut self) {
        self.record.zeroize();
    }
}

impl StoredRecord {
    /// Encodes the record.
    pub(crate) fn into_bytes(self) -> Option<SecretBytes> {
        let room = self.record.len().saturating_add(64);
        let mut bytes = zeroize::Zeroizing::new(alloc::vec![0; room]);
        let mut cursor = minicbor::encode::write::Cursor::new(bytes.as_mut_slice());
        let encoded = minicbor::encode(&self, &mut cursor);
        let len = cursor.position();
        encoded.ok().and_then(|()| bytes.get(..len)).map(SecretBytes::new)
    }
}

/// The reserves of a Child SA.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChildReserves {
    sent: GrowingReserve,
    received: GrowingReserve,
    /// Whether a record says that the peer uses the SA: then the next owner asks it to leave out numbers
    /// instead of rekeying (RFC 6311).
    is_in_use: bool,
}

impl ChildReserves {
    fn first(esn: bool) -> Self {
        let reserve = |used_as| GrowingReserve::new(used_as, Reserve::first(used_as), esn);
        Self { sent: reserve(NumberUse::Sent), received: reserve(NumberUse::Received), is_in_use: false }
    }
}

/// An IKE SA of this owner.
#[derive(Debug)]
pub(crate) struct KeptRecord {
    created_by: u64,
    /// What the last record contained, and when it was made; `None` if there is none.
    made: Option<(IkeRecord, Instant)>,
    /// SPIs of the inbound SAs of its Child SAs.
    children: BTreeSet<u32>,
    /// Since when requests of the peer that changed nothing are not recorded.
    unrecorded_since: Option<Instant>,
    /// Whether the record is to be written, whatever has changed.
    must_write: bool,
    is_being_written: bool,
}

/// The reserves that a written record names.
pub(crate) type NamedReserves = BTreeMap<u32, (u64, u64)>;

impl KeptRecord {
    /// An IKE SA that this owner has set up.
    pub(crate) fn new(created_by: u64) -> Self {
        Self {
            created_by,
            made: None,
            children: BTreeSet::new(),
            unrecorded_since: None,
            must_write: true,
            is_being_written: false,
        }
    }

    /// The IKE SA of a record that owner `writer` has written, for `owner`. Sets the first numbers of its
    /// Child SAs in the record. `None` unless the writer was an earlier owner.
    pub(crate) fn restored(
        stored: &StoredRecord,
        record: &mut IkeRecord,
        (writer, owner): (u64, u64),
        reserves: &mut Reserves,
    ) -> Option<Self> {
        let mut children = BTreeMap::new();
        // The peer may leave out as many numbers of each Child SA as it has to for any of them.
        let mut skip = 0;
        let all: Vec<ChildSequence> = record.sequences().collect();
        for ChildSequence { spi, esn, sent, received, reached } in all {
            let reserve = |used_as, until| Reserve::of_owner(used_as, until, writer, owner, esn);
            let sent = reserve(NumberUse::Sent, sent)?;
            let received = reserve(NumberUse::Received, received)?;
            record.set_sequence_numbers(spi, sent.after, received.after);
            skip = skip.max(reached.map_or(0, |reached| received.after.saturating_sub(reached)));
            let is_in_use = reached.is_some_and(|reached| reached > 0);
            children.insert(spi, (sent, received, esn, is_in_use));
        }
        let spis = children.keys().copied().collect();
        reserves.extend(children.into_iter().map(|(spi, (sent, received, esn, is_in_use))| {
            let sent = GrowingReserve::new(NumberUse::Sent, sent, esn);
            let received = GrowingReserve::restored(received, skip, esn);
            (spi, ChildReserves { sent, received, is_in_use })
        }));
        Some(Self { children: spis, ..Self::new(stored.created_by) })
    }

    /// Takeover count of the owner that has set up the IKE SA.
    pub(crate) const fn created_by(&self) -> u64 {
        self.created_by
    }

    /// Brings the Child SAs up to date with a record of the endpoint, and limits their numbers. Sets the
    /// reserves as the numbers of the record. Returns whether the record is to be written before messages
    /// leave.
    pub(crate) fn note(
        &mut self,
        record: &mut IkeRecord,
        reserves: &mut Reserves,
        endpoint: &mut Endpoint,
        now: Instant,
    ) -> bool {
        let all: Vec<ChildSequence> = record.sequences().collect();
        self.children = all.iter().map(|child| child.spi).collect();
        for ChildSequence { spi, esn, sent, .. } in all {
            let of_child = reserves.entry(spi).or_insert_with(|| ChildReserves::first(esn));
            of_child.sent.skip_to(sent);
            record.set_sequence_numbers(spi, of_child.sent.requested(), of_child.received.requested());
            limit(spi, of_child, endpoint);
        }
        let change = match &self.made {
            None => RecordChange::State,
            Some((made, at)) => {
                let mut former = made.clone();
                former.advance(now.since(*at));
                record.change_since(&former)
            }
        };
        match change {
            RecordChange::None => {}
            RecordChange::PeerRequests => {
                self.unrecorded_since.get_or_insert(now);
            }
            RecordChange::State => self.must_write = true,
        }
        self.must_write
    }

    /// Whether the record is to be written now, although no message waits for it.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.must_write || self.unrecorded_since.is_some_and(|since| now.since(since) >= LATEST)
    }

    /// Notes that the record is being written. Returns the reserves that it names.
    pub(crate) fn begin_write(
        &mut self,
        record: IkeRecord,
        reserves: &Reserves,
        now: Instant,
    ) -> NamedReserves {
        self.made = Some((record, now));
        self.unrecorded_since = None;
        (self.must_write, self.is_being_written) = (false, true);
        let named = |child: &ChildReserves| (child.sent.requested(), child.received.requested());
        self.children.iter().filter_map(|spi| Some((*spi, named(reserves.get(spi)?)))).collect()
    }

    /// Whether its last record is being written.
    pub(crate) const fn is_being_written(&self) -> bool {
        self.is_being_written
    }

    /// Notes that the record is written.
    pub(crate) const fn end_write(&mut self) {
        self.is_being_written = false;
    }

    /// Notes that the record could not be written.
    pub(crate) const fn write_failed(&mut self) {
        (self.must_write, self.is_being_written) = (true, false);
    }

    /// Extends the reserves of its Child SAs that are low.
    pub(crate) fn grow(&mut self, reserves: &mut Reserves, endpoint: &Endpoint, elapsed: Duration) {
        for spi in &self.children {
            let (Some(sas), Some(reserves)) = (endpoint.sas_of_spi(*spi), reserves.get_mut(spi)) else {
                continue;
            };
            let datapath = endpoint.datapath();
            let sent = sas.outbound.and_then(|sa| datapath.sa_sequence(sa));
            let received = datapath.sa_sequence(sas.inbound);
            if !reserves.is_in_use && received.is_some_and(|number| number > 0) {
                (reserves.is_in_use, self.must_write) = (true, true);
            }
            for (used, reserve) in [(sent, &mut reserves.sent), (received, &mut reserves.received)] {
                self.must_write |= used.is_some_and(|used| reserve.grow(used, elapsed));
            }
        }
    }
}

/// Limits the SAs of a Child SA to the numbers that are written.
fn limit(spi: u32, reserves: &ChildReserves, endpoint: &mut Endpoint) {
    let Some(sas) = endpoint.sas_of_spi(spi) else { return };
    let datapath = endpoint.datapath_mut();
    if let Some(outbound) = sas.outbound {
        datapath.set_durable(outbound, reserves.sent.written());
    }
    datapath.set_receive_limit(sas.inbound, reserves.received.written());
}

/// The reserves of all Child SAs, by the SPIs of their inbound SAs. A Child SA that moves to another IKE SA
/// keeps its reserves.
pub(crate) type Reserves = BTreeMap<u32, ChildReserves>;

/// Notes that a record with these reserves is written, and lets the Child SAs use them.
pub(crate) fn note_written(reserves: &mut Reserves, named: &NamedReserves, endpoint: &mut Endpoint) {
    for (spi, (sent, received)) in named {
        let Some(of_child) = reserves.get_mut(spi) else { continue };
        of_child.sent.note_written(*sent);
        of_child.received.note_written(*received);
        limit(*spi, of_child, endpoint);
    }
}

/// The IKE SAs of this owner, by our SPI.
#[derive(Debug, Default)]
pub(crate) struct KeptRecords {
    pub(crate) reserves: Reserves,
    pub(crate) by_spi: BTreeMap<u64, KeptRecord>,
    /// Our SPI of each IKE SA.
    pub(crate) spis: BTreeMap<IkeSaId, u64>,
}

impl KeptRecords {
    /// The IKE SAs whose records are to be written, the oldest first: those that have changed, and `others`.
    pub(crate) fn due(&self, now: Instant, others: &BTreeSet<u64>) -> Vec<IkeSaId> {
        let is_due = |spi| others.contains(spi) || self.by_spi.get(spi).is_some_and(|kept| kept.is_due(now));
        self.spis.iter().filter(|(_, spi)| is_due(spi)).map(|(ike, _)| *ike).collect()
    }

    /// Child SAs that have nearly used up what is reserved and written.
    pub(crate) fn low_reserves(&self) -> usize {
        self.reserves.values().filter(|child| child.sent.is_low() || child.received.is_low()).count()
    }

    /// Extends the reserves that are low, `elapsed` after the last call.
    pub(crate) fn grow(&mut self, endpoint: &Endpoint, elapsed: Duration) {
        let Self { by_spi, reserves, .. } = self;
        by_spi.values_mut().for_each(|kept| kept.grow(reserves, endpoint, elapsed));
    }
}
