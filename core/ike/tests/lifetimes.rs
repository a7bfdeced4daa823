//! What is tried again, how often and when; what lasts how long.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

mod pair;

use casemate_ike::config::{
    AddrPattern, Child, Connection, Identity, Lifespan, LocalAuth, LocalMethod, OnClose, Unique,
};
use casemate_ike::{Down, Event, Settings};
use casemate_sa::Instant;
use casemate_wire::ike::{ExchangeType, Header};
use pair::{Pair, Side, connection, deliver};
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

fn usual() -> Pair {
    established(connection("left", "right"), connection("right", "left"))
}

/// Lets time pass second by second. Each message for which `is_lost` is lost.
fn pass(pair: &mut Pair, time: Duration, is_lost: impl Fn(&Header) -> bool) {
    for _ in 0..time.as_secs() {
        pair.now = pair.now.after(SECOND);
        pair.left.tick(pair.now);
        pair.right.tick(pair.now);
        run(pair, &is_lost);
    }
}

fn run(pair: &mut Pair, is_lost: impl Fn(&Header) -> bool) {
    for _ in 0..100 {
        let lost = |side: &mut Side| {
            side.sent.retain(|sent| Header::parse(&sent.message).is_ok_and(|header| !is_lost(&header)));
        };
        lost(&mut pair.left);
        pair.right_takes_all();
        lost(&mut pair.right);
        if pair.right.sent.is_empty() && pair.left.sent.is_empty() {
            return;
        }
        pair.left_takes_all();
    }
}

fn children(side: &Side) -> Vec<&'static str> {
    side.ike.status().flat_map(|ike| ike.children).map(|child| child.state).collect()
}

fn states(side: &Side) -> Vec<&'static str> {
    side.ike.status().map(|ike| ike.state).collect()
}

#[test]
fn a_peer_that_does_not_answer_ike_auth_is_called_again() {
    for (tries, is_up) in [(0, true), (1, false), (2, false), (6, true)] {
        let left = Connection { keying_tries: tries, ..connection("left", "right") };
        let mut pair = Pair::new(left, connection("right", "left"));
        pair.left.initiate(pair.now);
        let no_auth = |header: &Header| header.exchange == ExchangeType::IKE_AUTH;
        run(&mut pair, no_auth);
        pass(&mut pair, Duration::from_secs(600), no_auth);
        assert_eq!(pair.left.downs(), if is_up { vec![] } else { vec![Down::Dead] }, "{tries}");
        assert!(pair.left.host.reserved.len() <= 1, "{tries}: {:?}", pair.left.host.reserved);
        // The peer is back.
        pass(&mut pair, Duration::from_secs(130), |_| false);
        pair.check_children(usize::from(is_up));
        assert!(pair.left.leaked().is_empty(), "{tries}");
    }
}

#[test]
fn what_was_begun_again_is_found_by_its_new_spi_alone() {
    let left = Connection { keying_tries: 0, ..connection("left", "right") };
    let mut pair = Pair::new(left, connection("right", "left"));
    pair.left.initiate(pair.now);
    let first = pair.left.ike.status().next().unwrap();
    let request = pair.left.sent[0].clone();
    deliver(&mut pair.right, request, pair.now);
    let answer = pair.right.sent[0].clone();
    run(&mut pair, |header| header.exchange == ExchangeType::IKE_AUTH);
    pass(&mut pair, Duration::from_secs(124), |header| header.exchange == ExchangeType::IKE_AUTH);
    let again = pair.left.ike.status().next().unwrap();
    assert_eq!((first.id, pair.left.ike.status().count()), (again.id, 1));
    assert_ne!(first.spis.0, again.spis.0);
    deliver(&mut pair.left, answer, pair.now);
    assert_eq!(pair.left.ike.status().next().unwrap().spis, again.spis);
    assert!(pair.left.ike.faults().iter().any(|count| count == ("unknown-spi", 1)));
}

