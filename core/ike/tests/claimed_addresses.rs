//! Clients that claim addresses at which they do not receive, and clients that delay their end. A client has
//! the keys of its own IKE SA, and may send its messages from any address.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod pair;

use casemate_ike::config::{AddrPattern, ChildConfig, ChildMode, Connection};
use casemate_ike::{
    ChildUp, DownReason, Event, Path, StateFault, TrafficSelector, TrafficSelectorTemplate, Transmit,
};
use casemate_sa::{AddrRange, Instant};
use casemate_wire::ike::NotifyType;
use pair::{IkePeer, LEFT, Pair, RIGHT, connection, deliver};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Address of another host, at which the client does not receive.
const VICTIM: &str = "198.51.100.7";
const NATT: u16 = 4_500;

fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Connections of a client and of a gateway, whose Child SA carries the traffic of the client's own address.
fn connections(mobike: bool) -> [Connection; 2] {
    let (mut left, mut right) = (connection("left", "right"), connection("right", "left"));
    for connection in [&mut left, &mut right] {
        connection.mobike = mobike;
        connection.local_addrs = vec![AddrPattern::Any];
    }
    right.remote_addrs = vec![AddrPattern::Any];
    let dynamic = vec![TrafficSelectorTemplate::DYNAMIC];
    Arc::make_mut(&mut left.children[0]).local_ts = dynamic.clone();
    Arc::make_mut(&mut right.children[0]).remote_ts = dynamic;
    [left, right]
}

fn in_transport_mode(connection: &mut Connection) {
    let child = Arc::make_mut(&mut connection.children[0]);
    child.mode = ChildMode::Transport;
    child.local_ts = vec![TrafficSelectorTemplate::DYNAMIC];
    child.remote_ts = vec![TrafficSelectorTemplate::DYNAMIC];
}

fn pair_of([left, right]: [Connection; 2]) -> Pair {
    let mut pair = Pair::new(left, right);
    (pair.left.routes.source, pair.right.routes.source) = (Some(addr(LEFT)), Some(addr(RIGHT)));
    pair.left.initiate(pair.now);
    pair
}

fn established(mobike: bool) -> Pair {
    let mut pair = pair_of(connections(mobike));
    pair.run();
    pair.check_children(1);
    pair
}

/// The client says that it is at this address.
fn announce(pair: &mut Pair, at: &str) {
    pair.left.routes.source = Some(addr(at));
    pair.left.with_context(pair.now, |ike, host, context| ike.addresses_changed(host, context));
}

/// Delivers what the client has sent, as if from this address.
fn send_from(pair: &mut Pair, source: &str) {
    for mut transmit in pair.left.sent.drain(..).collect::<Vec<_>>() {
        transmit.path.local.set_ip(addr(source));
        deliver(&mut pair.right, transmit, pair.now);
    }
}

fn is_request(transmit: &Transmit) -> bool {
    // The flag R of the IKE header (RFC 7296 section 3.1).
    transmit.message[19] & 0x20 == 0
}

/// Delivers the responses of the gateway: the client gets them also from another address, if it repeats its
/// request from its own one. Returns the gateway's requests.
fn get_responses(pair: &mut Pair) -> Vec<Transmit> {
    let (requests, responses): (Vec<_>, Vec<_>) = pair.right.sent.drain(..).partition(is_request);
    responses.into_iter().for_each(|transmit| deliver(&mut pair.left, transmit, pair.now));
    requests
}

/// Traffic of the client and destination of its packets, for each Child SA of the gateway.
fn carried(pair: &Pair) -> Vec<(Vec<TrafficSelector>, IpAddr)> {
    pair.right.children().iter().map(|child| (child.remote.clone(), child.outbound.dst)).collect()
}

fn only(address: &str) -> Vec<TrafficSelector> {
    vec![TrafficSelector::any(AddrRange::single(addr(address)))]
}

fn moved_to(pair: &Pair, address: &str) -> bool {
    let to =
        |event: &Event| matches!(event, Event::PathChanged { path, .. } if path.remote.ip() == addr(address));
    pair.right.events.iter().any(to)
}

