//! Connections: entries of the PAD with their Child SAs and pools.

#[cfg(feature = "split-dns")]
use super::DomainPolicy;
#[cfg(feature = "revocation")]
use super::OcspInIke;
use super::{
    AddrPattern, ChildConfig, DomainName, IdPattern, Identity, IkeProposal, LocalAuth, LocalMethod,
    RemoteAuth, RemoteMethod, SendCert, Shunt, ike_proposals,
};
use crate::{HostAddrs, InitiateError, Lookup, Path, Routes};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use casemate_sa::AddrRange;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

/// Name in [`Connection::pools`] of the addresses that an AAA server assigns. No pool has it.
pub const SERVER_POOL: &str = "radius";

/// UDP port of IKE (RFC 7296 section 2).
const IKE_PORT: u16 = 500;
/// Default time of rekeying.
const REKEY: Duration = Duration::from_secs(4 * 3_600);

/// A connection with a peer, or with any of a group of peers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    /// Name, unique among connections.
    pub name: String,
    /// Our addresses. The first single address is the source of an exchange that this host starts; otherwise
    /// the system chooses. Never empty.
    pub local_addrs: Vec<AddrPattern>,
    /// The peer's addresses. The first single address is the destination of an exchange that this host
    /// starts. Never empty.
    pub remote_addrs: Vec<AddrPattern>,
    /// Our UDP port; 500 unless configured.
    pub local_port: u16,
    /// The peer's UDP port; 500 unless configured.
    pub remote_port: u16,
    /// Proposals for the IKE SA in order of preference. Never empty.
    pub proposals: Vec<IkeProposal>,
    /// Authentication of this host.
    pub local: LocalAuth,
    /// Authentication of the peer.
    pub remote: RemoteAuth,
    /// Rounds of authentication after that of `local` and `remote` (RFC 4739).
    #[cfg(feature = "eap")]
    pub further_rounds: super::FurtherRounds,
    /// Configured Child SAs.
    pub children: Vec<Arc<ChildConfig>>,
    /// Traffic that needs no protection.
    pub shunts: Vec<Shunt>,
    /// Virtual addresses to request. An unspecified address requests any address of its IP version.
    pub vips: Vec<IpAddr>,
    /// Names of the pools for the virtual addresses that the peer requests. [`SERVER_POOL`] stands for those
    /// that an AAA server has assigned.
    pub pools: Vec<String>,
    /// Domains that the peer may claim for its name servers, if this host requests addresses.
    #[cfg(feature = "split-dns")]
    pub dns_domains: DomainPolicy,
    /// Whether the SAs may move to other addresses, if the peer supports that (MOBIKE, RFC 4555).
    #[cfg(feature = "mobike")]
    pub mobike: bool,
    /// The gateway to which peers are redirected after their authentication, if they follow redirects (RFC
    /// 5685 section 6).
    #[cfg(feature = "redirect")]
    pub redirect_to: Option<super::Gateway>,
    /// Whether the session of an IKE SA that was lost may be resumed with a ticket (RFC 5723). An initiator
    /// requests tickets, a responder grants and accepts them.
    #[cfg(feature = "resumption")]
    pub resumption: bool,
    /// Which packets are accepted after this host has taken IKE SAs over from another process or host.
    #[cfg(feature = "records")]
    pub replay_takeover: ReplayTakeover,
    /// Post-quantum pre-shared keys (RFC 8784).
    #[cfg(feature = "ppk")]
    pub ppk: super::PpkPolicy,
    /// When ESP is encapsulated in UDP.
    pub encapsulation: Encapsulation,
    /// Time without traffic from the peer after which its liveness is checked; `None` disables the check.
    pub dpd_delay: Option<Duration>,
    /// Fragmentation of long messages (RFC 7383).
    pub fragmentation: Fragmentation,
    /// Whether the path MTU is probed ([`Ike::probe_path_mtu`](crate::Ike::probe_path_mtu)).
    pub path_mtu_probes: bool,
    /// IKE SAs without a first Child SA (RFC 6023).
    pub childless: Childless,
    /// Whether the AUTH payloads cover the IKE_SA_INIT messages of both sides, if the peer supports that
    /// (draft-ietf-ipsecme-ikev2-downgrade-prevention). It prevents downgrade attacks even if the
    /// private key of one of the peers is compromised.
    pub full_transcript_auth: bool,
    /// Number of sequences of requests to a peer that does not respond to IKE_SA_INIT or IKE_AUTH; 0 means
    /// without end. A peer that refuses is not asked again.
    pub keying_tries: u32,
    /// Whether an IKE SA that was up is tried again without end, also after a refusal, if a child demands it.
    pub keeps_trying: bool,
    /// Meaning of a second IKE SA with the same peer.
    pub unique: Unique,
    /// Times of rekeying and expiry of the IKE SA.
    pub lifespan: Lifespan,
    /// Time after which the IKE SA is reauthenticated; `None` means never.
    pub reauth: Option<Duration>,
    /// When our certificates are sent.
    pub send_cert: SendCert,
    /// Whether the peer's certificates are requested.
    pub send_certreq: bool,
    /// Whether OCSP responses are requested and sent (RFC 4806).
    #[cfg(feature = "revocation")]
    pub ocsp: OcspInIke,
    /// Limits for the packets of its Child SAs.
    pub packet_limits: PacketLimits,
}