/// The response to a request for a successor is lost, and nothing comes through for a while: the request is
/// repeated for two minutes, so the responder has to have the old IKE SA for as long.
#[test]
fn a_rekeyed_ike_sa_waits_as_long_as_its_rekeying_is_repeated() {
    for silence in [40, 62] {
        let mut pair = usual();
        let ike = pair.left.ike.status().next().unwrap().id;
        assert!(pair.left.with_env(pair.now, |engine, env| engine.rekey(ike, env)));
        pair.right_takes_all();
        pair.right.sent.clear();
        pass(&mut pair, Duration::from_secs(silence), |_| true);
        pass(&mut pair, Duration::from_secs(200), |_| false);
        pair.check_children(1);
        for side in [&pair.left, &pair.right] {
            assert_eq!(
                (states(side), side.downs()),
                (vec!["established"], vec![Down::Replaced]),
                "{silence}"
            );
        }
        assert_eq!(pair.left.ike.status().next().unwrap().spis, pair.right.ike.status().next().unwrap().spis);
    }
}

/// `unique = replace` with a peer that writes its name in another case.
#[test]
fn a_peer_is_the_same_whatever_the_case_of_its_name() {
    let right = || Connection { unique: Unique::Replace, ..connection("right", "left") };
    let mut pair = established(connection("left", "right"), right());
    let local = LocalAuth { id: Some(Identity::Fqdn("LEFT".into())), method: LocalMethod::SharedKey };
    pair.left = Side::new(pair::LEFT, 3, Connection { local, ..connection("left", "right") });
    pair.now = pair.now.after(SECOND);
    pair.left.initiate(pair.now);
    pair.run();
    let up = |event: &&Event| matches!(event, Event::IkeUp { .. });
    assert_eq!(pair.right.events.iter().filter(up).count(), 2);
    pair.pass(Duration::from_secs(200));
    assert_eq!(states(&pair.right), ["established"]);
    assert_eq!(children(&pair.right), ["installed"]);
}

/// Both sides, with these actions for their Child SA.
fn acting(own: &str, peer: &str, change: impl Fn(&mut Child)) -> Connection {
    let mut connection = connection(own, peer);
    change(Arc::make_mut(&mut connection.children[0]));
    connection
}

fn ending_after(time: u64) -> Lifespan {
    Lifespan { rekey: None, random: Duration::ZERO, hard: Some(Duration::from_secs(time)) }
}

type Action = (&'static str, fn(&mut Child), bool);

const ACTIONS: [Action; 5] = [
    ("none", |_| {}, false),
    ("trap", |child| child.start.on_traffic = true, false),
    ("start", |child| child.start.at_once = true, true),
    ("close_action", |child| child.on_close = OnClose::Restart, true),
    ("dpd_action", |child| child.on_dead_peer = OnClose::Restart, true),
];

#[test]
fn what_expires_is_set_up_again_where_an_action_says_so() {
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
                pair.pass(Duration::from_secs(115));
                assert_eq!(children(&pair.left).len(), usize::from(comes_back), "{name} {on_both} {round}");
                pair.check_children(usize::from(comes_back));
            }
            let expired = |event: &Event| matches!(event, Event::ChildDown { why: Down::Expired, .. });
            assert!(pair.left.events.iter().any(expired));
            assert!(pair.left.leaked().is_empty() && pair.right.leaked().is_empty());
        }
    }
}

#[test]
fn an_ike_sa_that_expires_is_set_up_again_where_an_action_says_so() {
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
                pair.pass(Duration::from_secs(110));
                pair.check_children(usize::from(comes_back));
                assert_eq!(pair.left.ike.status().count(), usize::from(comes_back), "{name}");
            }
            assert_eq!(pair.left.downs()[0], Down::Expired);
        }
    }
}

