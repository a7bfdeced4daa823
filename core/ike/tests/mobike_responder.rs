//! MOBIKE (RFC 4555) with a responder that moves: it tells the initiator which addresses it has (section
//! 3.6), and the initiator moves the SAs.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod pair;

use casemate_ike::config::{AddrPattern, Connection};
use casemate_ike::{Event, Path, PeerFault, StateFault, Transmit};
use casemate_sa::AddrRange;
use pair::{IkePeer, LEFT, Pair, RIGHT, connection, deliver};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

const CLIENT_MOVED: &str = "198.51.100.7";
const SECOND: &str = "203.0.113.2";
const NATT: u16 = 4_500;

fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn single(text: &str) -> AddrPattern {
    AddrPattern::Range(AddrRange::single(addr(text)))
}

fn path(local: &str, remote: &str) -> Path {
    let end = |ip: &str| SocketAddr::new(addr(ip), NATT);
    Path { local: end(local), remote: end(remote) }
}

/// Connections of a client and of a gateway that may both have any address.
fn roaming() -> [Connection; 2] {
    let (mut left, mut right) = (connection("left", "right"), connection("right", "left"));
    (left.mobike, right.mobike) = (true, true);
    left.local_addrs = vec![AddrPattern::Any];
    (right.local_addrs, right.remote_addrs) = (vec![AddrPattern::Any], vec![AddrPattern::Any]);
    [left, right]
}

/// Connections of a client and of a gateway with two addresses.
fn two_addresses() -> [Connection; 2] {
    let [left, mut right] = roaming();
    right.local_addrs = vec![single(RIGHT), single(SECOND)];
    [left, right]
}

/// A pair whose left host has initiated, and whose right host has an address of each route.
fn established([left, right]: [Connection; 2]) -> Pair {
    let mut pair = Pair::new(left, right);
    (pair.left.routes.source, pair.right.routes.source) = (Some(addr(LEFT)), Some(addr(RIGHT)));
    pair.left.initiate(pair.now);
    pair.run();
    pair.check_children(1);
    pair
}

fn notice_change(host: &mut IkePeer, now: casemate_sa::Instant) {
    host.with_context(now, |ike, host, context| ike.addresses_changed(host, context));
}

/// The gateway has this address instead of its present one, and notices that.
fn move_gateway(pair: &mut Pair, to: &str) {
    pair.right.routes.lost = Some(ike_path(pair)[1].local.ip());
    pair.right.routes.source = Some(addr(to));
    notice_change(&mut pair.right, pair.now);
}

fn move_client(pair: &mut Pair, to: &str) {
    pair.left.routes.source = Some(addr(to));
    notice_change(&mut pair.left, pair.now);
}

/// Delivers what both hosts have sent, unless it concerns an address that neither has.
fn run_without(pair: &mut Pair, lost: &[&str]) {
    let arrives = |transmit: &Transmit| {
        let Path { local, remote } = transmit.path;
        !lost.iter().any(|gone| [local.ip(), remote.ip()].contains(&addr(gone)))
    };
    for _ in 0..20 {
        pair.left.sent.retain(arrives);
        pair.deliver_to_right();
        pair.right.sent.retain(arrives);
        pair.deliver_to_left();
    }
}

fn advance_without(pair: &mut Pair, lost: &[&str], seconds: u32) {
    for _ in 0..seconds {
        pair.now = pair.now.after(Duration::from_secs(1));
        let now = pair.now;
        pair.left.handle_timeouts(now);
        pair.right.handle_timeouts(now);
        run_without(pair, lost);
    }
}

fn ike_path(pair: &Pair) -> [Path; 2] {
    [&pair.left, &pair.right].map(|host| host.ike.status().last().unwrap().path)
}

/// The last path of the Child SA that each host reports.
fn child_path(pair: &Pair) -> [Option<Path>; 2] {
    let moved = |event: &Event| match event {
        Event::PathChanged { path, children, .. } if children.len() == 1 => Some(*path),
        _ => None,
    };
    [&pair.left, &pair.right].map(|host| host.events.iter().filter_map(moved).next_back())
}

