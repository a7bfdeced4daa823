//! What calls for an SA is heard, whatever else happens.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use casemate::{Datapath, Endpoint, Means};
use casemate_crypto::{Provider, Providers};
use casemate_datapath::{Config, DropReason, Outbound};
use casemate_ike::config::{Child, Connection, Identity, Start};
use casemate_ike::{Settings, SharedKeys};
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_sa::{Instant, Limits};
use common::{Dice, OWN, PEER, Ways, only, send};
use std::sync::Arc;

fn act<R>(endpoint: &mut Endpoint, act: impl FnOnce(&mut Endpoint, &mut Means<'_>) -> R) -> R {
    let list: [&dyn Provider; 1] = [&RUSTCRYPTO];
    let mut means = Means {
        now: Instant::from_secs(1),
        unix_time: 0,
        rng: &mut Dice(1),
        providers: &Providers(&list),
        credentials: &SharedKeys::new(),
        routes: &Ways,
    };
    act(endpoint, &mut means)
}

/// A packet for the peer, which is lost, as there is no SA.
fn lose(endpoint: &mut Endpoint) {
    let verdict = send(endpoint, Instant::from_secs(1), (OWN, PEER));
    assert!(matches!(verdict, Outbound::Drop(DropReason::NoOutboundSa)));
}

#[test]
fn a_call_that_was_lost_is_repeated_by_the_next_packet() {
    let mut connection =
        Connection::with_shared_key("peer", Identity::Fqdn("own".into()), Identity::Fqdn("peer".into()));
    (connection.local_addrs, connection.remote_addrs) = (only(OWN), only(PEER));
    let start = Start { on_traffic: true, at_once: false };
    connection.children = vec![Arc::new(Child { start, ..Child::new("all") })];
    let limits = Limits { audit_events: 1, ..Limits::DEVICE };
    let datapath = Datapath::new(Config { limits, ..Config::server(1) });
    let mut endpoint = Endpoint::new(datapath, Settings::DEVICE);
    act(&mut endpoint, |endpoint, means| {
        endpoint.configure(vec![Arc::new(connection)], &[], means).unwrap();
    });
    // Something else takes the only place for events.
    endpoint.datapath_mut().note_drop(Instant::from_secs(1), DropReason::NoSa, &[]);
    lose(&mut endpoint);
    act(&mut endpoint, Endpoint::serve);
    assert_eq!(endpoint.ike().counts(), (0, 0), "the call was lost");
    lose(&mut endpoint);
    assert!(endpoint.datapath().has_events());
    act(&mut endpoint, Endpoint::serve);
    assert_eq!(endpoint.ike().counts(), (1, 0));
    assert!(!endpoint.datapath().has_events());
}
