//! What both sides negotiate: addresses, virtual addresses, selectors, and uniqueness (RFC 7296 sections
//! 1.3.1, 2.4, 2.9, 2.19 and 2.23, RFC 6023).

use crate::forge::{Attack, Raw, altered, count, give_on};
use crate::pair::{IkePeer, LEFT, Pair, RIGHT, child, connection, with_pool};
use crate::sessions::{alone, default_pair, established};
use casemate_ike::config::{AddrPattern, ChildMode, Childless, Connection, Unique};
use casemate_ike::{DownReason, Event, IkeState, NatStatus, Path, TrafficSelectorTemplate};
use casemate_sa::{AddrRange, Mode, PortRange};
use casemate_wire::ike::{ExchangeType, NotifyType, PayloadType};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// A NAT gives the left side another address and port.
fn behind_nat() -> Pair {
    let any = |own, peer| Connection { remote_addrs: vec![AddrPattern::Any], ..connection(own, peer) };
    let mut pair = Pair::new(connection("left", "right"), any("right", "left"));
    pair.left.initiate(pair.now);
    through_nat(&mut pair, outside(1_024));
    pair
}

fn outside(port: u16) -> SocketAddr {
    format!("198.51.100.7:{port}").parse().unwrap()
}

fn through_nat(pair: &mut Pair, seen: SocketAddr) {
    for _ in 0..50 {
        if let Some(transmit) = pair.left.sent.pop_front() {
            let path = Path { local: transmit.path.remote, remote: seen };
            let mut message = transmit.message;
            pair.right
                .with_context(pair.now, |ike, host, context| ike.receive(&mut message, path, host, context));
        }
        let Some(transmit) = pair.right.sent.pop_front() else { continue };
        assert_eq!(transmit.path.remote, seen, "the answer goes where the request came from");
        let local = (pair.left.addr, transmit.path.local.port()).into();
        let path = Path { local, remote: transmit.path.local };
        let mut message = transmit.message;
        pair.left.with_context(pair.now, |ike, host, context| ike.receive(&mut message, path, host, context));
    }
}

#[test]
fn a_nat_is_detected_and_its_mapping_kept_alive() {
    let mut pair = behind_nat();
    let (left, right) = (pair.left.ike.status().next().unwrap(), pair.right.ike.status().next().unwrap());
    assert_eq!(left.nat, NatStatus { local: true, remote: false, forced: false });
    assert_eq!(right.nat, NatStatus { local: false, remote: true, forced: false });
    assert_eq!(
        (left.path.local.port(), left.path.remote.port(), right.path.local.port()),
        (4_500, 4_500, 4_500)
    );
    assert!(
        pair.left.children()[0].outbound.encap.is_some() && pair.right.children()[0].inbound.encap.is_some()
    );
    // RFC 3948 section 4: a host behind a NAT sends keepalives, and only while it sends nothing else.
    let keepalives = alone(&mut pair, 61);
    assert_eq!(keepalives, [20, 40, 60]);
    pair.right.handle_timeouts(pair.now);
    assert!(pair.right.sent.is_empty());
}

#[test]
fn a_peer_behind_a_nat_may_move_but_only_with_the_key() {
    let mut pair = behind_nat();
    pair.left.ike.report_keys(true);
    let moved = |pair: &Pair| {
        pair.right.events.iter().filter(|event| matches!(event, Event::PathChanged { .. })).count()
    };
    // A changed message from another address.
    let sa = pair.left.ike.status().next().unwrap().id;
    pair.left.with_context(pair.now, |all, host, context| all.rekey(sa, host, context));
    let request = pair.left.sent.front().unwrap().message.clone();
    let mut changed = request.clone();
    *changed.last_mut().unwrap() ^= 1;
    let elsewhere = Path { local: (pair.right.addr, 4_500).into(), remote: outside(6_666) };
    assert!(give_on(&mut pair, &changed, elsewhere).is_empty());
    assert_eq!((moved(&pair), count(&pair.right, "icv-mismatch")), (0, 1));
    // The authentic message from another port of the NAT.
    through_nat(&mut pair, outside(2_048));
    assert_eq!(moved(&pair), 1);
    pair.check_children(1);
    // Replayed: the old IKE SA is gone by now, and nothing moves.
    give_on(&mut pair, &request, elsewhere);
    assert_eq!(moved(&pair), 1);
    assert_eq!(pair.right.ike.status().next().unwrap().path.remote, outside(2_048));
}

