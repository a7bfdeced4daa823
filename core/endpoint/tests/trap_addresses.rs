//! Traps with the defaults of `local_addrs` (`%any`) and `local_ts` (`dynamic`): no packet passes in clear.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

mod common;

use casemate::{Context, Datapath, Endpoint, Notice, Routes, TrapError};
use casemate_crypto::{Provider, Providers, SecretBytes};
use casemate_datapath::{Config, Direction, DropReason, Outbound};
use casemate_ike::config::{AddrPattern, ChildConfig, Connection, IdPattern, Identity, StartAction};
use casemate_ike::{
    Event, HostAddrs, IkeSettings, InitiateError, Lookup, SharedKeys, TrafficSelectorTemplate,
};
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_sa::{AddrRange, Instant, Limits};
use casemate_test_support::TestRng;
use common::{OWN, PEER, only, send, send_v6};
use std::cell::Cell;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

const MOVED: [u8; 4] = [192, 0, 2, 9];
const INSIDE: [u8; 4] = [10, 1, 0, 1];

/// The source address of this host towards every peer.
struct OwnAddress {
    addr: Option<[u8; 4]>,
    /// The addresses of every name.
    named: Vec<IpAddr>,
    /// Whether the host reports a change with each call.
    may_have_changed: bool,
    look_ups: Cell<usize>,
}

impl OwnAddress {
    fn new(addr: Option<[u8; 4]>) -> Self {
        Self { addr, named: Vec::new(), may_have_changed: true, look_ups: Cell::new(0) }
    }
}

impl Routes for OwnAddress {
    fn source_for(&self, _: IpAddr) -> Option<IpAddr> {
        self.look_ups.set(self.look_ups.get() + 1);
        self.addr.map(IpAddr::from)
    }

    fn may_have_changed(&self) -> bool {
        self.may_have_changed
    }

    fn host_addrs(&self, _: &str, _: Lookup) -> HostAddrs {
        if self.named.is_empty() { HostAddrs::Unknown } else { HostAddrs::Known(self.named.clone()) }
    }
}

struct TrappingHost {
    endpoint: Endpoint,
    address: OwnAddress,
    now: Instant,
}

impl TrappingHost {
    fn new(address: Option<[u8; 4]>, connection: Connection) -> Self {
        Self::with_config(address, connection, Config::server(1))
    }

    fn with_config(address: Option<[u8; 4]>, connection: Connection, config: Config) -> Self {
        let datapath = Datapath::new(config);
        let endpoint = Endpoint::new(datapath, IkeSettings::DEVICE);
        let mut host = Self { endpoint, address: OwnAddress::new(address), now: Instant::from_secs(1) };
        host.act(|endpoint, context| endpoint.configure(vec![Arc::new(connection)], &[], context)).unwrap();
        host
    }

