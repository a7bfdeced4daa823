//! The records of this owner: what is stored of each IKE SA, and the reserves of its Child SAs.

use crate::reserve::{GrowingReserve, NumberUse, RECEIVED_BLOCK, Reserve};
use crate::restored::FormerChildren;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use casemate::{ChildSas, ChildSequence, Endpoint, IkeRecord, RecordChange};
use casemate_crypto::SecretBytes;
use casemate_ike::IkeSaId;
use casemate_sa::Instant;
use core::time::Duration;
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use zeroize::Zeroize as _;

/// Exchanges that changed nothing are recorded after this time, if nothing else is.
const LATEST: Duration = Duration::from_secs(30);
/// The same if the peer has left out numbers: the next owner need not ask for these again.
const LATEST_SKIP: Duration = Duration::from_secs(1);
/// While messages wait for other records, they are recorded this much later: a new owner asks all peers
/// first.
const GIVE_WAY: Duration = Duration::from_secs(10);

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
    pub(crate) sent: GrowingReserve,
    pub(crate) received: GrowingReserve,
    /// Whether a record says that the peer uses the SA: then the next owner asks it to leave out numbers
    /// instead of rekeying (RFC 6311).
    pub(crate) is_in_use: bool,
    /// Our SPI of the IKE SA that has it.
    pub(crate) ike: u64,
    /// Its SAs, once the endpoint has them.
    pub(crate) sas: Option<ChildSas>,
}

impl ChildReserves {
    fn first(ike: u64, esn: bool) -> Self {
        let reserve = |used_as| GrowingReserve::new(used_as, Reserve::first(used_as), esn);
        let (sent, received) = (reserve(NumberUse::Sent), reserve(NumberUse::Received));
        Self { sent, received, is_in_use: false, ike, sas: None }
    }

    fn is_low(&self) -> bool {
        self.sent.is_low() || self.received.is_low()
    }

    /// Extends the reserves that are low, `elapsed` after the last call. Returns whether a record is to be
    /// written.
    fn grow(&mut self, endpoint: &Endpoint, elapsed: Duration) -> bool {
        let Some(ChildSas { inbound, outbound }) = self.sas else { return false };
        let datapath = endpoint.datapath();
        let sent = outbound.and_then(|sa| datapath.sa_sequence(sa));
        let received = datapath.sa_sequence(inbound);
        let begins_use = !self.is_in_use && received.is_some_and(|number| number > 0);
        self.is_in_use |= begins_use;
        let sent = sent.is_some_and(|used| self.sent.grow(used, elapsed));
        let received = received.is_some_and(|used| self.received.grow(used, elapsed));
        begins_use || sent || received
    }
}

/// An IKE SA of this owner.
#[derive(Debug)]
pub(crate) struct KeptRecord {
    created_by: u64,
    /// The IKE SA, once the endpoint has it.
    pub(crate) ike: Option<IkeSaId>,
    /// What the last record contained, and when it was made; `None` if there is none.
    made: Option<(IkeRecord, Instant)>,
    /// SPIs of the inbound SAs of its Child SAs.
    pub(crate) children: BTreeSet<u32>,
    /// When exchanges that changed nothing are recorded, if they are not yet.
    record_at: Option<Instant>,
}

/// The reserves that a written record names.
pub(crate) type NamedReserves = BTreeMap<u32, (u64, u64)>;

impl KeptRecord {
    /// An IKE SA that this owner has set up.
    pub(crate) fn new(created_by: u64) -> Self {
        Self::with_children(created_by, BTreeSet::new())
    }

    /// An IKE SA that owner `created_by` has set up, with Child SAs of these inbound SPIs.
    pub(crate) const fn with_children(created_by: u64, children: BTreeSet<u32>) -> Self {
        Self { created_by, ike: None, made: None, children, record_at: None }
    }

    /// Takeover count of the owner that has set up the IKE SA.
    pub(crate) const fn created_by(&self) -> u64 {
        self.created_by
    }

    /// The IKE SA; `None` before the endpoint has restored it.
    pub(crate) const fn ike(&self) -> Option<IkeSaId> {
        self.ike
    }
}

/// Whether the peer has left out numbers of a Child SA since a record was made.
fn has_left_out_numbers(made: &IkeRecord, record: &IkeRecord) -> bool {
    let mut pairs = made.sequences().zip(record.sequences());
    let reached = |child: ChildSequence| child.reached.unwrap_or(0);
    pairs.any(|(before, now)| reached(now).saturating_sub(reached(before)) >= RECEIVED_BLOCK / 2)
}

