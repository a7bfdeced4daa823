//! Overlapping exchanges of both sides with lost and late messages: `docs/decisions/0056-collisions.md`.
//! `verify/sim/src/mix.rs` runs random ones.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod pair;

use casemate_crypto::KexMethod;
use casemate_ike::config::{CloseAction, Connection, Lifespan};
use casemate_ike::{ChildId, DownReason, Event, IkeSaId, IkeSettings, Transmit};
use casemate_wire::ike::Header;
use pair::{IkePeer, Pair, connection, deliver};
use std::time::Duration;

fn established() -> Pair {
    established_with(1)
}

/// Establishes a pair with random numbers from `seed`.
fn established_with(seed: u64) -> Pair {
    let mut pair = Pair {
        left: IkePeer::new(pair::LEFT, 2 * seed, connection("left", "right")),
        right: IkePeer::new(pair::RIGHT, 2 * seed + 1, connection("right", "left")),
        now: casemate_sa::Instant::from_secs(1_000),
    };
    pair.left.initiate(pair.now);
    pair.run();
    pair.check_children(1);
    pair
}

fn child(side: &IkePeer) -> ChildId {
    side.children().last().unwrap().id
}

fn ike(side: &IkePeer) -> IkeSaId {
    side.ike.status().next().unwrap().id
}

fn rekey_child(side: &mut IkePeer, pair_now: casemate_sa::Instant) {
    let id = child(side);
    assert!(side.with_context(pair_now, |ike, host, context| ike.rekey_child(id, host, context)));
}

fn rekey(side: &mut IkePeer, now: casemate_sa::Instant) {
    let id = ike(side);
    assert!(side.with_context(now, |engine, host, context| engine.rekey(id, host, context)));
}

/// Advances the time until both sides have retransmitted and retried. Then checks the number of Child SAs,
/// that they are in one IKE SA, and that no SPI is leaked.
fn run_and_check(pair: &mut Pair, children: usize) {
    pair.run();
    pair.advance(Duration::from_secs(200));
    pair.check_children(children);
    for side in [&pair.left, &pair.right] {
        let ikes: Vec<_> = side.ike.status().collect();
        assert_eq!((ikes.len(), ikes[0].children.len()), (1, children), "{ikes:?}");
        assert_eq!(side.leaked_spis(), []);
        assert!(side.children().iter().all(|child| child.active));
    }
}

/// Takes the only message that a side has sent.
fn only(side: &mut IkePeer) -> Transmit {
    assert_eq!(side.sent.len(), 1);
    side.sent.pop_front().unwrap()
}

/// The response that creates a Child SA is lost, and the peer deletes the Child SA before the retransmission.
#[test]
fn a_delete_overtakes_the_response() {
    let mut pair = established();
    rekey_child(&mut pair.left, pair.now);
    pair.deliver_to_right();
    pair.right.sent.clear();
    let new = child(&pair.right);
    assert!(pair.right.with_context(pair.now, |ike, host, context| ike.terminate_child(
        new,
        DownReason::Local,
        host,
        context
    )));
    run_and_check(&mut pair, 0);
}

/// Like the previous test, with a Child SA that replaces none.
#[test]
fn a_delete_overtakes_the_first_response() {
    let mut pair = established();
    pair.left.initiate(pair.now);
    pair.deliver_to_right();
    pair.right.sent.clear();
    let new = child(&pair.right);
    assert!(pair.right.with_context(pair.now, |ike, host, context| ike.terminate_child(
        new,
        DownReason::Local,
        host,
        context
    )));
    run_and_check(&mut pair, 1);
    let failed = |event: &&Event| matches!(event, Event::ChildFailed { reason: DownReason::Peer, .. });
    assert_eq!(pair.left.events.iter().filter(failed).count(), 1);
}