fn check_at(pair: &Pair, client: &str, gateway: &str) {
    let both = [path(client, gateway), path(gateway, client)];
    assert_eq!(ike_path(pair), both);
    assert_eq!(child_path(pair), both.map(Some));
    pair.check_children(1);
    assert!(pair.left.sent.is_empty() && pair.right.sent.is_empty());
    for host in [&pair.left, &pair.right] {
        let fault = |event: &Event| match event {
            Event::Fault { fault, .. } => Some(*fault),
            _ => None,
        };
        // A request that was sent on several paths has several responses.
        let faults = host.events.iter().filter_map(fault);
        let faults: Vec<_> = faults.filter(|fault| *fault != StateFault::StrayResponse.into()).collect();
        assert_eq!(faults, [] as [PeerFault; 0]);
    }
}

#[test]
fn the_client_follows_a_gateway_that_moves() {
    for connections in [roaming(), two_addresses()] {
        let mut pair = established(connections);
        move_gateway(&mut pair, SECOND);
        assert_eq!(child_path(&pair)[1], Some(path(SECOND, LEFT)), "the gateway sends from there at once");
        run_without(&mut pair, &[RIGHT]);
        check_at(&pair, LEFT, SECOND);
    }
}

/// The Child SAs of the client wait for the response from the new address, which is not configured.
#[test]
fn the_client_checks_the_new_address_first() {
    let mut pair = established(roaming());
    move_gateway(&mut pair, SECOND);
    pair.deliver_to_left();
    assert_eq!(child_path(&pair)[0], None);
    assert_eq!(ike_path(&pair)[0], path(LEFT, SECOND));
    run_without(&mut pair, &[RIGHT]);
    check_at(&pair, LEFT, SECOND);
}

/// The gateway itself does not move to an address that it prefers while the present one works.
#[test]
fn only_a_lost_address_moves_the_gateway() {
    let mut pair = established(roaming());
    pair.right.routes.source = Some(addr(SECOND));
    notice_change(&mut pair.right, pair.now);
    assert!(pair.right.sent.is_empty());
    assert_eq!(ike_path(&pair)[1], path(RIGHT, LEFT));
}

/// An additional address that comes or goes is told, and nothing moves.
#[test]
fn the_client_learns_additional_addresses() {
    let mut pair = established(two_addresses());
    for (lost, has_moved) in [(SECOND, false), (LEFT, false), (RIGHT, true)] {
        pair.right.routes.lost = Some(addr(lost));
        pair.right.routes.source = Some(addr(if lost == RIGHT { SECOND } else { RIGHT }));
        notice_change(&mut pair.right, pair.now);
        assert_eq!(pair.right.sent.len(), 1, "the list has changed");
        run_without(&mut pair, &[]);
        notice_change(&mut pair.right, pair.now);
        assert!(pair.right.sent.is_empty(), "the client knows the list");
        assert_eq!(child_path(&pair)[0].is_some(), has_moved, "{lost}");
    }
    check_at(&pair, LEFT, SECOND);
}

/// A client tells its additional addresses, too.
#[test]
fn the_gateway_learns_additional_addresses() {
    let [mut left, right] = roaming();
    left.local_addrs = vec![single(LEFT), single(CLIENT_MOVED)];
    let mut pair = established([left, right]);
    pair.left.routes.lost = Some(addr(CLIENT_MOVED));
    notice_change(&mut pair.left, pair.now);
    assert_eq!(pair.left.sent.len(), 1);
    run_without(&mut pair, &[]);
    assert_eq!(child_path(&pair), [None, None]);
}

/// While the gateway has no address, nothing is sent. The announcement follows as soon as it can.
#[test]
fn a_gateway_announces_as_soon_as_it_can_send() {
    let mut pair = established(roaming());
    (pair.right.routes.source, pair.right.routes.lost) = (None, Some(addr(RIGHT)));
    notice_change(&mut pair.right, pair.now);
    assert!(pair.right.sent.is_empty());
    advance_without(&mut pair, &[RIGHT], 5);
    pair.right.routes.source = Some(addr(SECOND));
    notice_change(&mut pair.right, pair.now);
    run_without(&mut pair, &[RIGHT]);
    check_at(&pair, LEFT, SECOND);
}

