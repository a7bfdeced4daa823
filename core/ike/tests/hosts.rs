//! Connections to a host name: its addresses are looked up for each attempt.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may fail")]

mod pair;

use casemate_ike::config::{AddrPattern, Connection, StartAction};
use casemate_ike::{Event, HostAddrs, InitiateError};
use pair::{Pair, connection};
use std::sync::Arc;
use std::time::Duration;

/// Two hosts whose left one names the right one. Its child is kept up only with `kept_up`.
fn named_peer(kept_up: bool) -> Pair {
    let mut left = connection("left", "right");
    left.remote_addrs = vec![AddrPattern::Host("right.test".into())];
    let mut child = (*left.children[0]).clone();
    child.start_action = StartAction { at_once: kept_up, on_traffic: false };
    left.children = vec![Arc::new(child)];
    Pair::new(left, connection("right", "left"))
}

fn known(addrs: &[&str]) -> HostAddrs {
    HostAddrs::Known(addrs.iter().map(|addr| addr.parse().unwrap()).collect())
}

/// Initiates the child of the left host. Returns the errors of attempts.
fn initiate(pair: &mut Pair) -> Vec<InitiateError> {
    let connection = pair.left.ike.connections()[0].clone();
    pair.left.with_context(pair.now, |ike, host, context| {
        ike.initiate_or_retry(&connection, &connection.children[0], host, context)
    });
    errors(pair)
}

fn errors(pair: &mut Pair) -> Vec<InitiateError> {
    let error = |event: Event| match event {
        Event::InitiateFailed { error, .. } => Some(error),
        _ => None,
    };
    std::mem::take(&mut pair.left.events).into_iter().filter_map(error).collect()
}

fn resolve(pair: &mut Pair, host: HostAddrs) {
    pair.left.routes.host = host;
    let now = pair.now;
    pair.left.ike.hosts_resolved(now);
    pair.advance(Duration::from_secs(1));
}

#[test]
fn an_attempt_begins_when_its_look_up_has_ended() {
    let mut pair = named_peer(false);
    pair.left.routes.host = HostAddrs::Pending;
    assert_eq!(initiate(&mut pair), []);
    pair.advance(Duration::from_secs(5));
    assert_eq!(pair.left.ike.ike_sa_count(), 0);
    resolve(&mut pair, known(&[pair::RIGHT]));
    assert_eq!(pair.left.children().len(), 1);
}

/// Number of faults with this name that the right host counted.
fn count(pair: &Pair, name: &str) -> u64 {
    let mut faults = pair.right.ike.faults().iter();
    faults.find(|(known, _)| *known == name).map_or(0, |(_, count)| count)
}

#[test]
fn the_names_of_peers_are_looked_up_again_for_a_request_without_a_connection() {
    let mut named = connection("right", "left");
    named.remote_addrs = vec![AddrPattern::Host("left.test".into())];
    let mut pair = Pair::new(connection("left", "right"), named);
    pair.right.routes.host = HostAddrs::Pending;
    assert_eq!(initiate(&mut pair), []);
    pair.advance(Duration::from_secs(1));
    assert_eq!((count(&pair, "host-look-up") > 0, pair.left.children().len()), (true, 0));
    assert_eq!(count(&pair, "no-connection"), 0);
    pair.right.routes.host = known(&[pair::LEFT]);
    pair.advance(Duration::from_secs(10));
    assert_eq!(pair.left.children().len(), 1);
}

#[test]
fn another_address_than_that_of_the_name_is_refused() {
    let mut named = connection("right", "left");
    named.remote_addrs = vec![AddrPattern::Host("left.test".into())];
    let mut pair = Pair::new(connection("left", "right"), named);
    pair.right.routes.host = known(&["192.0.2.99"]);
    assert_eq!(initiate(&mut pair), []);
    pair.advance(Duration::from_secs(1));
    assert!(count(&pair, "no-connection") > 0);
    assert_eq!((count(&pair, "host-look-up"), pair.left.children().len()), (0, 0));
}

#[test]
fn an_attempt_uses_the_first_address_with_a_route() {
    let mut pair = named_peer(false);
    // The left host has an IPv4 address only.
    pair.left.routes.host = known(&["2001:db8::9", pair::RIGHT, "192.0.2.99"]);
    assert_eq!(initiate(&mut pair), []);
    pair.advance(Duration::from_secs(1));
    assert_eq!(pair.left.children().len(), 1);
}

#[test]
fn an_unknown_name_is_looked_up_again_if_the_child_is_kept_up() {
    for kept_up in [true, false] {
        let mut pair = named_peer(kept_up);
        pair.left.routes.host = HostAddrs::Pending;
        assert_eq!(initiate(&mut pair), []);
        resolve(&mut pair, HostAddrs::Unknown);
        assert_eq!(errors(&mut pair), [InitiateError::UnknownHost]);
        pair.advance(Duration::from_secs(60));
        assert_eq!(errors(&mut pair).is_empty(), !kept_up);
        pair.left.routes.host = known(&[pair::RIGHT]);
        pair.advance(Duration::from_secs(300));
        assert_eq!(pair.left.ike.ike_sa_count(), usize::from(kept_up));
    }
}

/// The responder compares the address of the peer with those that are known of the name.
#[test]
fn a_responder_accepts_the_address_of_a_name() {
    for (host, is_accepted) in [(known(&[pair::LEFT]), true), (HostAddrs::Unknown, false)] {
        let right = Connection {
            remote_addrs: vec![AddrPattern::Host("left.test".into())],
            ..connection("right", "left")
        };
        let mut pair = Pair::new(connection("left", "right"), right);
        pair.right.routes.host = host;
        initiate(&mut pair);
        pair.advance(Duration::from_secs(1));
        assert_eq!(pair.left.children().len(), usize::from(is_accepted));
    }
}
