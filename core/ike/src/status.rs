//! Identifiers and status of SAs, and results of commands.

use crate::child_sa::AgreedRohc;
use crate::config::{ChildConfig, Connection, DomainName, Identity};
use crate::nat::NatStatus;
use crate::negotiate::{ChildSuite, IkeSuite};
use crate::{Path, TrafficSelector};
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_sa::table::MapKey;
use casemate_sa::{Instant, Mode, Protocol, Spi};
use casemate_wire::ike::IkeSpi;
use core::fmt;
use core::net::IpAddr;

/// Identifier of an IKE SA. It is never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IkeSaId(pub(crate) u64);

/// Identifier of a Child SA. It is never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChildId(pub(crate) u64);

impl IkeSaId {
    /// An identifier for tests of code that follows events.
    #[doc(hidden)]
    pub const fn for_tests(number: u64) -> Self {
        Self(number)
    }
}

impl ChildId {
    /// An identifier for tests of code that follows events.
    #[doc(hidden)]
    pub const fn for_tests(number: u64) -> Self {
        Self(number)
    }
}

impl MapKey for IkeSaId {
    fn words(self) -> [u64; 2] {
        self.0.words()
    }
}

impl MapKey for ChildId {
    fn words(self) -> [u64; 2] {
        self.0.words()
    }
}

impl fmt::Display for IkeSaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for ChildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// SAs that are no longer configured.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UnconfiguredSas {
    /// IKE SAs.
    pub ikes: Vec<IkeSaId>,
    /// Child SAs of IKE SAs that are still configured.
    pub children: Vec<ChildId>,
}

/// Reason why an IKE SA was not started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InitiateError {
    /// The connection has no single remote address.
    NoRemoteAddress,
    /// The peer authenticates itself by EAP, which only an initiator can do.
    OnlyPeer,
    /// The addresses of the peer are being looked up.
    Pending,
    /// The look-up of the peer's name found no address.
    UnknownHost,
    /// There is no route to the peer.
    NoRoute,
    /// The limit of IKE SAs is reached.
    Full,
    /// This host does not have the post-quantum pre-shared key that the connection requires (RFC 8784).
    NoPpk,
    /// The provider failed, or supports none of the configured algorithms.
    Provider,
}

impl InitiateError {
    /// Whether only the peer can start an IKE SA of the connection.
    pub const fn is_final(self) -> bool {
        match self {
            Self::NoRemoteAddress | Self::OnlyPeer => true,
            Self::Pending | Self::UnknownHost | Self::NoRoute | Self::Full | Self::NoPpk | Self::Provider => {
                false
            }
        }
    }
}

impl fmt::Display for InitiateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoRemoteAddress => {
                "the connection has no single remote address: only the peer can initiate"
            }
            Self::OnlyPeer => "the peer authenticates itself by EAP: only the peer can initiate",
            Self::Pending => "the addresses of the peer are being looked up",
            Self::UnknownHost => "no address was found for the name of the peer",
            Self::NoRoute => "there is no route to the peer",
            Self::Full => "the limit of IKE SAs is reached",
            Self::NoPpk => "this host does not have the post-quantum pre-shared key that is required",
            Self::Provider => "no provider supports the proposed algorithms",
        })
    }
}

impl core::error::Error for InitiateError {}

/// State of a Child SA. `Display` writes the variant in lower case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChildState {
    /// The Child SA carries traffic in both directions.
    Installed,
    /// The outbound SA is not in use yet.
    Awaiting,
    /// Another Child SA has replaced this one. The peer is to close it.
    Rekeyed,
    /// This host is closing it.
    Closing,
}

impl fmt::Display for ChildState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Installed => "installed",
            Self::Awaiting => "awaiting",
            Self::Rekeyed => "rekeyed",
            Self::Closing => "closing",
        })
    }
}

/// SPIs of an IKE SA (RFC 7296 section 3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct IkeSpis {
    /// SPI of the initiator.
    pub initiator: IkeSpi,
    /// SPI of the responder; [`IkeSpi::NONE`] in the first request.
    pub responder: IkeSpi,
}

/// State of an IKE SA. `Display` writes the variant in lower case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IkeState {
    /// The peer is not authenticated yet.
    Connecting,
    /// The peer is authenticated.
    Established,
    /// Another IKE SA has replaced this one. The peer is to close it.
    Rekeyed,
    /// This host is closing it.
    Closing,
    /// The IKE SA has ended.
    Closed,
}

impl fmt::Display for IkeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connecting => "connecting",
            Self::Established => "established",
            Self::Rekeyed => "rekeyed",
            Self::Closing => "closing",
            Self::Closed => "closed",
        })
    }
}

/// Connection and state of an IKE SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IkeSaState<'s> {
    /// Identifier.
    pub id: IkeSaId,
    /// Connection.
    pub connection: &'s Arc<Connection>,
    /// State.
    pub state: IkeState,
}

