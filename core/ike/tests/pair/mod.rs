//! Two engines with a wire between them, in virtual time. Whole endpoints on a hostile network are in `verify/sim`; why these two
//! share nothing is in `docs/decisions/0022-ike-harnesses.md`.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    dead_code,
    reason = "a test may fail, and not every test needs all of it"
)]

use casemate_crypto::{Provider, Providers, Rng, SecretBytes};
use casemate_ike::config::{AddrPattern, Child, Connection, IdPattern, Identity, Lifespan, Pool};
use casemate_ike::{
    ChildUp, Down, Env, Event, Host, Ike, Path, Settings, SharedKeys, Traffic, TrafficTemplate, Transmit,
};
use casemate_sa::{AddrRange, Instant, PortRange, Spi};
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const LEFT: &str = "192.0.2.1";
pub(crate) const RIGHT: &str = "192.0.2.2";

/// Random enough, and the same each time.
pub(crate) struct Dice {
    state: u64,
    /// The nonces that were drawn: nothing else that is public has their length.
    pub(crate) nonces: Vec<[u8; 32]>,
}

impl Dice {
    pub(crate) const fn new(seed: u64) -> Self {
        Self { state: seed, nonces: vec![] }
    }
}

impl Rng for Dice {
    fn public(&mut self, out: &mut [u8]) {
        self.secret(out);
        self.nonces.extend(<[u8; 32]>::try_from(&*out));
    }

    fn secret(&mut self, out: &mut [u8]) {
        for byte in out {
            // splitmix64
            self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = self.state;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            *byte = (z ^ (z >> 31)) as u8;
        }
    }
}

/// One key for everybody.
pub(crate) fn key(bytes: &[u8]) -> SharedKeys {
    SharedKeys::new().with(IdPattern::Any, SecretBytes::new(bytes))
}

/// SPIs, and nothing else.
#[derive(Default)]
pub(crate) struct Spis {
    pub(crate) last: u32,
    pub(crate) reserved: Vec<Spi>,
    /// Our address on the way to anybody, if there is a way.
    pub(crate) source: Option<IpAddr>,
    /// Whether another host has all traffic in transport mode.
    pub(crate) is_taken: bool,
}

impl Host for Spis {
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

    fn last_inbound(&self, _: Spi) -> Option<Instant> {
        None
    }

    fn source_for(&self, _: IpAddr) -> Option<IpAddr> {
        self.source
    }

    fn allows_transport(
        &self,
        _: (IpAddr, Option<u16>),
        _: &[Traffic],
        _: &[Traffic],
        _: &dyn Fn(casemate_ike::ChildId) -> bool,
    ) -> bool {
        !self.is_taken
    }
}

/// One side.
pub(crate) struct Side {
    pub(crate) ike: Ike,
    pub(crate) addr: IpAddr,
    pub(crate) keys: SharedKeys,
    pub(crate) host: Spis,
    pub(crate) dice: Dice,
    pub(crate) events: Vec<Event>,
    pub(crate) sent: VecDeque<Transmit>,
    /// When it last did what was due.
    pub(crate) ticked: Instant,
}

impl Side {
    pub(crate) fn new(addr: &str, seed: u64, connection: Connection) -> Self {
        Self::with(Settings::SERVER, addr, seed, connection)
    }

    pub(crate) fn with(settings: Settings, addr: &str, seed: u64, connection: Connection) -> Self {
        let mut ike = Ike::new(settings);
        ike.configure(vec![Arc::new(connection)], &[]);
        Self {
            ike,
            addr: addr.parse().unwrap(),
            keys: key(b"a key that both have"),
            host: Spis::default(),
            dice: Dice::new(seed),
            events: vec![],
            sent: VecDeque::new(),
            ticked: Instant::ZERO,
        }
    }

