//! Complete exchanges between two correct engines.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

mod pair;

use casemate_ike::config::{CloseAction, Connection, Unique};
use casemate_ike::{DownReason, Event, IkeState};
use casemate_sa::AddrRange;
use pair::{Pair, connection};
use std::sync::Arc;
use std::time::Duration;

fn established() -> Pair {
    let mut pair = Pair::with_defaults();
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
    assert_eq!((status.len(), status[0].state, status[0].children.len()), (1, IkeState::Established, 1));
}

#[test]
fn either_side_rekeys_a_child_sa() {
    for by_left in [true, false] {
        let mut pair = established();
        let side = if by_left { &mut pair.left } else { &mut pair.right };
        let old = side.children()[0].id;
        assert!(side.with_context(pair.now, |ike, host, context| ike.rekey_child(old, host, context)));
        pair.run();
        pair.check_children(1);
        let new = &pair.left.children()[0];
        assert!(new.replaces.is_some() && new.active);
        assert!(pair.right.children()[0].active);
    }
}

#[test]
fn both_sides_rekey_a_child_sa_simultaneously() {
    let mut pair = established();
    for side in [&mut pair.left, &mut pair.right] {
        let old = side.children()[0].id;
        assert!(side.with_context(pair.now, |ike, host, context| ike.rekey_child(old, host, context)));
    }
    pair.run();
    pair.check_children(1);
    assert!(pair.left.children()[0].active && pair.right.children()[0].active);
}

#[test]
fn either_side_rekeys_an_ike_sa() {
    for by_left in [true, false] {
        let mut pair = established();
        let side = if by_left { &mut pair.left } else { &mut pair.right };
        let old = side.ike.status().next().unwrap().id;
        assert!(side.with_context(pair.now, |ike, host, context| ike.rekey(old, host, context)));
        pair.run();
        pair.check_children(1);
        for side in [&pair.left, &pair.right] {
            let status: Vec<_> = side.ike.status().collect();
            assert_eq!((status.len(), status[0].children.len()), (1, 1));
            assert_ne!(status[0].id, old);
            assert_eq!(side.down_reasons(), [DownReason::Replaced]);
        }
        // The successor is usable.
        let child = pair.left.children()[0].id;
        assert!(pair.left.with_context(pair.now, |ike, host, context| ike.rekey_child(child, host, context)));
        pair.run();
        pair.check_children(1);
    }
}

#[test]
fn both_sides_rekey_an_ike_sa_simultaneously() {
    for by_left in [true, false] {
        let mut pair = established();
        for side in [&mut pair.left, &mut pair.right] {
            let old = side.ike.status().next().unwrap().id;
            assert!(side.with_context(pair.now, |ike, host, context| ike.rekey(old, host, context)));
        }
        pair.run();
        pair.advance(Duration::from_secs(2));
        pair.check_children(1);
        for side in [&pair.left, &pair.right] {
            let status: Vec<_> = side.ike.status().collect();
            assert_eq!((status.len(), status[0].children.len()), (1, 1), "{status:?}");
        }
        // Both sides know the IKE SA of the Child SA.
        let side = if by_left { &mut pair.left } else { &mut pair.right };
        let child = side.children()[0].id;
        assert!(side.with_context(pair.now, |ike, host, context| ike.rekey_child(child, host, context)));
        pair.run();
        pair.check_children(1);
    }
}

#[test]
fn more_child_sas_use_the_existing_ike_sa() {
    let mut pair = established();
    for expected in [2, 3] {
        let side = if expected == 2 { &mut pair.left } else { &mut pair.right };
        side.initiate(pair.now);
        pair.run();
        pair.check_children(expected);
        assert_eq!((pair.left.ike.status().count(), pair.right.ike.status().count()), (1, 1));
    }
    // Also in the successor of a rekeyed IKE SA.
    let old = pair.right.ike.status().next().unwrap().id;
    assert!(pair.right.with_context(pair.now, |ike, host, context| ike.rekey(old, host, context)));
    pair.run();
    pair.right.initiate(pair.now);
    pair.run();
    pair.check_children(4);
    assert_eq!((pair.left.ike.status().count(), pair.right.ike.status().count()), (1, 1));
}

