//! MOBIKE (RFC 4555): a host that moves, and a peer that follows after it has checked the new address.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod pair;

use casemate_ike::config::{AddrPattern, Connection, Encapsulation};
use casemate_ike::{DownReason, Event, Path, PeerFault, StateFault, Transmit};
use casemate_sa::AddrRange;
use pair::{LEFT, Pair, RIGHT, connection, deliver};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

const MOVED: &str = "198.51.100.7";
const NATT: u16 = 4_500;

fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn single(text: &str) -> AddrPattern {
    AddrPattern::Range(AddrRange::single(addr(text)))
}

/// Connections of a client with any address and of its gateway.
fn roaming() -> [Connection; 2] {
    let (mut left, mut right) = (connection("left", "right"), connection("right", "left"));
    (left.mobike, right.mobike) = (true, true);
    (left.local_addrs, right.remote_addrs) = (vec![AddrPattern::Any], vec![AddrPattern::Any]);
    [left, right]
}

/// A pair whose left host has initiated.
fn established([left, right]: [Connection; 2]) -> Pair {
    let mut pair = Pair::new(left, right);
    pair.left.routes.source = Some(addr(LEFT));
    pair.left.initiate(pair.now);
    pair.run();
    pair.check_children(1);
    pair
}

/// Gives the left host this address, and lets it notice that.
fn readdress(pair: &mut Pair, to: &str) {
    pair.left.routes.source = Some(addr(to));
    pair.left.with_context(pair.now, |ike, host, context| ike.addresses_changed(host, context));
}

/// The paths of the Child SAs, as the events of a host say.
fn paths(events: &[Event]) -> Vec<(Path, bool)> {
    let moved = |event: &Event| match event {
        Event::PathChanged { path, udp_encap, children, .. } if children.len() == 1 => {
            Some((*path, *udp_encap))
        }
        _ => None,
    };
    events.iter().filter_map(moved).collect()
}

fn path(local: &str, remote: &str) -> Path {
    let end = |ip: &str| SocketAddr::new(addr(ip), NATT);
    Path { local: end(local), remote: end(remote) }
}

fn faults(events: &[Event]) -> Vec<StateFault> {
    let fault = |event: &Event| match event {
        Event::Fault { fault: PeerFault::State(fault), .. } => Some(*fault),
        _ => None,
    };
    events.iter().filter_map(fault).collect()
}

fn ike_path(pair: &Pair) -> [Path; 2] {
    [&pair.left, &pair.right].map(|host| host.ike.status().next().unwrap().path)
}

#[test]
fn both_sides_follow_a_client_that_moves() {
    let mut pair = established(roaming());
    assert_eq!(ike_path(&pair), [path(LEFT, RIGHT), path(RIGHT, LEFT)], "port 4500 without a NAT");
    readdress(&mut pair, MOVED);
    assert_eq!(paths(&pair.left.events), [(path(MOVED, RIGHT), false)], "the client moves at once");
    pair.deliver_to_right();
    assert_eq!(paths(&pair.right.events), [], "the gateway checks the address first");
    pair.run();
    eprintln!(
        "{:#?}",
        pair.right
            .events
            .iter()
            .filter(|e| !matches!(e, Event::IkeUp { .. } | Event::ChildUp(_)))
            .collect::<Vec<_>>()
    );
    assert_eq!(paths(&pair.right.events), [(path(RIGHT, MOVED), false)]);
    assert_eq!(ike_path(&pair), [path(MOVED, RIGHT), path(RIGHT, MOVED)]);
    assert!(faults(&pair.left.events).is_empty() && faults(&pair.right.events).is_empty());
    // Nothing was negotiated again.
    pair.check_children(1);
    assert!(pair.left.sent.is_empty() && pair.right.sent.is_empty());
}

/// The same address: no message is sent.
#[test]
fn a_change_that_does_not_concern_the_path_is_ignored() {
    let mut pair = established(roaming());
    readdress(&mut pair, LEFT);
    pair.left.routes.source = None;
    pair.left.with_context(pair.now, |ike, host, context| ike.addresses_changed(host, context));
    assert!(pair.left.sent.is_empty(), "without any route the SA stays where it is");
}

#[test]
fn neither_side_moves_unless_both_support_it() {
    for (left_has, right_has) in [(false, true), (true, false)] {
        let [mut left, mut right] = roaming();
        (left.mobike, right.mobike) = (left_has, right_has);
        let mut pair = established([left, right]);
        readdress(&mut pair, MOVED);
        pair.run();
        assert!(paths(&pair.left.events).is_empty() && paths(&pair.right.events).is_empty());
        assert_eq!(pair.left.ike.status().next().unwrap().path.local.ip(), addr(LEFT));
    }
}