/// Which sequence numbers of the peer this host accepts after it has taken IKE SAs over from another process
/// or host. The former owner accepted packets that it has not recorded, up to the end of its reserve.
#[cfg(feature = "records")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayTakeover {
    /// Numbers above the reserve. The peer is asked to use such numbers (RFC 6311). If it does not support
    /// that, its Child SAs are rekeyed at once.
    Sync,
    /// Numbers above the reserve. Packets of the peer are lost until it has used up the numbers below, or the
    /// Child SA is rekeyed.
    Strict,
    /// Numbers above the highest one that was recorded (RFC 6027 section 3.5). No packet is lost, but a
    /// packet that the former owner accepted after that is accepted again if an attacker repeats it.
    Learn,
}

/// Configured limits for the length of packets to a peer. They apply besides what the host knows of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PacketLimits {
    /// Maximum length in bytes of a protected packet with its outer IP header: the MTU of the path.
    pub mtu: Option<u16>,
    /// Maximum segment size in bytes of TCP connections through the Child SAs. TCP SYNs in both directions
    /// get no larger one (RFC 9293 section 3.7.1).
    pub mss: Option<u16>,
}

impl Connection {
    /// Whether SAs are negotiated for it. A connection may have nothing but traffic that needs no protection.
    pub fn negotiates(&self) -> bool {
        !self.children.is_empty() || self.shunts.is_empty()
    }

    /// Returns a connection from and to any address, with the algorithms of RFC 8247, without Child SAs,
    /// without MOBIKE, and otherwise with the defaults of `swanctl.conf`. Change the fields that should
    /// differ.
    ///
    /// The IKE SA is rekeyed every four hours.
    pub fn new(name: &str, local: LocalAuth, remote: RemoteAuth) -> Self {
        Self {
            name: name.into(),
            local_addrs: vec![AddrPattern::Any],
            remote_addrs: vec![AddrPattern::Any],
            local_port: IKE_PORT,
            remote_port: IKE_PORT,
            proposals: ike_proposals(),
            local,
            remote,
            #[cfg(feature = "eap")]
            further_rounds: super::FurtherRounds::default(),
            children: Vec::new(),
            shunts: Vec::new(),
            vips: Vec::new(),
            pools: Vec::new(),
            #[cfg(feature = "split-dns")]
            dns_domains: DomainPolicy::default(),
            #[cfg(feature = "mobike")]
            mobike: false,
            #[cfg(feature = "redirect")]
            redirect_to: None,
            #[cfg(feature = "resumption")]
            resumption: false,
            #[cfg(feature = "records")]
            replay_takeover: ReplayTakeover::Sync,
            #[cfg(feature = "ppk")]
            ppk: super::PpkPolicy::default(),
            encapsulation: Encapsulation::IfNat,
            dpd_delay: None,
            fragmentation: Fragmentation::Yes,
            path_mtu_probes: false,
            childless: Childless::Allow,
            full_transcript_auth: true,
            keying_tries: 1,
            keeps_trying: false,
            unique: Unique::No,
            lifespan: Lifespan::rekeyed_after(REKEY),
            reauth: None,
            send_cert: SendCert::IfAsked,
            send_certreq: true,
            #[cfg(feature = "revocation")]
            ocsp: OcspInIke::Reply,
            packet_limits: PacketLimits::default(),
        }
    }