/// The response that creates a Child SA is lost, and the peer rekeys the Child SA before the retransmission.
#[test]
fn a_rekeying_overtakes_the_response() {
    let mut pair = established();
    rekey_child(&mut pair.left, pair.now);
    pair.deliver_to_right();
    pair.right.sent.clear();
    rekey_child(&mut pair.right, pair.now);
    run_and_check(&mut pair, 1);
}

/// Both sides rekey a Child SA, and our exchange is complete before the peer's request arrives. The peer's
/// request is too late, whatever its nonces are.
#[test]
fn a_rekeyed_child_sa_is_not_rekeyed_again() {
    for seed in 1..20 {
        let mut pair = established_with(seed);
        // The second request waits behind the first one and would be sent before the Delete.
        for _ in 0..2 {
            rekey_child(&mut pair.left, pair.now);
        }
        rekey_child(&mut pair.right, pair.now);
        let late = only(&mut pair.right);
        pair.deliver_to_right();
        pair.deliver_to_left();
        deliver(&mut pair.left, late, pair.now);
        run_and_check(&mut pair, 1);
    }
}

/// Both sides rekey the IKE SA, and our request is lost: the peer sees no collision and uses its successor at
/// once. Its Delete of the old IKE SA is late. An exchange on the successor about a Child SA applies to the
/// Child SA that is still in the old IKE SA here.
fn peer_uses_its_successor(act: impl Fn(&mut IkePeer, casemate_sa::Instant)) -> Pair {
    let mut pair = established();
    rekey(&mut pair.left, pair.now);
    pair.left.sent.clear();
    rekey(&mut pair.right, pair.now);
    pair.deliver_to_left();
    pair.deliver_to_right();
    let delete = only(&mut pair.right);
    act(&mut pair.right, pair.now);
    pair.deliver_to_left();
    pair.deliver_to_right();
    pair.deliver_to_left();
    deliver(&mut pair.left, delete, pair.now);
    pair
}

#[test]
fn the_peer_deletes_a_child_sa_on_its_successor() {
    let mut pair = peer_uses_its_successor(|side, now| {
        let id = child(side);
        assert!(side.with_context(now, |ike, host, context| ike.terminate_child(
            id,
            DownReason::Local,
            host,
            context
        )));
    });
    run_and_check(&mut pair, 0);
}

#[test]
fn the_peer_rekeys_a_child_sa_on_its_successor() {
    let mut pair = peer_uses_its_successor(rekey_child);
    // No request was rejected.
    assert!(!pair.left.events.iter().any(|event| matches!(event, Event::Fault { .. })));
    run_and_check(&mut pair, 1);
}

#[test]
fn the_peer_rekeys_its_successor() {
    let mut pair = peer_uses_its_successor(|side, now| {
        let newest = side.ike.status().last().unwrap().id;
        assert!(side.with_context(now, |engine, host, context| engine.rekey(newest, host, context)));
    });
    run_and_check(&mut pair, 1);
}

/// Both sides rekey the IKE SA, and the response to our request is late. The peer knows both results: it uses
/// or deletes its successor before we know them.
#[test]
fn the_peer_knows_the_remaining_successor_first() {
    let mut kept = [0; 2];
    for seed in 1..20 {
        let mut pair = established_with(seed);
        rekey(&mut pair.left, pair.now);
        rekey(&mut pair.right, pair.now);
        let request = only(&mut pair.right);
        pair.deliver_to_right();
        let response = only(&mut pair.right);
        deliver(&mut pair.left, request, pair.now);
        pair.deliver_to_right();
        let delete = only(&mut pair.right);
        let used = child(&pair.right);
        assert!(pair.right.with_context(pair.now, |ike, host, context| ike.rekey_child(used, host, context)));
        let ours = pair.right.ike.status().find(|ike| !ike.children.is_empty()).unwrap();
        kept[usize::from(ours.initiator)] += 1;
        // The Delete of the old IKE SA is late; that of the redundant successor is not.
        if !ours.initiator {
            deliver(&mut pair.left, delete.clone(), pair.now);
        }
        pair.deliver_to_left();
        pair.deliver_to_right();
        deliver(&mut pair.left, response, pair.now);
        deliver(&mut pair.left, delete, pair.now);
        run_and_check(&mut pair, 1);
    }
    assert!(kept.iter().all(|times| *times > 3), "{kept:?}");
}

