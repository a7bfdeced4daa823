//! Retries, lifetimes and limits.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

mod pair;

use casemate_crypto::SecretBytes;
use casemate_ike::config::{
    AddrPattern, ChildConfig, CloseAction, Connection, Identity, Lifespan, LocalAuth, LocalMethod, Unique,
};
use casemate_ike::{ChildState, DownReason, Event, IkeSettings, IkeState};
use casemate_sa::Instant;
use casemate_wire::ike::{ExchangeType, Header};
use pair::{IkePeer, Pair, connection, deliver};
use std::sync::Arc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn established(left: Connection, right: Connection) -> Pair {
    let mut pair = Pair::new(left, right);
    pair.left.initiate(pair.now);
    pair.run();
    pair.check_children(1);
    pair
}

fn default_pair() -> Pair {
    established(connection("left", "right"), connection("right", "left"))
}

/// Advances the time second by second. Drops each message for which `is_lost` is true.
fn advance_dropping(pair: &mut Pair, time: Duration, is_lost: impl Fn(&Header) -> bool) {
    for _ in 0..time.as_secs() {
        pair.now = pair.now.after(SECOND);
        pair.left.handle_timeouts(pair.now);
        pair.right.handle_timeouts(pair.now);
        run(pair, &is_lost);
    }
}

fn run(pair: &mut Pair, is_lost: impl Fn(&Header) -> bool) {
    for _ in 0..100 {
        let lost = |side: &mut IkePeer| {
            side.sent.retain(|sent| Header::parse(&sent.message).is_ok_and(|header| !is_lost(&header)));
        };
        lost(&mut pair.left);
        pair.deliver_to_right();
        lost(&mut pair.right);
        if pair.right.sent.is_empty() && pair.left.sent.is_empty() {
            return;
        }
        pair.deliver_to_left();
    }
}

fn children(side: &IkePeer) -> Vec<ChildState> {
    side.ike.status().flat_map(|ike| ike.children).map(|child| child.state).collect()
}

fn states(side: &IkePeer) -> Vec<IkeState> {
    side.ike.status().map(|ike| ike.state).collect()
}

#[test]
fn ike_auth_without_response_is_restarted() {
    for (tries, is_up) in [(0, true), (1, false), (2, false), (6, true)] {
        let left = Connection { keying_tries: tries, ..connection("left", "right") };
        let mut pair = Pair::new(left, connection("right", "left"));
        pair.left.initiate(pair.now);
        let no_auth = |header: &Header| header.exchange == ExchangeType::IKE_AUTH;
        run(&mut pair, no_auth);
        advance_dropping(&mut pair, Duration::from_secs(600), no_auth);
        assert_eq!(
            pair.left.down_reasons(),
            if is_up { vec![] } else { vec![DownReason::DeadPeer] },
            "{tries}"
        );
        assert!(pair.left.host.reserved.len() <= 1, "{tries}: {:?}", pair.left.host.reserved);
        // The peer is reachable again.
        advance_dropping(&mut pair, Duration::from_secs(130), |_| false);
        pair.check_children(usize::from(is_up));
        assert!(pair.left.leaked_spis().is_empty(), "{tries}");
    }
}

#[test]
fn a_restarted_ike_sa_is_found_by_its_new_spi_only() {
    let left = Connection { keying_tries: 0, ..connection("left", "right") };
    let mut pair = Pair::new(left, connection("right", "left"));
    pair.left.initiate(pair.now);
    let first = pair.left.ike.status().next().unwrap();
    let request = pair.left.sent[0].clone();
    deliver(&mut pair.right, request, pair.now);
    let answer = pair.right.sent[0].clone();
    run(&mut pair, |header| header.exchange == ExchangeType::IKE_AUTH);
    advance_dropping(&mut pair, Duration::from_secs(124), |header| header.exchange == ExchangeType::IKE_AUTH);
    let again = pair.left.ike.status().next().unwrap();
    assert_eq!((first.id, pair.left.ike.status().count()), (again.id, 1));
    assert_ne!(first.spis.initiator, again.spis.initiator);
    deliver(&mut pair.left, answer, pair.now);
    assert_eq!(pair.left.ike.status().next().unwrap().spis, again.spis);
    assert!(pair.left.ike.faults().iter().any(|count| count == ("unknown-spi", 1)));
}

