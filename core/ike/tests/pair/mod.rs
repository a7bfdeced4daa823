//! Two engines joined by a simulated wire, in virtual time. `verify/sim` tests whole endpoints on a hostile
//! network; `docs/decisions/0022-ike-harnesses.md` says why the two share no code.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    dead_code,
    reason = "a test may fail, and not every test needs all of it"
)]

use casemate_crypto::{Provider, Providers, Rng, SecretBytes};
use casemate_ike::config::{AddrPattern, ChildConfig, Connection, IdPattern, Identity, Lifespan, Pool};
use casemate_ike::{
    ChildId, ChildUp, Context, Credentials, DownReason, Event, Host, HostAddrs, Ike, IkeSettings, Lookup,
    Path, Routes, SharedKeys, TrafficSelector, TrafficSelectorTemplate, Transmit,
};
use casemate_sa::{AddrRange, Instant, PortRange, Spi};
use casemate_test_support::TestRng;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// The methods of [`Credentials`] that are about certificates, for hosts that have none and trust none.
#[allow(unused_macros, reason = "not every test needs it")]
macro_rules! without_certificates {
    () => {
        fn own_key(
            &self,
            _: &casemate_ike::config::Connection,
            _: &[casemate_ike::AuthorityHash],
        ) -> Option<casemate_ike::OwnKey<'_>> {
            None
        }

        fn authorities(&self, _: &casemate_ike::config::Connection) -> Vec<casemate_ike::AuthorityHash> {
            Vec::new()
        }

        fn verify_peer(
            &self,
            _: &casemate_ike::config::Connection,
            _: &casemate_ike::PeerCertificates<'_>,
            _: &casemate_crypto::Providers<'_>,
        ) -> Result<casemate_crypto::PublicKey, casemate_ike::NotTrusted> {
            Err(casemate_ike::NotTrusted)
        }

        fn accepts_signature(
            &self,
            _: &casemate_ike::config::Connection,
            _: &casemate_ike::config::Identity,
            _: casemate_crypto::SignatureAlg,
        ) -> bool {
            false
        }

        fn signature_algorithms(
            &self,
            _: &casemate_ike::config::Connection,
        ) -> &[casemate_crypto::SignatureAlg] {
            &[]
        }

        fn dn_matches(&self, _: &str, _: &[u8]) -> bool {
            false
        }
    };
}
#[allow(unused_imports, reason = "not every test needs it")]
pub(crate) use without_certificates;

pub(crate) const LEFT: &str = "192.0.2.1";
pub(crate) const RIGHT: &str = "192.0.2.2";

/// Deterministic random generator that records the drawn nonces.
pub(crate) struct RecordingRng {
    rng: TestRng,
    /// Drawn nonces. No other public value has their length.
    pub(crate) nonces: Vec<[u8; 32]>,
}

impl RecordingRng {
    pub(crate) const fn new(seed: u64) -> Self {
        Self { rng: TestRng::new(seed), nonces: vec![] }
    }
}

impl Rng for RecordingRng {
    fn public(&mut self, out: &mut [u8]) {
        self.secret(out);
        self.nonces.extend(<[u8; 32]>::try_from(&*out));
    }

    fn secret(&mut self, out: &mut [u8]) {
        self.rng.secret(out);
    }
}

/// One shared key for all peers.
pub(crate) fn key(bytes: &[u8]) -> SharedKeys {
    SharedKeys::new().with(IdPattern::Any, SecretBytes::new(bytes))
}

/// A data path that only reserves SPIs.
#[derive(Default)]
pub(crate) struct SpiReserver {
    pub(crate) last: u32,
    pub(crate) reserved: Vec<Spi>,
    /// Whether another host has all traffic in transport mode.
    pub(crate) transport_taken: bool,
    /// When the last packet was sent on any Child SA.
    pub(crate) last_outbound: Option<Instant>,
}

impl Host for SpiReserver {
    fn reserve_spi(&mut self, _: &mut dyn Rng) -> Option<Spi> {
        self.last += 1;
        let spi = Spi::new(0x1000 + self.last)?;
        self.reserved.push(spi);
        Some(spi)
    }