/// Both sides start the same exchange at once. Returns whether the exchange of the left side has the lowest
/// of the four nonces.
fn begin_both(pair: &mut Pair, begin: impl Fn(&mut IkePeer, casemate_sa::Instant)) -> bool {
    for side in [&mut pair.left, &mut pair.right] {
        side.rng.nonces.clear();
        begin(side, pair.now);
    }
    pair.run();
    // The nonce of the request was drawn before that of the response.
    let [left, right] = [&pair.left, &pair.right].map(|side| <[_; 2]>::try_from(&*side.rng.nonces).unwrap());
    left[0].min(right[1]) < right[0].min(left[1])
}

/// Child SAs that a side installed after the first one, and those that it asked the peer to close.
fn made_and_closed(side: &IkePeer) -> (Vec<ChildId>, Vec<ChildId>) {
    let made = side.events.iter().filter_map(|event| match event {
        Event::ChildUp(up) => Some(up.id),
        _ => None,
    });
    let closed = side.events.iter().filter_map(|event| match event {
        Event::ChildClosing(id) => Some(*id),
        _ => None,
    });
    (made.skip(1).collect(), closed.collect())
}

/// RFC 7296 section 2.8.1: the endpoint that created the Child SA with the lowest of the four nonces closes
/// it.
#[test]
fn the_lowest_nonce_decides_which_child_sa_is_redundant() {
    let mut lowest = [0; 2];
    for seed in 1..20 {
        let mut pair = established_with(seed);
        let old = [child(&pair.left), child(&pair.right)];
        let is_left = begin_both(&mut pair, rekey_child);
        lowest[usize::from(is_left)] += 1;
        for (side, old, is_redundant) in [(&pair.left, old[0], is_left), (&pair.right, old[1], !is_left)] {
            let (made, closed) = made_and_closed(side);
            // The peer's request arrived before the response.
            let [of_peer, own] = made[..] else { panic!("{made:?}") };
            let (stays, closes) = if is_redundant { (of_peer, own) } else { (own, old) };
            assert_eq!(
                (side.ike.status().next().unwrap().children[0].id, closed),
                (stays, vec![closes]),
                "{seed}"
            );
        }
        run_and_check(&mut pair, 1);
    }
    assert!(lowest.iter().all(|times| *times > 3), "{lowest:?}");
}

/// RFC 7296 section 2.8.2: the same rule for IKE SAs.
#[test]
fn the_lowest_nonce_decides_which_ike_sa_is_redundant() {
    let mut lowest = [0; 2];
    for seed in 1..20 {
        let mut pair = established_with(seed);
        let is_left = begin_both(&mut pair, rekey);
        lowest[usize::from(is_left)] += 1;
        run_and_check(&mut pair, 1);
        let is_lefts = [&pair.left, &pair.right].map(|side| side.ike.status().next().unwrap().initiator);
        assert_eq!(is_lefts, [!is_left, is_left], "{seed}");
    }
    assert!(lowest.iter().all(|times| *times > 3), "{lowest:?}");
}

/// No request is sent on a provisional successor.
#[test]
fn a_provisional_successor_sends_no_requests() {
    let mut pair = established();
    rekey(&mut pair.left, pair.now);
    pair.left.sent.clear();
    rekey(&mut pair.right, pair.now);
    pair.deliver_to_left();
    let provisional = pair.left.ike.status().last().unwrap().id;
    let answered = pair.left.sent.len();
    assert!(pair.left.with_context(pair.now, |engine, host, context| engine.rekey(
        provisional,
        host,
        context
    )));
    assert_eq!(pair.left.sent.len(), answered);
    run_and_check(&mut pair, 1);
}

