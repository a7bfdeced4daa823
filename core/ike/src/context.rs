//! Interface to the caller of IKE, and what a step of an IKE SA works with.

use crate::address_pool::AddressPools;
use crate::child_sa::ChildSa;
use crate::config::{Connection, HostAddrs, Lifespan, Lookup};
use crate::cookie::CookieSecrets;
use crate::crash_token::{Token, TokenMaker};
use crate::diagnosis::{Explain, ExplanationSlot, SharedExplanation};
use crate::engine::connection_table::ConnectionTable;
use crate::engine::effects::Effect;
use crate::engine::peer_index::PeerIndex;
use crate::engine::response_cache::ResponseCache;
use crate::engine::retries::RetryQueue;
use crate::engine::unprotected::UnprotectedLimits;
use crate::negotiate::Offer;
use crate::state::{AssignedAddrs, ProbePath, SaCommon};
use crate::{
    ChildId, Credentials, DownReason, Event, FaultCounters, IkeSaId, IkeSettings, IkeSpis, PeerFault,
    StateFault, TrafficSelector,
};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_crypto::{KexError, KexMethod, Providers, Rng, SecretBytes};
use casemate_sa::table::OrderedMap;
use casemate_sa::{Instant, Spi};
use casemate_wire::ike::{ExchangeType, IkeSpi, Sa};
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

/// What the caller of an operation provides: time, random numbers, algorithms, keys and routes.
pub struct Context<'c> {
    /// Current time.
    pub now: Instant,
    /// Seconds since 1970, for certificates.
    pub unix_time: u64,
    /// Random generator.
    pub rng: &'c mut dyn Rng,
    /// Cryptographic algorithms.
    pub providers: &'c Providers<'c>,
    /// Keys and certificates.
    pub credentials: &'c dyn Credentials,
    /// Routes of the host.
    pub routes: &'c dyn Routes,
}

/// Routes of the host.
pub trait Routes {
    /// The local source address for `remote`, if there is a route.
    fn source_for(&self, remote: IpAddr) -> Option<IpAddr>;

    /// Whether this host still has an address, on an interface that is switched on. The default is for hosts
    /// whose configured addresses stay.
    fn has_addr(&self, _addr: IpAddr) -> bool {
        true
    }

    /// Whether this host can take `addr` as a virtual address on an IKE SA with `peer`: the host does not
    /// have it, and it is not the router to the peer. The default is for hosts that know neither.
    fn can_be_virtual(&self, _addr: IpAddr, _peer: IpAddr) -> bool {
        true
    }

    /// Whether addresses or routes may have changed since the last call. Traps follow them. A host with
    /// notifications of changes returns `false` if there was none, which saves a look-up per trap and second.
    fn may_have_changed(&self) -> bool {
        true
    }

    /// MTU of the link towards `remote` in bytes, outer headers included; `None` if the data path has one
    /// link only.
    fn link_mtu(&self, _remote: IpAddr) -> Option<usize> {
        None
    }

    /// The addresses of a host. Must not wait for a name server: it returns [`HostAddrs::Pending`], and the
    /// caller of the engine reports the end of the look-up with `hosts_resolved`. The default is for hosts
    /// without a resolver, whose connections have no names.
    fn host_addrs(&self, _name: &str, _lookup: Lookup) -> HostAddrs {
        HostAddrs::Unknown
    }
}

/// Addresses and ports of the UDP datagrams of an IKE SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path {
    /// Our address and port. With an unspecified address the system chooses.
    pub local: SocketAddr,
    /// The peer's address and port.
    pub remote: SocketAddr,
}

/// A datagram to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transmit {
    /// Source and destination.
    pub path: Path,
    /// Whether the non-ESP marker, four zero bytes, precedes the message (RFC 7296 section 3.1): on the port
    /// that IKE shares with ESP.
    pub non_esp_marker: bool,
    /// Length in bytes of the IP packet, if the datagram measures the path MTU. Zeros follow the UDP datagram
    /// up to that length. No host or router may fragment the packet (DF in IPv4), whatever the host knows of
    /// the path.
    pub probe_len: Option<u16>,
    /// IKE message. Empty for a NAT keepalive, which is one byte of 0xFF without a marker (RFC 3948 section
    /// 2.3).
    pub message: Vec<u8>,
}

