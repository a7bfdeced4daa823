//! Records: the state of an established IKE SA with its Child SAs, from which another process or another host
//! continues it (docs/decisions/0140-cells.md).
//!
//! [`Ike::record`](crate::Ike::record) makes a record, and [`Ike::restore`](crate::Ike::restore) continues
//! its IKE SA. A record contains keys, and its user encrypts it. It names its connection and
//! children; their configuration is that of the host that restores it.
//!
//! The encoding is CBOR (RFC 8949): maps with numbered fields. A version of this program ignores fields that
//! it does not know, and a field that was added later is optional. A number is never used again.

mod child;
mod fields;
mod ike_sa;
mod peer;

use alloc::string::String;
use alloc::vec::Vec;
use casemate_crypto::SecretBytes;
use casemate_wire::ike::{ExchangeType, Header};
use core::fmt;
use core::net::IpAddr;
use core::time::Duration;
use minicbor::{Decode, Encode};
use zeroize::Zeroizing;

pub(crate) use child::{ChildFields, ChildKeys, ChildTimes};
pub(crate) use fields::ClosedChild;
pub(crate) use fields::{
    AssignedFields, MessageFields, PathFields, PurposeFields, Secret, Span, SuiteFields,
};
pub(crate) use ike_sa::{
    DynamicFields, FragmentFields, IkeKeyFields, MobikeFields, NatFields, OriginFields, PathMtuFields,
    PhaseField, SpiFields, SyncFields, TimeFields, WindowFields,
};
pub(crate) use peer::PeerFields;

/// Longest encoded record in bytes. A stored response may contain a chain of certificates.
pub const MAX_RECORD: usize = 48 << 10;
/// Seconds in which an owner renews what has expired as the clocks say.
const LATEST_RENEWAL: u64 = 60;
/// Time that is left for such a renewal, which the peer may delay.
const SHORTEST_REST: Duration = Duration::from_mins(5);
/// Room that most records need: keys are deleted from all of it.
const USUAL_RECORD: usize = 2 << 10;

/// The state of an established IKE SA and its Child SAs. Times are relative to the moment at which it was
/// made.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct IkeRecord {
    #[n(0)]
    pub(crate) connection: String,
    #[n(1)]
    pub(crate) is_initiator: bool,
    #[n(2)]
    pub(crate) spis: SpiFields,
    #[n(3)]
    pub(crate) path: PathFields,
    #[n(4)]
    pub(crate) suite: SuiteFields,
    #[n(5)]
    pub(crate) keys: IkeKeyFields,
    #[n(6)]
    pub(crate) window: WindowFields,
    #[n(7)]
    pub(crate) fragments: FragmentFields,
    #[n(8)]
    pub(crate) peer_token: Option<Secret>,
    #[n(9)]
    pub(crate) peer: PeerFields,
    #[n(10)]
    pub(crate) nat: NatFields,
    #[n(11)]
    pub(crate) dynamic_addrs: DynamicFields,
    #[n(12)]
    pub(crate) leased: Vec<IpAddr>,
    #[n(13)]
    pub(crate) assigned: Option<AssignedFields>,
    #[n(14)]
    pub(crate) mobike: Option<MobikeFields>,
    #[n(15)]
    pub(crate) phase: PhaseField,
    #[n(16)]
    pub(crate) origin: OriginFields,
    #[n(17)]
    pub(crate) times: TimeFields,
    #[n(18)]
    pub(crate) children: Vec<ChildFields>,
    /// Child SAs that this host has closed, and that the peer is still to be told of; `None` if there are
    /// none.
    #[n(19)]
    pub(crate) closed: Option<Vec<ClosedChild>>,
    /// Absent in records of earlier versions.
    #[n(20)]
    pub(crate) sync: Option<SyncFields>,
    /// What the last search for the path MTU has found; `None` before the first one has ended.
    #[n(21)]
    pub(crate) path_mtu: Option<PathMtuFields>,
    /// Names of the Child SAs to set up again when the IKE SA, which the host is closing, has ended; `None`
    /// if the IKE SA is not to be set up again.
    #[n(22)]
    pub(crate) again: Option<Vec<String>>,
}

/// Why a record cannot be read or made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordError {
    /// The bytes are no record, or one of an incompatible later version.
    Malformed,
    /// The record would be longer than [`MAX_RECORD`].
    TooLong,
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str("not the record of an IKE SA that this version can read"),
            Self::TooLong => write!(f, "the record of the IKE SA is longer than {MAX_RECORD} bytes"),
        }
    }
}

