//! Whole exchanges between two engines that follow the rules.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

mod pair;

use casemate_ike::config::{Connection, OnClose, Unique};
use casemate_ike::{Down, Event};
use casemate_sa::AddrRange;
use pair::{Pair, connection};
use std::sync::Arc;
use std::time::Duration;

fn established() -> Pair {
    let mut pair = Pair::usual();
    pair.left.initiate(pair.now);
    pair.run();
    pair.check_children(1);
    pair
}

#[test]
fn two_exchanges_make_an_ike_sa_with_a_child_sa() {
    let pair = established();
    let up = |event: &&Event| matches!(event, Event::IkeUp { .. });
    assert_eq!(pair.left.events.iter().filter(up).count(), 1);
    assert_eq!(pair.right.events.iter().filter(up).count(), 1);
    let status: Vec<_> = pair.left.ike.status().collect();
    assert_eq!((status.len(), status[0].state, status[0].children.len()), (1, "established", 1));
}

#[test]
fn a_child_sa_is_replaced_by_either_side() {
    for by_left in [true, false] {
        let mut pair = established();
        let side = if by_left { &mut pair.left } else { &mut pair.right };
        let old = side.children()[0].id;
        assert!(side.with_env(pair.now, |ike, env| ike.rekey_child(old, env)));
        pair.run();
        pair.check_children(1);
        let new = &pair.left.children()[0];
        assert!(new.replaces.is_some() && new.active);
        assert!(pair.right.children()[0].active);
    }
}

#[test]
fn both_sides_replace_a_child_sa_at_once() {
    let mut pair = established();
    for side in [&mut pair.left, &mut pair.right] {
        let old = side.children()[0].id;
        assert!(side.with_env(pair.now, |ike, env| ike.rekey_child(old, env)));
    }
    pair.run();
    pair.check_children(1);
    assert!(pair.left.children()[0].active && pair.right.children()[0].active);
}

#[test]
fn an_ike_sa_is_replaced_by_either_side() {
    for by_left in [true, false] {
        let mut pair = established();
        let side = if by_left { &mut pair.left } else { &mut pair.right };
        let old = side.ike.status().next().unwrap().id;
        assert!(side.with_env(pair.now, |ike, env| ike.rekey(old, env)));
        pair.run();
        pair.check_children(1);
        for side in [&pair.left, &pair.right] {
            let status: Vec<_> = side.ike.status().collect();
            assert_eq!((status.len(), status[0].children.len()), (1, 1));
            assert_ne!(status[0].id, old);
            assert_eq!(side.downs(), [Down::Replaced]);
        }
        // The successor works.
        let child = pair.left.children()[0].id;
        assert!(pair.left.with_env(pair.now, |ike, env| ike.rekey_child(child, env)));
        pair.run();
        pair.check_children(1);
    }
}

#[test]
fn both_sides_replace_an_ike_sa_at_once() {
    for by_left in [true, false] {
        let mut pair = established();
        for side in [&mut pair.left, &mut pair.right] {
            let old = side.ike.status().next().unwrap().id;
            assert!(side.with_env(pair.now, |ike, env| ike.rekey(old, env)));
        }
        pair.run();
        pair.pass(Duration::from_secs(2));
        pair.check_children(1);
        for side in [&pair.left, &pair.right] {
            let status: Vec<_> = side.ike.status().collect();
            assert_eq!((status.len(), status[0].children.len()), (1, 1), "{status:?}");
        }
        // Either side knows which IKE SA the Child SA belongs to now.
        let side = if by_left { &mut pair.left } else { &mut pair.right };
        let child = side.children()[0].id;
        assert!(side.with_env(pair.now, |ike, env| ike.rekey_child(child, env)));
        pair.run();
        pair.check_children(1);
    }
}

