//! A connection: one entry of the PAD with everything that hangs on it.

use super::{
    AddrPattern, Child, IdPattern, Identity, IkeProposal, Lifespan, LocalAuth, LocalMethod, RemoteAuth,
    RemoteMethod, Shunt, ike_proposals,
};
use crate::{NotBegun, Path};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

/// The UDP port of IKE (RFC 7296 section 2).
const IKE_PORT: u16 = 500;
/// After how long an IKE SA is rekeyed where nothing is said.
const REKEY: Duration = Duration::from_secs(4 * 3_600);

/// With whom, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    /// Its name, unique among connections.
    pub name: String,
    /// Our addresses; the first single one is where an exchange is begun from, otherwise the system chooses. Never empty.
    pub local_addrs: Vec<AddrPattern>,
    /// The peer's addresses; the first single one is where an exchange is begun to. Never empty.
    pub remote_addrs: Vec<AddrPattern>,
    /// Our UDP port; 500 unless configured.
    pub local_port: u16,
    /// The peer's UDP port; 500 unless configured.
    pub remote_port: u16,
    /// Algorithms of the IKE SA, the preferred ones first. Never empty.
    pub proposals: Vec<IkeProposal>,
    /// How we prove who we are.
    pub local: LocalAuth,
    /// How the peer proves who it is.
    pub remote: RemoteAuth,
    /// The Child SAs that there may be.
    pub children: Vec<Arc<Child>>,
    /// Traffic beside them that needs no protection.
    pub shunts: Vec<Shunt>,
    /// Virtual addresses that we ask for; an unspecified one asks for any of its IP version.
    pub vips: Vec<IpAddr>,
    /// Names of the pools from which the peer gets the virtual addresses that it asks for.
    pub pools: Vec<String>,
    /// Encapsulates ESP in UDP even if no NAT was found.
    pub force_encap: bool,
    /// After how long a silence the peer is asked whether it lives; `None` is never.
    pub dpd_delay: Option<Duration>,
    /// Cutting of long messages (RFC 7383).
    pub fragmentation: Fragmentation,
    /// IKE SAs without a first Child SA (RFC 6023).
    pub childless: Childless,
    /// How many sequences of requests are sent to a peer that does not respond to IKE_SA_INIT or IKE_AUTH, until it is given up; 0 is
    /// without end. A peer that refuses is given up at once.
    pub keying_tries: u32,
    /// What a second IKE SA with the same peer means.
    pub unique: Unique,
    /// When the IKE SA is rekeyed, and when it ends.
    pub lifespan: Lifespan,
    /// After how long the IKE SA is made anew from the start, with authentication; `None` is never.
    pub reauth: Option<Duration>,
    /// When our certificates are sent.
    pub send_cert: SendCert,
    /// Whether the peer's are asked for.
    pub send_certreq: bool,
}

impl Connection {
    /// Between these two, from and to any address, with the algorithms of RFC 8247 and without Child SAs. What else there is has
    /// the value that `swanctl.conf` gives it when it says nothing; change the fields that should differ.
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
            children: Vec::new(),
            shunts: Vec::new(),
            vips: Vec::new(),
            pools: Vec::new(),
            force_encap: false,
            dpd_delay: None,
            fragmentation: Fragmentation::Yes,
            childless: Childless::Allow,
            keying_tries: 1,
            unique: Unique::No,
            lifespan: Lifespan::rekeyed_after(REKEY),
            reauth: None,
            send_cert: SendCert::IfAsked,
            send_certreq: true,
        }
    }

    /// Between two with a pre-shared key, each of which has this identity.
    pub fn with_shared_key(name: &str, own: Identity, peer: Identity) -> Self {
        let local = LocalAuth { id: Some(own), method: LocalMethod::SharedKey };
        let remote = RemoteAuth { id: IdPattern::Exactly(peer), method: RemoteMethod::SharedKey };
        Self::new(name, local, remote)
    }

    /// Both ends of an exchange that is begun from here: the first single address of the peer, and of the host the first single address
    /// of the same IP version; if there is none, what `source_for` returns, our address on the way to the peer.
    pub fn path(&self, source_for: impl FnOnce(IpAddr) -> Option<IpAddr>) -> Result<Path, NotBegun> {
        let remote = self.remote_addrs.iter().find_map(|pattern| pattern.single());
        let remote = remote.ok_or(NotBegun::NoRemoteAddress)?;
        let same_version = |addr: &IpAddr| addr.is_ipv4() == remote.is_ipv4();
        let configured = self.local_addrs.iter().filter_map(|pattern| pattern.single()).find(same_version);
        let local = configured.or_else(|| source_for(remote)).ok_or(NotBegun::NoRoute)?;
        Ok(Path {
            local: SocketAddr::new(local, self.local_port),
            remote: SocketAddr::new(remote, self.remote_port),
        })
    }

    /// Whether another sequence of requests follows after `sequences` of them that the peer did not respond to.
    pub(crate) const fn tries_again_after(&self, sequences: u32) -> bool {
        self.keying_tries == 0 || sequences < self.keying_tries
    }

    /// Whether an IKE SA of `other` is one that this connection would have made, too.
    pub fn differs_in_children_only(&self, other: &Self) -> bool {
        let bare =
            |connection: &Self| Self { children: Vec::new(), shunts: Vec::new(), ..connection.clone() };
        bare(self) == bare(other)
    }
}

/// Cutting of long messages (RFC 7383).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fragmentation {
    /// Not announced, not done.
    No,
    /// Announced, but messages of ours stay whole.
    Accept,
    /// Announced, and done if the peer announces it and a message is long.
    Yes,
}

/// IKE SAs without a first Child SA (RFC 6023).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Childless {
    /// Not announced, and refused.
    Never,
    /// Announced, and made when the peer begins so.
    Allow,
    /// Begun so with peers that announce it.
    Prefer,
    /// Only so.
    Force,
}

/// What a new IKE SA with an identity means that has one already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unique {
    /// Nothing, and INITIAL_CONTACT is not heeded.
    Never,
    /// Nothing, unless the peer says INITIAL_CONTACT (RFC 7296 section 2.4).
    No,
    /// The new one is refused.
    Keep,
    /// The old one is closed.
    Replace,
}

/// When certificates are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendCert {
    /// Always.
    Always,
    /// When the peer asks for one.
    IfAsked,
    /// Never.
    Never,
}