/// The peer restarts between IKE_SA_INIT and IKE_AUTH, and says that it does not know the IKE SA.
#[test]
fn a_peer_that_restarts_during_the_setup_is_asked_anew() {
    let left = Connection { keying_tries: 1, ..connection("left", "right") };
    let mut pair = Pair::new(left, connection("right", "left"));
    pair.left.initiate(pair.now);
    pair.deliver_to_right();
    pair.deliver_to_left();
    pair.right = IkePeer::new(pair::RIGHT, 9, connection("right", "left"));
    pair.right.ike.set_crash_secret(Some(SecretBytes::new(&[1; 32])));
    pair.run();
    assert_eq!(states(&pair.left), [IkeState::Connecting], "the report may be forged");
    pair.advance(Duration::from_secs(5));
    pair.check_children(1);
    let faults: Vec<_> = pair.left.ike.faults().iter().filter(|(_, count)| *count > 0).collect();
    assert_eq!(faults, [("setup-unknown", 1)]);
    assert!(pair.left.leaked_spis().is_empty());
}

/// A peer that never knows the IKE SA does not keep this host busy for ever.
#[test]
fn a_peer_that_always_forgets_the_setup_is_dead() {
    let left = Connection { keying_tries: 1, ..connection("left", "right") };
    let mut pair = Pair::new(left, connection("right", "left"));
    pair.left.initiate(pair.now);
    for _ in 0..300 {
        pair.now = pair.now.after(Duration::from_secs(1));
        let now = pair.now;
        pair.left.handle_timeouts(now);
        while !pair.left.sent.is_empty() {
            pair.deliver_to_right();
            pair.deliver_to_left();
            // Forgets at once.
            pair.right = IkePeer::new(pair::RIGHT, 9, connection("right", "left"));
        }
    }
    assert_eq!(pair.left.down_reasons(), [DownReason::DeadPeer]);
}

/// The response to a rekeying of the IKE SA is lost, and so are the retransmissions for a while. Requests are
/// retransmitted for two minutes, so the responder keeps the old IKE SA as long.
#[test]
fn a_rekeyed_ike_sa_outlives_the_retransmissions_of_its_rekeying() {
    for silence in [40, 62] {
        let mut pair = default_pair();
        let ike = pair.left.ike.status().next().unwrap().id;
        assert!(pair.left.with_context(pair.now, |engine, host, context| engine.rekey(ike, host, context)));
        pair.deliver_to_right();
        pair.right.sent.clear();
        advance_dropping(&mut pair, Duration::from_secs(silence), |_| true);
        advance_dropping(&mut pair, Duration::from_secs(200), |_| false);
        pair.check_children(1);
        for side in [&pair.left, &pair.right] {
            assert_eq!(
                (states(side), side.down_reasons()),
                (vec![IkeState::Established], vec![DownReason::Replaced]),
                "{silence}"
            );
        }
        assert_eq!(pair.left.ike.status().next().unwrap().spis, pair.right.ike.status().next().unwrap().spis);
    }
}

/// `unique = replace` with a peer that writes its name in another case.
#[test]
fn the_case_of_a_name_does_not_distinguish_peers() {
    let right = || Connection { unique: Unique::Replace, ..connection("right", "left") };
    let mut pair = established(connection("left", "right"), right());
    let local = LocalAuth { id: Some(Identity::Fqdn("LEFT".into())), method: LocalMethod::SharedKey };
    pair.left = IkePeer::new(pair::LEFT, 3, Connection { local, ..connection("left", "right") });
    pair.now = pair.now.after(SECOND);
    pair.left.initiate(pair.now);
    pair.run();
    let up = |event: &&Event| matches!(event, Event::IkeUp { .. });
    assert_eq!(pair.right.events.iter().filter(up).count(), 2);
    pair.advance(Duration::from_secs(200));
    assert_eq!(states(&pair.right), [IkeState::Established]);
    assert_eq!(children(&pair.right), [ChildState::Installed]);
}