#[test]
fn a_child_sa_that_is_closed_here_does_not_come_back_because_the_peer_is_dead() {
    let mut pair = established(
        acting("left", "right", |child| child.on_dead_peer = OnClose::Restart),
        connection("right", "left"),
    );
    let child = pair.left.children()[0].id;
    pair.left.with_env(pair.now, |ike, env| ike.terminate_child(child, Down::Local, env));
    pass(&mut pair, Duration::from_secs(200), |_| true);
    assert_eq!((pair.left.downs(), states(&pair.left).len()), (vec![Down::Dead], 0));
}

/// The left side rekeys its Child SA while the right side closes it. `is_first` of the two messages arrives
/// first: the request to rekey or the one to close.
fn closed_while_rekeyed(action: OnClose, rekeying_first: bool) -> Pair {
    let mut pair =
        established(acting("left", "right", |child| child.on_close = action), connection("right", "left"));
    let (ours, theirs) = (pair.left.children()[0].id, pair.right.children()[0].id);
    pair.pass(Duration::from_secs(100));
    pair.left.with_env(pair.now, |ike, env| ike.rekey_child(ours, env));
    let rekeying = pair.left.sent.pop_front().unwrap();
    pair.right.with_env(pair.now, |ike, env| ike.terminate_child(theirs, Down::Local, env));
    if rekeying_first {
        deliver(&mut pair.right, rekeying, pair.now);
    } else {
        pair.left_takes_all();
        pair.right_takes_all();
        deliver(&mut pair.right, rekeying, pair.now);
    }
    pair.run();
    pair
}

#[test]
fn a_child_sa_that_the_peer_closes_while_it_is_rekeyed_stays_closed() {
    for rekeying_first in [false, true] {
        for (action, expected) in [(OnClose::Clear, 0), (OnClose::Trap, 0), (OnClose::Restart, 1)] {
            let mut pair = closed_while_rekeyed(action, rekeying_first);
            pair.pass(Duration::from_secs(100));
            pair.check_children(expected);
            let up = |event: &&Event| matches!(event, Event::ChildUp(_));
            assert_eq!(
                pair.left.events.iter().filter(up).count(),
                1 + expected,
                "{action:?} {rekeying_first}"
            );
            assert!(pair.left.leaked().is_empty() && pair.right.leaked().is_empty());
        }
    }
}

/// A peer that lost a Child SA has it again (RFC 7296 section 2.25.1).
#[test]
fn a_child_sa_that_the_peer_does_not_know_is_set_up_from_scratch() {
    let mut pair = usual();
    let (ours, theirs) = (pair.left.children()[0].id, pair.right.children()[0].id);
    pair.right.with_env(pair.now, |ike, env| ike.terminate_child(theirs, Down::Local, env));
    let delete = pair.right.sent.pop_front().unwrap();
    let (other, _) = (pair.right.ike.status().next().unwrap(), delete);
    assert_eq!(other.children.len(), 1);
    pair.left.with_env(pair.now, |ike, env| ike.rekey_child(ours, env));
    pair.run();
    pair.check_children(1);
}

/// How the left side fares with a peer that closes at once, by `close`, whatever it sets up: how many Child
/// SAs were set up at the left side, and seconds since the last one.
fn with_a_closing_peer(close: impl Fn(&mut Side, Instant)) -> (usize, u64) {
    let mut pair = established(
        acting("left", "right", |child| child.on_close = OnClose::Restart),
        connection("right", "left"),
    );
    let (mut seen, mut last) = (0, pair.now);
    for _ in 0..1_000 {
        close(&mut pair.right, pair.now);
        pair.run();
        pair.pass(SECOND);
        let ups = pair.left.events.iter().filter(|event| matches!(event, Event::ChildUp(_))).count();
        if ups != seen {
            (seen, last) = (ups, pair.now);
        }
    }
    (seen, pair.now.since(last).as_secs())
}