/// Status of a Child SA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildStatus {
    /// Identifier.
    pub id: ChildId,
    /// Configuration.
    pub child: Arc<ChildConfig>,
    /// ESP or AH.
    pub protocol: Protocol,
    /// SPI of inbound packets.
    pub spi_in: Spi,
    /// SPI of outbound packets.
    pub spi_out: Spi,
    /// Negotiated algorithms.
    pub suite: ChildSuite,
    /// Tunnel or transport mode.
    pub mode: Mode,
    /// Local traffic selectors.
    pub local: Vec<TrafficSelector>,
    /// Remote traffic selectors.
    pub remote: Vec<TrafficSelector>,
    /// Header compression.
    pub rohc: Option<AgreedRohc>,
    /// Time of the next rekeying; `None` if there is none.
    pub rekey_at: Option<Instant>,
    /// Time at which the Child SA ends unless it is replaced; `None` if there is none.
    pub expires_at: Option<Instant>,
    /// State.
    pub state: ChildState,
}

/// EAP identity of a peer that has passed EAP.
#[cfg(feature = "eap")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UserIdentity {
    /// The peer has proved it, or an AAA server has named the user whom it has authenticated.
    Proven(Vec<u8>),
    /// The peer has sent it, and the AAA server may have authenticated another user. It must not count as the
    /// name of the peer.
    Claimed {
        /// EAP identity that the peer has sent.
        identity: Vec<u8>,
        /// The IKE SA in which the peer has passed EAP. IKE SAs that replace or resume it have the same one.
        login: IkeSaId,
    },
}

#[cfg(feature = "eap")]
impl UserIdentity {
    /// The identity, if it is proven.
    pub fn proven(&self) -> Option<&[u8]> {
        match self {
            Self::Proven(identity) => Some(identity),
            Self::Claimed { .. } => None,
        }
    }

    /// The identity, if the peer has only claimed it.
    pub fn claimed(&self) -> Option<&[u8]> {
        match self {
            Self::Proven(_) => None,
            Self::Claimed { identity, .. } => Some(identity),
        }
    }
}

/// What a peer proved in one of several rounds of authentication (RFC 4739).
#[cfg(feature = "eap")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProvenRound {
    /// Identity of the peer's ID payload.
    pub peer: Identity,
    /// EAP identity, if the peer used EAP.
    pub eap_identity: Option<UserIdentity>,
}

/// Status of an IKE SA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IkeStatus {
    /// Identifier.
    pub id: IkeSaId,
    /// Connection.
    pub connection: Arc<Connection>,
    /// State.
    pub state: IkeState,
    /// Whether this host is the initiator.
    pub initiator: bool,
    /// SPIs of the initiator and the responder.
    pub spis: IkeSpis,
    /// Addresses and ports.
    pub path: Path,
    /// The peer's identity, once it is authenticated.
    pub peer: Option<Identity>,
    /// Our identity, once the peer is authenticated. In several rounds, one of the earlier ones may be shown.
    #[cfg(feature = "eap")]
    pub own_id: Option<Identity>,
    /// EAP identity of the peer, if it used EAP.
    #[cfg(feature = "eap")]
    pub eap_identity: Option<UserIdentity>,
    /// What the peer proved in earlier rounds of authentication (RFC 4739), in this order.
    #[cfg(feature = "eap")]
    pub earlier_rounds: Vec<ProvenRound>,
    /// Whether the IKE SA, or one that it replaced by rekeying, resumes the session of an earlier one (RFC
    /// 5723). The peer was then authenticated by the keys of that session.
    #[cfg(feature = "resumption")]
    pub is_resumed: bool,
    /// PPK_ID of the post-quantum pre-shared key that the keys depend on (RFC 8784), without the octet of its
    /// type. A resumed session has that of the earlier IKE SA.
    #[cfg(feature = "ppk")]
    pub ppk_id: Option<Vec<u8>>,
    /// Whether the AUTH payloads covered the IKE_SA_INIT messages of both sides
    /// (draft-ietf-ipsecme-ikev2-downgrade-prevention).
    pub full_transcript_auth: bool,
    /// Algorithms, once they are negotiated.
    pub suite: Option<IkeSuite>,
    /// Which side is behind a NAT.
    pub nat: NatStatus,
    /// Time at which the IKE SA was established.
    pub established: Option<Instant>,
    /// Time of the next rekeying; `None` if there is none.
    pub rekey_at: Option<Instant>,
    /// Virtual addresses that the peer assigned to this host, or that the peer has from this host.
    pub virtual_addrs: Vec<IpAddr>,
    /// Name servers that the peer assigned.
    pub dns: Vec<IpAddr>,
    /// Domains for which they are meant; none for all names.
    pub dns_domains: Vec<DomainName>,
    /// Child SAs.
    pub children: Vec<ChildStatus>,
}