#[test]
fn more_child_sas_go_into_the_ike_sa_that_is_there() {
    let mut pair = established();
    for expected in [2, 3] {
        let side = if expected == 2 { &mut pair.left } else { &mut pair.right };
        side.initiate(pair.now);
        pair.run();
        pair.check_children(expected);
        assert_eq!((pair.left.ike.status().count(), pair.right.ike.status().count()), (1, 1));
    }
    // Into the successor of one that was replaced, too.
    let old = pair.right.ike.status().next().unwrap().id;
    assert!(pair.right.with_env(pair.now, |ike, env| ike.rekey(old, env)));
    pair.run();
    pair.right.initiate(pair.now);
    pair.run();
    pair.check_children(4);
    assert_eq!((pair.left.ike.status().count(), pair.right.ike.status().count()), (1, 1));
}

#[test]
fn the_end() {
    let mut pair = established();
    let ike = pair.right.ike.status().next().unwrap().id;
    assert!(pair.right.with_env(pair.now, |ikes, env| ikes.terminate(ike, Down::Local, env)));
    pair.run();
    pair.check_children(0);
    assert_eq!((pair.left.downs(), pair.right.downs()), (vec![Down::Peer], vec![Down::Local]));
    assert_eq!(pair.left.ike.status().count() + pair.right.ike.status().count(), 0);
}

#[test]
fn a_peer_that_does_not_answer_is_called_as_often_as_wanted() {
    for (tries, messages) in [(1, 7), (2, 14)] {
        let mut left = connection("left", "right");
        left.keying_tries = tries;
        let mut pair = Pair::new(left, connection("right", "left"));
        pair.left.initiate(pair.now);
        let mut sent = 0;
        for second in 0..600 {
            let now = pair.now.after(Duration::from_secs(second));
            pair.left.with_env(now, |ike, env| ike.tick(env));
            sent += pair.left.sent.drain(..).count();
        }
        assert_eq!((sent, pair.left.downs()), (messages, vec![Down::Dead]));
    }
}

/// Two that both begin anew when their Child SA is closed, and again when they are told so by `change`.
fn restless(change: impl Fn(&mut Connection)) -> Pair {
    let side = |own: &str, peer: &str| {
        let mut side = connection(own, peer);
        Arc::make_mut(&mut side.children[0]).on_close = OnClose::Restart;
        change(&mut side);
        side
    };
    let mut pair = Pair::new(side("left", "right"), side("right", "left"));
    pair.left.initiate(pair.now);
    pair.right.initiate(pair.now);
    pair.run();
    pair
}

#[test]
fn reauthentication_by_both_sides_does_not_make_more_ike_sas_each_time() {
    let mut pair = restless(|side| side.reauth = Some(Duration::from_secs(60)));
    pair.pass(Duration::from_secs(600));
    let (left, right) = (pair.left.ike.status().count(), pair.right.ike.status().count());
    assert!((1..=2).contains(&left) && left == right, "{left} and {right} IKE SAs");
}

#[test]
fn two_that_replace_each_others_ike_sas_come_to_rest() {
    let mut pair = restless(|side| side.unique = Unique::Replace);
    pair.pass(Duration::from_secs(10));
    let ike = pair.left.ike.status().next().unwrap().id;
    pair.left.with_env(pair.now, |ikes, env| ikes.terminate(ike, Down::Local, env));
    for _ in 0..100 {
        pair.now = pair.now.after(Duration::from_millis(10));
        pair.right_takes_all();
        pair.left_takes_all();
    }
    let ups = pair.left.events.iter().filter(|event| matches!(event, Event::IkeUp { .. })).count();
    assert!((2..=3).contains(&ups), "{ups} IKE SAs");
    assert!(pair.left.ike.status().any(|ike| !ike.children.is_empty()));
}

