//! What calls for an SA is heard, whatever else happens.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

mod common;

use casemate::{Datapath, Endpoint, Means};
use casemate_crypto::{Provider, Providers};
use casemate_datapath::{Config, DropReason, Outbound};
use casemate_ike::config::{AddrPattern, Child, Connection, Identity, Start};
use casemate_ike::{Settings, SharedKeys};
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_sa::{AddrRange, Instant, Limits};
use casemate_wire::packet::Packet;
use common::{Dice, Ways};
use std::sync::Arc;

const OWN: [u8; 4] = [192, 0, 2, 1];
const PEER: [u8; 4] = [192, 0, 2, 2];

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

/// A packet for the peer: an IPv4 header and eight bytes. It is lost, as there is no SA.
fn send(endpoint: &mut Endpoint) {
    let header = [0x45, 0, 0, 28, 0, 0, 0, 0, 64, 253, 0, 0];
    let bytes = [&header[..], &OWN, &PEER, &[0; 8]].concat();
    let mut storage = vec![0; 600];
    storage[256..284].copy_from_slice(&bytes);
    let mut packet = Packet::new(&mut storage, 256, 28).unwrap();
    let datapath = endpoint.datapath_mut();
    let verdict = datapath.outbound_reassembled(Instant::from_secs(1), &mut Dice(1), &mut packet);
    assert!(matches!(verdict, Outbound::Drop(DropReason::NoOutboundSa)));
}

#[test]
fn a_call_that_was_lost_is_repeated_by_the_next_packet() {
    let mut connection =
        Connection::with_shared_key("peer", Identity::Fqdn("own".into()), Identity::Fqdn("peer".into()));
    let only = |addr: [u8; 4]| vec![AddrPattern::Range(AddrRange::single(addr.into()))];
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
    send(&mut endpoint);
    act(&mut endpoint, Endpoint::serve);
    assert_eq!(endpoint.ike().counts(), (0, 0), "the call was lost");
    send(&mut endpoint);
    assert!(endpoint.datapath().has_events());
    act(&mut endpoint, Endpoint::serve);
    assert_eq!(endpoint.ike().counts(), (1, 0));
    assert!(!endpoint.datapath().has_events());
}