/// Interface of the data path to IKE.
pub trait Host {
    /// Reserves an SPI for an inbound ESP or AH SA. The SPI stays unique until it is released or its SA is
    /// removed. `None` if there is none.
    fn reserve_spi(&mut self, rng: &mut dyn Rng) -> Option<Spi>;

    /// Releases a reserved SPI that will not be used.
    fn release_spi(&mut self, spi: Spi);

    /// Reserves the SPI of an inbound SA that is restored; `false` if it is in use. The default is for hosts
    /// that restore none.
    fn claim_spi(&mut self, _spi: Spi) -> bool {
        false
    }

    /// Time at which the inbound SA with this SPI last received an authentic packet.
    fn last_inbound(&self, spi: Spi) -> Option<Instant>;

    /// Time at which the outbound SA of a Child SA last sent a packet; `None` if it never did.
    fn last_outbound(&self, _child: ChildId) -> Option<Instant> {
        None
    }

    /// Whether a Child SA in transport mode may carry the traffic between `local` and `remote` with a peer at
    /// an address. `encap_port` is the peer's UDP port if there is a NAT. The answer is no if another host,
    /// behind the NAT or the NAT itself, has that traffic: the data path could not tell the two apart (RFC
    /// 3948 section 5.2). A Child SA for which `is_ignored` returns `true` does not count: it belongs to the
    /// requester or is about to be closed.
    fn allows_transport_mode(
        &self,
        _peer: IpAddr,
        _encap_port: Option<u16>,
        _local: &[TrafficSelector],
        _remote: &[TrafficSelector],
        _is_ignored: &dyn Fn(ChildId) -> bool,
    ) -> bool {
        true
    }
}

/// State that all IKE SAs share.
pub(crate) struct Shared {
    pub(crate) settings: IkeSettings,
    pub(crate) connections: ConnectionTable,
    pub(crate) pools: AddressPools,
    pub(crate) cookies: CookieSecrets,
    pub(crate) tokens: TokenMaker,
    pub(crate) unprotected: UnprotectedLimits,
    pub(crate) transmits: VecDeque<Transmit>,
    pub(crate) assigned_addrs: AssignedAddrs,
    pub(crate) response_cache: ResponseCache,
    pub(crate) retries: RetryQueue,
    pub(crate) events: VecDeque<Event>,
    pub(crate) faults: FaultCounters,
    /// Builds explanations of faults; `None` unless the caller wants them.
    pub(crate) explainer: Option<&'static dyn Explain>,
    pub(crate) explanation: ExplanationSlot,
    /// Sends path MTU probes; `None` unless the caller wants them.
    pub(crate) path_prober: Option<&'static dyn ProbePath>,
    pub(crate) peers: PeerIndex,
    /// IKE SA of each Child SA.
    pub(crate) child_owners: OrderedMap<ChildId, IkeSaId>,
    pub(crate) scratch: Box<[u8]>,
    pub(crate) report_keys: bool,
    #[cfg(feature = "records")]
    pub(crate) changes: crate::engine::records::Changes,
    pub(crate) last_child_id: u64,
    pub(crate) last_ike_id: u64,
    pub(crate) effects: Vec<Effect>,
    #[cfg(feature = "resumption")]
    pub(crate) resumption: crate::resumption::Resumption,
}

impl Shared {
    pub(crate) fn next_child_id(&mut self) -> ChildId {
        self.last_child_id = self.last_child_id.saturating_add(1);
        ChildId(self.last_child_id)
    }

    /// Assigns Child SAs to an IKE SA.
    pub(crate) fn set_owner(&mut self, children: &[ChildSa], ike: IkeSaId) {
        for child in children {
            self.child_owners.insert(child.id, ike);
        }
    }