    /// Returns a connection with a pre-shared key between these identities.
    pub fn with_shared_key(name: &str, own: Identity, peer: Identity) -> Self {
        let local = LocalAuth { id: Some(own), method: LocalMethod::SharedKey };
        let remote = RemoteAuth { id: IdPattern::Exact(peer), method: RemoteMethod::SharedKey };
        Self::new(name, local, remote)
    }

    /// Addresses and ports of an exchange that this host starts. The peer's address is the first one to which
    /// there is a route. Ours is the first one of the same IP version, if the connection names one; otherwise
    /// the source address on the route.
    pub fn path(&self, lookup: Lookup, routes: &dyn Routes) -> Result<Path, InitiateError> {
        #[cfg(feature = "eap")]
        if self.is_started_by_peer() {
            return Err(InitiateError::OnlyPeer);
        }
        let remote_addrs = single_addrs(&self.remote_addrs, lookup, routes)?;
        let local_addrs = single_addrs(&self.local_addrs, lookup, routes)?;
        let source_for = |remote: IpAddr| {
            let mut configured = local_addrs.iter().filter(|addr| addr.is_ipv4() == remote.is_ipv4());
            configured.next().copied().or_else(|| routes.source_for(remote))
        };
        let mut ends = remote_addrs.iter().filter_map(|remote| Some((source_for(*remote)?, *remote)));
        let (local, remote) = ends.next().ok_or(match remote_addrs.is_empty() {
            true => InitiateError::NoRemoteAddress,
            false => InitiateError::NoRoute,
        })?;
        Ok(Path {
            local: SocketAddr::new(local, self.local_port),
            remote: SocketAddr::new(remote, self.remote_port),
        })
    }

    /// Addresses and ports of an exchange that this host starts with a peer at this address, which the
    /// patterns of the connection allow.
    #[cfg(feature = "any-peer")]
    pub(crate) fn path_to(&self, remote: IpAddr, routes: &dyn Routes) -> Result<Path, InitiateError> {
        #[cfg(feature = "eap")]
        if self.is_started_by_peer() {
            return Err(InitiateError::OnlyPeer);
        }
        if !self.remote_addrs.iter().any(|pattern| pattern.matches(remote, routes)) {
            return Err(InitiateError::NoRemoteAddress);
        }
        let only = AddrPattern::Range(AddrRange::single(remote));
        Self { remote_addrs: Vec::from([only]), ..self.clone() }.path(Lookup::Cached, routes)
    }

    /// Whether the destination of a packet that needs this child is the peer: the child is in transport mode,
    /// and the connection names no single address.
    #[cfg(feature = "any-peer")]
    pub fn takes_peer_of_packet(&self, child: &ChildConfig) -> bool {
        child.mode == super::ChildMode::Transport && !self.remote_addrs.iter().any(AddrPattern::is_single)
    }

    /// Whether only the peer can start IKE SAs: a responder cannot authenticate itself by EAP, unless the
    /// initiator does so, too (RFC 5998).
    #[cfg(feature = "eap")]
    pub fn is_started_by_peer(&self) -> bool {
        let is_eap = |round: &RemoteAuth| matches!(round.method, RemoteMethod::Eap(_));
        let has_eap = is_eap(&self.remote) || self.further_rounds.remote.iter().any(is_eap);
        has_eap && self.mutual_eap_methods().is_empty()
    }

    /// Whether the SAs may move to other addresses (MOBIKE); never without the Cargo feature `mobike`.
    pub const fn may_move(&self) -> bool {
        #[cfg(feature = "mobike")]
        let may_move = self.mobike;
        #[cfg(not(feature = "mobike"))]
        let may_move = false;
        may_move
    }

