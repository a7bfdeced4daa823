//! What IKE asks of its home, and what it tells.

use crate::config::{Child, Connection, Identity};
use crate::negotiate::{ChildSuite, IkeSuite};
use crate::{ChildId, IkeSaId, NotBegun, PeerFault, Traffic};
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_crypto::{Rng, SecretBytes};
use casemate_sa::{AddrRange, Instant, Mode, Protocol, SaParams, Spi};
use casemate_wire::ike::{IkeSpi, NotifyType};
use core::fmt;
use core::net::{IpAddr, SocketAddr};

/// Both ends of the UDP datagrams of an IKE SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path {
    /// Ours. An unspecified address leaves the choice to the system.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
}

/// A datagram to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transmit {
    /// Where from and to.
    pub path: Path,
    /// Whether four zeros go in front of it (RFC 7296 section 3.1): on the port that IKE shares with ESP.
    pub marker: bool,
    /// The IKE message; empty for a NAT keepalive, which is one byte of 0xFF without a marker (RFC 3948 section 2.3).
    pub message: Vec<u8>,
}

/// The data path, as far as IKE needs it.
pub trait Host {
    /// An SPI for an inbound SA of either protocol, which no other has and none gets until it is given back or its SA is
    /// removed; `None` if there is none.
    fn reserve_spi(&mut self, rng: &mut dyn Rng) -> Option<Spi>;

    /// An SPI that was reserved will not be used.
    fn release_spi(&mut self, spi: Spi);

    /// When the inbound SA with this SPI received its last packet that opened.
    fn last_inbound(&self, spi: Spi) -> Option<Instant>;

    /// Our address on the way to `remote`, if the system knows a way.
    fn source_for(&self, remote: IpAddr) -> Option<IpAddr>;

    /// Whether a Child SA in transport mode may carry the traffic between `local` and `remote` with a peer at
    /// an address. `encap_port` is the peer's UDP port if there is a NAT between. It may not if another host
    /// has that traffic, behind the NAT or as the NAT itself: the two could not be told apart (RFC 3948
    /// section 5.2). A Child SA for which `is_ignored` returns `true` does not count: it belongs to the
    /// requester, or is about to be closed.
    fn allows_transport(
        &self,
        (_peer, _encap_port): (IpAddr, Option<u16>),
        _local: &[Traffic],
        _remote: &[Traffic],
        _is_ignored: &dyn Fn(ChildId) -> bool,
    ) -> bool {
        true
    }
}

/// A Child SA for the data path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildUp {
    /// Its name.
    pub id: ChildId,
    /// The IKE SA that it belongs to now.
    pub ike: IkeSaId,
    /// The connection.
    pub connection: Arc<Connection>,
    /// Its configuration.
    pub child: Arc<Child>,
    /// What it protects with.
    pub suite: ChildSuite,
    /// The SA for packets that come in.
    pub inbound: SaParams,
    /// The SA for packets that go out.
    pub outbound: SaParams,
    /// Traffic of our side.
    pub local: Vec<Traffic>,
    /// Traffic of the peer's side.
    pub remote: Vec<Traffic>,
    /// The Child SA that it replaces.
    pub replaces: Option<ChildId>,
    /// Whether the outbound SA is to be used at once; otherwise [`Event::ChildActive`] says when (RFC 7296 section 2.8).
    pub active: bool,
}

/// What we are told beside virtual addresses (RFC 7296 section 3.15.1).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Assigned {
    /// Our virtual addresses.
    pub addrs: Vec<IpAddr>,
    /// Name servers.
    pub dns: Vec<IpAddr>,
    /// Subnets behind the peer.
    pub subnets: Vec<AddrRange>,
}

/// Why something ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Down {
    /// We were told to.
    Local,
    /// The peer closed it.
    Peer,
    /// Another one has taken its place.
    Replaced,
    /// The peer does not answer.
    Dead,
    /// Its time was over before it could be replaced.
    Expired,
    /// The peer came anew and said that it has no other SA (RFC 7296 section 2.4), or another one is wanted instead.
    NotUnique,
    /// The peer refused, with this notification.
    Refused(NotifyType),
    /// The peer did something wrong.
    Fault(PeerFault),
    /// It is made anew, with authentication.
    Reauth,
    /// What was configured is no more.
    Unconfigured,
}