/// The announcement is lost, and the client rekeys the IKE SA before it is repeated.
#[test]
fn an_announcement_is_repeated_on_the_successor_of_the_peer() {
    let mut pair = established(two_addresses());
    move_gateway(&mut pair, SECOND);
    pair.right.sent.clear();
    let id = pair.left.ike.status().next().unwrap().id;
    pair.left.with_context(pair.now, |ike, host, context| ike.rekey(id, host, context));
    // Its request and the response take the old path.
    pair.run();
    check_at(&pair, LEFT, SECOND);
}

/// The client cannot receive the announcement, because of its NAT for example. It tries the additional
/// address when the gateway does not respond.
#[test]
fn a_client_that_hears_nothing_tries_the_additional_address() {
    let [mut left, right] = two_addresses();
    left.dpd_delay = Some(Duration::from_secs(5));
    let mut pair = established([left, right]);
    move_gateway(&mut pair, SECOND);
    pair.right.sent.clear();
    for _ in 0..20 {
        pair.now = pair.now.after(Duration::from_secs(1));
        let now = pair.now;
        pair.left.handle_timeouts(now);
        pair.left.sent.retain(|transmit| transmit.path.remote.ip() != addr(RIGHT));
        run_without(&mut pair, &[RIGHT]);
    }
    check_at(&pair, LEFT, SECOND);
}

/// A request that the gateway had sent from its lost address is repeated from the new one; the announcement
/// waits for its response, because one request is outstanding at a time.
#[test]
fn an_exchange_in_flight_goes_on_at_the_new_address() {
    for rekeys_ike in [false, true] {
        let mut pair = established(roaming());
        let (ike, child) = (pair.right.ike.status().next().unwrap().id, pair.right.children()[0].id);
        pair.right.with_context(pair.now, |engine, host, context| match rekeys_ike {
            true => engine.rekey(ike, host, context),
            false => engine.rekey_child(child, host, context),
        });
        pair.right.sent.clear();
        move_gateway(&mut pair, SECOND);
        assert_eq!(pair.right.sent.len(), 1, "one request at a time");
        run_without(&mut pair, &[RIGHT]);
        pair.check_children(1);
        assert_eq!(ike_path(&pair), [path(LEFT, SECOND), path(SECOND, LEFT)], "IKE: {rekeys_ike}");
        assert_eq!(child_path(&pair), [path(LEFT, SECOND), path(SECOND, LEFT)].map(Some));
    }
}

/// A request of the client was lost with the address of the gateway. It is repeated to the new address.
#[test]
fn a_request_of_the_client_reaches_the_new_address() {
    let mut pair = established(roaming());
    let child = pair.left.children()[0].id;
    pair.left.with_context(pair.now, |engine, host, context| engine.rekey_child(child, host, context));
    pair.left.sent.clear();
    move_gateway(&mut pair, SECOND);
    run_without(&mut pair, &[RIGHT]);
    assert_ne!(pair.left.children()[0].id, child, "rekeyed without a timeout");
    assert_eq!(ike_path(&pair), [path(LEFT, SECOND), path(SECOND, LEFT)]);
    pair.check_children(1);
}

/// Both move before either knows the other's new address. They meet at an additional address.
#[test]
fn both_move_at_once() {
    let [mut left, mut right] = two_addresses();
    left.local_addrs = vec![single(LEFT), single(CLIENT_MOVED)];
    right.local_addrs = vec![single(RIGHT), single(SECOND)];
    let lost = [LEFT, RIGHT];
    // The client knows the additional address of the gateway, and the gateway that of the client: either is
    // enough.
    for hidden in [[false, false], [true, false], [false, true]] {
        let [mut left, mut right] = [left.clone(), right.clone()];
        if hidden[0] {
            left.local_addrs = vec![AddrPattern::Any];
        }
        if hidden[1] {
            right.local_addrs = vec![AddrPattern::Any];
        }
        let mut pair = established([left, right]);
        pair.left.routes.lost = Some(addr(LEFT));
        move_client(&mut pair, CLIENT_MOVED);
        move_gateway(&mut pair, SECOND);
        run_without(&mut pair, &lost);
        advance_without(&mut pair, &lost, 20);
        check_at(&pair, CLIENT_MOVED, SECOND);
    }
}