/// Limits the SAs of a Child SA to the numbers that are written.
pub(crate) fn limit(reserves: &ChildReserves, endpoint: &mut Endpoint) {
    let Some(ChildSas { inbound, outbound }) = reserves.sas else { return };
    let datapath = endpoint.datapath_mut();
    if let Some(outbound) = outbound {
        datapath.set_durable(outbound, reserves.sent.written());
    }
    datapath.set_receive_limit(inbound, reserves.received.written());
}

/// The reserves of all Child SAs, by the SPIs of their inbound SAs. A Child SA that moves to another IKE SA
/// keeps its reserves.
pub(crate) type Reserves = BTreeMap<u32, ChildReserves>;

/// The IKE SAs of this owner, by our SPI.
#[derive(Debug, Default)]
pub(crate) struct KeptRecords {
    pub(crate) reserves: Reserves,
    pub(crate) by_spi: BTreeMap<u64, KeptRecord>,
    /// Our SPI of each IKE SA.
    pub(crate) spis: BTreeMap<IkeSaId, u64>,
    /// IKE SAs with exchanges that changed nothing, and when these are recorded.
    unrecorded: BTreeSet<(Instant, u64)>,
    /// Child SAs that no record has any more. Their IKE SA may end before they do.
    leaving: BTreeSet<u32>,
    /// Child SAs whose numbers are not certain yet.
    pub(crate) restored: Vec<FormerChildren>,
    low_reserves: usize,
}

impl KeptRecords {
    /// Notes the present record of an IKE SA: brings its Child SAs up to date and limits their numbers. Sets
    /// the reserves as the numbers of the record. Returns whether it is to be written before messages leave.
    pub(crate) fn note(
        &mut self,
        ike: IkeSaId,
        record: &mut IkeRecord,
        owner: u64,
        endpoint: &mut Endpoint,
        now: Instant,
    ) -> bool {
        let spi = record.own_spi();
        self.spis.insert(ike, spi);
        let kept = self.by_spi.entry(spi).or_insert_with(|| KeptRecord::new(owner));
        kept.ike = Some(ike);
        let all: Vec<ChildSequence> = record.sequences().collect();
        let before = core::mem::replace(&mut kept.children, all.iter().map(|child| child.spi).collect());
        self.leaving.extend(before.difference(&kept.children));
        for ChildSequence { spi: child, esn, sent, .. } in all {
            let reserves = self.reserves.entry(child).or_insert_with(|| ChildReserves::first(spi, esn));
            (reserves.ike, reserves.sas) = (spi, endpoint.sas_of_spi(child));
            reserves.sent.skip_to(sent);
            record.set_sequence_numbers(child, reserves.sent.requested(), reserves.received.requested());
            limit(reserves, endpoint);
        }
        let change = match &kept.made {
            None => RecordChange::State,
            Some((made, at)) => {
                let mut former = made.clone();
                former.advance(now.since(*at));
                record.change_since(&former)
            }
        };
        if change == RecordChange::Exchanges {
            let skips = kept.made.as_ref().is_some_and(|(made, _)| has_left_out_numbers(made, record));
            let at = now.after(if skips { LATEST_SKIP } else { LATEST });
            let at = kept.record_at.map_or(at, |before| at.min(before));
            if let Some(before) = kept.record_at.replace(at) {
                self.unrecorded.remove(&(before, spi));
            }
            self.unrecorded.insert((at, spi));
        }
        change == RecordChange::State
    }

    /// Notes that an IKE SA has ended. Returns our SPI if it has a record.
    pub(crate) fn end(&mut self, ike: IkeSaId) -> Option<u64> {
        let spi = self.spis.remove(&ike)?;
        let kept = self.by_spi.remove(&spi)?;
        if let Some(at) = kept.record_at {
            self.unrecorded.remove(&(at, spi));
        }
        self.leaving.extend(kept.children);
        Some(spi)
    }

    /// Forgets the reserves of Child SAs that have ended.
    pub(crate) fn forget_ended(&mut self, endpoint: &Endpoint) {
        let Self { reserves, by_spi, leaving, .. } = self;
        leaving.retain(|child| {
            let ike = reserves.get(child).map(|reserves| reserves.ike);
            let has_moved =
                ike.and_then(|ike| by_spi.get(&ike)).is_some_and(|kept| kept.children.contains(child));
            let exists = endpoint.sas_of_spi(*child).is_some();
            if !exists {
                reserves.remove(child);
            }
            exists && !has_moved
        });
    }