/// Keys, for those who must read captures. Only made on demand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IkeKeys {
    /// The SPIs.
    pub spis: (IkeSpi, IkeSpi),
    /// The algorithms.
    pub suite: IkeSuite,
    /// SK_ei and SK_er.
    pub encr: (SecretBytes, SecretBytes),
    /// SK_ai and SK_ar.
    pub integ: (SecretBytes, SecretBytes),
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// An IKE SA is established, its peer authenticated.
    IkeUp {
        /// Its name.
        ike: IkeSaId,
        /// Its connection.
        connection: Arc<Connection>,
        /// The peer.
        peer: Identity,
        /// Where it is.
        path: Path,
    },
    /// An IKE SA replaces another one; its Child SAs are the new one's.
    IkeRekeyed {
        /// The old one.
        old: IkeSaId,
        /// The new one.
        new: IkeSaId,
    },
    /// An IKE SA ended, or could not be established.
    IkeDown {
        /// Its name.
        ike: IkeSaId,
        /// Its connection.
        connection: Arc<Connection>,
        /// Why.
        why: Down,
        /// Whether the peer began it and was never authenticated. Any host can cause such events.
        half_open: bool,
    },
    /// A connection that was to be set up again was not begun.
    NotBegun {
        /// Which.
        connection: Arc<Connection>,
        /// Why.
        error: NotBegun,
    },
    /// A Child SA is to be installed.
    ChildUp(alloc::boxed::Box<ChildUp>),
    /// The outbound SA of a Child SA is to be used from now on.
    ChildActive(ChildId),
    /// We ask the peer to close this Child SA, and the peer does so before we do. From now on, packets are sent through
    /// another Child SA for the same traffic, if there is one.
    ChildClosing(ChildId),
    /// A Child SA is to be removed.
    ChildDown {
        /// Its name.
        id: ChildId,
        /// Why.
        why: Down,
        /// The origin of its IKE SA: the IKE SA whose IKE_AUTH exchange authenticated the peer. An IKE SA that replaces
        /// another by rekeying has the same origin.
        origin: IkeSaId,
    },
    /// A Child SA was not made.
    ChildFailed {
        /// The connection.
        connection: Arc<Connection>,
        /// Its configuration.
        child: Arc<Child>,
        /// Why.
        why: Down,
    },
    /// The peer gave us addresses.
    Assigned {
        /// By which IKE SA.
        ike: IkeSaId,
        /// What it gave.
        what: Assigned,
        /// The addresses among them that no other IKE SA has: the host gets these.
        fresh: Vec<IpAddr>,
    },
    /// Addresses that the peer gave us are ours no more: no IKE SA has them.
    Unassigned {
        /// By which IKE SA.
        ike: IkeSaId,
        /// The addresses.
        addrs: Vec<IpAddr>,
    },
    /// The peer is at another address or port: UDP-encapsulated SAs of the Child SAs follow it.
    Moved {
        /// Which IKE SA.
        ike: IkeSaId,
        /// Its Child SAs.
        children: Vec<ChildId>,
        /// The new path.
        path: Path,
    },
    /// A peer did something wrong.
    Fault {
        /// What.
        fault: PeerFault,
        /// Where the message came from.
        path: Path,
    },
    /// Keys of an IKE SA.
    Keys(alloc::boxed::Box<IkeKeys>),
}

impl fmt::Display for Down {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("closed here"),
            Self::Peer => f.write_str("closed by the peer"),
            Self::Replaced => f.write_str("replaced"),
            Self::Dead => f.write_str("the peer does not answer"),
            Self::Expired => f.write_str("its lifetime ended"),
            Self::NotUnique => f.write_str("the peer has another one"),
            Self::Refused(notify) => write!(f, "refused by the peer: {notify}"),
            Self::Fault(fault) => fault.fmt(f),
            Self::Reauth => f.write_str("to be authenticated anew"),
            Self::Unconfigured => f.write_str("no longer configured"),
        }
    }
}

/// One Child SA, for status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildStatus {
    /// Its name.
    pub id: ChildId,
    /// Name of its configuration.
    pub child: Arc<Child>,
    /// ESP or AH.
    pub protocol: Protocol,
    /// SPI of packets that come in.
    pub spi_in: Spi,
    /// SPI of packets that go out.
    pub spi_out: Spi,
    /// Algorithms.
    pub suite: ChildSuite,
    /// Tunnel or transport.
    pub mode: Mode,
    /// Traffic of our side.
    pub local: Vec<Traffic>,
    /// Traffic of the peer's side.
    pub remote: Vec<Traffic>,
    /// When it is rekeyed.
    pub rekey_at: Option<Instant>,
    /// What it is doing.
    pub state: &'static str,
}

/// One IKE SA, for status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IkeStatus {
    /// Its name.
    pub id: IkeSaId,
    /// Its connection.
    pub connection: Arc<Connection>,
    /// What it is doing.
    pub state: &'static str,
    /// Whether we began it.
    pub initiator: bool,
    /// SPIs of initiator and responder.
    pub spis: (IkeSpi, IkeSpi),
    /// Where it is.
    pub path: Path,
    /// The peer, once it is authenticated.
    pub peer: Option<Identity>,
    /// Algorithms, once they are agreed.
    pub suite: Option<IkeSuite>,
    /// Whether we, or the peer, are behind a NAT.
    pub nat: (bool, bool),
    /// When it was established.
    pub established: Option<Instant>,
    /// When it is rekeyed.
    pub rekey_at: Option<Instant>,
    /// Virtual addresses: ours, or those that the peer has from us.
    pub virtual_addrs: Vec<IpAddr>,
    /// Name servers that the peer gave us.
    pub dns: Vec<IpAddr>,
    /// Its Child SAs.
    pub children: Vec<ChildStatus>,
}