/// The traffic of an address belongs to the client only after it has answered a check there.
#[test]
fn an_update_alone_does_not_claim_the_traffic_of_an_address() {
    let mut pair = established(true);
    announce(&mut pair, VICTIM);
    send_from(&mut pair, VICTIM);
    let check = get_responses(&mut pair);
    assert_eq!(check.len(), 1);
    let child = pair.left.children()[0].id;
    pair.left.with_context(pair.now, |ike, host, context| ike.rekey_child(child, host, context));
    send_from(&mut pair, LEFT);
    assert_eq!(carried(&pair), [(only(LEFT), addr(LEFT))], "the request names another address");
    get_responses(&mut pair);

    check.into_iter().for_each(|transmit| deliver(&mut pair.left, transmit, pair.now));
    pair.run();
    assert!(moved_to(&pair, VICTIM), "the client receives there after all");
    let child = pair.left.children()[0].id;
    pair.left.with_context(pair.now, |ike, host, context| ike.rekey_child(child, host, context));
    pair.run();
    assert_eq!(carried(&pair).last(), Some(&(only(VICTIM), addr(VICTIM))));
}

/// IKE_SA_INIT comes from the own address, and the rest from another one.
#[test]
fn a_request_of_ike_auth_alone_does_not_claim_an_address() {
    for mobike in [true, false] {
        let mut pair = pair_of(connections(mobike));
        pair.deliver_to_right();
        pair.deliver_to_left();
        send_from(&mut pair, VICTIM);
        let requests = get_responses(&mut pair);
        // RFC 7296 section 2.23 lets the packets follow without MOBIKE.
        let destination = if mobike { LEFT } else { VICTIM };
        let [(traffic, to)] = &carried(&pair)[..] else { panic!("{:?}", carried(&pair)) };
        assert!(traffic != &only(VICTIM) && *to == addr(destination), "{traffic:?}, {to}");
        assert_eq!(requests.len(), usize::from(mobike), "the address is checked");
    }
}

/// Connections whose gateway accepts only addresses of 192.0.2.0/24.
fn limited(mobike: bool) -> [Connection; 2] {
    let [mut left, mut right] = connections(mobike);
    left.children = connection("left", "right").children;
    right.children = connection("right", "left").children;
    right.remote_addrs = vec![AddrPattern::Range(AddrRange::prefix(addr("192.0.2.0"), 24).unwrap())];
    [left, right]
}

/// The client begins at its own address, and goes on with IKE_AUTH at another one.
fn authenticate_from(pair: &mut Pair, from: &str) -> Vec<Transmit> {
    pair.left.initiate(pair.now);
    pair.deliver_to_right();
    pair.deliver_to_left();
    send_from(pair, from);
    pair.right.sent.drain(..).filter(|transmit| !is_request(transmit)).collect()
}

/// An IKE_AUTH request from another address is a move, and `remote_addrs` limits it.
#[test]
fn ike_auth_comes_from_an_address_that_the_connection_allows() {
    for mobike in [true, false] {
        let [left, right] = limited(mobike);
        let mut pair = Pair::new(left.clone(), right);
        (pair.left.routes.source, pair.right.routes.source) = (Some(addr(LEFT)), Some(addr(RIGHT)));
        authenticate_from(&mut pair, "192.0.2.77");
        let known: Vec<_> = pair.right.ike.status().map(|sa| sa.id).collect();
        assert_eq!((known.len(), pair.right.children().len()), (1, 1), "MOBIKE {mobike}");

        // The client has restarted, and says so.
        pair.left = IkePeer::new(LEFT, 5, left);
        pair.left.routes.source = Some(addr(LEFT));
        let answers = authenticate_from(&mut pair, VICTIM);
        assert_eq!(answers.len(), 1, "a refusal");
        assert_eq!(answers[0].path.remote.ip(), addr(VICTIM));
        deliver(&mut pair.left, answers[0].clone(), pair.now);
        let refused = DownReason::Refused(NotifyType::UNACCEPTABLE_ADDRESSES);
        assert_eq!(pair.left.down_reasons(), [refused]);
        assert_eq!(pair.right.ike.faults().state(StateFault::UnacceptableAddresses), 1);
        let left: Vec<_> = pair.right.ike.status().map(|sa| sa.id).collect();
        assert_eq!((left, pair.right.children().len()), (known, 1), "a refused request closes nothing");
        assert!(pair.right.leaked_spis().is_empty());
    }
}

