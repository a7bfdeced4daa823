//! Traps with the default values of `local_addrs` (`%any`) and `local_ts` (`dynamic`): nothing passes in clear.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

mod common;

use casemate::{Datapath, Endpoint, HoldError, Means, Notice, Routes};
use casemate_crypto::{Provider, Providers, SecretBytes};
use casemate_datapath::{Config, Direction, DropReason, Outbound};
use casemate_ike::config::{AddrPattern, Child, Connection, IdPattern, Identity, Start};
use casemate_ike::{Event, NotBegun, Settings, SharedKeys, TrafficTemplate};
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_sa::{AddrRange, Instant};
use common::{Dice, OWN, PEER, only, send, send_v6};
use std::cell::Cell;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

const MOVED: [u8; 4] = [192, 0, 2, 9];
const INSIDE: [u8; 4] = [10, 1, 0, 1];

/// The address of this host on the way to every peer.
struct Address {
    addr: Option<[u8; 4]>,
    /// Whether the host reports a change each time.
    may_have_changed: bool,
    look_ups: Cell<usize>,
}

impl Address {
    fn new(addr: Option<[u8; 4]>) -> Self {
        Self { addr, may_have_changed: true, look_ups: Cell::new(0) }
    }
}

impl Routes for Address {
    fn source_for(&self, _: IpAddr) -> Option<IpAddr> {
        self.look_ups.set(self.look_ups.get() + 1);
        self.addr.map(IpAddr::from)
    }

    fn may_have_changed(&self) -> bool {
        self.may_have_changed
    }
}

struct Host {
    endpoint: Endpoint,
    address: Address,
    now: Instant,
}

impl Host {
    fn new(address: Option<[u8; 4]>, connection: Connection) -> Self {
        let datapath = Datapath::new(Config::server(1));
        let endpoint = Endpoint::new(datapath, Settings::DEVICE);
        let mut host = Self { endpoint, address: Address::new(address), now: Instant::from_secs(1) };
        host.act(|endpoint, means| endpoint.configure(vec![Arc::new(connection)], &[], means)).unwrap();
        host
    }