/// Both sides rekey the IKE SA, and the response that decides which successor stays comes from another port
/// of the NAT. The next request on the successor goes to that port.
#[test]
fn the_peers_successor_has_the_peers_current_address() {
    let mut stayed = 0;
    for seed in 0..20 {
        let mut pair = behind_nat();
        (pair.left.rng, pair.right.rng) =
            (crate::pair::RecordingRng::new(seed), crate::pair::RecordingRng::new(seed + 100));
        let (ours, theirs) =
            (pair.left.ike.status().next().unwrap().id, pair.right.ike.status().next().unwrap().id);
        pair.left.with_context(pair.now, |all, host, context| all.rekey(ours, host, context));
        pair.right.with_context(pair.now, |all, host, context| all.rekey(theirs, host, context));
        let (request, other) = (pair.left.sent.pop_front().unwrap(), pair.right.sent.pop_front().unwrap());
        let right = pair.right.addr;
        let seen_at = |port| Path { local: (right, 4_500).into(), remote: outside(port) };
        assert_eq!(give_on(&mut pair, &request.message, seen_at(1_024)).len(), 1);
        pair.left.sent.clear();
        let (local, mut message) = ((pair.left.addr, 4_500).into(), other.message);
        let path = Path { local, remote: other.path.local };
        pair.left.with_context(pair.now, |ike, host, context| ike.receive(&mut message, path, host, context));
        let response = pair.left.sent.pop_front().unwrap().message;
        give_on(&mut pair, &response, seen_at(2_048));
        let with_child = pair.right.ike.status().find(|ike| !ike.children.is_empty()).unwrap();
        stayed += usize::from(!with_child.initiator);
        assert_eq!(with_child.path.remote, outside(2_048), "{seed}");
    }
    assert!((1..20).contains(&stayed), "{stayed}");
}

#[test]
fn a_repeated_request_from_another_address_does_not_move_the_peer() {
    let mut pair = behind_nat();
    let id = pair.left.children()[0].id;
    pair.left.with_context(pair.now, |ike, host, context| {
        ike.terminate_child(id, DownReason::Local, host, context)
    });
    let request = pair.left.sent.front().unwrap().message.clone();
    through_nat(&mut pair, outside(1_024));
    let elsewhere = Path { local: (pair.right.addr, 4_500).into(), remote: outside(6_666) };
    give_on(&mut pair, &request, elsewhere);
    assert!(!pair.right.events.iter().any(|event| matches!(event, Event::PathChanged { .. })));
    assert_eq!(pair.right.ike.status().next().unwrap().path.remote, outside(1_024));
}

#[test]
fn without_a_nat_a_peer_does_not_move() {
    let mut attack = Attack::established();
    let elsewhere =
        Path { local: (attack.pair.right.addr, 500).into(), remote: "192.0.2.1:501".parse().unwrap() };
    let header = attack.forger.header(ExchangeType::INFORMATIONAL, 2, false);
    let message = attack.forger.seal(&header, &[]);
    give_on(&mut attack.pair, &message, elsewhere);
    assert_eq!(attack.pair.right.ike.status().next().unwrap().path.remote.port(), 500);
}

#[test]
fn virtual_addresses_are_leased_and_released() {
    let (left, right, pool) = with_pool("10.9.0.1", &["0.0.0.0"]);
    let mut pair = Pair::new(left, right);
    pair.right.add_pool(&pool);
    for _ in 0..3 {
        pair.left.initiate(pair.now);
        pair.run();
        let status = pair.left.ike.status().next().unwrap();
        assert_eq!(status.virtual_addrs, ["10.9.0.1".parse::<std::net::IpAddr>().unwrap()]);
        assert_eq!(status.dns, ["10.9.9.9".parse::<std::net::IpAddr>().unwrap()]);
        assert_eq!(pair.left.children()[0].local[0].addrs, AddrRange::single("10.9.0.1".parse().unwrap()));
        pair.check_children(1);
        pair.left.with_context(pair.now, |ike, host, context| {
            ike.terminate(status.id, DownReason::Local, host, context)
        });
        pair.run();
        assert!(matches!(pair.left.events.last(), Some(Event::IkeDown { .. })));
    }
    let unassigned =
        pair.left.events.iter().filter(|event| matches!(event, Event::AddrsReleased { .. })).count();
    assert_eq!(unassigned, 3);
}