    pub(crate) fn with_env<T>(&mut self, now: Instant, act: impl FnOnce(&mut Ike, &mut Env<'_>) -> T) -> T {
        let provider: &dyn Provider = &casemate_rustcrypto::RustCrypto;
        let list = [provider];
        let providers = Providers(&list);
        let mut env = Env {
            now,
            unix_time: 0,
            rng: &mut self.dice,
            providers: &providers,
            credentials: &self.keys,
            host: &mut self.host,
        };
        let done = act(&mut self.ike, &mut env);
        while let Some(event) = self.ike.next_event() {
            self.events.push(event);
        }
        self.sent.extend(std::iter::from_fn(|| self.ike.next_transmit()));
        done
    }

    /// Does what is due.
    pub(crate) fn tick(&mut self, now: Instant) {
        self.ticked = now;
        self.with_env(now, |ike, env| ike.tick(env));
    }

    pub(crate) fn initiate(&mut self, now: Instant) {
        let connection = self.ike.connections()[0].clone();
        let child = connection.children.first().cloned();
        self.with_env(now, |ike, env| ike.initiate(&connection, child.as_ref(), None, env)).unwrap();
    }

    /// Has a pool for its connections.
    pub(crate) fn lend(&mut self, pool: &Pool) {
        let connections = self.ike.connections().to_vec();
        self.ike.configure(connections, std::slice::from_ref(pool));
    }

    /// SPIs that are reserved, and neither an installed SA's nor asked for in a request that is on its way.
    pub(crate) fn leaked(&self) -> Vec<Spi> {
        let used: Vec<Spi> = self.events.iter().filter_map(inbound_spi).collect();
        self.host.reserved.iter().filter(|spi| !used.contains(spi)).copied().collect()
    }

    /// The Child SAs that were installed and not removed.
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

    pub(crate) fn downs(&self) -> Vec<Down> {
        let down = |event: &Event| match event {
            Event::IkeDown { why, .. } => Some(*why),
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

/// Both sides, and the time.
pub(crate) struct Pair {
    pub(crate) left: Side,
    pub(crate) right: Side,
    pub(crate) now: Instant,
}

impl Pair {
    pub(crate) fn new(left: Connection, right: Connection) -> Self {
        Self {
            left: Side::new(LEFT, 1, left),
            right: Side::new(RIGHT, 2, right),
            now: Instant::from_secs(1_000),
        }
    }

    /// The usual two.
    pub(crate) fn usual() -> Self {
        Self::new(connection("left", "right"), connection("right", "left"))
    }

    /// Delivers everything until nobody has anything to say.
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
        panic!("they never stop talking");
    }

    /// Delivers what the left side has sent.
    pub(crate) fn right_takes_all(&mut self) {
        let sent: Vec<_> = self.left.sent.drain(..).collect();
        sent.into_iter().for_each(|transmit| deliver(&mut self.right, transmit, self.now));
    }

    /// Delivers what the right side has sent.
    pub(crate) fn left_takes_all(&mut self) {
        let sent: Vec<_> = self.right.sent.drain(..).collect();
        sent.into_iter().for_each(|transmit| deliver(&mut self.left, transmit, self.now));
    }

    /// Lets time pass second by second.
    pub(crate) fn pass(&mut self, time: Duration) {
        for _ in 0..time.as_secs() {
            self.now = self.now.after(Duration::from_secs(1));
            let now = self.now;
            self.left.tick(now);
            self.right.tick(now);
            self.run();
        }
    }

    /// Both sides have the same Child SAs, and the keys fit.
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

pub(crate) fn deliver(to: &mut Side, transmit: Transmit, now: Instant) {
    let Transmit { path, mut message, .. } = transmit;
    if message.is_empty() {
        return;
    }
    let path = Path { local: path.remote, remote: path.local };
    to.with_env(now, |ike, env| ike.receive(&mut message, path, env));
}

pub(crate) fn connection(own: &str, peer: &str) -> Connection {
    let net = |name: &str| match name {
        "left" => "10.1.0.0",
        _ => "10.2.0.0",
    };
    let range = |name: &str| AddrRange::prefix(net(name).parse().unwrap(), 16).unwrap();
    let ts =
        |name: &str| vec![TrafficTemplate { addrs: Some(range(name)), proto: None, ports: PortRange::ANY }];
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

pub(crate) fn child(local_ts: Vec<TrafficTemplate>, remote_ts: Vec<TrafficTemplate>) -> Child {
    Child { local_ts, remote_ts, lifespan: Lifespan::FOREVER, ..Child::new("net") }
}

/// The left side asks for virtual addresses from the pool of the right side, which begins with 10.9.0.1.
pub(crate) fn with_pool(last: &str, vips: &[&str]) -> (Connection, Connection, Pool) {
    let mut left = connection("left", "right");
    left.vips = vips.iter().map(|vip| vip.parse().unwrap()).collect();
    let mut right = connection("right", "left");
    right.pools = vec!["pool".into()];
    let everything = TrafficTemplate { addrs: Some(AddrRange::ANY_V4), proto: None, ports: PortRange::ANY };
    let forever = |local, remote| vec![Arc::new(child(vec![local], vec![remote]))];
    left.children = forever(TrafficTemplate::DYNAMIC, everything);
    right.children = forever(everything, TrafficTemplate::DYNAMIC);
    let addrs = AddrRange::new("10.9.0.1".parse().unwrap(), last.parse().unwrap()).unwrap();
    let dns = vec!["10.9.9.9".parse().unwrap()];
    (left, right, Pool { name: "pool".into(), addrs, dns, subnets: vec![] })
}