#[test]
fn what_the_peer_closes_again_and_again_is_set_up_more_and_more_seldom() {
    let close_children = |side: &mut Side, now| {
        for child in side.children() {
            side.with_env(now, |ike, env| ike.terminate_child(child.id, Down::Local, env));
        }
    };
    let close_ike_sas = |side: &mut Side, now| {
        let all: Vec<_> = side.ike.status().map(|ike| ike.id).collect();
        for id in all {
            side.with_env(now, |ike, env| ike.terminate(id, Down::Local, env));
        }
    };
    for (ups, since) in [with_a_closing_peer(close_children), with_a_closing_peer(close_ike_sas)] {
        // 2, 4, 8, 16, 32 and then 64 seconds, and up to twice as long: and never is it given up.
        assert!((12..=22).contains(&ups) && since <= 130, "{ups} times, last {since} s ago");
    }
}

/// The left side has replaced its Child SA and is about to close the old one, which the peer's request to
/// replace it, sent before, must not do once more.
#[test]
fn of_two_rekeyings_that_meet_late_one_child_sa_remains() {
    for seed in 0..40 {
        let mut pair = usual();
        (pair.left.dice, pair.right.dice) = (pair::Dice::new(seed), pair::Dice::new(seed + 1_000));
        let (ours, theirs) = (pair.left.children()[0].id, pair.right.children()[0].id);
        pair.right.with_env(pair.now, |ike, env| ike.rekey_child(theirs, env));
        let late = pair.right.sent.pop_front().unwrap();
        pair.left.with_env(pair.now, |ike, env| ike.rekey_child(ours, env));
        // Another request of the left side goes out before the one that closes.
        pair.left.initiate(pair.now);
        pair.right_takes_all();
        pair.left_takes_all();
        deliver(&mut pair.left, late, pair.now);
        pair.run();
        pair.pass(Duration::from_secs(10));
        pair.check_children(2);
        assert_eq!(children(&pair.left), ["installed"; 2], "{seed}");
        assert_eq!(children(&pair.right), ["installed"; 2], "{seed}");
    }
}

/// The IKE SA of the left side, rekeyed again and again by it. It never closes the old ones.
#[test]
fn rekeying_does_not_make_more_ike_sas_than_there_may_be() {
    for (limit, most) in [(4, 2), (1, 2)] {
        let mut pair = Pair::usual();
        let settings = Settings { ike_sas: limit, ..Settings::SERVER };
        pair.right = Side::with(settings, pair::RIGHT, 2, connection("right", "left"));
        pair.left.initiate(pair.now);
        pair.run();
        for round in 0..50 {
            let ike = pair.left.ike.status().find(|ike| ike.state == "established").unwrap().id;
            assert!(pair.left.with_env(pair.now, |engine, env| engine.rekey(ike, env)));
            // The request alone arrives, and its response.
            pair.right_takes_all();
            pair.left_takes_all();
            pair.left.sent.clear();
            assert!(pair.right.ike.counts().0 <= most, "{round}: {:?}", states(&pair.right));
            assert_eq!(children(&pair.right).len(), 1);
        }
    }
}