    /// Begins a step: the records of the IKE SAs that change in it depend on each other.
    #[cfg(feature = "records")]
    pub(crate) fn begin_step(&mut self) {
        self.changes.begin_step();
    }

    /// Notes that an IKE SA may have changed, or has ended.
    #[cfg(feature = "records")]
    pub(crate) fn note_change(&mut self, ike: IkeSaId) {
        self.changes.note(ike);
    }

    #[cfg(not(feature = "records"))]
    pub(crate) const fn begin_step(&self) {}
    #[cfg(not(feature = "records"))]
    pub(crate) const fn note_change(&self, _ike: IkeSaId) {}

    pub(crate) fn next_ike_id(&mut self) -> IkeSaId {
        self.last_ike_id = self.last_ike_id.saturating_add(1);
        IkeSaId(self.last_ike_id)
    }
}

/// What one step of an IKE SA works with: what the caller provides, the data path, and the state that all IKE
/// SAs share. A step sends messages and reports events through it.
pub(crate) struct Step<'s, 'c> {
    pub(crate) context: &'s mut Context<'c>,
    pub(crate) host: &'s mut dyn Host,
    pub(crate) shared: &'s mut Shared,
}

/// When an SA is rekeyed, and when it expires; `None` for never.
pub(crate) struct Deadlines {
    pub(crate) rekey_at: Option<Instant>,
    pub(crate) expires_at: Option<Instant>,
}

/// A request that was sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Retransmitted {
    pub(crate) exchange: ExchangeType,
    pub(crate) message_id: u32,
    /// Number of retransmissions so far.
    pub(crate) attempt: u32,
    /// Number of retransmissions in all.
    pub(crate) tries: u32,
    /// Time until the next one.
    pub(crate) wait: Duration,
}

/// Result of a key exchange for the responder.
pub(crate) struct KexResponse {
    pub(crate) method: KexMethod,
    /// Our public value.
    pub(crate) public: Vec<u8>,
    /// The shared secret g^ir.
    pub(crate) shared: SecretBytes,
}

impl Step<'_, '_> {
    /// Sends datagrams, with the non-ESP marker on the port shared with ESP (RFC 7296 section 3.1).
    pub(crate) fn send(&mut self, path: Path, datagrams: &[Vec<u8>]) {
        datagrams.iter().for_each(|message| self.transmit(path, message, None));
    }

    /// Sends a datagram in an IP packet of `len` bytes, which measures the path MTU.
    pub(crate) fn send_path_probe(&mut self, path: Path, message: &[u8], len: u16) {
        self.transmit(path, message, Some(len));
    }

    fn transmit(&mut self, path: Path, message: &[u8], probe_len: Option<u16>) {
        let non_esp_marker = path.local.port() == self.shared.settings.natt_port;
        let message = message.to_vec();
        self.shared.transmits.push_back(Transmit { path, non_esp_marker, probe_len, message });
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.shared.events.push_back(event);
    }

    /// Reports the end of a Child SA. `origin` is the origin of its IKE SA.
    pub(crate) fn child_down(&mut self, id: ChildId, reason: DownReason, origin: IkeSaId) {
        self.shared.child_owners.remove(id);
        self.event(Event::ChildDown { id, reason, origin });
    }

    pub(crate) fn effect(&mut self, effect: Effect) {
        self.shared.effects.push(effect);
    }

    /// Counts and reports a fault of a peer whose connection is unknown.
    pub(crate) fn fault(&mut self, fault: PeerFault, path: Path) {
        self.report_fault(fault, path, None);
    }

    /// Counts and reports a fault of the peer of an IKE SA.
    pub(crate) fn sa_fault(&mut self, fault: PeerFault, path: Path, common: &SaCommon) {
        self.report_fault(fault, path, Some(common.connection.clone()));
    }