#[test]
fn what_is_no_longer_configured_is_not_begun_anew() {
    let mut pair = restless(|_| {});
    // A request is on its way, so that the end has to wait; the peer's own comes before.
    let ike = pair.left.ike.status().next().unwrap();
    let peers = pair.right.ike.status().find(|peers| peers.spis == ike.spis).unwrap().id;
    pair.left.with_env(pair.now, |ikes, env| ikes.rekey_child(ike.children[0].id, env));
    pair.left.ike.configure(vec![], &[]);
    pair.left.with_env(pair.now, |ikes, env| ikes.terminate(ike.id, Down::Unconfigured, env));
    pair.left.sent.clear();
    pair.right.with_env(pair.now, |ikes, env| ikes.terminate(peers, Down::Local, env));
    pair.left_takes_all();
    // The other one of the two is not touched.
    assert_eq!((pair.left.ike.status().count(), pair.left.downs()), (1, vec![Down::Unconfigured]));
}

#[test]
fn of_nested_networks_the_one_that_is_asked_for_is_granted() {
    let side = |own: &str, peer: &str| {
        let mut side = connection(own, peer);
        let mut inner = (*side.children[0]).clone();
        inner.name = "inner".into();
        for traffic in inner.local_ts.iter_mut().chain(&mut inner.remote_ts) {
            traffic.addrs = traffic.addrs.map(|range| AddrRange::prefix(range.first(), 24).unwrap());
        }
        side.children.push(Arc::new(inner));
        side
    };
    let mut pair = Pair::new(side("left", "right"), side("right", "left"));
    let connection = pair.left.ike.connections()[0].clone();
    for child in &connection.children {
        pair.left.with_env(pair.now, |ike, env| ike.initiate(&connection, Some(child), None, env)).unwrap();
        pair.run();
    }
    pair.check_children(2);
    let names: Vec<String> = pair.right.children().iter().map(|up| up.child.name.clone()).collect();
    assert_eq!(names, ["net", "inner"]);
}

/// A Child SA is asked for while the peer replaces the IKE SA: the peer has no time (RFC 7296 section 2.25.2), and is asked again.
#[test]
fn a_peer_that_is_busy_is_asked_again_later() {
    let mut pair = established();
    let ike = pair.right.ike.status().next().unwrap().id;
    assert!(pair.right.with_env(pair.now, |engine, env| engine.rekey(ike, env)));
    let rekey = pair.right.sent.pop_front().unwrap();
    let (connection, child) = (pair.left.ike.connections()[0].clone(), child_again(&pair));
    pair.left.with_env(pair.now, |ike, env| ike.initiate(&connection, Some(&child), None, env)).unwrap();
    pair.run();
    pair.check_children(1);
    // The request for an IKE SA comes late, and does its work.
    pair::deliver(&mut pair.left, rekey, pair.now);
    pair.run();
    pair.check_children(1);
    assert_eq!(pair.left.ike.status().count(), 1);
    pair.pass(Duration::from_secs(1));
    pair.check_children(1);
    pair.pass(Duration::from_secs(6));
    pair.check_children(2);
    let failed = |event: &Event| matches!(event, Event::ChildFailed { .. });
    assert!(!pair.left.events.iter().any(failed));
}

/// The child of the left side's connection.
fn child_again(pair: &Pair) -> Arc<casemate_ike::config::Child> {
    pair.left.ike.connections()[0].children[0].clone()
}

/// One that never has time is given up in the end.
#[test]
fn a_peer_that_is_always_busy_fails_the_child_sa() {
    let mut pair = established();
    let ike = pair.right.ike.status().next().unwrap().id;
    assert!(pair.right.with_env(pair.now, |engine, env| engine.rekey(ike, env)));
    pair.right.sent.clear();
    let (connection, child) = (pair.left.ike.connections()[0].clone(), child_again(&pair));
    pair.left.with_env(pair.now, |ike, env| ike.initiate(&connection, Some(&child), None, env)).unwrap();
    for _ in 0..600 {
        pair.run();
        pair.now = pair.now.after(Duration::from_secs(1));
        // Time passes for the left side alone: the right one waits for its answer all the while.
        pair.left.tick(pair.now);
    }
    pair.check_children(1);
    let failed = |event: &&Event| matches!(event, Event::ChildFailed { .. });
    assert_eq!(pair.left.events.iter().filter(failed).count(), 1);
    assert_eq!(pair.left.ike.status().count(), 1);
}