/// A full table still lets its IKE SAs be rekeyed, and new peers in as soon as there is room.
#[test]
fn ike_sas_that_were_replaced_keep_nobody_out() {
    let right = || Connection { unique: Unique::Never, ..connection("right", "left") };
    let mut pair = Pair::usual();
    pair.right = Side::with(Settings { ike_sas: 3, ..Settings::SERVER }, pair::RIGHT, 2, right());
    let mut lefts: Vec<Side> =
        (0..4).map(|seed| Side::new(pair::LEFT, 10 + seed, connection("left", "right"))).collect();
    let with = |pair: &mut Pair, left: &mut Side, act: fn(&mut Side, Instant), rounds: usize| {
        core::mem::swap(&mut pair.left, left);
        act(&mut pair.left, pair.now);
        for _ in 0..rounds {
            pair.right_takes_all();
            pair.left_takes_all();
        }
        pair.left.sent.clear();
        core::mem::swap(&mut pair.left, left);
    };
    let rekey: fn(&mut Side, Instant) = |side, now| {
        let ike = side.ike.status().find(|ike| ike.state == "established").unwrap().id;
        side.with_env(now, |engine, env| engine.rekey(ike, env));
    };
    for left in &mut lefts[..3] {
        with(&mut pair, left, |side, now| side.initiate(now), 4);
    }
    with(&mut pair, &mut lefts[3], |side, now| side.initiate(now), 4);
    assert_eq!(states(&pair.right), ["established"; 3], "a fourth is refused");
    for _ in 0..3 {
        for left in &mut lefts[..3] {
            // Only the response to the request arrives: the old one is not closed.
            with(&mut pair, left, rekey, 1);
            assert_eq!(states(&pair.right).iter().filter(|state| **state == "established").count(), 3);
            // Two more than three, because both sides may rekey one IKE SA.
            assert!(pair.right.ike.counts().0 <= 5, "{:?}", states(&pair.right));
        }
    }
}

#[test]
fn a_peer_has_so_many_ike_sas_and_no_more() {
    for (unique, expected) in [(Unique::No, 3), (Unique::Never, 6)] {
        let right = Connection { unique, ..connection("right", "left") };
        let mut pair = Pair::usual();
        pair.right = Side::with(Settings { ike_sas_per_peer: 3, ..Settings::SERVER }, pair::RIGHT, 2, right);
        let never = || Connection { unique: Unique::Never, ..connection("left", "right") };
        for seed in 0..6 {
            pair.left = Side::new(pair::LEFT, 10 + seed, never());
            pair.now = pair.now.after(SECOND);
            pair.left.initiate(pair.now);
            pair.run();
        }
        assert_eq!(states(&pair.right), vec!["established"; expected], "{unique:?}");
        let refused = pair.right.ike.faults().iter().find(|(name, _)| *name == "peer-limit").unwrap().1;
        assert_eq!(refused, 6 - expected as u64);
        // A peer that lost them says so, and is let in.
        pair.left = Side::new(pair::LEFT, 20, connection("left", "right"));
        pair.now = pair.now.after(SECOND);
        pair.left.initiate(pair.now);
        pair.run();
        assert_eq!(states(&pair.left), ["established"]);
    }
}

/// Seconds of the next `time` in which one of the sides had no Child SA that carries traffic.
fn seconds_without(pair: &mut Pair, time: u64) -> usize {
    let mut without = 0;
    for _ in 0..time {
        pair.pass(SECOND);
        let has_one = |side: &Side| side.children().iter().any(|child| child.active);
        without += usize::from(!has_one(&pair.left) || !has_one(&pair.right));
    }
    without
}