#[test]
fn a_client_moves_to_another_ip_version() {
    let [mut left, mut right] = roaming();
    left.remote_addrs.push(single("2001:db8::2"));
    right.local_addrs.push(single("2001:db8::2"));
    let mut pair = established([left, right]);
    // The only address that is left is of IPv6.
    readdress(&mut pair, "2001:db8::7");
    pair.run();
    let last = paths(&pair.right.events).last().copied();
    assert_eq!(last, Some((path("2001:db8::2", "2001:db8::7"), false)));
}

/// Single addresses say where an IKE SA begins. charon moves from them, too.
#[test]
fn a_client_moves_from_a_configured_address_that_is_gone() {
    let [mut left, mut right] = roaming();
    (left.local_addrs, right.remote_addrs) = (vec![single(LEFT)], vec![single(LEFT)]);
    let mut pair = established([left, right]);
    // The route prefers another address, but the configured one is there.
    readdress(&mut pair, MOVED);
    pair.run();
    assert_eq!((paths(&pair.left.events), paths(&pair.right.events)), (vec![], vec![]));
    pair.left.routes.lost = Some(addr(LEFT));
    readdress(&mut pair, MOVED);
    pair.run();
    assert_eq!(paths(&pair.left.events).last(), Some(&(path(MOVED, RIGHT), false)));
    assert_eq!(paths(&pair.right.events).last(), Some(&(path(RIGHT, MOVED), false)));
    pair.check_children(1);
}

/// A range limits the addresses of this host.
#[test]
fn a_client_stays_in_the_configured_range() {
    let [mut left, right] = roaming();
    left.local_addrs = vec![AddrPattern::Range(AddrRange::prefix(addr("192.0.2.0"), 24).unwrap())];
    let mut pair = established([left, right]);
    pair.left.routes.lost = Some(addr(LEFT));
    readdress(&mut pair, MOVED);
    pair.run();
    assert_eq!((paths(&pair.left.events), paths(&pair.right.events)), (vec![], vec![]));
    readdress(&mut pair, "192.0.2.77");
    pair.run();
    assert_eq!(paths(&pair.right.events).last(), Some(&(path(RIGHT, "192.0.2.77"), false)));
}

#[test]
fn addresses_that_the_connection_does_not_accept_are_refused() {
    let [left, mut right] = roaming();
    let range = AddrPattern::Range(AddrRange::prefix(addr("192.0.2.0"), 24).unwrap());
    right.remote_addrs = vec![range, single(LEFT)];
    let mut pair = established([left, right]);
    readdress(&mut pair, MOVED);
    pair.run();
    assert!(faults(&pair.right.events).contains(&StateFault::UnacceptableAddresses));
    assert_eq!(paths(&pair.right.events), []);
    // The client has no other path, so it closes the IKE SA.
    assert!(pair.left.ike.status().next().is_none() && pair.right.ike.status().next().is_none());
}

/// Delivers what a host has sent with the client's address changed, as a NAT in front of it does.
fn run_behind_nat(pair: &mut Pair, shown: SocketAddr) {
    for _ in 0..20 {
        for mut transmit in pair.left.sent.drain(..).collect::<Vec<_>>() {
            transmit.path.local = shown;
            deliver(&mut pair.right, transmit, pair.now);
        }
        let own = SocketAddr::new(pair.left.routes.source.unwrap(), NATT);
        for mut transmit in pair.right.sent.drain(..).collect::<Vec<_>>() {
            if transmit.path.remote == shown {
                transmit.path.remote = own;
                deliver(&mut pair.left, transmit, pair.now);
            }
        }
    }
}

#[test]
fn encapsulation_follows_a_nat_that_appears_and_disappears() {
    let mut pair = established(roaming());
    let shown = SocketAddr::new(addr("203.0.113.1"), 20_000);
    readdress(&mut pair, "10.0.0.2");
    run_behind_nat(&mut pair, shown);
    let seen = Path { local: path(RIGHT, RIGHT).local, remote: shown };
    assert_eq!(paths(&pair.right.events).last(), Some(&(seen, true)));
    assert_eq!(paths(&pair.left.events).last(), Some(&(path("10.0.0.2", RIGHT), true)));
    readdress(&mut pair, MOVED);
    pair.run();
    assert_eq!(paths(&pair.right.events).last(), Some(&(path(RIGHT, MOVED), false)));
    assert_eq!(paths(&pair.left.events).last(), Some(&(path(MOVED, RIGHT), false)));
}

/// With `encap = yes` ESP stays in UDP wherever the client goes.
#[test]
fn demanded_encapsulation_stays() {
    let [mut left, right] = roaming();
    left.encapsulation = Encapsulation::Always;
    let mut pair = established([left, right]);
    readdress(&mut pair, MOVED);
    pair.run();
    for events in [&pair.left.events, &pair.right.events] {
        assert!(paths(events).last().unwrap().1);
    }
}

