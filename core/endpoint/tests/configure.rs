//! A configuration is taken whole or not at all.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use casemate::{Datapath, Endpoint, Means, housekeeping};
use casemate_crypto::{Provider, Providers};
use casemate_datapath::{Config, Direction};
use casemate_ike::config::{AddrPattern, Child, Connection, Identity, Start};
use casemate_ike::{Settings, SharedKeys};
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_sa::{AddrRange, Instant, Limits, Selector};
use common::{Dice, Ways};
use std::sync::Arc;

/// Connections with peers of these numbers, each of which waits for traffic.
fn connections(numbers: std::ops::Range<u8>) -> Vec<Arc<Connection>> {
    let connection = |number: u8| {
        let name = |name: &str| Identity::Fqdn(format!("{name}{number}"));
        let mut connection = Connection::with_shared_key(&format!("c{number}"), name("own"), name("peer"));
        let only = |addr: [u8; 4]| vec![AddrPattern::Range(AddrRange::single(addr.into()))];
        connection.local_addrs = only([192, 0, 2, 200]);
        connection.remote_addrs = only([192, 0, 2, number]);
        let start = Start { on_traffic: true, at_once: false };
        connection.children = vec![Arc::new(Child { start, ..Child::new("all") })];
        Arc::new(connection)
    };
    numbers.map(connection).collect()
}

fn configure(endpoint: &mut Endpoint, connections: Vec<Arc<Connection>>) -> bool {
    let list: [&dyn Provider; 1] = [&RUSTCRYPTO];
    let mut means = Means {
        now: Instant::from_secs(1),
        unix_time: 0,
        rng: &mut Dice(1),
        providers: &Providers(&list),
        credentials: &SharedKeys::new(),
        routes: &Ways,
    };
    endpoint.configure(connections, &[], &mut means).is_ok()
}

fn selectors(endpoint: &Endpoint, direction: Direction) -> Vec<Selector> {
    endpoint.datapath().policies(direction).map(|(_, policy)| policy.selector).collect()
}

#[test]
fn where_there_is_no_room_everything_stays() {
    let limits = Limits { policies: 5, ..Limits::DEVICE };
    let datapath = Datapath::new(Config { limits, ..Config::server(1) });
    let mut endpoint = Endpoint::new(datapath, Settings::DEVICE);
    assert!(configure(&mut endpoint, connections(1..4)));
    let both = [Direction::Outbound, Direction::Inbound];
    let before = both.map(|direction| selectors(&endpoint, direction));
    assert_eq!(before[0].len(), 3);
    assert!(!configure(&mut endpoint, connections(10..16)), "six do not fit");
    assert_eq!(both.map(|direction| selectors(&endpoint, direction)), before);
    let names: Vec<_> =
        endpoint.ike().connections().iter().map(|connection| connection.name.clone()).collect();
    assert_eq!(names, ["c1", "c2", "c3"]);
    // As many as fit are taken afterwards.
    assert!(configure(&mut endpoint, connections(10..15)));
    assert_eq!(selectors(&endpoint, Direction::Outbound).len(), 5);
}

#[test]
fn housekeeping_is_all_or_nothing() {
    for (policies, fits) in [(9, false), (10, true)] {
        let limits = Limits { policies, ..Limits::DEVICE };
        let mut datapath = Datapath::new(Config { limits, ..Config::server(1) });
        assert_eq!(housekeeping(&mut datapath).is_ok(), fits);
        for direction in [Direction::Outbound, Direction::Inbound] {
            assert_eq!(datapath.policies(direction).count(), if fits { 10 } else { 0 });
        }
    }
}