    fn act<R>(&mut self, act: impl FnOnce(&mut Endpoint, &mut Context<'_>) -> R) -> R {
        let list: [&dyn Provider; 1] = [&RUSTCRYPTO];
        let mut context = Context {
            now: self.now,
            unix_time: 0,
            rng: &mut TestRng::new(1),
            providers: &Providers(&list),
            credentials: &SharedKeys::new().with(IdPattern::Any, SecretBytes::new(b"a secret of both")),
            routes: &self.address,
        };
        act(&mut self.endpoint, &mut context)
    }

    /// Whether a packet is dropped because there is no SA: neither sent nor passed in clear.
    fn traps(&mut self, from: [u8; 4], to: [u8; 4]) -> bool {
        let verdict = send(&mut self.endpoint, self.now, from, to);
        matches!(verdict, Outbound::Drop(DropReason::NoOutboundSa))
    }

    /// Whether IKE has initiated after the pending events.
    fn has_begun(&mut self) -> bool {
        self.act(Endpoint::handle_timeouts);
        self.endpoint.ike().ike_sa_count() == 1
    }

    fn traps_v6(&mut self, from: [u8; 16], to: [u8; 16]) -> bool {
        let verdict = send_v6(&mut self.endpoint, self.now, from, to);
        matches!(verdict, Outbound::Drop(DropReason::NoOutboundSa))
    }

    fn policies(&self) -> usize {
        self.endpoint.datapath().policies(Direction::Outbound).count()
    }
}

/// A connection with a trap and default values on the local side.
fn trap(remote: Option<[u8; 4]>) -> Connection {
    let identity = |name: &str| Identity::Fqdn(name.into());
    let mut connection = Connection::with_shared_key("peer", identity("own"), identity("peer"));
    connection.remote_addrs = only(PEER);
    let start = StartAction { on_traffic: true, at_once: false };
    let mut child = ChildConfig { start_action: start, ..ChildConfig::new("all") };
    if let Some(remote) = remote {
        let addrs = Some(AddrRange::single(remote.into()));
        child.remote_ts = vec![TrafficSelectorTemplate { addrs, ..TrafficSelectorTemplate::DYNAMIC }];
    }
    connection.children = vec![Arc::new(child)];
    connection
}

#[test]
fn dynamic_local_selector_is_the_source_address() {
    let mut host = TrappingHost::new(Some(OWN), trap(None));
    assert!(host.traps(OWN, PEER));
    assert!(!host.traps(MOVED, PEER), "not an address of this host");
    assert!(host.has_begun());
}

#[test]
fn local_address_has_the_peers_ip_version() {
    let mut connection = trap(None);
    connection.local_addrs.clear();
    let v6 = AddrRange::single("2001:db8::1".parse().unwrap());
    connection.local_addrs = vec![AddrPattern::Range(v6)];
    connection.local_addrs.extend(only(OWN));
    assert!(TrappingHost::new(None, connection).traps(OWN, PEER));
}

#[test]
fn road_warrior_traps_packets_from_every_address() {
    for vip in ["0.0.0.0", "10.3.0.1"] {
        let connection = Connection { vips: vec![vip.parse().unwrap()], ..trap(Some(INSIDE)) };
        let mut host = TrappingHost::new(Some(OWN), connection);
        assert!(host.traps(OWN, INSIDE) && host.traps(MOVED, INSIDE) && host.traps([10, 3, 0, 1], INSIDE));
        assert!(!host.traps(OWN, PEER), "not traffic of the Child SA");
        assert!(host.has_begun());
    }
}

#[test]
fn missing_route_is_reported_and_packets_are_trapped() {
    for remote in [None, Some(INSIDE)] {
        let mut host = TrappingHost::new(None, trap(remote));
        assert!(host.traps(OWN, remote.unwrap_or(PEER)));
        assert!(!host.has_begun());
        let notices: Vec<Notice> = std::iter::from_fn(|| host.endpoint.next_notice()).collect();
        let is_told = |notice: &Notice| {
            matches!(notice, Notice::Ike(Event::InitiateFailed { error: InitiateError::NoRoute, .. }))
        };
        assert!(notices.iter().any(is_told), "{notices:?}");
    }
}

#[test]
fn missing_peer_address_is_reported_and_packets_are_trapped() {
    let connection = Connection { remote_addrs: vec![AddrPattern::Any], ..trap(Some(INSIDE)) };
    let mut host = TrappingHost::new(Some(OWN), connection);
    assert!(host.traps(OWN, INSIDE));
    assert!(!host.has_begun());
    let mut notices = std::iter::from_fn(|| host.endpoint.next_notice());
    let is_told = |notice: Notice| {
        matches!(notice, Notice::Ike(Event::InitiateFailed { error: InitiateError::NoRemoteAddress, .. }))
    };
    assert!(notices.any(is_told));
}

#[test]
fn trap_follows_the_source_address() {
    let mut host = TrappingHost::new(Some(OWN), trap(None));
    let before = host.policies();
    for address in [Some(MOVED), None, Some(OWN)] {
        host.address = OwnAddress::new(address);
        host.now = host.now.after(Duration::from_secs(2));
        assert!(host.endpoint.next_timeout().is_some_and(|due| due <= host.now));
        host.act(Endpoint::handle_timeouts);
        assert!(host.traps(address.unwrap_or(MOVED), PEER), "{address:?}");
    }
    assert_eq!(host.policies(), before);
    assert!(host.has_begun());
    // Immediately if the host reports the change.
    host.address = OwnAddress::new(Some(MOVED));
    host.endpoint.routes_changed();
    host.act(Endpoint::handle_timeouts);
    assert!(host.traps(MOVED, PEER) && !host.traps(OWN, PEER));
}

/// A program stays bound to the former address, whose packets a route still leads here.
#[cfg(feature = "spds")]
#[test]
fn nothing_leaves_in_clear_from_the_former_address_of_a_trap() {
    let pass = Config { unmatched: casemate_datapath::Unmatched::PassClear, ..Config::server(1) };
    let mut host = TrappingHost::with_config(Some(OWN), trap(None), pass);
    let verdict = |host: &mut TrappingHost, from| send(&mut host.endpoint, host.now, from, PEER);
    assert!(matches!(verdict(&mut host, MOVED), Outbound::Bypass), "not an address of a trap");
    for (address, former) in [(Some(MOVED), OWN), (Some(OWN), MOVED)] {
        host.address = OwnAddress::new(address);
        host.endpoint.routes_changed();
        host.act(Endpoint::handle_timeouts);
        assert!(host.traps(address.unwrap(), PEER));
        assert!(matches!(verdict(&mut host, former), Outbound::Drop(DropReason::NoPolicy)), "{former:?}");
    }
    assert!(matches!(verdict(&mut host, INSIDE), Outbound::Bypass), "never an address of a trap");
}

/// The SPD is full before the reload, so the restored trap must not need more policies than before.
#[test]
fn full_spd_restores_a_trap_whose_address_has_become_known() {
    let limits = Limits { policies: 1, ..Limits::DEVICE };
    let mut host = TrappingHost::with_config(None, trap(None), Config { limits, ..Config::server(1) });
    assert_eq!(host.policies(), 1);
    assert!(host.traps(MOVED, PEER), "the address is unknown");
    host.address = OwnAddress::new(Some(OWN));
    let second = Connection { name: "second".into(), ..trap(Some(INSIDE)) };
    let connections = vec![Arc::new(trap(None)), Arc::new(second)];
    assert!(host.act(|endpoint, context| endpoint.configure(connections, &[], context)).is_err());
    assert_eq!(host.policies(), 1);
    assert!(host.traps(OWN, PEER) && host.traps(MOVED, PEER), "it has its former addresses");
}

/// With its new addresses, the restored trap would need more policies than there is room for.
#[test]
fn full_spd_restores_a_trap_whose_peer_has_got_more_addresses() {
    let named = || {
        let mut connection = trap(None);
        connection.remote_addrs = vec![AddrPattern::Host("peer.example.org".into())];
        connection
    };
    let limits = Limits { policies: 1, ..Limits::DEVICE };
    let mut host = TrappingHost::with_config(None, named(), Config { limits, ..Config::server(1) });
    host.address = OwnAddress { named: vec![PEER.into()], ..OwnAddress::new(Some(OWN)) };
    host.act(|endpoint, context| endpoint.configure(vec![Arc::new(named())], &[], context)).unwrap();
    assert!(host.traps(OWN, PEER) && host.policies() == 1);
    host.address.named = vec![MOVED.into(), PEER.into()];
    let second = Connection { name: "second".into(), ..trap(Some(INSIDE)) };
    let connections = vec![Arc::new(named()), Arc::new(second)];
    assert!(host.act(|endpoint, context| endpoint.configure(connections, &[], context)).is_err());
    assert!(host.traps(OWN, PEER), "it still blocks its traffic");
    assert_eq!(host.policies(), 1);
}

/// A look-up costs several system calls for each trap, while packets wait.
#[test]
fn few_look_ups_without_route_changes() {
    let mut host = TrappingHost::new(Some(OWN), trap(None));
    host.address = OwnAddress { may_have_changed: false, ..OwnAddress::new(Some(OWN)) };
    for _ in 0..100 {
        host.now = host.now.after(Duration::from_secs(1));
        host.act(Endpoint::handle_timeouts);
    }
    assert!((3..=5).contains(&host.address.look_ups.get()), "{}", host.address.look_ups.get());
    // A change that was not reported.
    host.address.addr = Some(MOVED);
    host.now = host.now.after(Duration::from_secs(30));
    host.act(Endpoint::handle_timeouts);
    assert!(host.traps(MOVED, PEER) && !host.traps(OWN, PEER));
    host.address.addr = Some(OWN);
    host.endpoint.routes_changed();
    host.act(Endpoint::handle_timeouts);
    assert!(host.traps(OWN, PEER));
}

#[test]
fn reload_from_start_to_trap_traps_packets() {
    let connection = trap(None);
    let mut before = connection.clone();
    before.children =
        vec![Arc::new(ChildConfig { start_action: StartAction::default(), ..ChildConfig::new("all") })];
    let mut host = TrappingHost::new(Some(OWN), before);
    assert!(!host.traps(OWN, PEER));
    host.act(|endpoint, context| endpoint.configure(vec![Arc::new(connection)], &[], context)).unwrap();
    assert!(host.traps(OWN, PEER));
}

const OWN_V6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const INSIDE_V6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

/// A traffic selector of one address.
fn ts(addr: impl Into<IpAddr>) -> Vec<TrafficSelectorTemplate> {
    vec![TrafficSelectorTemplate {
        addrs: Some(AddrRange::single(addr.into())),
        ..TrafficSelectorTemplate::DYNAMIC
    }]
}

fn with_child(change: impl FnOnce(&mut ChildConfig)) -> Connection {
    let mut connection = trap(None);
    let mut child = ChildConfig::clone(&connection.children[0]);
    change(&mut child);
    connection.children = vec![Arc::new(child)];
    connection
}

/// The source address towards the peer has the peer's IP version. It does not determine a source address of
/// the other version.
#[test]
fn other_ip_version_is_trapped_from_every_address() {
    for remote_ts in [ts(INSIDE_V6), [ts(INSIDE_V6), ts(INSIDE)].concat()] {
        let mixed = remote_ts.len() > 1;
        for address in [Some(OWN), None] {
            let mut connection = with_child(|child| child.remote_ts.clone_from(&remote_ts));
            let mut host = TrappingHost::new(address, connection.clone());
            assert!(host.traps_v6(OWN_V6, INSIDE_V6), "{address:?}");
            assert!(!host.traps_v6(INSIDE_V6, OWN_V6), "{address:?}");
            assert_eq!(host.traps(OWN, INSIDE), mixed);
            connection.local_addrs = only(OWN);
            assert!(TrappingHost::new(None, connection).traps_v6(OWN_V6, INSIDE_V6));
        }
    }
}

/// The selectors are the same after the end of a Child SA.
#[test]
fn trap_without_traffic_is_reported() {
    for connection in [
        with_child(|child| (child.local_ts, child.remote_ts) = (ts(OWN), ts(INSIDE_V6))),
        with_child(|child| child.local_ts = ts(OWN_V6)),
        with_child(|child| (child.local_ts[0].proto, child.remote_ts[0].proto) = (Some(6), Some(17))),
    ] {
        let mut host = TrappingHost::new(Some(OWN), connection);
        assert_eq!(host.policies(), 0);
        let mut notices = std::iter::from_fn(|| host.endpoint.next_notice());
        assert!(
            notices
                .any(|notice| matches!(notice, Notice::TrapNotInstalled { error: TrapError::NoTraffic, .. }))
        );
    }
}