    /// Whether another sequence of requests follows after `sequences` without a response.
    pub(crate) const fn allows_another_sequence(&self, sequences: u32) -> bool {
        self.keying_tries == 0 || sequences < self.keying_tries
    }

    /// Whether an IKE SA of `other` could have been established by this connection.
    pub fn differs_in_children_only(&self, other: &Self) -> bool {
        let bare =
            |connection: &Self| Self { children: Vec::new(), shunts: Vec::new(), ..connection.clone() };
        bare(self) == bare(other)
    }
}

/// The addresses of the single addresses and hosts among the patterns, in their order. An error if a host was
/// not found and there is no other address.
fn single_addrs(
    patterns: &[AddrPattern],
    lookup: Lookup,
    routes: &dyn Routes,
) -> Result<Vec<IpAddr>, InitiateError> {
    let (mut all, mut has_unknown) = (Vec::new(), false);
    for pattern in patterns {
        match pattern.single_addrs(lookup, routes) {
            HostAddrs::Known(addrs) => all.extend(addrs),
            HostAddrs::Pending => return Err(InitiateError::Pending),
            HostAddrs::Unknown => has_unknown = true,
        }
    }
    if has_unknown && all.is_empty() { Err(InitiateError::UnknownHost) } else { Ok(all) }
}

/// Encapsulation of ESP in UDP (RFC 3948).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encapsulation {
    /// If one of the hosts is behind a NAT.
    IfNat,
    /// Also if the peer is a Casemate with the same value. Its host can send many packets at once in UDP, but
    /// not in ESP alone.
    Auto,
    /// Always, unless the peer does not detect NATs.
    Always,
}

/// Fragmentation of long messages (RFC 7383).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fragmentation {
    /// Neither announced nor used.
    No,
    /// Announced, but our messages are not fragmented.
    Accept,
    /// Announced, and used for long messages if the peer announces it.
    Yes,
}

/// IKE SAs without a first Child SA (RFC 6023).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Childless {
    /// Not announced, and rejected.
    Never,
    /// Announced, and accepted from the peer.
    Allow,
    /// Initiated with peers that announce it.
    Prefer,
    /// Required.
    Force,
}

/// Meaning of a second IKE SA with the same identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unique {
    /// Both stay. INITIAL_CONTACT is ignored.
    Never,
    /// Both stay, unless the peer sends INITIAL_CONTACT (RFC 7296 section 2.4).
    No,
    /// The new IKE SA is rejected.
    Keep,
    /// The old IKE SA is closed.
    Replace,
}

/// A pool of virtual addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// Name.
    pub name: String,
    /// Addresses.
    pub addrs: AddrRange,
    /// Name servers for peers that get an address.
    pub dns: Vec<IpAddr>,
    /// Domains whose names these servers know, sent to peers that support split DNS (RFC 8598). None without
    /// the Cargo feature `split-dns`.
    pub dns_domains: Vec<DomainName>,
    /// Subnets behind this host, sent as INTERNAL_IP4_SUBNET and INTERNAL_IP6_SUBNET. Each is a prefix.
    pub subnets: Vec<AddrRange>,
}

/// Times of rekeying and expiry of an SA, counted from its creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifespan {
    /// Time of rekeying; `None` means never.
    pub rekey: Option<Duration>,
    /// Maximum random time by which rekeying is earlier, so that peers rarely start together (jitter).
    pub jitter: Duration,
    /// Time after which the SA is closed if rekeying has not succeeded.
    pub hard: Option<Duration>,
}

impl Lifespan {
    /// Rekeys after `rekey` minus a jitter of up to a tenth. Expires a tenth later.
    pub fn rekeyed_after(rekey: Duration) -> Self {
        let tenth = rekey.checked_div(10).unwrap_or_default();
        Self { rekey: Some(rekey), jitter: tenth, hard: Some(rekey.saturating_add(tenth)) }
    }

    /// Neither rekeyed nor expired.
    pub const FOREVER: Self = Self { rekey: None, jitter: Duration::ZERO, hard: None };
}