    /// Notes that the record of an IKE SA is being written. Returns the reserves that it names.
    pub(crate) fn begin_write(&mut self, record: IkeRecord, now: Instant) -> NamedReserves {
        let spi = record.own_spi();
        let Some(kept) = self.by_spi.get_mut(&spi) else { return NamedReserves::new() };
        if let Some(at) = kept.record_at.take() {
            self.unrecorded.remove(&(at, spi));
        }
        kept.made = Some((record, now));
        let named = |child: &ChildReserves| (child.sent.requested(), child.received.requested());
        kept.children.iter().filter_map(|spi| Some((*spi, named(self.reserves.get(spi)?)))).collect()
    }

    /// Notes that a record with these reserves is written, and lets the Child SAs use them.
    pub(crate) fn written(&mut self, named: &NamedReserves, endpoint: &mut Endpoint) {
        for (spi, (sent, received)) in named {
            let Some(reserves) = self.reserves.get_mut(spi) else { continue };
            reserves.sent.note_written(*sent);
            reserves.received.note_written(*received);
            limit(reserves, endpoint);
        }
    }

    /// Whether an IKE SA has a record, or will have one.
    pub(crate) fn has(&self, ike: IkeSaId) -> bool {
        self.spis.contains_key(&ike)
    }

    /// Number of IKE SAs.
    pub(crate) fn len(&self) -> usize {
        self.spis.len()
    }

    /// The numbers that all Child SAs have used. Without an outbound SA, those that are reserved count.
    pub(crate) fn used_numbers(&self, endpoint: &Endpoint) -> Vec<ChildSequence> {
        let used = |child: ChildSequence| {
            let reserve = &self.reserves.get(&child.spi)?.sent;
            let has_outbound = endpoint.sas_of_spi(child.spi).is_some_and(|sas| sas.outbound.is_some());
            let sent = if has_outbound { child.sent } else { reserve.requested() };
            Some(ChildSequence { sent, ..child })
        };
        self.spis.keys().flat_map(|ike| endpoint.sequences(*ike)).filter_map(used).collect()
    }

    /// Child SAs that had nearly used up what is reserved and written at the last call of [`Self::grow`].
    pub(crate) const fn low_reserves(&self) -> usize {
        self.low_reserves
    }

    /// Extends the reserves that are low, `elapsed` after the last call. Returns our SPIs of IKE SAs whose
    /// records are to be written for that reason.
    pub(crate) fn grow(&mut self, endpoint: &Endpoint, elapsed: Duration) -> BTreeSet<u64> {
        let mut grown = BTreeSet::new();
        self.low_reserves = 0;
        for reserves in self.reserves.values_mut() {
            if reserves.grow(endpoint, elapsed) {
                grown.insert(reserves.ike);
            }
            self.low_reserves = self.low_reserves.saturating_add(usize::from(reserves.is_low()));
        }
        grown
    }

    /// Takes the IKE SAs whose records are to be written although no message waits for them: exchanges that
    /// changed nothing are not recorded for some time. `is_busy` says whether other changes wait.
    pub(crate) fn take_unrecorded(&mut self, is_busy: bool, now: Instant) -> Vec<u64> {
        let delay = if is_busy { GIVE_WAY } else { Duration::ZERO };
        let mut due = Vec::new();
        while let Some((at, spi)) = self.unrecorded.first().copied()
            && at.after(delay) <= now
        {
            self.unrecorded.pop_first();
            due.push(spi);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changed_nothing_gives_way_to_messages_that_wait() {
        let now = Instant::from_secs(100);
        let with = |at| KeptRecords { unrecorded: [(at, 7)].into(), ..KeptRecords::default() };
        let early = now.after(Duration::from_secs(1));
        assert_eq!(with(early).take_unrecorded(false, now), [0; 0], "not due");
        assert_eq!(with(now).take_unrecorded(false, now), [7]);
        assert_eq!(with(now).take_unrecorded(true, now), [0; 0]);
        assert_eq!(with(now).take_unrecorded(true, now.after(GIVE_WAY)), [7], "not for ever");
    }
}