    fn release_spi(&mut self, spi: Spi) {
        let at = self.reserved.iter().position(|known| *known == spi).unwrap();
        self.reserved.swap_remove(at);
    }

    fn claim_spi(&mut self, spi: Spi) -> bool {
        let is_free = !self.reserved.contains(&spi);
        if is_free {
            self.reserved.push(spi);
        }
        is_free
    }

    fn last_inbound(&self, _: Spi) -> Option<Instant> {
        None
    }

    fn last_outbound(&self, _: ChildId) -> Option<Instant> {
        self.last_outbound
    }

    fn allows_transport_mode(
        &self,
        _: IpAddr,
        _: Option<u16>,
        _: &[TrafficSelector],
        _: &[TrafficSelector],
        _: &dyn Fn(casemate_ike::ChildId) -> bool,
    ) -> bool {
        !self.transport_taken
    }
}

/// One route to every peer, and one result for every name.
pub(crate) struct OneRoute {
    /// Our address on the route; `None` without a route.
    pub(crate) source: Option<IpAddr>,
    /// MTU of the link.
    pub(crate) link_mtu: Option<usize>,
    /// What is known of a host.
    pub(crate) host: HostAddrs,
    /// An address that this host no longer has.
    pub(crate) lost: Option<IpAddr>,
    /// An address of this host, which cannot be a virtual one.
    pub(crate) own: Option<IpAddr>,
}

impl Default for OneRoute {
    fn default() -> Self {
        Self { source: None, link_mtu: None, host: HostAddrs::Unknown, lost: None, own: None }
    }
}

impl Routes for OneRoute {
    fn source_for(&self, _: IpAddr) -> Option<IpAddr> {
        self.source
    }

    fn has_addr(&self, addr: IpAddr) -> bool {
        self.lost != Some(addr)
    }

    fn can_be_virtual(&self, addr: IpAddr, _: IpAddr) -> bool {
        self.own != Some(addr)
    }

    fn link_mtu(&self, _: IpAddr) -> Option<usize> {
        self.link_mtu
    }

    fn host_addrs(&self, _: &str, _: Lookup) -> HostAddrs {
        self.host.clone()
    }
}

/// One host with its engine.
pub(crate) struct IkePeer {
    pub(crate) ike: Ike,
    pub(crate) addr: IpAddr,
    pub(crate) keys: Box<dyn Credentials>,
    pub(crate) host: SpiReserver,
    pub(crate) routes: OneRoute,
    pub(crate) rng: RecordingRng,
    pub(crate) events: Vec<Event>,
    pub(crate) sent: VecDeque<Transmit>,
    /// Time of the last call of `handle_timeouts`.
    pub(crate) last_timeout: Instant,
}

impl IkePeer {
    pub(crate) fn new(addr: &str, seed: u64, connection: Connection) -> Self {
        Self::with(IkeSettings::SERVER, addr, seed, connection)
    }

    pub(crate) fn with(settings: IkeSettings, addr: &str, seed: u64, connection: Connection) -> Self {
        let mut ike = Ike::new(settings);
        ike.configure(vec![Arc::new(connection)], &[]);
        Self {
            ike,
            addr: addr.parse().unwrap(),
            keys: Box::new(key(b"a key that both have")),
            host: SpiReserver::default(),
            routes: OneRoute::default(),
            rng: RecordingRng::new(seed),
            events: vec![],
            sent: VecDeque::new(),
            last_timeout: Instant::ZERO,
        }
    }