/// Without MOBIKE, the path follows a peer behind a NAT as far as `remote_addrs` allows.
#[test]
fn a_gateway_follows_a_nat_to_addresses_that_the_connection_allows() {
    let mut pair = pair_of(limited(false));
    for _ in 0..2 {
        send_from(&mut pair, "192.0.2.77");
        for mut transmit in pair.right.sent.drain(..).collect::<Vec<_>>() {
            transmit.path.remote.set_ip(addr(LEFT));
            deliver(&mut pair.left, transmit, pair.now);
        }
    }
    assert_eq!(pair.right.children().len(), 1);
    for (from, follows) in [(VICTIM, false), ("192.0.2.78", true)] {
        let child = pair.left.children()[0].id;
        pair.left.with_context(pair.now, |ike, host, context| ike.rekey_child(child, host, context));
        send_from(&mut pair, from);
        assert_eq!(moved_to(&pair, from), follows, "{from}");
        let at = pair.right.ike.status().next().unwrap().path.remote.ip();
        assert_eq!(at == addr(from), follows, "{from}");
        assert_eq!(pair.right.sent[0].path.remote.ip(), addr(from), "the request is answered");
        get_responses(&mut pair);
        send_from(&mut pair, from);
        get_responses(&mut pair);
    }
    assert!(pair.right.ike.faults().state(StateFault::UnacceptableAddresses) > 0);
}

/// In transport mode, packets go to the address of the path, and that of IKE_AUTH is not proved.
#[test]
fn transport_mode_is_not_accepted_at_an_address_that_is_not_proved() {
    for (mobike, any) in [(true, false), (false, false), (false, true)] {
        let mut connections = connections(mobike);
        for connection in &mut connections {
            in_transport_mode(connection);
        }
        let peer = TrafficSelectorTemplate {
            addrs: any.then(|| AddrRange::new(addr("0.0.0.0"), addr("255.255.255.255")).unwrap()),
            ..TrafficSelectorTemplate::DYNAMIC
        };
        Arc::make_mut(&mut connections[1].children[0]).remote_ts = vec![peer];
        let claims = |from: &str| {
            let mut pair = pair_of(connections.clone());
            pair.deliver_to_right();
            pair.deliver_to_left();
            send_from(&mut pair, from);
            carried(&pair).len()
        };
        assert_eq!((claims(VICTIM), claims(LEFT)), (0, 1), "MOBIKE {mobike}, any {any}");
    }
}

/// A client in transport mode appears behind its NAT with another address, at which nothing proves that it
/// receives.
#[test]
fn a_child_sa_in_transport_mode_does_not_follow_without_proof() {
    let mut connections = connections(false);
    for connection in &mut connections {
        in_transport_mode(connection);
    }
    let mut pair = pair_of(connections);
    let nat = "192.0.2.77";
    for _ in 0..3 {
        send_from(&mut pair, nat);
        for mut transmit in pair.right.sent.drain(..).collect::<Vec<_>>() {
            transmit.path.remote.set_ip(addr(LEFT));
            deliver(&mut pair.left, transmit, pair.now);
        }
    }
    assert_eq!(carried(&pair).len(), 1);
    let child = pair.left.children()[0].id;
    pair.left.with_context(pair.now, |ike, host, context| ike.rekey_child(child, host, context));
    send_from(&mut pair, VICTIM);
    assert_eq!(carried(&pair), [], "the IKE SA is closed");
}

/// A client in transport mode that moves to the address of the victim.
fn moving_in_transport_mode() -> Pair {
    let mut connections = connections(true);
    connections.iter_mut().for_each(in_transport_mode);
    let mut pair = pair_of(connections);
    pair.run();
    assert_eq!(carried(&pair), [(only(LEFT), addr(LEFT))]);
    announce(&mut pair, VICTIM);
    pair
}

/// The Child SA must not hold the traffic of the address that the client has left, which another host may
/// have now, even while the client accepts no other Child SA.
#[test]
fn a_proved_move_ends_the_traffic_of_transport_mode_at_the_former_address() {
    for is_busy in [false, true] {
        let mut pair = moving_in_transport_mode();
        pair.deliver_to_right();
        assert_eq!(carried(&pair), [(only(LEFT), addr(LEFT))], "it is not proved yet");
        pair.deliver_to_left();
        pair.deliver_to_right();
        assert_eq!(carried(&pair), []);
        assert_eq!(pair.right.sent.len(), 1, "the request of a new Child SA");
        if is_busy {
            let ike = pair.left.ike.status().next().unwrap().id;
            pair.left.with_context(pair.now, |engine, host, context| engine.rekey(ike, host, context));
            pair.left.sent.clear();
            pair.deliver_to_left();
            pair.deliver_to_right();
            assert_eq!(carried(&pair), []);
            pair.advance(Duration::from_secs(20));
        }
        pair.run();
        assert_eq!(carried(&pair), [(only(VICTIM), addr(VICTIM))], "busy: {is_busy}");
        pair.check_children(1);
        assert!(pair.right.leaked_spis().is_empty() && pair.left.leaked_spis().is_empty());
        let ended = |event: &&Event| matches!(event, Event::ChildDown { .. });
        assert_eq!(pair.right.events.iter().filter(ended).count(), 1);
    }
}