#[test]
fn the_address_of_a_rejected_peer_returns_to_the_pool() {
    let (left, right, pool) = with_pool("10.9.0.1", &["0.0.0.0"]);
    let mut pair = Pair::new(left, right);
    pair.right.add_pool(&pool);
    // Two requests fail after the lease, because of their selectors.
    for seed in [5, 6] {
        pair.left = IkePeer::new(LEFT, seed, pair.left.ike.connections()[0].as_ref().clone());
        let (mut attack, auth) = Attack::half_open(pair);
        let header = attack.forger.header(ExchangeType::IKE_AUTH, 1, false);
        let broken = crate::forge::without(&auth, PayloadType::TS_I);
        let message = attack.forger.seal(&header, &broken);
        assert_eq!(attack.give(&message).len(), 1);
        assert_eq!(attack.pair.right.ike.status().count(), 0);
        pair = attack.pair;
    }
    pair.left = IkePeer::new(LEFT, 7, pair.left.ike.connections()[0].as_ref().clone());
    pair.left.initiate(pair.now);
    pair.run();
    assert_eq!(pair.left.ike.status().next().unwrap().virtual_addrs.len(), 1, "the only address is free");
}

/// RFC 7296 section 3.15.4: the client needs another IKE SA to get an address. It does not use its own one
/// meanwhile.
#[test]
fn without_a_free_address_there_is_no_child_sa_and_the_client_starts_again() {
    let (left, mut right, pool) = with_pool("10.9.0.1", &["0.0.0.0", "0.0.0.0"]);
    right.pools = vec!["other".into()];
    let mut pair = Pair::new(left, right);
    pair.right.add_pool(&pool);
    pair.left.initiate(pair.now);
    pair.run();
    assert_eq!(count(&pair.right, "no-address"), 1);
    let refused = |event: &Event| {
        matches!(
            event,
            Event::ChildFailed { reason: DownReason::Refused(NotifyType::INTERNAL_ADDRESS_FAILURE), .. }
        )
    };
    assert!(pair.left.events.iter().any(refused), "{:?}", pair.left.events);
    pair.check_children(0);
    assert_eq!((pair.left.ike.status().count(), pair.right.ike.status().count()), (0, 0));
    assert!(pair.left.leaked_spis().is_empty() && pair.right.leaked_spis().is_empty());
}

/// A connection with pools gives `dynamic` traffic to virtual addresses only: replies to another address would
/// leave in clear as soon as the tunnel has ended.
#[test]
fn a_client_that_requests_no_address_gets_no_traffic() {
    let (mut left, right, pool) = with_pool("10.9.0.9", &[]);
    left.vips.clear();
    let mut pair = Pair::new(left, right);
    pair.right.add_pool(&pool);
    pair.left.initiate(pair.now);
    pair.run();
    assert_eq!(count(&pair.right, "address-not-requested"), 1);
    let refused = |event: &Event| {
        matches!(
            event,
            Event::ChildFailed { reason: DownReason::Refused(NotifyType::FAILED_CP_REQUIRED), .. }
        )
    };
    assert!(pair.left.events.iter().any(refused), "{:?}", pair.left.events);
    let (connection, now) = (pair.left.ike.connections()[0].clone(), pair.now);
    pair.left.with_context(now, |ike, host, context| {
        ike.initiate(&connection, Some(&connection.children[0]), None, host, context).unwrap();
    });
    pair.run();
    assert_eq!(count(&pair.right, "ts-unacceptable"), 1, "nor later");
    pair.check_children(0);
    assert!(pair.left.leaked_spis().is_empty() && pair.right.leaked_spis().is_empty());
}

#[test]
fn selectors_are_narrowed() {
    let wide = |own, peer, len| {
        let mut connection = connection(own, peer);
        let net = |name: &str| if name == "left" { "10.1.0.0" } else { "10.2.0.0" };
        let ts = |name: &str| {
            let addrs = AddrRange::prefix(net(name).parse().unwrap(), len).unwrap();
            vec![TrafficSelectorTemplate { addrs: Some(addrs), proto: None, ports: PortRange::ANY }]
        };
        connection.children = vec![Arc::new(child(ts(own), ts(peer)))];
        connection
    };
    for (left, right) in [(8, 24), (24, 8), (16, 16)] {
        let pair = established(wide("left", "right", left), wide("right", "left", right));
        pair.check_children(1);
        let narrow = AddrRange::prefix("10.1.0.0".parse().unwrap(), left.max(right)).unwrap();
        assert_eq!(pair.left.children()[0].local[0].addrs, narrow);
    }
}