/// The gateway has lost its address and reaches only the additional address of the client: the announcement
/// goes there at once, and the client moves both ends.
#[test]
fn the_announcement_goes_to_an_additional_address_of_the_client() {
    let [mut left, right] = roaming();
    left.local_addrs = vec![single(LEFT), single("2001:db8::7")];
    let mut pair = established([left, right]);
    move_gateway(&mut pair, "2001:db8::2");
    pair.left.routes.source = Some(addr("2001:db8::7"));
    let sent: Vec<Path> = pair.right.sent.iter().map(|transmit| transmit.path).collect();
    assert!(sent.contains(&path("2001:db8::2", "2001:db8::7")), "{sent:?}");
    run_without(&mut pair, &[RIGHT, LEFT]);
    check_at(&pair, "2001:db8::7", "2001:db8::2");
}

/// charon 5.9.8 responds to the announcement and moves, but sends no UPDATE_SA_ADDRESSES. The gateway checks
/// the address at which it was answered.
#[test]
fn the_gateway_follows_a_response_if_it_has_lost_its_address() {
    let [mut left, right] = roaming();
    left.local_addrs = vec![single(LEFT), single("2001:db8::7")];
    let mut pair = established([left, right]);
    move_gateway(&mut pair, "2001:db8::2");
    pair.left.routes.source = Some(addr("2001:db8::7"));
    pair.right.sent.retain(|transmit| transmit.path.remote.ip() != addr(LEFT));
    pair.deliver_to_left();
    // The response, and not the update behind it.
    pair.left.sent.truncate(1);
    pair.deliver_to_right();
    assert_eq!(ike_path(&pair)[1], path("2001:db8::2", "2001:db8::7"));
    assert_eq!(child_path(&pair)[1], None, "not checked yet");
    for _ in 0..3 {
        pair.deliver_to_left();
        pair.left.sent.retain(|transmit| transmit.message[19] & 0x20 != 0);
        pair.deliver_to_right();
    }
    assert_eq!(child_path(&pair)[1], Some(path("2001:db8::2", "2001:db8::7")));
}

/// A NAT in front of the gateway shows another address than the gateway announces. The client stays where the
/// message came from.
#[test]
fn a_client_stays_at_the_mapped_address_of_a_gateway_behind_a_nat() {
    let mut pair = established(two_addresses());
    pair.right.routes.lost = Some(addr(SECOND));
    notice_change(&mut pair.right, pair.now);
    let announcement: Vec<Transmit> = pair.right.sent.drain(..).collect();
    assert_eq!(announcement.len(), 1);
    deliver(&mut pair.left, announcement[0].clone(), pair.now);
    assert_eq!(ike_path(&pair)[0], path(LEFT, RIGHT));
}

/// A repetition from another source changes nothing: its message ID is known.
#[test]
fn a_repeated_announcement_moves_nothing() {
    let mut pair = established(two_addresses());
    pair.right.routes.lost = Some(addr(SECOND));
    notice_change(&mut pair.right, pair.now);
    let mut copy = pair.right.sent[0].clone();
    run_without(&mut pair, &[]);
    copy.path.local = "203.0.113.66:4500".parse().unwrap();
    deliver(&mut pair.left, copy, pair.now);
    assert_eq!(ike_path(&pair)[0], path(LEFT, RIGHT));
}

/// The client moves only to addresses that `remote_addrs` allows.
#[test]
fn a_range_limits_the_addresses_of_the_gateway() {
    let [mut left, right] = roaming();
    left.remote_addrs.push(AddrPattern::Range(AddrRange::prefix(addr("192.0.2.0"), 24).unwrap()));
    let mut pair = established([left, right]);
    move_gateway(&mut pair, SECOND);
    pair.deliver_to_left();
    assert_eq!(ike_path(&pair)[0], path(LEFT, RIGHT));
    assert_eq!(child_path(&pair)[0], None);
}