#[test]
fn reauthentication_makes_the_new_before_it_breaks_the_old() {
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
        let reasons = pair.left.downs();
        assert!(reasons.iter().all(|why| matches!(why, Down::Reauth | Down::Peer)), "{reasons:?}");
        for side in [&pair.left, &pair.right] {
            assert_eq!(states(side), ["established"], "{on_both}");
            assert_eq!(side.children().len(), 1);
            assert!(side.leaked().is_empty());
        }
        // Never is there nothing in between, as the data path sees it.
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

/// A peer that takes one IKE SA alone, or another identity, gets the old one closed first.
#[test]
fn reauthentication_succeeds_with_a_peer_that_keeps_the_old_ike_sa() {
    for unique in [Unique::Keep, Unique::Replace] {
        let left = Connection { reauth: Some(Duration::from_secs(60)), ..connection("left", "right") };
        let mut pair = established(left, Connection { unique, ..connection("right", "left") });
        assert!(seconds_without(&mut pair, 600) <= 9, "{unique:?}");
        pair.check_children(1);
        assert_eq!((states(&pair.left), states(&pair.right)), (vec!["established"], vec!["established"]));
        let ups = pair.left.events.iter().filter(|event| matches!(event, Event::IkeUp { .. })).count();
        assert!((9..=11).contains(&ups), "{ups}");
    }
}

/// A reauthentication that the peer does not answer is tried again, and the old IKE SA serves until its time
/// is over, rekeying or not.
#[test]
fn reauthentication_that_fails_ends_the_ike_sa_in_its_time() {
    let lifespan = Lifespan {
        rekey: Some(Duration::from_secs(40)),
        random: Duration::ZERO,
        hard: Some(Duration::from_secs(70)),
    };
    let left = Connection { reauth: Some(Duration::from_secs(100)), lifespan, ..connection("left", "right") };
    let mut pair = established(left, connection("right", "left"));
    let no_new = |header: &Header| header.exchange == ExchangeType::IKE_SA_INIT;
    pass(&mut pair, Duration::from_secs(125), no_new);
    assert_eq!((pair.left.children().len(), pair.right.children().len()), (1, 1));
    pass(&mut pair, Duration::from_secs(10), no_new);
    assert_eq!((pair.left.children().len(), pair.right.children().len()), (0, 0));
    assert!(pair.left.downs().contains(&Down::Expired));
}

/// A host that has no route yet, or no longer: the connection is begun when there is one.
#[test]
fn what_cannot_be_begun_is_tried_again_as_often_as_wanted() {
    for (tries, expected) in [(0, 1), (1, 0)] {
        let mut left = acting("left", "right", |child| child.on_dead_peer = OnClose::Restart);
        left.keying_tries = tries;
        left.local_addrs = vec![AddrPattern::Any];
        left.dpd_delay = Some(Duration::from_secs(30));
        let mut pair = Pair::new(left, connection("right", "left"));
        let (connection, child) =
            (pair.left.ike.connections()[0].clone(), pair.left.ike.connections()[0].children[0].clone());
        let not_begun = |pair: &Pair| {
            pair.left.events.iter().filter(|event| matches!(event, Event::NotBegun { .. })).count()
        };
        pair.left.with_env(pair.now, |ike, env| ike.start(&connection, &child, env));
        pair.pass(Duration::from_secs(1_000));
        assert_eq!(pair.left.ike.due().is_some(), expected == 1);
        assert!(if tries == 0 { (10..=20).contains(&not_begun(&pair)) } else { not_begun(&pair) == 1 });
        pair.left.host.source = Some(pair.left.addr);
        pair.pass(Duration::from_secs(130));
        pair.check_children(expected);
        // The route goes and comes while the peer is away.
        pair.left.host.source = None;
        pass(&mut pair, Duration::from_secs(400), |_| true);
        pair.left.host.source = Some(pair.left.addr);
        pair.pass(Duration::from_secs(130));
        assert_eq!(pair.left.children().len(), expected);
    }
}

/// What the peer refuses for a while is there again once the peer grants it.
#[test]
fn a_child_sa_that_expired_is_asked_for_until_the_peer_grants_it() {
    let left = acting("left", "right", |child| {
        child.lifespan = ending_after(30);
        child.on_close = OnClose::Restart;
    });
    let right = connection("right", "left");
    let mut pair = established(left, right.clone());
    let without = Connection { children: vec![], ..right.clone() };
    pair.right.ike.configure(vec![Arc::new(without)], &[]);
    pair.pass(Duration::from_secs(90));
    pair.check_children(0);
    let failed = pair.left.events.iter().filter(|event| matches!(event, Event::ChildFailed { .. })).count();
    assert!((2..=6).contains(&failed), "{failed}");
    pair.right.ike.configure(vec![Arc::new(right)], &[]);
    let mut waited = 0;
    while pair.left.children().is_empty() && waited < 130 {
        pair.pass(SECOND);
        waited += 1;
    }
    pair.check_children(1);
    assert!(pair.left.leaked().is_empty());
}