/// In tunnel mode, `dynamic` selectors have the address of the client, too. If the gateway does not replace
/// the Child SA, the client rekeys it.
#[test]
fn a_move_replaces_the_child_sa_with_the_former_address() {
    let mut pair = established(true);
    assert_eq!(carried(&pair), [(only(LEFT), addr(LEFT))]);
    announce(&mut pair, VICTIM);
    pair.deliver_to_right();
    assert_eq!(carried(&pair), [(only(LEFT), addr(LEFT))], "it is not proved yet");
    pair.deliver_to_left();
    pair.deliver_to_right();
    assert_eq!(carried(&pair), [], "the former address may be that of another host");
    pair.run();
    assert_eq!(carried(&pair), [(only(VICTIM), addr(VICTIM))]);
    pair.advance(Duration::from_secs(10));
    pair.check_children(1);
    // A gateway whose Child SA is not bound to the address of the client, as strongSwan changes it.
    let mut connections = connections(true);
    let any = AddrRange::new(addr("0.0.0.0"), addr("255.255.255.255")).unwrap();
    let peer = TrafficSelectorTemplate { addrs: Some(any), ..TrafficSelectorTemplate::DYNAMIC };
    Arc::make_mut(&mut connections[1].children[0]).remote_ts = vec![peer];
    let mut pair = pair_of(connections);
    pair.run();
    announce(&mut pair, VICTIM);
    pair.run();
    pair.advance(Duration::from_secs(5));
    assert_eq!(carried(&pair), [(only(VICTIM), addr(VICTIM))]);
    pair.check_children(1);
}

/// The gateway has one child for two of the client. Each Child SA has a successor with its traffic.
#[test]
fn a_move_replaces_each_child_sa() {
    let mut connections = connections(true);
    let nets = ["10.2.0.0", "10.2.8.0"].map(|net| AddrRange::prefix(addr(net), 24).unwrap());
    let template = connections[0].children[0].clone();
    let child = |(number, net): (usize, &AddrRange)| {
        let remote = TrafficSelectorTemplate { addrs: Some(*net), ..TrafficSelectorTemplate::DYNAMIC };
        Arc::new(ChildConfig { name: format!("net{number}"), remote_ts: vec![remote], ..(*template).clone() })
    };
    connections[0].children = nets.iter().enumerate().map(child).collect();
    let mut pair = pair_of(connections);
    pair.run();
    let second = pair.left.ike.connections()[0].clone();
    let now = pair.now;
    pair.left
        .with_context(now, |ike, host, context| {
            ike.initiate(&second, Some(&second.children[1]), None, host, context)
        })
        .unwrap();
    pair.run();
    let traffic = |pair: &Pair| {
        let one = |up: ChildUp| (up.child.name.clone(), up.local.clone(), up.remote);
        pair.left.children().into_iter().map(one).collect::<Vec<_>>()
    };
    assert_eq!(traffic(&pair).len(), 2);
    announce(&mut pair, VICTIM);
    pair.run();
    pair.advance(Duration::from_secs(10));
    let expected: Vec<_> = nets
        .iter()
        .enumerate()
        .map(|(number, net)| (format!("net{number}"), only(VICTIM), vec![TrafficSelector::any(*net)]))
        .collect();
    assert_eq!(traffic(&pair), expected);
    pair.check_children(2);
    assert!(pair.right.leaked_spis().is_empty() && pair.left.leaked_spis().is_empty());
}