impl core::error::Error for RecordError {}

/// Why the IKE SA of a record was not restored. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoreError {
    /// The configuration has no connection with this name.
    NoConnection,
    /// The record contains algorithms, identities or values that this version does not know.
    Unusable,
    /// No provider supports the algorithms.
    Provider,
    /// An SPI is in use.
    SpiInUse,
    /// The IKE SA has had 65,534 owners, and its IVs would repeat.
    TooManyOwners,
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoConnection => "its connection is not configured",
            Self::Unusable => "its record contains what this version does not know",
            Self::Provider => "no provider supports its algorithms",
            Self::SpiInUse => "one of its SPIs is in use",
            Self::TooManyOwners => "it has had too many owners",
        })
    }
}

impl core::error::Error for RestoreError {}

/// How far the sequence numbers of a Child SA are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChildSequence {
    /// SPI of the inbound SA.
    pub spi: u32,
    /// Whether the numbers have 64 bits.
    pub esn: bool,
    /// The last one that may have been sent.
    pub sent: u64,
    /// The highest one that may have been received.
    pub received: u64,
    /// The highest one that the peer has used or skipped, as far as is known; `None` in a record of an
    /// earlier version.
    pub reached: Option<u64>,
}

impl ChildSequence {
    /// With the numbers that the data path has: the last one sent and the highest received.
    #[must_use]
    pub const fn with_used(self, sent: u64, received: u64) -> Self {
        if received > self.received {
            Self { sent, received, reached: Some(received), ..self }
        } else {
            Self { sent, ..self }
        }
    }
}

/// What differs between two records of one IKE SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RecordChange {
    /// Nothing.
    None,
    /// Exchanges that changed nothing, such as liveness checks: requests of the peer, or its response to a
    /// request of ours, which the next owner repeats. Or another path MTU was found.
    Exchanges,
    /// Anything else.
    State,
}

impl IkeRecord {
    /// Encodes the record. The result contains keys.
    pub fn encode(&self) -> Result<SecretBytes, RecordError> {
        let encoded = self.encode_into(USUAL_RECORD).or_else(|| self.encode_into(MAX_RECORD));
        encoded.ok_or(RecordError::TooLong)
    }

    /// Encodes the record, if it has at most this number of bytes.
    fn encode_into(&self, most: usize) -> Option<SecretBytes> {
        let mut room = Zeroizing::new(alloc::vec![0; most]);
        let mut cursor = minicbor::encode::write::Cursor::new(room.as_mut_slice());
        minicbor::encode(self, &mut cursor).ok()?;
        let len = cursor.position();
        room.get(..len).map(SecretBytes::new)
    }

