//! Full tables: a configuration that does not fit changes nothing, and a lost acquire event is repeated.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use casemate::{Context, Datapath, Endpoint, bypass_control_plane};
use casemate_crypto::{Provider, Providers};
use casemate_datapath::{Config, Direction, DropReason, Outbound};
use casemate_ike::config::{ChildConfig, Connection, Identity, StartAction};
use casemate_ike::{IkeSettings, SharedKeys};
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_sa::{Instant, Limits, Selector};
use casemate_test_support::TestRng;
use common::{NoRoutes, OWN, PEER, only, send};
use std::sync::Arc;

/// Connections with these peers, each with a trap.
fn connections(numbers: std::ops::Range<u8>) -> Vec<Arc<Connection>> {
    let connection = |number: u8| {
        let name = |name: &str| Identity::Fqdn(format!("{name}{number}"));
        let mut connection = Connection::with_shared_key(&format!("c{number}"), name("own"), name("peer"));
        connection.local_addrs = only([192, 0, 2, 200]);
        connection.remote_addrs = only([192, 0, 2, number]);
        let start = StartAction { on_traffic: true, at_once: false };
        connection.children = vec![Arc::new(ChildConfig { start_action: start, ..ChildConfig::new("all") })];
        Arc::new(connection)
    };
    numbers.map(connection).collect()
}

fn act<R>(endpoint: &mut Endpoint, act: impl FnOnce(&mut Endpoint, &mut Context<'_>) -> R) -> R {
    let list: [&dyn Provider; 1] = [&RUSTCRYPTO];
    let mut context = Context {
        now: Instant::from_secs(1),
        unix_time: 0,
        rng: &mut TestRng::new(1),
        providers: &Providers(&list),
        credentials: &SharedKeys::new(),
        routes: &NoRoutes,
    };
    act(endpoint, &mut context)
}

fn configure(endpoint: &mut Endpoint, connections: Vec<Arc<Connection>>) -> bool {
    act(endpoint, |endpoint, context| endpoint.configure(connections, &[], context).is_ok())
}

/// Sends a packet to the peer, which is dropped because there is no SA.
fn send_dropped(endpoint: &mut Endpoint) {
    let verdict = send(endpoint, Instant::from_secs(1), OWN, PEER);
    assert!(matches!(verdict, Outbound::Drop(DropReason::NoOutboundSa)));
}

fn selectors(endpoint: &Endpoint, direction: Direction) -> Vec<Selector> {
    endpoint.datapath().policies(direction).map(|(_, policy)| policy.selector).collect()
}

#[test]
fn full_spd_keeps_the_former_configuration() {
    let limits = Limits { policies: 5, ..Limits::DEVICE };
    let datapath = Datapath::new(Config { limits, ..Config::server(1) });
    let mut endpoint = Endpoint::new(datapath, IkeSettings::DEVICE);
    assert!(configure(&mut endpoint, connections(1..4)));
    let both = [Direction::Outbound, Direction::Inbound];
    let before = both.map(|direction| selectors(&endpoint, direction));
    assert_eq!(before[0].len(), 3);
    assert!(!configure(&mut endpoint, connections(10..16)), "six SAs exceed the limit");
    assert_eq!(both.map(|direction| selectors(&endpoint, direction)), before);
    let names: Vec<_> =
        endpoint.ike().connections().iter().map(|connection| connection.name.clone()).collect();
    assert_eq!(names, ["c1", "c2", "c3"]);
    // A configuration that fits is applied afterwards.
    assert!(configure(&mut endpoint, connections(10..15)));
    assert_eq!(selectors(&endpoint, Direction::Outbound).len(), 5);
}

#[test]
fn bypass_policies_are_all_or_nothing() {
    for (policies, fits) in [(9, false), (10, true)] {
        let limits = Limits { policies, ..Limits::DEVICE };
        let mut datapath = Datapath::new(Config { limits, ..Config::server(1) });
        assert_eq!(bypass_control_plane(&mut datapath).is_ok(), fits);
        for direction in [Direction::Outbound, Direction::Inbound] {
            assert_eq!(datapath.policies(direction).count(), if fits { 10 } else { 0 });
        }
    }
}

#[test]
fn next_packet_repeats_a_lost_acquire() {
    let mut connection =
        Connection::with_shared_key("peer", Identity::Fqdn("own".into()), Identity::Fqdn("peer".into()));
    (connection.local_addrs, connection.remote_addrs) = (only(OWN), only(PEER));
    let start = StartAction { on_traffic: true, at_once: false };
    connection.children = vec![Arc::new(ChildConfig { start_action: start, ..ChildConfig::new("all") })];
    let limits = Limits { audit_events: 1, ..Limits::DEVICE };
    let datapath = Datapath::new(Config { limits, ..Config::server(1) });
    let mut endpoint = Endpoint::new(datapath, IkeSettings::DEVICE);
    act(&mut endpoint, |endpoint, context| {
        endpoint.configure(vec![Arc::new(connection)], &[], context).unwrap();
    });
    // Another event takes the only slot of the ring.
    endpoint.datapath_mut().record_drop(Instant::from_secs(1), DropReason::NoSa, &[]);
    send_dropped(&mut endpoint);
    act(&mut endpoint, Endpoint::handle_timeouts);
    assert_eq!(endpoint.ike().ike_sa_count(), 0, "the acquire was lost");
    send_dropped(&mut endpoint);
    assert!(endpoint.datapath().has_events());
    act(&mut endpoint, Endpoint::handle_timeouts);
    assert_eq!((endpoint.ike().ike_sa_count(), endpoint.ike().half_open_count()), (1, 0));
    assert!(!endpoint.datapath().has_events());
}