/// The Delete waits for another exchange, in which the IKE SA could not be used any more.
#[test]
fn an_ike_sa_with_a_queued_delete_is_closing() {
    let mut pair = established();
    let (ike, child) = (pair.left.ike.status().next().unwrap().id, pair.left.children()[0].id);
    assert!(pair.left.with_context(pair.now, |ikes, host, context| ikes.rekey_child(child, host, context)));
    pair.left
        .with_context(pair.now, |ikes, host, context| ikes.terminate(ike, DownReason::Local, host, context));
    assert_eq!(pair.left.sent.len(), 1);
    assert_eq!(pair.left.ike.status_of(ike).unwrap().state, IkeState::Closing);
    assert!(pair.left.ike.states(None).all(|ike| ike.state == IkeState::Closing));
}

#[test]
fn closing_an_ike_sa_closes_its_child_sas() {
    let mut pair = established();
    let ike = pair.right.ike.status().next().unwrap().id;
    assert!(pair.right.with_context(pair.now, |ikes, host, context| ikes.terminate(
        ike,
        DownReason::Local,
        host,
        context
    )));
    pair.run();
    pair.check_children(0);
    assert_eq!(
        (pair.left.down_reasons(), pair.right.down_reasons()),
        (vec![DownReason::Peer], vec![DownReason::Local])
    );
    assert_eq!(pair.left.ike.status().count() + pair.right.ike.status().count(), 0);
}

#[test]
fn a_silent_peer_is_tried_keying_tries_times() {
    for (tries, messages) in [(1, 7), (2, 14)] {
        let mut left = connection("left", "right");
        left.keying_tries = tries;
        let mut pair = Pair::new(left, connection("right", "left"));
        pair.left.initiate(pair.now);
        let mut sent = 0;
        for second in 0..600 {
            let now = pair.now.after(Duration::from_secs(second));
            pair.left.with_context(now, |ike, host, context| ike.handle_timeouts(host, context));
            sent += pair.left.sent.drain(..).count();
        }
        assert_eq!((sent, pair.left.down_reasons()), (messages, vec![DownReason::DeadPeer]));
    }
}

/// Two hosts that restart a closed Child SA; `change` modifies both connections.
fn restless(change: impl Fn(&mut Connection)) -> Pair {
    let side = |own: &str, peer: &str| {
        let mut side = connection(own, peer);
        Arc::make_mut(&mut side.children[0]).close_action = CloseAction::Restart;
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
    pair.advance(Duration::from_secs(600));
    let (left, right) = (pair.left.ike.status().count(), pair.right.ike.status().count());
    assert!((1..=2).contains(&left) && left == right, "{left} and {right} IKE SAs");
}

#[test]
fn peers_that_replace_each_others_ike_sas_converge() {
    let mut pair = restless(|side| side.unique = Unique::Replace);
    pair.advance(Duration::from_secs(10));
    let ike = pair.left.ike.status().next().unwrap().id;
    pair.left
        .with_context(pair.now, |ikes, host, context| ikes.terminate(ike, DownReason::Local, host, context));
    for _ in 0..100 {
        pair.now = pair.now.after(Duration::from_millis(10));
        pair.deliver_to_right();
        pair.deliver_to_left();
    }
    let ups = pair.left.events.iter().filter(|event| matches!(event, Event::IkeUp { .. })).count();
    assert!((2..=3).contains(&ups), "{ups} IKE SAs");
    assert!(pair.left.ike.status().any(|ike| !ike.children.is_empty()));
}

#[test]
fn a_removed_connection_is_not_restarted() {
    let mut pair = restless(|_| {});
    // A request is outstanding, so that our Delete waits and the peer's Delete comes first.
    let ike = pair.left.ike.status().next().unwrap();
    let peers = pair.right.ike.status().find(|peers| peers.spis == ike.spis).unwrap().id;
    pair.left
        .with_context(pair.now, |ikes, host, context| ikes.rekey_child(ike.children[0].id, host, context));
    pair.left.ike.configure(vec![], &[]);
    pair.left.with_context(pair.now, |ikes, host, context| {
        ikes.terminate(ike.id, DownReason::Unconfigured, host, context)
    });
    pair.left.sent.clear();
    pair.right.with_context(pair.now, |ikes, host, context| {
        ikes.terminate(peers, DownReason::Local, host, context)
    });
    pair.deliver_to_left();
    // The other Child SA is not affected.
    assert_eq!(
        (pair.left.ike.status().count(), pair.left.down_reasons()),
        (1, vec![DownReason::Unconfigured])
    );
}

#[test]
fn the_requested_one_of_nested_networks_is_selected() {
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
        pair.left
            .with_context(pair.now, |ike, host, context| {
                ike.initiate(&connection, Some(child), None, host, context)
            })
            .unwrap();
        pair.run();
    }
    pair.check_children(2);
    let names: Vec<String> = pair.right.children().iter().map(|up| up.child.name.clone()).collect();
    assert_eq!(names, ["net", "inner"]);
}