    /// Decodes a record.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        if bytes.len() > MAX_RECORD {
            return Err(RecordError::TooLong);
        }
        let mut decoder = minicbor::Decoder::new(bytes);
        let record = decoder.decode().map_err(|_| RecordError::Malformed)?;
        if decoder.position() == bytes.len() { Ok(record) } else { Err(RecordError::Malformed) }
    }

    /// Our SPI of the IKE SA.
    pub const fn own_spi(&self) -> u64 {
        if self.is_initiator { self.spis.initiator } else { self.spis.responder }
    }

    /// Age of the IKE SA.
    pub const fn age(&self) -> Duration {
        self.times.established.duration()
    }

    /// Name of the connection.
    pub fn connection(&self) -> &str {
        &self.connection
    }

    /// The Child SAs, and how far their sequence numbers are.
    pub fn sequences(&self) -> impl Iterator<Item = ChildSequence> + '_ {
        self.children.iter().map(ChildFields::sequence)
    }

    /// What differs from an earlier record of the same IKE SA whose times were advanced to those of this one.
    /// Sequence numbers do not count.
    pub fn change_since(&self, former: &Self) -> RecordChange {
        if self.is_same(former) {
            return RecordChange::None;
        }
        let has_request = self.window.request.is_some() && self.window.request != former.window.request;
        if has_request || self.window.next != former.window.next {
            return RecordChange::State;
        }
        let last_response =
            |record: &Self| record.window.response.as_ref().map(|last| last.datagrams.clone());
        if last_response(self) != last_response(former) && !self.has_answered_check() {
            return RecordChange::State;
        }
        let (window, path_mtu) = (former.window.clone(), former.path_mtu);
        match (Self { window, path_mtu, ..self.clone() }).is_same(former) {
            true => RecordChange::Exchanges,
            false => RecordChange::State,
        }
    }

    /// Whether the last response is that of an INFORMATIONAL exchange. What other responses refer to, such as
    /// additional key exchanges, is not recorded: only one owner may send them.
    fn has_answered_check(&self) -> bool {
        let datagram = self.window.response.as_ref().and_then(|response| response.datagrams.first());
        let header = datagram.and_then(|datagram| Header::parse(datagram).ok());
        header.is_none_or(|header| header.exchange == ExchangeType::INFORMATIONAL)
    }

    fn is_same(&self, former: &Self) -> bool {
        let sequences = |record: &Self| record.sequences().collect::<Vec<_>>();
        if sequences(self) == sequences(former) {
            return self == former;
        }
        let mut other = self.clone();
        for ChildSequence { spi, sent, received, reached, .. } in former.sequences() {
            for child in other.children_of(spi) {
                (child.sent, child.received, child.reached) = (sent, received, reached);
            }
        }
        other == *former
    }

    fn children_of(&mut self, spi_in: u32) -> impl Iterator<Item = &mut ChildFields> {
        self.children.iter_mut().filter(move |child| child.spi_in == spi_in)
    }

    /// Sets the numbers of a Child SA, by the SPI of its inbound SA, to those that the data path has: the
    /// last one sent and the highest received.
    pub fn set_used_numbers(&mut self, spi_in: u32, sent: u64, received: u64) {
        for child in self.children_of(spi_in) {
            let used = child.sequence().with_used(sent, received);
            (child.sent, child.received, child.reached) = (used.sent, used.received, used.reached);
        }
    }

    /// Sets the highest number that the peer of a Child SA has used or left out, as far as is known, by the
    /// SPI of its inbound SA.
    pub fn set_reached(&mut self, spi_in: u32, reached: Option<u64>) {
        for child in self.children_of(spi_in) {
            child.reached = reached;
        }
    }

    /// Sets how far the sequence numbers of a Child SA are, by the SPI of its inbound SA: the last one that
    /// may have been sent, and the highest one that may have been received.
    pub fn set_sequence_numbers(&mut self, spi_in: u32, sent: u64, received: u64) {
        for child in self.children_of(spi_in) {
            (child.sent, child.received) = (sent, received);
        }
    }

    /// Takes the time off that has passed since this process made the record.
    pub fn advance(&mut self, elapsed: Duration) {
        self.advance_times(elapsed, Duration::ZERO, Duration::ZERO);
        self.window.response.iter_mut().for_each(|response| response.left.subtract(elapsed, Duration::ZERO));
    }

    /// Takes the time off that has passed since another process has written the record, as the clocks of
    /// both hosts say. A clock may be wrong, so the last response is kept for the time that it had left then.
    ///
    /// `has_had_owner` says that a host has had the IKE SA until now. It would have ended what had expired.
    /// So what has expired as the clocks say is renewed within a minute, and ends after five minutes at the
    /// earliest, or the time that it had left.
    pub fn advance_by_clocks(&mut self, elapsed: Duration, has_had_owner: bool) {
        // Not all IKE SAs of an owner are renewed at once.
        let spread = Duration::from_secs(self.own_spi().checked_rem(LATEST_RENEWAL).unwrap_or(0));
        let [renewal, end] = if has_had_owner { [spread, SHORTEST_REST] } else { [Duration::ZERO; 2] };
        self.advance_times(elapsed, renewal, end);
    }

    /// Advances ages and deadlines. A renewal is at least `renewal` away then, and an end `end`, unless it
    /// was nearer before.
    fn advance_times(&mut self, elapsed: Duration, renewal: Duration, end: Duration) {
        let TimeFields { established, authenticated, rekey, expire, reauthenticate, duplicate, .. } =
            &mut self.times;
        [established, authenticated].into_iter().for_each(|age| age.add(elapsed));
        let none = Duration::ZERO;
        let own = [(rekey, renewal), (reauthenticate, renewal), (expire, end), (duplicate, none)];
        let of_children = self.children.iter_mut().flat_map(|child| {
            let ChildTimes { installed, rekey, expire } = &mut child.times;
            installed.add(elapsed);
            [(rekey, renewal), (expire, end)]
        });
        for (left, least) in own.into_iter().chain(of_children) {
            left.iter_mut().for_each(|left| left.subtract(elapsed, least));
        }
    }
}
