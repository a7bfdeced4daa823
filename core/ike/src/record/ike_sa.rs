//! Fields of the record of an IKE SA itself, without its peer and its Child SAs.

use super::fields::{MessageFields, PathFields, Secret, Span};
use crate::NatStatus;
use crate::counter_sync::{SyncState, SyncSupport};
use alloc::vec::Vec;
use core::net::IpAddr;
use minicbor::{Decode, Encode};

/// The two SPIs of an IKE SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(map)]
pub(crate) struct SpiFields {
    #[n(0)]
    pub(crate) initiator: u64,
    #[n(1)]
    pub(crate) responder: u64,
}

/// The IKE SA whose IKE_AUTH exchange authenticated the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub(crate) struct OriginFields {
    #[n(0)]
    pub(crate) spis: SpiFields,
    #[n(1)]
    pub(crate) is_initiator: bool,
}

/// Keys of an IKE SA (RFC 7296 section 2.14). SK_pi and SK_pr have done their work.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub(crate) struct IkeKeyFields {
    #[n(0)]
    pub(crate) d: Secret,
    /// Encryption of sent messages.
    #[n(1)]
    pub(crate) seal_encr: Secret,
    #[n(2)]
    pub(crate) seal_integ: Secret,
    /// Decryption of received messages.
    #[n(3)]
    pub(crate) open_encr: Secret,
    #[n(4)]
    pub(crate) open_integ: Secret,
}

/// Message IDs, and the messages that may be repeated.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub(crate) struct WindowFields {
    /// Message ID of our next request.
    #[n(0)]
    pub(crate) next: u32,
    /// Message ID of the peer's next request.
    #[n(1)]
    pub(crate) expected: u32,
    /// The last response.
    #[n(2)]
    pub(crate) response: Option<MessageFields>,
    /// The request that awaits its response.
    #[n(3)]
    pub(crate) request: Option<MessageFields>,
}

/// Which side has announced fragmentation (RFC 7383).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub(crate) struct FragmentFields {
    #[n(0)]
    pub(crate) local: bool,
    #[n(1)]
    pub(crate) remote: bool,
}

/// Which side is behind a NAT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub(crate) struct NatFields {
    #[n(0)]
    pub(crate) local: bool,
    #[n(1)]
    pub(crate) remote: bool,
    #[n(2)]
    pub(crate) forced: bool,
}

impl From<NatStatus> for NatFields {
    fn from(NatStatus { local, remote, forced }: NatStatus) -> Self {
        Self { local, remote, forced }
    }
}

impl From<NatFields> for NatStatus {
    fn from(NatFields { local, remote, forced }: NatFields) -> Self {
        Self { local, remote, forced }
    }
}

/// Addresses of `dynamic` selectors.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub(crate) struct DynamicFields {
    #[n(0)]
    pub(crate) local: Vec<IpAddr>,
    #[n(1)]
    pub(crate) remote: Vec<IpAddr>,
    #[n(2)]
    pub(crate) unproved: Option<IpAddr>,
}

/// What MOBIKE knows.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub(crate) struct MobikeFields {
    #[n(0)]
    pub(crate) decides: bool,
    #[n(1)]
    pub(crate) peer_addrs: Vec<IpAddr>,
    #[n(2)]
    pub(crate) has_nat_traversal: bool,
    #[n(3)]
    pub(crate) forces_encap: bool,
    /// Whether the peer has not proved that it receives at the address of the path.
    #[n(4)]
    pub(crate) is_unverified: bool,
    /// Path of the Child SAs until then, and whether they are encapsulated in UDP.
    #[n(5)]
    pub(crate) former: Option<(PathFields, bool)>,
}

/// The result of a search for the path MTU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub(crate) struct PathMtuFields {
    /// The path MTU in bytes; `None` if it is that of the link.
    #[n(0)]
    pub(crate) limit: Option<u16>,
}

/// Synchronization with a peer that is a cluster (RFC 6311).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub(crate) struct SyncFields {
    /// Whether both support that of message IDs.
    #[n(0)]
    message_ids: bool,
    /// Whether both support that of sequence numbers.
    #[n(1)]
    numbers: bool,
    /// The peer's next message ID in its last request to synchronize.
    #[n(2)]
    last_request: Option<u32>,
    /// Sum of the numbers that the peer has asked to leave out.
    #[n(3)]
    skipped: u64,
}

impl From<SyncState> for SyncFields {
    fn from(state: SyncState) -> Self {
        let SyncState { support: SyncSupport { message_ids, numbers }, last_request, skipped } = state;
        Self { message_ids, numbers, last_request, skipped }
    }
}

impl From<SyncFields> for SyncState {
    fn from(fields: SyncFields) -> Self {
        let SyncFields { message_ids, numbers, last_request, skipped } = fields;
        Self { support: SyncSupport { message_ids, numbers }, last_request, skipped }
    }
}

/// Phase of an IKE SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub(crate) enum PhaseField {
    /// In use.
    #[n(0)]
    Open,
    /// Another IKE SA has replaced it, and the peer is to close it.
    #[n(1)]
    Replaced,
    /// The host is to close it.
    #[n(2)]
    Closing,
}

/// Ages, and times until deadlines; `None` for never.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub(crate) struct TimeFields {
    #[n(0)]
    pub(crate) established: Span,
    #[n(1)]
    pub(crate) authenticated: Span,
    #[n(2)]
    pub(crate) rekey: Option<Span>,
    #[n(3)]
    pub(crate) expire: Option<Span>,
    #[n(4)]
    pub(crate) reauthenticate: Option<Span>,
    #[n(5)]
    pub(crate) reauth_attempts: u8,
    #[n(6)]
    pub(crate) is_reauth_refused: bool,
    /// Until the IKE SA ends if the peer has set up another one at the same time.
    #[n(7)]
    pub(crate) duplicate: Option<Span>,
}
