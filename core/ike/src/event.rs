//! Events that the engine reports.

use crate::config::{ChildConfig, Connection, DomainName, Identity};
use crate::diagnosis::SharedExplanation;
use crate::negotiate::{ChildSuite, IkeSuite};
use crate::{ChildId, IkeSaId, IkeSpis, InitiateError, Path, PeerFault, TrafficSelector};
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_crypto::SecretBytes;
use casemate_sa::{AddrRange, SaParams};
use casemate_wire::ike::{ExchangeType, NotifyType};
use core::fmt;
use core::net::IpAddr;
use core::time::Duration;

/// A Child SA to install in the data path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildUp {
    /// Identifier.
    pub id: ChildId,
    /// IKE SA that the Child SA belongs to now.
    pub ike: IkeSaId,
    /// Origin of that IKE SA: the one whose IKE_AUTH exchange authenticated the peer.
    pub origin: IkeSaId,
    /// Connection.
    pub connection: Arc<Connection>,
    /// Configuration.
    pub child: Arc<ChildConfig>,
    /// Negotiated algorithms.
    pub suite: ChildSuite,
    /// Parameters of the inbound SA.
    pub inbound: SaParams,
    /// Parameters of the outbound SA.
    pub outbound: SaParams,
    /// Local traffic selectors.
    pub local: Vec<TrafficSelector>,
    /// Remote traffic selectors.
    pub remote: Vec<TrafficSelector>,
    /// Child SA that this one replaces.
    pub replaces: Option<ChildId>,
    /// Whether the outbound SA is used at once. If not, [`Event::ChildActive`] follows (RFC 7296 section
    /// 2.8).
    pub active: bool,
    /// Whether the Child SA continues one of another process or host, whose record was restored.
    pub is_restored: bool,
}

/// Contents of a configuration reply (RFC 7296 section 3.15.1).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AssignedConfig {
    /// Virtual addresses of this host.
    pub addrs: Vec<IpAddr>,
    /// Name servers.
    pub dns: Vec<IpAddr>,
    /// Domains for which these name servers are meant (RFC 8598), as far as the connection accepts them. If
    /// there are none, the servers are meant for all names. None without the Cargo feature `split-dns`.
    pub domains: Vec<DomainName>,
    /// Addresses that this host does not take: no unicast address of a host, its own, the peer's, or that of
    /// the router to the peer.
    pub refused_addrs: Vec<IpAddr>,
    /// Number of name servers and domains that are malformed or not acceptable, and are ignored.
    pub refused: usize,
    /// Subnets behind the peer.
    pub subnets: Vec<AddrRange>,
}

/// Reason for the end of an SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DownReason {
    /// A local command closed it.
    Local,
    /// It carried no packet for the time that the configuration allows.
    Inactive,
    /// The peer closed it.
    Peer,
    /// Another SA has replaced it.
    Replaced,
    /// The peer does not respond.
    DeadPeer,
    /// Its lifetime ended before it was replaced.
    Expired,
    /// The peer reported on a new SA that it has no other one, as after a restart (INITIAL_CONTACT, RFC 7296
    /// section 2.4).
    InitialContact,
    /// A new SA replaces the old one by configuration.
    NotUnique,
    /// The peer refused it with this notification.
    Refused(NotifyType),
    /// The peer violated the protocol.
    Fault(PeerFault),
    /// A new SA with authentication replaces it.
    Reauth,
    /// The peer has forgotten it, as after a restart.
    Forgotten {
        /// What shows that.
        sign: ForgottenSign,
        /// Whether this host has replaced it by a new SA with authentication. Otherwise `dpd_action` applies,
        /// as for a peer that does not respond.
        is_reauthenticated: bool,
    },
    /// It is no longer configured.
    Unconfigured,
}

/// What shows that the peer has forgotten an SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForgottenSign {
    /// The peer has proved it with its token (RFC 6290).
    CrashToken,
    /// A message in clear said so (INVALID_IKE_SPI), and the peer did not respond on the SA.
    Report,
    /// The peer did not respond on the SA, but set up a new one.
    Silence,
}

impl DownReason {
    /// Whether a new SA with authentication, which this host has initiated, replaces the SA.
    pub const fn is_reauthentication(self) -> bool {
        matches!(self, Self::Reauth | Self::Forgotten { is_reauthenticated: true, .. })
    }
}

impl fmt::Display for ForgottenSign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CrashToken => "the peer has proved with its crash token that it has forgotten this SA",
            Self::Report => "the peer reports that it does not know this SA, as after a restart",
            Self::Silence => "the peer no longer responded on this SA, as after a restart",
        })
    }
}