/// A client that is back at its address before the check has the Child SA that it had.
#[test]
fn a_move_back_before_the_proof_keeps_the_child_sa() {
    let mut pair = moving_in_transport_mode();
    pair.deliver_to_right();
    let child = pair.right.children()[0].id;
    pair.right.sent.retain(|transmit| !is_request(transmit));
    pair.deliver_to_left();
    announce(&mut pair, LEFT);
    pair.run();
    pair.advance(Duration::from_secs(10));
    assert_eq!(carried(&pair), [(only(LEFT), addr(LEFT))]);
    assert_eq!(pair.right.children()[0].id, child);
    pair.check_children(1);
}

/// A cookie that was sent to two addresses proves neither of them.
#[test]
fn a_cookie_that_was_sent_to_two_addresses_proves_neither() {
    let mut pair = established(true);
    let mut known = None;
    for at in [VICTIM, LEFT, VICTIM] {
        announce(&mut pair, at);
        send_from(&mut pair, at);
        let requests = get_responses(&mut pair);
        if at == LEFT {
            known = requests.into_iter().next();
        }
    }
    // The client answers the request that it got at its own address, as if at that of the victim.
    deliver(&mut pair.left, known.unwrap(), pair.now);
    send_from(&mut pair, VICTIM);
    assert!(!moved_to(&pair, VICTIM));
    assert_eq!(carried(&pair), [(only(LEFT), addr(LEFT))]);
    let again: Vec<_> = pair.right.sent.iter().map(|transmit| transmit.path).collect();
    let end = |ip| SocketAddr::new(addr(ip), NATT);
    assert_eq!(again, [Path { local: end(RIGHT), remote: end(VICTIM) }], "a new check");
}

/// Passes the time while the client sends updates from two addresses in turn, and answers no request.
fn move_and_ignore(pair: &mut Pair, seconds: u64) {
    for second in 0..seconds {
        pair.now = pair.now.after(Duration::from_secs(1));
        pair.right.handle_timeouts(pair.now);
        if second % 4 == 0 {
            let at = if second % 8 == 0 { VICTIM } else { LEFT };
            announce(pair, at);
            send_from(pair, at);
        }
        get_responses(pair);
    }
}

fn ended_at(pair: &Pair, from: Instant) -> Option<Duration> {
    (pair.right.ike.status().count() == 0).then(|| pair.now.since(from))
}

/// A client that is locked out carries no more traffic, and does not keep its IKE SA by moving.
#[test]
fn a_client_that_moves_and_does_not_answer_is_locked_out() {
    let mut pair = established(true);
    move_and_ignore(&mut pair, 10);
    let ike = pair.right.ike.status().next().unwrap().id;
    let from = pair.now;
    pair.right.with_context(pair.now, |engine, host, context| {
        engine.terminate(ike, DownReason::Local, host, context)
    });
    assert_eq!(pair.right.children().len(), 0, "no more traffic");
    let down = |event: &Event| matches!(event, Event::ChildDown { reason: DownReason::Local, .. });
    assert_eq!(pair.right.events.iter().filter(|event| down(event)).count(), 1);
    let mut end = None;
    for _ in 0..30 {
        move_and_ignore(&mut pair, 10);
        end = end.or_else(|| ended_at(&pair, from));
    }
    assert!(end.unwrap() < Duration::from_secs(260), "{end:?}");
    assert_eq!(pair.right.events.iter().filter(|event| down(event)).count(), 1);
    assert!(pair.right.leaked_spis().is_empty());
}

/// The hard lifetime of a Child SA ends its traffic, although the Delete exchange waits.
#[test]
fn a_child_sa_ends_at_its_hard_lifetime() {
    let [left, mut right] = connections(true);
    Arc::make_mut(&mut right.children[0]).lifespan.hard = Some(Duration::from_secs(20));
    let mut pair = pair_of([left, right]);
    pair.run();
    pair.check_children(1);
    move_and_ignore(&mut pair, 21);
    assert_eq!(pair.right.children().len(), 0);
    let down = |event: &Event| matches!(event, Event::ChildDown { reason: DownReason::Expired, .. });
    assert!(pair.right.events.iter().any(down));
}

/// The client moves back and forth, each time before it answers the check of its address.
fn move_and_answer_late(pair: &mut Pair, seconds: u64) {
    for second in 0..seconds {
        pair.now = pair.now.after(Duration::from_secs(1));
        pair.right.handle_timeouts(pair.now);
        let requests = get_responses(pair);
        let at = if second % 2 == 0 { VICTIM } else { LEFT };
        announce(pair, at);
        send_from(pair, at);
        get_responses(pair);
        requests.into_iter().for_each(|transmit| deliver(&mut pair.left, transmit, pair.now));
        send_from(pair, at);
    }
}