    fn act<R>(&mut self, act: impl FnOnce(&mut Endpoint, &mut Means<'_>) -> R) -> R {
        let list: [&dyn Provider; 1] = [&RUSTCRYPTO];
        let mut means = Means {
            now: self.now,
            unix_time: 0,
            rng: &mut Dice(1),
            providers: &Providers(&list),
            credentials: &SharedKeys::new().with(IdPattern::Any, SecretBytes::new(b"a secret of both")),
            routes: &self.address,
        };
        act(&mut self.endpoint, &mut means)
    }

    /// Whether a packet is held back: it is neither sent nor passed in clear.
    fn holds(&mut self, from: [u8; 4], to: [u8; 4]) -> bool {
        let verdict = send(&mut self.endpoint, self.now, (from, to));
        matches!(verdict, Outbound::Drop(DropReason::NoOutboundSa))
    }

    /// Whether IKE has begun, after what packets asked for was heard.
    fn has_begun(&mut self) -> bool {
        self.act(Endpoint::serve);
        self.endpoint.ike().counts().0 == 1
    }

    fn holds_v6(&mut self, from: [u8; 16], to: [u8; 16]) -> bool {
        let verdict = send_v6(&mut self.endpoint, self.now, (from, to));
        matches!(verdict, Outbound::Drop(DropReason::NoOutboundSa))
    }

    fn policies(&self) -> usize {
        self.endpoint.datapath().policies(Direction::Outbound).count()
    }
}

/// With a trap, and the local side as it is when nothing is said.
fn trap(remote: Option<[u8; 4]>) -> Connection {
    let identity = |name: &str| Identity::Fqdn(name.into());
    let mut connection = Connection::with_shared_key("peer", identity("own"), identity("peer"));
    connection.remote_addrs = only(PEER);
    let start = Start { on_traffic: true, at_once: false };
    let mut child = Child { start, ..Child::new("all") };
    if let Some(remote) = remote {
        let addrs = Some(AddrRange::single(remote.into()));
        child.remote_ts = vec![TrafficTemplate { addrs, ..TrafficTemplate::DYNAMIC }];
    }
    connection.children = vec![Arc::new(child)];
    connection
}

#[test]
fn the_local_side_is_the_address_on_the_way_to_the_peer() {
    let mut host = Host::new(Some(OWN), trap(None));
    assert!(host.holds(OWN, PEER));
    assert!(!host.holds(MOVED, PEER), "no address of this host: not its traffic");
    assert!(host.has_begun());
}

#[test]
fn of_several_local_addresses_that_of_the_peers_ip_version_counts() {
    let mut connection = trap(None);
    connection.local_addrs.clear();
    let v6 = AddrRange::single("2001:db8::1".parse().unwrap());
    connection.local_addrs = vec![AddrPattern::Range(v6)];
    connection.local_addrs.extend(only(OWN));
    assert!(Host::new(None, connection).holds(OWN, PEER));
}

#[test]
fn a_road_warrior_without_an_address_holds_packets_from_every_address() {
    for vip in ["0.0.0.0", "10.3.0.1"] {
        let connection = Connection { vips: vec![vip.parse().unwrap()], ..trap(Some(INSIDE)) };
        let mut host = Host::new(Some(OWN), connection);
        assert!(host.holds(OWN, INSIDE) && host.holds(MOVED, INSIDE) && host.holds([10, 3, 0, 1], INSIDE));
        assert!(!host.holds(OWN, PEER), "not the traffic of the child");
        assert!(host.has_begun());
    }
}

#[test]
fn without_a_route_packets_are_held_and_the_log_is_told() {
    for remote in [None, Some(INSIDE)] {
        let mut host = Host::new(None, trap(remote));
        assert!(host.holds(OWN, remote.unwrap_or(PEER)));
        assert!(!host.has_begun());
        let notices: Vec<Notice> = std::iter::from_fn(|| host.endpoint.next_notice()).collect();
        let is_told =
            |notice: &Notice| matches!(notice, Notice::Ike(Event::NotBegun { error: NotBegun::NoRoute, .. }));
        assert!(notices.iter().any(is_told), "{notices:?}");
    }
}

#[test]
fn without_an_address_of_the_peer_packets_are_held_and_the_log_is_told() {
    let connection = Connection { remote_addrs: vec![AddrPattern::Any], ..trap(Some(INSIDE)) };
    let mut host = Host::new(Some(OWN), connection);
    assert!(host.holds(OWN, INSIDE));
    assert!(!host.has_begun());
    let mut notices = std::iter::from_fn(|| host.endpoint.next_notice());
    let is_told = |notice: Notice| {
        matches!(notice, Notice::Ike(Event::NotBegun { error: NotBegun::NoRemoteAddress, .. }))
    };
    assert!(notices.any(is_told));
}

#[test]
fn a_trap_follows_the_address() {
    let mut host = Host::new(Some(OWN), trap(None));
    let before = host.policies();
    for address in [Some(MOVED), None, Some(OWN)] {
        host.address = Address::new(address);
        host.now = host.now.after(Duration::from_secs(2));
        assert!(host.endpoint.due().is_some_and(|due| due <= host.now));
        host.act(Endpoint::serve);
        assert!(host.holds(address.unwrap_or(MOVED), PEER), "{address:?}");
    }
    assert_eq!(host.policies(), before);
    assert!(host.has_begun());
    // At once if the host says so.
    host.address = Address::new(Some(MOVED));
    host.endpoint.note_routes();
    host.act(Endpoint::serve);
    assert!(host.holds(MOVED, PEER) && !host.holds(OWN, PEER));
}

/// A look-up is several system calls for each trap, and packets wait for it.
#[test]
fn without_a_change_there_are_few_look_ups() {
    let mut host = Host::new(Some(OWN), trap(None));
    host.address = Address { may_have_changed: false, ..Address::new(Some(OWN)) };
    for _ in 0..100 {
        host.now = host.now.after(Duration::from_secs(1));
        host.act(Endpoint::serve);
    }
    assert!((3..=5).contains(&host.address.look_ups.get()), "{}", host.address.look_ups.get());
    // A change that was not reported.
    host.address.addr = Some(MOVED);
    host.now = host.now.after(Duration::from_secs(30));
    host.act(Endpoint::serve);
    assert!(host.holds(MOVED, PEER) && !host.holds(OWN, PEER));
    host.address.addr = Some(OWN);
    host.endpoint.note_routes();
    host.act(Endpoint::serve);
    assert!(host.holds(OWN, PEER));
}

#[test]
fn a_reload_from_start_to_trap_holds_packets() {
    let connection = trap(None);
    let mut before = connection.clone();
    before.children = vec![Arc::new(Child { start: Start::default(), ..Child::new("all") })];
    let mut host = Host::new(Some(OWN), before);
    assert!(!host.holds(OWN, PEER));
    host.act(|endpoint, means| endpoint.configure(vec![Arc::new(connection)], &[], means)).unwrap();
    assert!(host.holds(OWN, PEER));
}

const OWN_V6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const INSIDE_V6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

/// The selectors of one address.
fn ts(addr: impl Into<IpAddr>) -> Vec<TrafficTemplate> {
    vec![TrafficTemplate { addrs: Some(AddrRange::single(addr.into())), ..TrafficTemplate::DYNAMIC }]
}

fn with_child(change: impl FnOnce(&mut Child)) -> Connection {
    let mut connection = trap(None);
    let mut child = Child::clone(&connection.children[0]);
    change(&mut child);
    connection.children = vec![Arc::new(child)];
    connection
}

/// The address on the way to the peer is of the peer's IP version. It says nothing of the other one.
#[test]
fn traffic_of_the_other_ip_version_is_held_from_every_address() {
    for remote_ts in [ts(INSIDE_V6), [ts(INSIDE_V6), ts(INSIDE)].concat()] {
        let mixed = remote_ts.len() > 1;
        for address in [Some(OWN), None] {
            let mut connection = with_child(|child| child.remote_ts.clone_from(&remote_ts));
            let mut host = Host::new(address, connection.clone());
            assert!(host.holds_v6(OWN_V6, INSIDE_V6), "{address:?}");
            assert!(!host.holds_v6(INSIDE_V6, OWN_V6), "{address:?}");
            assert_eq!(host.holds(OWN, INSIDE), mixed);
            connection.local_addrs = only(OWN);
            assert!(Host::new(None, connection).holds_v6(OWN_V6, INSIDE_V6));
        }
    }
}

/// After the end of a Child SA the same selectors hold.
#[test]
fn a_trap_without_traffic_is_reported() {
    for connection in [
        with_child(|child| (child.local_ts, child.remote_ts) = (ts(OWN), ts(INSIDE_V6))),
        with_child(|child| child.local_ts = ts(OWN_V6)),
        with_child(|child| (child.local_ts[0].proto, child.remote_ts[0].proto) = (Some(6), Some(17))),
    ] {
        let mut host = Host::new(Some(OWN), connection);
        assert_eq!(host.policies(), 0);
        let mut notices = std::iter::from_fn(|| host.endpoint.next_notice());
        assert!(notices.any(|notice| matches!(notice, Notice::NotHeld { why: HoldError::NoTraffic, .. })));
    }
}