/// RFC 4555 section 3.8: the gateway does not follow messages of the client, so the liveness check of a
/// client behind a NAT updates the addresses.
#[test]
fn a_liveness_check_tells_of_a_changed_nat_mapping() {
    let [mut left, right] = roaming();
    left.dpd_delay = Some(Duration::from_secs(5));
    let mut pair = established([left, right]);
    readdress(&mut pair, "10.0.0.2");
    run_behind_nat(&mut pair, SocketAddr::new(addr("203.0.113.1"), 20_000));
    let shown = SocketAddr::new(addr("203.0.113.1"), 20_001);
    let now = pair.now.after(Duration::from_secs(6));
    pair.now = now;
    pair.left.handle_timeouts(now);
    run_behind_nat(&mut pair, shown);
    assert_eq!(paths(&pair.right.events).last().unwrap().0.remote, shown);
}

/// A repeated request is answered, and nothing moves: not even if a third host repeats it.
#[test]
fn a_repeated_update_changes_nothing() {
    let mut pair = established(roaming());
    readdress(&mut pair, MOVED);
    let update: Vec<Transmit> = pair.left.sent.iter().cloned().collect();
    pair.run();
    let moves = paths(&pair.right.events);
    let forge = |transmit: &Transmit| {
        let mut copy = transmit.clone();
        copy.path.local = "203.0.113.66:4500".parse().unwrap();
        copy
    };
    for copy in update.iter().map(forge).chain(update.iter().cloned()) {
        deliver(&mut pair.right, copy, pair.now);
    }
    assert_eq!(pair.right.sent.len(), 2 * update.len(), "the same response again");
    pair.right.sent.clear();
    // An older one is out of the window.
    readdress(&mut pair, LEFT);
    pair.run();
    let before = paths(&pair.right.events);
    for copy in update.iter().map(forge) {
        deliver(&mut pair.right, copy, pair.now);
    }
    assert!(pair.right.sent.is_empty());
    assert_eq!(paths(&pair.right.events), before);
    assert_eq!(before.len(), moves.len() + 1);
}

/// A gateway that cannot reach the new address keeps the Child SAs at the old one, and creates new ones
/// there.
#[test]
fn nothing_moves_to_an_address_that_does_not_answer() {
    let mut pair = established(roaming());
    readdress(&mut pair, MOVED);
    pair.deliver_to_right();
    // The response arrives, the check does not.
    pair.right.sent.truncate(1);
    pair.run();
    assert_eq!(paths(&pair.right.events), []);
    let child = pair.left.children()[0].id;
    pair.left.with_context(pair.now, |ike, host, context| ike.rekey_child(child, host, context));
    pair.deliver_to_right();
    let up = |event: &Event| match event {
        Event::ChildUp(up) => Some(up.outbound.dst),
        _ => None,
    };
    let last = pair.right.events.iter().filter_map(up).next_back();
    assert_eq!(pair.right.children().len(), 2, "a rekeyed Child SA");
    assert_eq!(last, Some(addr(LEFT)), "at the old address, where the gateway knows the client");
    pair.right.sent.clear();
    // The check is repeated, and then the SAs move.
    pair.advance(Duration::from_secs(6));
    let moved =
        |event: &Event| matches!(event, Event::PathChanged { path: at, .. } if *at == path(RIGHT, MOVED));
    assert!(pair.right.events.iter().any(moved));
    pair.check_children(1);
}

/// An outstanding request is repeated from the new address at once, and the update follows it.
#[test]
fn a_request_that_was_sent_before_the_move_is_repeated_from_the_new_address() {
    for rekeys_ike in [false, true] {
        let mut pair = established(roaming());
        let (ike, child) = (pair.left.ike.status().next().unwrap().id, pair.left.children()[0].id);
        pair.left.with_context(pair.now, |engine, host, context| match rekeys_ike {
            true => engine.rekey(ike, host, context),
            false => engine.rekey_child(child, host, context),
        });
        pair.left.sent.clear();
        readdress(&mut pair, MOVED);
        assert!(pair.left.sent.iter().all(|transmit| transmit.path == path(MOVED, RIGHT)));
        assert_eq!(pair.left.sent.len(), 1, "one request at a time");
        pair.run();
        pair.check_children(1);
        assert_eq!(pair.left.ike.status().last().unwrap().path, path(MOVED, RIGHT));
        assert_eq!(pair.right.ike.status().last().unwrap().path, path(RIGHT, MOVED));
        assert_eq!(paths(&pair.right.events).last(), Some(&(path(RIGHT, MOVED), false)));
    }
}