/// A connection with these actions for its Child SA.
fn acting(own: &str, peer: &str, change: impl Fn(&mut ChildConfig)) -> Connection {
    let mut connection = connection(own, peer);
    change(Arc::make_mut(&mut connection.children[0]));
    connection
}

fn ending_after(time: u64) -> Lifespan {
    Lifespan { rekey: None, jitter: Duration::ZERO, hard: Some(Duration::from_secs(time)) }
}

type Action = (&'static str, fn(&mut ChildConfig), bool);

const ACTIONS: [Action; 5] = [
    ("none", |_| {}, false),
    ("trap", |child| child.start_action.on_traffic = true, false),
    ("start", |child| child.start_action.at_once = true, true),
    ("close_action", |child| child.close_action = CloseAction::Restart, true),
    ("dpd_action", |child| child.dpd_action = CloseAction::Restart, true),
];

#[test]
fn an_expired_child_sa_is_restarted_if_an_action_says_so() {
    for (name, change, comes_back) in ACTIONS {
        for on_both in [false, true] {
            let expiring = |own: &str, peer: &str| {
                acting(own, peer, |child| {
                    change(child);
                    child.lifespan = ending_after(100);
                })
            };
            let right = if on_both { expiring("right", "left") } else { connection("right", "left") };
            let mut pair = established(expiring("left", "right"), right);
            for round in 0..3 {
                pair.advance(Duration::from_secs(115));
                assert_eq!(children(&pair.left).len(), usize::from(comes_back), "{name} {on_both} {round}");
                pair.check_children(usize::from(comes_back));
            }
            let expired =
                |event: &Event| matches!(event, Event::ChildDown { reason: DownReason::Expired, .. });
            assert!(pair.left.events.iter().any(expired));
            assert!(pair.left.leaked_spis().is_empty() && pair.right.leaked_spis().is_empty());
        }
    }
}

#[test]
fn an_expired_ike_sa_is_restarted_if_an_action_says_so() {
    for (name, change, comes_back) in ACTIONS {
        for on_both in [false, true] {
            let expiring = |own: &str, peer: &str| {
                let mut connection = acting(own, peer, change);
                connection.lifespan = ending_after(100);
                connection
            };
            let right = if on_both { expiring("right", "left") } else { connection("right", "left") };
            let mut pair = established(expiring("left", "right"), right);
            for _ in 0..3 {
                pair.advance(Duration::from_secs(110));
                pair.check_children(usize::from(comes_back));
                assert_eq!(pair.left.ike.status().count(), usize::from(comes_back), "{name}");
            }
            assert_eq!(pair.left.down_reasons()[0], DownReason::Expired);
        }
    }
}

#[test]
fn a_locally_closed_child_sa_is_not_restarted_by_a_dead_peer() {
    let mut pair = established(
        acting("left", "right", |child| child.dpd_action = CloseAction::Restart),
        connection("right", "left"),
    );
    let child = pair.left.children()[0].id;
    pair.left.with_context(pair.now, |ike, host, context| {
        ike.terminate_child(child, DownReason::Local, host, context)
    });
    advance_dropping(&mut pair, Duration::from_secs(200), |_| true);
    assert_eq!((pair.left.down_reasons(), states(&pair.left).len()), (vec![DownReason::DeadPeer], 0));
}

/// The left side rekeys its Child SA while the right side closes it. With `rekeying_first` the request to
/// rekey arrives first, otherwise the Delete.
fn closed_while_rekeyed(action: CloseAction, rekeying_first: bool) -> Pair {
    let mut pair = established(
        acting("left", "right", |child| child.close_action = action),
        connection("right", "left"),
    );
    let (ours, theirs) = (pair.left.children()[0].id, pair.right.children()[0].id);
    pair.advance(Duration::from_secs(100));
    pair.left.with_context(pair.now, |ike, host, context| ike.rekey_child(ours, host, context));
    let rekeying = pair.left.sent.pop_front().unwrap();
    pair.right.with_context(pair.now, |ike, host, context| {
        ike.terminate_child(theirs, DownReason::Local, host, context)
    });
    if rekeying_first {
        deliver(&mut pair.right, rekeying, pair.now);
    } else {
        pair.deliver_to_left();
        pair.deliver_to_right();
        deliver(&mut pair.right, rekeying, pair.now);
    }
    pair.run();
    pair
}

#[test]
fn a_child_sa_closed_by_the_peer_during_rekeying_stays_closed() {
    for rekeying_first in [false, true] {
        for (action, expected) in [(CloseAction::Clear, 0), (CloseAction::Trap, 0), (CloseAction::Restart, 1)]
        {
            let mut pair = closed_while_rekeyed(action, rekeying_first);
            pair.advance(Duration::from_secs(100));
            pair.check_children(expected);
            let up = |event: &&Event| matches!(event, Event::ChildUp(_));
            assert_eq!(
                pair.left.events.iter().filter(up).count(),
                1 + expected,
                "{action:?} {rekeying_first}"
            );
            assert!(pair.left.leaked_spis().is_empty() && pair.right.leaked_spis().is_empty());
        }
    }
}

/// The peer is closing the Child SA, but its Delete payload is late (RFC 7296 section 2.25.1).
#[test]
fn a_child_sa_that_the_peer_is_closing_is_not_rekeyed() {
    let mut pair = default_pair();
    let (ours, theirs) = (pair.left.children()[0].id, pair.right.children()[0].id);
    pair.right.with_context(pair.now, |ike, host, context| {
        ike.terminate_child(theirs, DownReason::Local, host, context)
    });
    assert!(pair.right.sent.pop_front().is_some(), "the Delete payload is lost");
    assert_eq!(pair.right.ike.status().next().unwrap().children.len(), 0);
    pair.left.with_context(pair.now, |ike, host, context| ike.rekey_child(ours, host, context));
    pair.run();
    assert_eq!((pair.left.children().len(), pair.right.children().len()), (1, 0));
    pair.advance(Duration::from_secs(3));
    assert_eq!((pair.left.children().len(), pair.right.children().len()), (0, 0));
    assert!(pair.left.leaked_spis().is_empty() && pair.right.leaked_spis().is_empty());
}

/// Runs the left side with a peer that closes every Child SA at once with `close`. Returns the number of
/// Child SAs that the left side set up, and the seconds since the last one.
fn with_a_closing_peer(close: impl Fn(&mut IkePeer, Instant)) -> (usize, u64) {
    let mut pair = established(
        acting("left", "right", |child| child.close_action = CloseAction::Restart),
        connection("right", "left"),
    );
    let (mut seen, mut last) = (0, pair.now);
    for _ in 0..1_000 {
        close(&mut pair.right, pair.now);
        pair.run();
        pair.advance(SECOND);
        let ups = pair.left.events.iter().filter(|event| matches!(event, Event::ChildUp(_))).count();
        if ups != seen {
            (seen, last) = (ups, pair.now);
        }
    }
    (seen, pair.now.since(last).as_secs())
}

#[test]
fn pauses_grow_while_the_peer_keeps_closing() {
    let close_children = |side: &mut IkePeer, now| {
        for child in side.children() {
            side.with_context(now, |ike, host, context| {
                ike.terminate_child(child.id, DownReason::Local, host, context)
            });
        }
    };
    let close_ike_sas = |side: &mut IkePeer, now| {
        let all: Vec<_> = side.ike.status().map(|ike| ike.id).collect();
        for id in all {
            side.with_context(now, |ike, host, context| ike.terminate(id, DownReason::Local, host, context));
        }
    };
    for (ups, since) in [with_a_closing_peer(close_children), with_a_closing_peer(close_ike_sas)] {
        // Pauses of 2, 4, 8, 16, 32 and then 64 seconds, and up to twice as long. The left side never gives
        // up.
        assert!((12..=22).contains(&ups) && since <= 130, "{ups} times, last {since} s ago");
    }
}

/// The left side has rekeyed its Child SA and is about to close the old one. The peer's earlier request to
/// rekey the old one must not replace it again.
#[test]
fn late_simultaneous_rekeyings_leave_one_child_sa() {
    for seed in 0..40 {
        let mut pair = default_pair();
        (pair.left.rng, pair.right.rng) =
            (pair::RecordingRng::new(seed), pair::RecordingRng::new(seed + 1_000));
        let (ours, theirs) = (pair.left.children()[0].id, pair.right.children()[0].id);
        pair.right.with_context(pair.now, |ike, host, context| ike.rekey_child(theirs, host, context));
        let late = pair.right.sent.pop_front().unwrap();
        pair.left.with_context(pair.now, |ike, host, context| ike.rekey_child(ours, host, context));
        // Another request of the left side is sent before the Delete.
        pair.left.initiate(pair.now);
        pair.deliver_to_right();
        pair.deliver_to_left();
        deliver(&mut pair.left, late, pair.now);
        pair.run();
        pair.advance(Duration::from_secs(10));
        pair.check_children(2);
        assert_eq!(children(&pair.left), [ChildState::Installed; 2], "{seed}");
        assert_eq!(children(&pair.right), [ChildState::Installed; 2], "{seed}");
    }
}

/// The left side rekeys its IKE SA again and again and never closes the old ones.
#[test]
fn rekeying_respects_the_limit_of_ike_sas() {
    for (limit, most) in [(4, 2), (1, 2)] {
        let mut pair = Pair::with_defaults();
        let settings = IkeSettings { max_ike_sas: limit, ..IkeSettings::SERVER };
        pair.right = IkePeer::with(settings, pair::RIGHT, 2, connection("right", "left"));
        pair.left.initiate(pair.now);
        pair.run();
        for round in 0..50 {
            let ike = pair.left.ike.status().find(|ike| ike.state == IkeState::Established).unwrap().id;
            assert!(
                pair.left.with_context(pair.now, |engine, host, context| engine.rekey(ike, host, context))
            );
            // Only the request arrives, and its response.
            pair.deliver_to_right();
            pair.deliver_to_left();
            pair.left.sent.clear();
            assert!(pair.right.ike.ike_sa_count() <= most, "{round}: {:?}", states(&pair.right));
            assert_eq!(children(&pair.right).len(), 1);
        }
    }
}

/// A full table allows rekeying, and accepts new peers as soon as there is room.
#[test]
fn replaced_ike_sas_do_not_block_new_ones() {
    let right = || Connection { unique: Unique::Never, ..connection("right", "left") };
    let mut pair = Pair::with_defaults();
    pair.right =
        IkePeer::with(IkeSettings { max_ike_sas: 3, ..IkeSettings::SERVER }, pair::RIGHT, 2, right());
    let mut lefts: Vec<IkePeer> =
        (0..4).map(|seed| IkePeer::new(pair::LEFT, 10 + seed, connection("left", "right"))).collect();
    let with = |pair: &mut Pair, left: &mut IkePeer, act: fn(&mut IkePeer, Instant), rounds: usize| {
        core::mem::swap(&mut pair.left, left);
        act(&mut pair.left, pair.now);
        for _ in 0..rounds {
            pair.deliver_to_right();
            pair.deliver_to_left();
        }
        pair.left.sent.clear();
        core::mem::swap(&mut pair.left, left);
    };
    let rekey: fn(&mut IkePeer, Instant) = |side, now| {
        let ike = side.ike.status().find(|ike| ike.state == IkeState::Established).unwrap().id;
        side.with_context(now, |engine, host, context| engine.rekey(ike, host, context));
    };
    for left in &mut lefts[..3] {
        with(&mut pair, left, |side, now| side.initiate(now), 4);
    }
    with(&mut pair, &mut lefts[3], |side, now| side.initiate(now), 4);
    assert_eq!(states(&pair.right), [IkeState::Established; 3], "a fourth one is rejected");
    for _ in 0..3 {
        for left in &mut lefts[..3] {
            // Only the response to the request arrives: the old IKE SA is not closed.
            with(&mut pair, left, rekey, 1);
            assert_eq!(
                states(&pair.right).iter().filter(|state| **state == IkeState::Established).count(),
                3
            );
            // Two more than three, because both sides may rekey one IKE SA.
            assert!(pair.right.ike.ike_sa_count() <= 5, "{:?}", states(&pair.right));
        }
    }
}

#[test]
fn the_number_of_ike_sas_of_a_peer_is_limited() {
    for (unique, expected) in [(Unique::No, 3), (Unique::Never, 6)] {
        let right = Connection { unique, ..connection("right", "left") };
        let mut pair = Pair::with_defaults();
        pair.right = IkePeer::with(
            IkeSettings { max_ike_sas_per_peer: 3, ..IkeSettings::SERVER },
            pair::RIGHT,
            2,
            right,
        );
        let never = || Connection { unique: Unique::Never, ..connection("left", "right") };
        for seed in 0..6 {
            pair.left = IkePeer::new(pair::LEFT, 10 + seed, never());
            pair.now = pair.now.after(SECOND);
            pair.left.initiate(pair.now);
            pair.run();
        }
        assert_eq!(states(&pair.right), vec![IkeState::Established; expected], "{unique:?}");
        let refused = pair.right.ike.faults().iter().find(|(name, _)| *name == "peer-limit").unwrap().1;
        assert_eq!(refused, 6 - expected as u64);
        // A peer that lost its IKE SAs sends INITIAL_CONTACT and is accepted.
        pair.left = IkePeer::new(pair::LEFT, 20, connection("left", "right"));
        pair.now = pair.now.after(SECOND);
        pair.left.initiate(pair.now);
        pair.run();
        assert_eq!(states(&pair.left), [IkeState::Established]);
    }
}

/// Number of seconds within `time` in which one of the sides had no Child SA that carries traffic.
fn seconds_without(pair: &mut Pair, time: u64) -> usize {
    let mut without = 0;
    for _ in 0..time {
        pair.advance(SECOND);
        let has_one = |side: &IkePeer| side.children().iter().any(|child| child.active);
        without += usize::from(!has_one(&pair.left) || !has_one(&pair.right));
    }
    without
}

#[test]
fn reauthentication_is_make_before_break() {
    for on_both in [false, true] {
        let again = |own: &str, peer: &str| Connection {
            reauth: Some(Duration::from_secs(60)),
            lifespan: ending_after(66),
            ..connection(own, peer)
        };
        let right = if on_both { again("right", "left") } else { connection("right", "left") };
        let mut pair = established(again("left", "right"), right);
        assert_eq!(seconds_without(&mut pair, 600), 0);
        let ups = pair.left.events.iter().filter(|event| matches!(event, Event::IkeUp { .. })).count();
        assert!(ups >= 9, "{ups}");
        let reasons = pair.left.down_reasons();
        assert!(
            reasons.iter().all(|why| matches!(why, DownReason::Reauth | DownReason::Peer)),
            "{reasons:?}"
        );
        for side in [&pair.left, &pair.right] {
            assert_eq!(states(side), [IkeState::Established], "{on_both}");
            assert_eq!(side.children().len(), 1);
            assert!(side.leaked_spis().is_empty());
        }
        // The data path always has a Child SA.
        for side in [&pair.left, &pair.right] {
            let mut there = 0_i32;
            for event in &side.events {
                there += match event {
                    Event::ChildUp(_) => 1,
                    Event::ChildDown { .. } => -1,
                    _ => 0,
                };
                assert!(there >= 1 || !matches!(event, Event::ChildDown { .. }));
            }
        }
    }
}

/// If the peer accepts only one IKE SA, the old one is closed first, at its deadline.
#[test]
fn reauthentication_succeeds_with_a_peer_that_keeps_the_old_ike_sa() {
    let hard_lifetimes = [Some(Duration::from_secs(66)), None];
    for (unique, hard) in
        [Unique::Keep, Unique::Replace].iter().flat_map(|unique| hard_lifetimes.map(|hard| (*unique, hard)))
    {
        let lifespan = Lifespan { rekey: None, jitter: Duration::ZERO, hard };
        let reauth = Some(Duration::from_secs(60));
        let left = Connection { reauth, lifespan, ..connection("left", "right") };
        let mut pair = established(left, Connection { unique, ..connection("right", "left") });
        assert!(seconds_without(&mut pair, 600) <= 9, "{unique:?}");
        pair.check_children(1);
        assert_eq!(
            (states(&pair.left), states(&pair.right)),
            (vec![IkeState::Established], vec![IkeState::Established])
        );
        let ups = pair.left.events.iter().filter(|event| matches!(event, Event::IkeUp { .. })).count();
        assert!((8..=11).contains(&ups), "{unique:?}, {hard:?}: {ups}");
    }
}

/// A reauthentication without response is tried again. The old IKE SA stays until its deadline, whether
/// rekeyed or not.
#[test]
fn failed_reauthentication_closes_the_ike_sa_at_the_deadline() {
    let lifespan = Lifespan {
        rekey: Some(Duration::from_secs(40)),
        jitter: Duration::ZERO,
        hard: Some(Duration::from_secs(70)),
    };
    let left = Connection { reauth: Some(Duration::from_secs(100)), lifespan, ..connection("left", "right") };
    let mut pair = established(left, connection("right", "left"));
    let no_new = |header: &Header| header.exchange == ExchangeType::IKE_SA_INIT;
    advance_dropping(&mut pair, Duration::from_secs(125), no_new);
    assert_eq!((pair.left.children().len(), pair.right.children().len()), (1, 1));
    advance_dropping(&mut pair, Duration::from_secs(10), no_new);
    assert_eq!((pair.left.children().len(), pair.right.children().len()), (0, 0));
    assert!(pair.left.down_reasons().contains(&DownReason::Expired));
}

/// A host without a route starts the connection when there is one, if its child is to be kept up.
#[test]
fn a_host_without_a_route_tries_again() {
    for (tries, action, expected) in
        [(0, CloseAction::Restart, 1), (1, CloseAction::Restart, 1), (1, CloseAction::Clear, 0)]
    {
        let mut left = acting("left", "right", |child| child.dpd_action = action);
        left.keying_tries = tries;
        left.local_addrs = vec![AddrPattern::Any];
        left.dpd_delay = Some(Duration::from_secs(30));
        let mut pair = Pair::new(left, connection("right", "left"));
        let (connection, child) =
            (pair.left.ike.connections()[0].clone(), pair.left.ike.connections()[0].children[0].clone());
        let not_begun = |pair: &Pair| {
            pair.left.events.iter().filter(|event| matches!(event, Event::InitiateFailed { .. })).count()
        };
        pair.left.with_context(pair.now, |ike, host, context| {
            ike.initiate_or_retry(&connection, &child, host, context)
        });
        pair.advance(Duration::from_secs(1_000));
        assert_eq!(pair.left.ike.next_timeout().is_some(), expected == 1);
        assert!(if expected == 1 { (10..=20).contains(&not_begun(&pair)) } else { not_begun(&pair) == 1 });
        pair.left.routes.source = Some(pair.left.addr);
        pair.advance(Duration::from_secs(130));
        pair.check_children(expected);
        // The route disappears and returns while the peer is unreachable.
        pair.left.routes.source = None;
        advance_dropping(&mut pair, Duration::from_secs(400), |_| true);
        pair.left.routes.source = Some(pair.left.addr);
        pair.advance(Duration::from_secs(130));
        assert_eq!(pair.left.children().len(), expected);
    }
}

/// A Child SA that the peer refuses for a while is set up once the peer accepts it.
#[test]
fn an_expired_child_sa_is_requested_until_the_peer_accepts() {
    let left = acting("left", "right", |child| {
        child.lifespan = ending_after(30);
        child.close_action = CloseAction::Restart;
    });
    let right = connection("right", "left");
    let mut pair = established(left, right.clone());
    let without = Connection { children: vec![], ..right.clone() };
    pair.right.ike.configure(vec![Arc::new(without)], &[]);
    pair.advance(Duration::from_secs(90));
    pair.check_children(0);
    let failed = pair.left.events.iter().filter(|event| matches!(event, Event::ChildFailed { .. })).count();
    assert!((2..=6).contains(&failed), "{failed}");
    pair.right.ike.configure(vec![Arc::new(right)], &[]);
    let mut waited = 0;
    while pair.left.children().is_empty() && waited < 130 {
        pair.advance(SECOND);
        waited += 1;
    }
    pair.check_children(1);
    assert!(pair.left.leaked_spis().is_empty());
}