    fn report_fault(&mut self, fault: PeerFault, path: Path, connection: Option<Arc<Connection>>) {
        self.shared.faults.count(fault);
        let explanation = match fault {
            PeerFault::State(fault) => self.shared.explanation.take(fault),
            PeerFault::Wire(_) => None,
        };
        self.event(Event::Fault { fault, path, connection, explanation });
    }

    /// Reports that a request of an IKE SA was sent again.
    pub(crate) fn retransmitted(&mut self, common: &SaCommon, retransmitted: Retransmitted) {
        let Retransmitted { exchange, message_id, attempt, tries, wait } = retransmitted;
        self.event(Event::Retransmitted {
            ike: common.id,
            connection: common.connection.clone(),
            path: common.path,
            exchange,
            message_id,
            attempt,
            tries,
            wait,
        });
    }

    /// Builds the explanation of a fault that this step is about to report, if explanations are wanted.
    pub(crate) fn explain(
        &mut self,
        fault: StateFault,
        is_authenticated: bool,
        build: impl FnOnce(&dyn Explain, &Self) -> Option<SharedExplanation>,
    ) {
        let Some(explainer) = self.shared.explainer(self.context.now, is_authenticated) else { return };
        if let Some(explanation) = build(explainer, self) {
            self.shared.explanation.set(fault, explanation);
        }
    }

    /// Explains a fault of proposals for an IKE SA: those that the peer sent, and ours. One function for all
    /// callers, so that devices contain its code once.
    #[inline(never)]
    pub(crate) fn explain_proposals(
        &mut self,
        fault: StateFault,
        is_authenticated: bool,
        received: &Sa<'_>,
        own: &[Offer],
    ) {
        self.explain(fault, is_authenticated, |explainer, _| Some(explainer.proposals(fault, received, own)));
    }

    /// Returns a nonce of 32 bytes (RFC 7296 section 2.10: at least half the key length of the PRF; the
    /// longest key has 64 bytes).
    pub(crate) fn nonce(&mut self) -> Vec<u8> {
        let mut nonce = [0; 32];
        self.context.rng.public(&mut nonce);
        nonce.into()
    }

    /// Performs a key exchange as the responder. `peer` is the public value of the initiator.
    pub(crate) fn respond_to_kex(
        &mut self,
        method: KexMethod,
        peer: &[u8],
    ) -> Result<KexResponse, StateFault> {
        let made = self.context.providers.kex_response(method, peer, self.context.rng);
        let casemate_crypto::KexResponse { public, shared } = made.map_err(|why| match why {
            KexError::Key(_) | KexError::Failed => StateFault::Provider,
            _ => StateFault::KeValue,
        })?;
        Ok(KexResponse { method, public, shared })
    }

    /// Our token for an IKE SA with these SPIs (RFC 6290); `None` without a secret.
    pub(crate) fn crash_token(&self, spis: IkeSpis) -> Option<Token> {
        self.shared.tokens.make(spis, self.context.providers)
    }

    /// Returns an SPI for an IKE SA, never zero. 64 random bits do not collide by chance.
    pub(crate) fn ike_spi(&mut self) -> IkeSpi {
        IkeSpi(random_u64(self.context.rng).max(1))
    }

    /// Deadlines of a lifespan that begins at `now`.
    pub(crate) fn deadlines(&mut self, span: &Lifespan, now: Instant) -> Deadlines {
        let early = random_below(self.context.rng, span.jitter);
        Deadlines {
            rekey_at: span.rekey.map(|rekey| now.after(rekey.saturating_sub(early))),
            expires_at: span.hard.map(|hard| now.after(hard)),
        }
    }
}

fn random_u64(rng: &mut dyn Rng) -> u64 {
    let mut bytes = [0; 8];
    rng.public(&mut bytes);
    u64::from_be_bytes(bytes)
}

/// Returns a random duration up to `limit`. The modulo bias is irrelevant.
pub(crate) fn random_below(rng: &mut dyn Rng, limit: Duration) -> Duration {
    let limit = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(random_u64(rng).checked_rem(limit.saturating_add(1)).unwrap_or(0))
}