/// The peer's request was sent to the old address; the update makes it repeat the request at once.
#[test]
fn a_request_of_the_peer_reaches_the_new_address() {
    let mut pair = established(roaming());
    let child = pair.right.children()[0].id;
    pair.right.with_context(pair.now, |ike, host, context| ike.rekey_child(child, host, context));
    pair.right.sent.clear();
    readdress(&mut pair, MOVED);
    pair.run();
    pair.check_children(1);
    assert_ne!(pair.right.children()[0].id, child, "the Child SA was rekeyed without a timeout");
    assert_eq!(ike_path(&pair), [path(MOVED, RIGHT), path(RIGHT, MOVED)]);
}

/// Two moves in a row: the response to the first update no longer counts.
#[test]
fn a_second_move_during_the_first_one_wins() {
    let mut pair = established(roaming());
    readdress(&mut pair, MOVED);
    pair.left.sent.clear();
    readdress(&mut pair, "198.51.100.8");
    pair.run();
    assert_eq!(ike_path(&pair)[1], path(RIGHT, "198.51.100.8"));
    assert_eq!(paths(&pair.right.events).last(), Some(&(path(RIGHT, "198.51.100.8"), false)));
}

fn rekey_ike(host: &mut pair::IkePeer, now: casemate_sa::Instant) {
    let id = host.ike.status().next().unwrap().id;
    host.with_context(now, |ike, host, context| ike.rekey(id, host, context));
}

/// The gateway rekeys the IKE SA before it gets the update, which is lost with the old IKE SA.
#[test]
fn an_update_is_repeated_on_the_successor_of_the_peer() {
    let mut pair = established(roaming());
    readdress(&mut pair, MOVED);
    pair.left.sent.clear();
    rekey_ike(&mut pair.right, pair.now);
    pair.run();
    assert_eq!(ike_path(&pair)[1], path(RIGHT, MOVED));
    assert_eq!(paths(&pair.right.events).last(), Some(&(path(RIGHT, MOVED), false)));
    // The response on the old IKE SA arrives late and shows a NAT.
    let mut pair = established(roaming());
    readdress(&mut pair, MOVED);
    let shown = "203.0.113.9:61000".parse().unwrap();
    pair.left.sent.iter_mut().for_each(|transmit| transmit.path.local = shown);
    pair.deliver_to_right();
    pair.right.sent.truncate(1);
    let response = pair.right.sent.pop_front().unwrap();
    rekey_ike(&mut pair.right, pair.now);
    let answer_from_there = |pair: &mut Pair| {
        pair.left.sent.iter_mut().for_each(|transmit| transmit.path.local = shown);
        pair.deliver_to_right();
    };
    pair.right.sent.iter_mut().for_each(|transmit| transmit.path.remote = path(MOVED, RIGHT).local);
    pair.deliver_to_left();
    let late = Transmit { path: path(RIGHT, MOVED), ..response };
    deliver(&mut pair.left, late, pair.now);
    for _ in 0..8 {
        answer_from_there(&mut pair);
        pair.right.sent.iter_mut().for_each(|transmit| transmit.path.remote = path(MOVED, RIGHT).local);
        pair.deliver_to_left();
    }
    assert_eq!(paths(&pair.left.events).last(), Some(&(path(MOVED, RIGHT), true)), "in UDP");
}

/// When the peer does not respond, its announced address is tried.
#[test]
fn a_dead_path_is_left_for_an_announced_address() {
    let second = "203.0.113.2";
    let [mut left, mut right] = roaming();
    left.dpd_delay = Some(Duration::from_secs(5));
    right.local_addrs.push(single(second));
    let mut pair = established([left, right]);
    for _ in 0..15 {
        pair.now = pair.now.after(Duration::from_secs(1));
        let now = pair.now;
        pair.left.handle_timeouts(now);
        pair.right.handle_timeouts(now);
        for _ in 0..6 {
            // The first address of the gateway is unreachable.
            pair.left.sent.retain(|transmit| transmit.path.remote.ip() != addr(RIGHT));
            pair.right.sent.retain(|transmit| transmit.path.local.ip() != addr(RIGHT));
            pair.deliver_to_right();
            pair.right.sent.retain(|transmit| transmit.path.local.ip() != addr(RIGHT));
            pair.deliver_to_left();
        }
    }
    assert_eq!(ike_path(&pair), [path(LEFT, second), path(second, LEFT)]);
    for (events, moved) in [(&pair.left.events, path(LEFT, second)), (&pair.right.events, path(second, LEFT))]
    {
        assert_eq!(paths(events).last(), Some(&(moved, false)));
    }
    assert!(
        !pair
            .left
            .events
            .iter()
            .any(|event| matches!(event, Event::IkeDown { reason: DownReason::DeadPeer, .. }))
    );
}