/// A provisional successor is not rekeyed, and the peer's liveness is not checked. The timers continue when
/// the peer has chosen the successor.
#[test]
fn the_timers_of_a_provisional_successor_wait() {
    let mut left = connection("left", "right");
    let rekey_after = Duration::from_secs(30);
    left.lifespan = Lifespan { rekey: Some(rekey_after), jitter: Duration::ZERO, hard: None };
    left.dpd_delay = Some(Duration::from_secs(20));
    let mut pair = Pair::new(left, connection("right", "left"));
    pair.left.initiate(pair.now);
    pair.run();
    rekey(&mut pair.left, pair.now);
    pair.left.sent.clear();
    rekey(&mut pair.right, pair.now);
    pair.deliver_to_left();
    pair.deliver_to_right();
    pair.right.sent.clear();
    let provisional = pair.left.ike.status().last().unwrap();
    let rekey_at = pair.now.after(rekey_after);
    for _ in 0..60 {
        pair.now = pair.now.after(Duration::from_secs(1));
        pair.left.handle_timeouts(pair.now);
        let is_its =
            |sent: Transmit| Header::parse(&sent.message).unwrap().spi_i == provisional.spis.initiator;
        assert!(!pair.left.sent.drain(..).any(is_its));
        // A timer without effect would expire again and again.
        assert!(pair.left.ike.next_timeout().is_some_and(|due| due > pair.now));
        let status = pair.left.ike.status().find(|ike| ike.id == provisional.id).unwrap();
        assert_eq!(status.rekey_at, Some(rekey_at));
    }
    rekey_child(&mut pair.right, pair.now);
    pair.deliver_to_left();
    // The peer is busy, and the request is sent again some seconds later.
    pair.advance(Duration::from_secs(10));
    let newest = pair.left.ike.status().last().unwrap();
    assert!(newest.id != provisional.id && newest.initiator, "{newest:?}");
}

/// The peer has chosen its successor and sends nothing. Our request is never answered, and the Delete of the
/// old IKE SA never arrives: the remaining successor takes over the Child SAs.
#[test]
fn an_unanswered_rekeying_hands_the_child_sas_to_the_peers_successor() {
    let mut pair = established();
    rekey(&mut pair.left, pair.now);
    pair.left.sent.clear();
    rekey(&mut pair.right, pair.now);
    pair.deliver_to_left();
    pair.deliver_to_right();
    pair.right.sent.clear();
    for _ in 0..300 {
        pair.now = pair.now.after(Duration::from_secs(1));
        pair.left.handle_timeouts(pair.now);
        pair.right.handle_timeouts(pair.now);
        pair.left.sent.clear();
        pair.right.sent.clear();
    }
    assert_eq!(
        (pair.left.down_reasons(), pair.right.down_reasons()),
        (vec![DownReason::Replaced], vec![DownReason::Replaced])
    );
    run_and_check(&mut pair, 1);
}

/// A pair whose left side restarts the Child SAs that the right side closes.
fn restarting(seed: u64) -> Pair {
    let mut left = connection("left", "right");
    std::sync::Arc::make_mut(&mut left.children[0]).close_action = CloseAction::Restart;
    let mut pair = Pair {
        left: IkePeer::new(pair::LEFT, 2 * seed, left),
        right: IkePeer::new(pair::RIGHT, 2 * seed + 1, connection("right", "left")),
        now: casemate_sa::Instant::from_secs(1_000),
    };
    pair.left.initiate(pair.now);
    pair.run();
    pair
}

fn close_children(side: &mut IkePeer, now: casemate_sa::Instant) {
    for child in side.ike.status().flat_map(|ike| ike.children).collect::<Vec<_>>() {
        assert!(side.with_context(now, |ike, host, context| ike.terminate_child(
            child.id,
            DownReason::Local,
            host,
            context
        )));
    }
}