#[test]
fn transport_mode_falls_back_to_tunnel_mode() {
    let with = |own, peer, mode| {
        let mut connection = connection(own, peer);
        let dynamic = || vec![TrafficSelectorTemplate::DYNAMIC];
        let mut child = child(dynamic(), dynamic());
        child.mode = mode;
        connection.children = vec![Arc::new(child)];
        connection
    };
    use ChildMode::{Transport, Tunnel};
    for (left, right, both) in [
        (Transport, Transport, true),
        (Transport, Tunnel, false),
        (Tunnel, Transport, false),
        (Tunnel, Tunnel, false),
    ] {
        let pair = established(with("left", "right", left), with("right", "left", right));
        pair.check_children(1);
        let mode = pair.left.children()[0].inbound.mode;
        assert_eq!(mode, if both { Mode::Transport } else { Mode::Tunnel });
    }
}

#[test]
fn an_ike_sa_without_a_first_child_sa_gets_it_afterwards() {
    let prefer = Connection { childless: Childless::Prefer, ..connection("left", "right") };
    let pair = established(prefer.clone(), connection("right", "left"));
    pair.check_children(1);
    // Without the announcement the first Child SA is set up by IKE_AUTH.
    let never = Connection { childless: Childless::Never, ..connection("right", "left") };
    established(prefer, never).check_children(1);
}

/// A second IKE SA of the same peer, which has forgotten the first one or not.
fn second(unique: Unique, forgotten: bool) -> Pair {
    let mut pair =
        established(connection("left", "right"), Connection { unique, ..connection("right", "left") });
    pair.now = pair.now.after(Duration::from_secs(1));
    if forgotten {
        pair.left = IkePeer::new(LEFT, 99, connection("left", "right"));
        pair.left.initiate(pair.now);
    } else {
        // A third one without INITIAL_CONTACT.
        let never = Connection { unique: Unique::Never, ..connection("left", "right") };
        pair.left = IkePeer::new(LEFT, 99, never);
        pair.left.initiate(pair.now);
    }
    pair.run();
    pair
}

#[test]
fn a_second_ike_sa_of_a_peer_follows_the_unique_policy() {
    let kept = |pair: &Pair| (pair.right.ike.status().count(), pair.right.down_reasons());
    let replaced = (1, vec![DownReason::InitialContact]);
    // INITIAL_CONTACT (RFC 7296 section 2.4) is obeyed unless `unique` is `never`.
    for unique in [Unique::No, Unique::Keep, Unique::Replace] {
        assert_eq!(kept(&second(unique, true)), replaced, "{unique:?}");
    }
    assert_eq!(kept(&second(Unique::Never, true)), (2, vec![]));
    assert_eq!(kept(&second(Unique::No, false)), (2, vec![]));
    let refused = second(Unique::Keep, false);
    assert_eq!((refused.right.ike.status().count(), count(&refused.right, "not-unique")), (1, 1));
    assert_eq!(refused.left.down_reasons(), [DownReason::Refused(NotifyType::AUTHENTICATION_FAILED)]);
    assert_eq!(
        second(Unique::Replace, false)
            .right
            .ike
            .status()
            .filter(|ike| ike.state == IkeState::Established)
            .count(),
        1
    );
}

#[test]
fn initial_contact_of_another_peer_closes_nothing() {
    let mut pair = default_pair();
    pair.now = pair.now.after(Duration::from_secs(1));
    pair.left = IkePeer::new(LEFT, 99, connection("left", "right"));
    let (mut attack, auth) = Attack::half_open(pair);
    assert!(auth.contains(&Raw::notify(NotifyType::INITIAL_CONTACT, &[])));
    let forged = altered(&auth, PayloadType::AUTH, |auth| auth[8] ^= 1);
    let header = attack.forger.header(ExchangeType::IKE_AUTH, 1, false);
    let message = attack.forger.seal(&header, &forged);
    assert_eq!(attack.give(&message).len(), 1);
    assert_eq!(attack.count("auth-mismatch"), 1);
    assert_eq!(attack.pair.right.children().len(), 1);
    assert_eq!(attack.pair.right.ike.status().next().unwrap().state, IkeState::Established);
    assert_eq!(attack.pair.right.addr.to_string(), RIGHT);
}