    pub(crate) fn with_context<T>(
        &mut self,
        now: Instant,
        act: impl FnOnce(&mut Ike, &mut dyn Host, &mut Context<'_>) -> T,
    ) -> T {
        let provider: &dyn Provider = &casemate_rustcrypto::RustCrypto;
        let list = [provider];
        let providers = Providers(&list);
        let mut context = Context {
            now,
            unix_time: 0,
            rng: &mut self.rng,
            providers: &providers,
            credentials: &*self.keys,
            routes: &self.routes,
        };
        let done = act(&mut self.ike, &mut self.host, &mut context);
        while let Some(event) = self.ike.next_event() {
            self.events.push(event);
        }
        self.sent.extend(std::iter::from_fn(|| self.ike.next_transmit()));
        done
    }

    /// Handles expired timers.
    pub(crate) fn handle_timeouts(&mut self, now: Instant) {
        self.last_timeout = now;
        self.with_context(now, |ike, host, context| ike.handle_timeouts(host, context));
    }

    pub(crate) fn initiate(&mut self, now: Instant) {
        let connection = self.ike.connections()[0].clone();
        let child = connection.children.first().cloned();
        self.with_context(now, |ike, host, context| {
            ike.initiate(&connection, child.as_ref(), None, host, context)
        })
        .unwrap();
    }

    /// Configures a pool for the connections.
    pub(crate) fn add_pool(&mut self, pool: &Pool) {
        let connections = self.ike.connections().to_vec();
        self.ike.configure(connections, std::slice::from_ref(pool));
    }

    /// Reserved SPIs that belong neither to an installed SA nor to an outstanding request.
    pub(crate) fn leaked_spis(&self) -> Vec<Spi> {
        let used: Vec<Spi> = self.events.iter().filter_map(inbound_spi).collect();
        self.host.reserved.iter().filter(|spi| !used.contains(spi)).copied().collect()
    }

    /// Child SAs that were installed and not removed.
    pub(crate) fn children(&self) -> Vec<ChildUp> {
        let mut children = BTreeMap::new();
        for event in &self.events {
            match event {
                Event::ChildUp(up) => drop(children.insert(up.id, (**up).clone())),
                Event::ChildActive(id) => children.get_mut(id).unwrap().active = true,
                Event::ChildDown { id, .. } => drop(children.remove(id).unwrap()),
                _ => {}
            }
        }
        children.into_values().collect()
    }

    pub(crate) fn down_reasons(&self) -> Vec<DownReason> {
        let down = |event: &Event| match event {
            Event::IkeDown { reason: why, .. } => Some(*why),
            _ => None,
        };
        self.events.iter().filter_map(down).collect()
    }
}

fn inbound_spi(event: &Event) -> Option<Spi> {
    match event {
        Event::ChildUp(up) => Some(up.inbound.spi),
        _ => None,
    }
}

/// Two hosts and the current time.
pub(crate) struct Pair {
    pub(crate) left: IkePeer,
    pub(crate) right: IkePeer,
    pub(crate) now: Instant,
}

impl Pair {
    pub(crate) fn new(left: Connection, right: Connection) -> Self {
        Self {
            left: IkePeer::new(LEFT, 1, left),
            right: IkePeer::new(RIGHT, 2, right),
            now: Instant::from_secs(1_000),
        }
    }

    /// Two hosts with the default connection.
    pub(crate) fn with_defaults() -> Self {
        Self::new(connection("left", "right"), connection("right", "left"))
    }

    /// Delivers messages until no host sends any more.
    pub(crate) fn run(&mut self) {
        for _ in 0..1_000 {
            let from_left: Vec<_> = self.left.sent.drain(..).collect();
            let from_right: Vec<_> = self.right.sent.drain(..).collect();
            if from_left.is_empty() && from_right.is_empty() {
                return;
            }
            from_left.into_iter().for_each(|transmit| deliver(&mut self.right, transmit, self.now));
            from_right.into_iter().for_each(|transmit| deliver(&mut self.left, transmit, self.now));
        }
        panic!("the hosts keep sending");
    }

    /// Delivers the messages that the left host has sent.
    pub(crate) fn deliver_to_right(&mut self) {
        let sent: Vec<_> = self.left.sent.drain(..).collect();
        sent.into_iter().for_each(|transmit| deliver(&mut self.right, transmit, self.now));
    }