/// Both sides rekey a Child SA. The response to the left side is lost, and the right side closes both Child
/// SAs before the retransmission: `close_action` restarts one.
#[test]
fn both_child_sas_are_closed_before_the_response_arrives() {
    for seed in 1..20 {
        let mut pair = restarting(seed);
        rekey_child(&mut pair.left, pair.now);
        let request = only(&mut pair.left);
        rekey_child(&mut pair.right, pair.now);
        pair.deliver_to_left();
        deliver(&mut pair.right, request, pair.now);
        pair.right.sent.clear();
        close_children(&mut pair.right, pair.now);
        pair.deliver_to_right();
        run_and_check(&mut pair, 1);
    }
}

/// The left side rekeys a Child SA, and the request is late. The right side has rekeyed it meanwhile and
/// closes the new one.
#[test]
fn the_peer_closes_the_child_sa_that_it_rekeyed_meanwhile() {
    for seed in 1..20 {
        let mut pair = restarting(seed);
        rekey_child(&mut pair.left, pair.now);
        let late = only(&mut pair.left);
        rekey_child(&mut pair.right, pair.now);
        pair.run();
        close_children(&mut pair.right, pair.now);
        pair.run();
        pair.left.sent.push_back(late);
        run_and_check(&mut pair, 1);
    }
}

/// With a limit of one IKE SA, both sides rekey it and a response is lost: the old IKE SA stays until the
/// retransmission.
#[test]
fn both_sides_rekey_with_room_for_one_ike_sa() {
    for seed in 1..20 {
        let mut pair = established_with(seed);
        for (side, own, peer) in [(&mut pair.left, "left", "right"), (&mut pair.right, "right", "left")] {
            let addr = if own == "left" { pair::LEFT } else { pair::RIGHT };
            let settings = IkeSettings { max_ike_sas: 1, ..IkeSettings::SERVER };
            *side = IkePeer::with(
                settings,
                addr,
                100 + 2 * seed + u64::from(own == "left"),
                connection(own, peer),
            );
        }
        pair.left.initiate(pair.now);
        pair.run();
        rekey(&mut pair.left, pair.now);
        rekey(&mut pair.right, pair.now);
        let request = only(&mut pair.left);
        pair.deliver_to_left();
        deliver(&mut pair.right, request, pair.now);
        pair.right.sent.clear();
        pair.deliver_to_right();
        pair.deliver_to_left();
        run_and_check(&mut pair, 1);
        assert!(
            !pair.left.down_reasons().contains(&DownReason::DeadPeer),
            "{seed}: {:?}",
            pair.left.down_reasons()
        );
    }
}

/// Both sides rekey the IKE SA, and the response to the left side is late. The right side has chosen its own
/// successor and closes it: everything has ended, although the response makes another successor.
#[test]
fn the_peer_closes_its_successor_before_we_know_that_it_stays() {
    let mut times = 0;
    for seed in 1..20 {
        let mut pair = established_with(seed);
        rekey(&mut pair.left, pair.now);
        rekey(&mut pair.right, pair.now);
        let request = only(&mut pair.right);
        pair.deliver_to_right();
        // The response.
        pair.right.sent.clear();
        deliver(&mut pair.left, request, pair.now);
        pair.deliver_to_right();
        let chosen = pair.right.ike.status().find(|ike| !ike.children.is_empty()).unwrap();
        if !chosen.initiator {
            continue;
        }
        times += 1;
        // The Delete of the old IKE SA is lost; that of the new one is not.
        pair.right.sent.clear();
        assert!(pair.right.with_context(pair.now, |engine, host, context| engine.terminate(
            chosen.id,
            DownReason::Local,
            host,
            context
        )));
        pair.deliver_to_left();
        pair.deliver_to_right();
        pair.now = pair.now.after(Duration::from_secs(1));
        pair.left.handle_timeouts(pair.now);
        pair.deliver_to_right();
        pair.deliver_to_left();
        pair.run();
        pair.advance(Duration::from_secs(10));
        assert_eq!((pair.left.ike.status().count(), pair.right.ike.status().count()), (0, 0), "{seed}");
        let closed = |event: &Event| matches!(event, Event::ChildDown { reason: DownReason::Peer, .. });
        assert_eq!(pair.left.events.iter().filter(|event| closed(event)).count(), 1, "{seed}");
        assert_eq!((pair.left.leaked_spis(), pair.right.leaked_spis()), (vec![], vec![]));
    }
    assert!(times > 3, "{times}");
}