/// A Child SA is requested while the peer rekeys the IKE SA. The peer reports TEMPORARY_FAILURE (RFC 7296
/// section 2.25.2) and is asked again.
#[test]
fn a_busy_peer_is_asked_again_later() {
    let mut pair = established();
    let ike = pair.right.ike.status().next().unwrap().id;
    assert!(pair.right.with_context(pair.now, |engine, host, context| engine.rekey(ike, host, context)));
    let rekey = pair.right.sent.pop_front().unwrap();
    let (connection, child) = (pair.left.ike.connections()[0].clone(), child_again(&pair));
    pair.left
        .with_context(pair.now, |ike, host, context| {
            ike.initiate(&connection, Some(&child), None, host, context)
        })
        .unwrap();
    pair.run();
    pair.check_children(1);
    // The late request to rekey the IKE SA is processed.
    pair::deliver(&mut pair.left, rekey, pair.now);
    pair.run();
    pair.check_children(1);
    assert_eq!(pair.left.ike.status().count(), 1);
    pair.advance(Duration::from_secs(1));
    pair.check_children(1);
    pair.advance(Duration::from_secs(6));
    pair.check_children(2);
    let failed = |event: &Event| matches!(event, Event::ChildFailed { .. });
    assert!(!pair.left.events.iter().any(failed));
}

/// Child of the left side's connection.
fn child_again(pair: &Pair) -> Arc<casemate_ike::config::ChildConfig> {
    pair.left.ike.connections()[0].children[0].clone()
}

/// A peer that stays busy is given up in the end.
#[test]
fn a_child_sa_fails_if_the_peer_stays_busy() {
    let mut pair = established();
    let ike = pair.right.ike.status().next().unwrap().id;
    assert!(pair.right.with_context(pair.now, |engine, host, context| engine.rekey(ike, host, context)));
    pair.right.sent.clear();
    let (connection, child) = (pair.left.ike.connections()[0].clone(), child_again(&pair));
    pair.left
        .with_context(pair.now, |ike, host, context| {
            ike.initiate(&connection, Some(&child), None, host, context)
        })
        .unwrap();
    for _ in 0..600 {
        pair.run();
        pair.now = pair.now.after(Duration::from_secs(1));
        // Time advances for the left side only; the right one keeps waiting for a response.
        pair.left.handle_timeouts(pair.now);
    }
    pair.check_children(1);
    let failed = |event: &&Event| matches!(event, Event::ChildFailed { .. });
    assert_eq!(pair.left.events.iter().filter(failed).count(), 1);
    assert_eq!(pair.left.ike.status().count(), 1);
}