    /// Delivers the messages that the right host has sent.
    pub(crate) fn deliver_to_left(&mut self) {
        let sent: Vec<_> = self.right.sent.drain(..).collect();
        sent.into_iter().for_each(|transmit| deliver(&mut self.left, transmit, self.now));
    }

    /// Advances the time second by second.
    pub(crate) fn advance(&mut self, time: Duration) {
        for _ in 0..time.as_secs() {
            self.now = self.now.after(Duration::from_secs(1));
            let now = self.now;
            self.left.handle_timeouts(now);
            self.right.handle_timeouts(now);
            self.run();
        }
    }

    /// Checks that both hosts have the same Child SAs with matching keys.
    pub(crate) fn check_children(&self, expected: usize) {
        let (left, right) = (self.left.children(), self.right.children());
        assert_eq!((left.len(), right.len()), (expected, expected));
        for up in &left {
            let other = right.iter().find(|other| other.inbound.spi == up.outbound.spi).unwrap();
            assert_eq!(other.inbound.transform, up.outbound.transform);
            assert_eq!(other.outbound.transform, up.inbound.transform);
            assert_eq!((&other.local, &other.remote), (&up.remote, &up.local));
            assert_eq!((other.suite, other.inbound.mode), (up.suite, up.inbound.mode));
        }
    }
}

pub(crate) fn deliver(to: &mut IkePeer, transmit: Transmit, now: Instant) {
    let Transmit { path, mut message, .. } = transmit;
    if message.is_empty() {
        return;
    }
    let path = Path { local: path.remote, remote: path.local };
    to.with_context(now, |ike, host, context| ike.receive(&mut message, path, host, context));
}

pub(crate) fn connection(own: &str, peer: &str) -> Connection {
    let net = |name: &str| match name {
        "left" => "10.1.0.0",
        _ => "10.2.0.0",
    };
    let range = |name: &str| AddrRange::prefix(net(name).parse().unwrap(), 16).unwrap();
    let ts = |name: &str| {
        vec![TrafficSelectorTemplate { addrs: Some(range(name)), proto: None, ports: PortRange::ANY }]
    };
    let addr = |name: &str| {
        let addr = if name == "left" { LEFT } else { RIGHT };
        vec![AddrPattern::Range(AddrRange::single(addr.parse().unwrap()))]
    };
    let named = |name: &str| Identity::Fqdn(name.into());
    Connection {
        local_addrs: addr(own),
        remote_addrs: addr(peer),
        children: vec![Arc::new(child(ts(own), ts(peer)))],
        lifespan: Lifespan::FOREVER,
        ..Connection::with_shared_key(own, named(own), named(peer))
    }
}

pub(crate) fn child(
    local_ts: Vec<TrafficSelectorTemplate>,
    remote_ts: Vec<TrafficSelectorTemplate>,
) -> ChildConfig {
    ChildConfig { local_ts, remote_ts, lifespan: Lifespan::FOREVER, ..ChildConfig::new("net") }
}

/// A left connection that requests virtual addresses, and a right one with a pool that begins with 10.9.0.1.
pub(crate) fn with_pool(last: &str, vips: &[&str]) -> (Connection, Connection, Pool) {
    let mut left = connection("left", "right");
    left.vips = vips.iter().map(|vip| vip.parse().unwrap()).collect();
    let mut right = connection("right", "left");
    right.pools = vec!["pool".into()];
    let everything =
        TrafficSelectorTemplate { addrs: Some(AddrRange::ANY_V4), proto: None, ports: PortRange::ANY };
    let forever = |local, remote| vec![Arc::new(child(vec![local], vec![remote]))];
    left.children = forever(TrafficSelectorTemplate::DYNAMIC, everything);
    right.children = forever(everything, TrafficSelectorTemplate::DYNAMIC);
    let addrs = AddrRange::new("10.9.0.1".parse().unwrap(), last.parse().unwrap()).unwrap();
    let dns = vec!["10.9.9.9".parse().unwrap()];
    (left, right, Pool { name: "pool".into(), addrs, dns, dns_domains: vec![], subnets: vec![] })
}