/// The peer has closed the replacement of a Child SA, so we close the old one. The peer closes the IKE SA
/// before it answers: `close_action` restarts the Child SA.
#[test]
fn the_peer_closes_the_ike_sa_after_the_child_sa_that_we_close_because_of_it() {
    let mut pair = restarting(1);
    rekey_child(&mut pair.left, pair.now);
    pair.deliver_to_right();
    let response = only(&mut pair.right);
    let new = child(&pair.right);
    assert!(pair.right.with_context(pair.now, |ike, host, context| ike.terminate_child(
        new,
        DownReason::Local,
        host,
        context
    )));
    pair.deliver_to_left();
    pair.deliver_to_right();
    deliver(&mut pair.left, response, pair.now);
    // The Delete of the old Child SA.
    assert_eq!(pair.left.sent.len(), 1);
    pair.left.sent.clear();
    let id = ike(&pair.right);
    assert!(pair.right.with_context(pair.now, |engine, host, context| engine.terminate(
        id,
        DownReason::Local,
        host,
        context
    )));
    run_and_check(&mut pair, 1);
}

/// The response that creates a Child SA is lost, and the peer deletes the Child SA before the retransmission:
/// `close_action` restarts it after increasing pauses.
#[test]
fn a_child_sa_deleted_before_its_response_arrives_is_restarted() {
    let mut pair = restarting(1);
    close_children(&mut pair.right, pair.now);
    pair.run();
    let mut pauses = vec![];
    for _ in 0..4 {
        let closed = pair.now;
        while pair.left.sent.is_empty() && pair.now.since(closed) < Duration::from_secs(600) {
            pair.now = pair.now.after(Duration::from_secs(1));
            pair.left.handle_timeouts(pair.now);
        }
        pauses.push(pair.now.since(closed));
        pair.deliver_to_right();
        let response = only(&mut pair.right);
        close_children(&mut pair.right, pair.now);
        pair.deliver_to_left();
        pair.deliver_to_right();
        deliver(&mut pair.left, response, pair.now);
    }
    assert!(pauses.is_sorted() && pauses[3] > 2 * pauses[0], "{pauses:?}");
    run_and_check(&mut pair, 1);
}

/// The peer asks for another key exchange method and closes the Child SA that is being rekeyed; its response
/// is late.
#[test]
fn the_peer_closes_a_child_sa_while_its_rekeying_changes_the_kex_method() {
    let mut left = connection("left", "right");
    let mut right = connection("right", "left");
    let propose = |connection: &mut Connection, kex: &[KexMethod]| {
        let child = std::sync::Arc::make_mut(&mut connection.children[0]);
        child.proposals.iter_mut().for_each(|proposal| proposal.kex = kex.to_vec());
        child.close_action = CloseAction::Restart;
    };
    propose(&mut left, &[KexMethod::X25519, KexMethod::EcpP256]);
    propose(&mut right, &[KexMethod::EcpP256]);
    let mut pair = Pair::new(left, right);
    pair.left.initiate(pair.now);
    pair.run();
    rekey_child(&mut pair.left, pair.now);
    pair.deliver_to_right();
    let late = only(&mut pair.right);
    close_children(&mut pair.right, pair.now);
    pair.deliver_to_left();
    deliver(&mut pair.left, late, pair.now);
    run_and_check(&mut pair, 1);
}