/// Keys of an IKE SA, for decrypting captures. Reported on request only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IkeKeys {
    /// SPIs of the initiator and the responder.
    pub spis: IkeSpis,
    /// Negotiated algorithms.
    pub suite: IkeSuite,
    /// SK_ei and SK_er.
    pub encr: KeyPair,
    /// SK_ai and SK_ar.
    pub integ: KeyPair,
}

/// Keys of one kind, one for each sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPair {
    /// For messages of the original initiator.
    pub initiator: SecretBytes,
    /// For messages of the original responder.
    pub responder: SecretBytes,
}

/// An event of the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// An IKE SA is established and its peer authenticated.
    IkeUp {
        /// IKE SA.
        ike: IkeSaId,
        /// Connection.
        connection: Arc<Connection>,
        /// The peer's identity.
        peer: Identity,
        /// EAP identity of the peer, if it used EAP.
        #[cfg(feature = "eap")]
        eap_identity: Option<crate::UserIdentity>,
        /// What the peer proved in earlier rounds of authentication (RFC 4739), in this order.
        #[cfg(feature = "eap")]
        earlier_rounds: Vec<crate::ProvenRound>,
        /// The IKE SA whose session this one resumes (RFC 5723), if it does. The peer was not authenticated
        /// anew.
        #[cfg(feature = "resumption")]
        resumes: Option<IkeSaId>,
        /// PPK_ID of the post-quantum pre-shared key that the keys depend on (RFC 8784), without the octet of
        /// its type.
        #[cfg(feature = "ppk")]
        ppk_id: Option<Vec<u8>>,
        /// Addresses and ports.
        path: Path,
        /// Whether the IKE SA continues one of another process or host, whose record was restored.
        is_restored: bool,
    },
    /// An IKE SA has replaced another one and has taken over its Child SAs.
    IkeRekeyed {
        /// The replaced IKE SA.
        old: IkeSaId,
        /// The successor.
        new: IkeSaId,
    },
    /// A gateway has redirected this host to another one (RFC 5685). The IKE SA of an established connection
    /// ends once another one with the other gateway is established.
    Redirected {
        /// IKE SA.
        ike: IkeSaId,
        /// Connection.
        connection: Arc<Connection>,
        /// The gateway that redirects.
        from: IpAddr,
        /// The other gateway, an address or a name that is looked up now.
        to: crate::config::Gateway,
    },
    /// The peer has not accepted the ticket with which this host wanted to resume a session (RFC 5723). The
    /// IKE SA is set up with a full exchange instead.
    NotResumed {
        /// IKE SA.
        ike: IkeSaId,
        /// Connection.
        connection: Arc<Connection>,
        /// Addresses and ports.
        path: Path,
    },
    /// The peer refused to replace an IKE SA. The IKE SA stays, and its replacement is requested again until
    /// its lifetime ends.
    IkeRekeyFailed {
        /// IKE SA.
        ike: IkeSaId,
        /// Connection.
        connection: Arc<Connection>,
        /// Reason.
        reason: DownReason,
    },
    /// An IKE SA ended, or could not be established.
    IkeDown {
        /// IKE SA.
        ike: IkeSaId,
        /// Connection.
        connection: Arc<Connection>,
        /// Reason.
        reason: DownReason,
        /// Whether the peer started the IKE SA and was never authenticated. Any host can cause such events.
        half_open: bool,
        /// Addresses and ports at the end.
        path: Path,
    },
    /// A connection could not be started or restarted.
    InitiateFailed {
        /// Connection.
        connection: Arc<Connection>,
        /// Error.
        error: InitiateError,
    },
    /// A Child SA is to be installed.
    ChildUp(alloc::boxed::Box<ChildUp>),
    /// The outbound SA of this Child SA is to be used from now on.
    ChildActive(ChildId),
    /// This host has asked the peer to close this Child SA, and the peer closes it first. From now on packets
    /// are sent through another Child SA for the same traffic, if there is one.
    ChildClosing(ChildId),
    /// A Child SA is to be removed.
    ChildDown {
        /// Child SA.
        id: ChildId,
        /// Reason.
        reason: DownReason,
        /// Origin of its IKE SA: the IKE SA whose IKE_AUTH exchange authenticated the peer. An IKE SA that
        /// replaces another by rekeying has the same origin.
        origin: IkeSaId,
    },
    /// A Child SA could not be set up.
    ChildFailed {
        /// Connection.
        connection: Arc<Connection>,
        /// Configuration of the child.
        child: Arc<ChildConfig>,
        /// The Child SA that it should have replaced, and that stays until its lifetime ends.
        replaces: Option<ChildId>,
        /// Reason.
        reason: DownReason,
    },
    /// The peer has assigned addresses to this host.
    ConfigAssigned {
        /// IKE SA.
        ike: IkeSaId,
        /// Connection.
        connection: Arc<Connection>,
        /// Contents of the configuration reply.
        config: AssignedConfig,
        /// Addresses among them that no other IKE SA has: the host has to add these.
        new_addrs: Vec<IpAddr>,
    },
    /// No IKE SA has these addresses any more: the host has to remove them.
    AddrsReleased {
        /// IKE SA that had them last.
        ike: IkeSaId,
        /// Addresses.
        addrs: Vec<IpAddr>,
    },
    /// An address or port of the peer or of this host has changed, or the encapsulation in UDP. The Child SAs
    /// follow.
    PathChanged {
        /// IKE SA.
        ike: IkeSaId,
        /// Child SAs of the IKE SA.
        children: Vec<ChildId>,
        /// New addresses and ports.
        path: Path,
        /// Whether ESP of the Child SAs is encapsulated in UDP.
        udp_encap: bool,
    },
    /// Probes have shown another path MTU than before, or a search has ended with another one.
    PathMtu {
        /// IKE SA.
        ike: IkeSaId,
        /// Child SAs of the IKE SA.
        children: Vec<ChildId>,
        /// Addresses and ports of the probes.
        path: Path,
        /// Length in bytes of the longest packets that arrive, outer IP header included; `None` if that is
        /// the MTU of the link.
        mtu: Option<u16>,
        /// MTU of the link in bytes.
        link: u16,
        /// Whether the search has ended. Until then, `mtu` is a safe value.
        is_final: bool,
    },
    /// The peer has continued the IKE SA on another host, and accepts only higher sequence numbers (RFC 6311
    /// section 5.2): the next `count` numbers of the outbound SAs are to be left out. Without the Cargo
    /// feature `records` this does not happen.
    NumbersSkipped {
        /// IKE SA.
        ike: IkeSaId,
        /// Connection.
        connection: Arc<Connection>,
        /// Child SAs of the IKE SA.
        children: Vec<ChildId>,
        /// How many numbers of each.
        count: u64,
    },
    /// A peer violated the protocol, or a negotiation failed.
    Fault {
        /// Kind of the violation.
        fault: PeerFault,
        /// Source and destination of the message.
        path: Path,
        /// Connection of the IKE SA, if the message belongs to one.
        connection: Option<Arc<Connection>>,
        /// What was compared, if [`Ike::explain_faults`](crate::Ike::explain_faults) was called.
        explanation: Option<SharedExplanation>,
    },
    /// A request was sent again, because the peer has not responded.
    Retransmitted {
        /// IKE SA.
        ike: IkeSaId,
        /// Connection.
        connection: Arc<Connection>,
        /// Addresses and ports of the request.
        path: Path,
        /// Exchange of the request.
        exchange: ExchangeType,
        /// Message ID of the request. From 2 on, the peer has responded to a protected request before.
        message_id: u32,
        /// Number of retransmissions so far, from 1 on.
        attempt: u32,
        /// Maximum number of retransmissions.
        tries: u32,
        /// Time until the next retransmission, or until the peer counts as dead.
        wait: Duration,
    },
    /// Keys of an IKE SA.
    Keys(alloc::boxed::Box<IkeKeys>),
}

impl fmt::Display for DownReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("closed by this host"),
            Self::Peer => f.write_str("closed by the peer"),
            Self::Replaced => f.write_str("replaced"),
            Self::DeadPeer => f.write_str("the peer does not respond"),
            Self::Expired => f.write_str("its lifetime has ended"),
            Self::InitialContact => f.write_str(
                "the peer has reported that it has no other SA, as after a restart (INITIAL_CONTACT)",
            ),
            Self::NotUnique => f.write_str("replaced by another SA with the same peer"),
            Self::Refused(notify) => write!(f, "refused by the peer: {notify}"),
            Self::Fault(fault) => fault.fmt(f),
            Self::Reauth => f.write_str("closed for reauthentication"),
            Self::Forgotten { sign, .. } => sign.fmt(f),
            Self::Inactive => f.write_str("no traffic"),
            Self::Unconfigured => f.write_str("no longer configured"),
        }
    }
}