/// What a client that moves before each response must not delay: the end of a Child SA, and of the IKE SA.
#[test]
fn a_client_that_moves_before_each_response_is_locked_out() {
    for whole in [false, true] {
        let mut pair = established(true);
        move_and_answer_late(&mut pair, 10);
        assert_eq!(pair.right.children().len(), 1);
        let (ike, child) = (pair.right.ike.status().next().unwrap().id, pair.right.children()[0].id);
        pair.right.with_context(pair.now, |engine, host, context| match whole {
            true => engine.terminate(ike, DownReason::Local, host, context),
            false => engine.terminate_child(child, DownReason::Local, host, context),
        });
        assert_eq!(pair.right.children().len(), 0, "no more traffic");
        move_and_answer_late(&mut pair, 10);
        let known: Vec<_> = pair.left.ike.status().map(|sa| sa.children.len()).collect();
        assert_eq!(known, if whole { vec![] } else { vec![0] }, "the client knows");
    }
}

/// Nor does it delay what else the gateway has to ask, such as a rekeying.
#[test]
fn a_client_that_moves_before_each_response_is_asked_for_other_things() {
    let mut pair = established(true);
    move_and_answer_late(&mut pair, 10);
    let ike = pair.right.ike.status().next().unwrap().id;
    pair.right.with_context(pair.now, |engine, host, context| engine.rekey(ike, host, context));
    move_and_answer_late(&mut pair, 10);
    assert!(pair.right.ike.status().all(|sa| sa.id != ike), "the IKE SA is rekeyed");
}

/// The client answers the gateway's rekeying only after the gateway has closed the Child SA by command.
#[test]
fn a_closed_child_sa_is_not_replaced() {
    let mut pair = established(true);
    let child = pair.right.children()[0].id;
    pair.right.with_context(pair.now, |ike, host, context| ike.rekey_child(child, host, context));
    pair.right.with_context(pair.now, |engine, host, context| {
        engine.terminate_child(child, DownReason::Local, host, context)
    });
    assert_eq!(pair.right.children().len(), 0);
    pair.run();
    assert_eq!((pair.left.children().len(), pair.right.children().len()), (0, 0));
    assert_eq!(pair.right.ike.status().count(), 1);
    assert!(pair.right.leaked_spis().is_empty());
}

/// The client rekeys the IKE SA, but neither uses its successor nor answers the gateway's own rekeying.
#[test]
fn a_collision_of_rekeyings_does_not_delay_the_end() {
    for by_successor in [false, true] {
        let mut pair = established(true);
        let old = pair.right.ike.status().next().unwrap().id;
        pair.right.with_context(pair.now, |ike, host, context| ike.rekey(old, host, context));
        pair.right.sent.clear();
        let its = pair.left.ike.status().next().unwrap().id;
        pair.left.with_context(pair.now, |ike, host, context| ike.rekey(its, host, context));
        pair.deliver_to_right();
        let new = pair.right.ike.status().map(|sa| sa.id).find(|id| *id != old).unwrap();
        assert_eq!(pair.right.children().len(), 1);
        let ike = if by_successor { new } else { old };
        pair.right.with_context(pair.now, |engine, host, context| {
            engine.terminate(ike, DownReason::Local, host, context)
        });
        assert_eq!(pair.right.children().len(), 0, "by successor: {by_successor}");
    }
}

/// A Child SA that the client has replaced, but not deleted, ends at its own hard lifetime.
#[test]
fn a_replaced_child_sa_ends_at_its_hard_lifetime() {
    let [left, mut right] = connections(true);
    Arc::make_mut(&mut right.children[0]).lifespan.hard = Some(Duration::from_secs(20));
    let mut pair = pair_of([left, right]);
    pair.run();
    pair.advance(Duration::from_secs(5));
    let child = pair.left.children()[0].id;
    let first = pair.right.children()[0].id;
    pair.left.with_context(pair.now, |ike, host, context| ike.rekey_child(child, host, context));
    send_from(&mut pair, LEFT);
    assert_eq!(pair.right.children().len(), 2);
    // Without the response, the client does not delete the old one.
    pair.right.sent.clear();
    move_and_ignore(&mut pair, 16);
    assert!(pair.right.children().iter().all(|child| child.id != first));
}
