//! Pending retries, and reloads of the configuration meanwhile.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may fail")]

mod pair;

use casemate_ike::config::{AddrPattern, ChildConfig, CloseAction, Connection};
use casemate_ike::{DownReason, Event, Transmit};
use casemate_sa::Instant;
use casemate_wire::ike::{ExchangeType, Header};
use pair::{IkePeer, Pair, connection};
use std::sync::Arc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// A connection with children of these names. Each is restarted when the peer closes it.
fn with_children(own: &str, peer: &str, names: &[&str]) -> Connection {
    let connection = connection(own, peer);
    let child = |name: &&str| ChildConfig {
        name: (*name).into(),
        close_action: CloseAction::Restart,
        ..(*connection.children[0]).clone()
    };
    Connection { children: names.iter().map(|name| Arc::new(child(name))).collect(), ..connection }
}

fn names(pair: &Pair) -> Vec<String> {
    pair.left.children().iter().map(|up| up.child.name.clone()).collect()
}

/// The left side has no route to the right side, so its connection waits for a retry.
fn waiting(names: &[&str]) -> Pair {
    let left = Connection {
        local_addrs: vec![AddrPattern::Any],
        keying_tries: 0,
        ..with_children("left", "right", names)
    };
    let mut pair = Pair::new(left, connection("right", "left"));
    let connection = pair.left.ike.connections()[0].clone();
    pair.left.with_context(pair.now, |ike, host, context| {
        ike.initiate_or_retry(&connection, &connection.children[0], host, context)
    });
    assert!(matches!(pair.left.events[..], [Event::InitiateFailed { .. }]), "{:?}", pair.left.events);
    pair
}

/// Adds the route.
fn route(pair: &mut Pair) {
    pair.left.routes.source = Some(pair::LEFT.parse().unwrap());
}

#[test]
fn a_pending_connection_starts_when_there_is_a_route() {
    let mut pair = waiting(&["one"]);
    route(&mut pair);
    pair.advance(Duration::from_secs(10));
    assert_eq!(names(&pair), ["one"]);
}

#[test]
fn a_reload_cancels_the_retries_of_removed_children() {
    let mut pair = waiting(&["one"]);
    let before = (*pair.left.ike.connections()[0]).clone();
    let children = with_children("left", "right", &["other"]).children;
    pair.left.ike.configure(vec![Connection { children, ..before }.into()], &[]);
    route(&mut pair);
    pair.advance(Duration::from_secs(300));
    assert_eq!((pair.left.ike.status().count(), pair.right.ike.status().count()), (0, 0));
}

/// The peer closes one of two Child SAs. Before it is restarted, it is removed from the configuration.
#[test]
fn a_reload_cancels_the_request_for_a_removed_child() {
    let left = with_children("left", "right", &["one", "two"]);
    let mut pair = Pair::new(left.clone(), with_children("right", "left", &["one", "two"]));
    for child in &pair.left.ike.connections()[0].clone().children {
        let connection = pair.left.ike.connections()[0].clone();
        pair.left
            .with_context(pair.now, |ike, host, context| {
                ike.initiate(&connection, Some(child), None, host, context)
            })
            .unwrap();
        pair.run();
    }
    pair.check_children(2);
    let two = pair.right.children().iter().find(|up| up.child.name == "two").unwrap().id;
    pair.right.with_context(pair.now, |ike, host, context| {
        ike.terminate_child(two, DownReason::Local, host, context)
    });
    pair.run();
    assert_eq!(names(&pair), ["one"]);
    let one = Connection { children: vec![left.children[0].clone()], ..left };
    let unconfigured = pair.left.ike.configure(vec![one.into()], &[]);
    assert_eq!((unconfigured.ikes, unconfigured.children), (vec![], vec![]));
    pair.advance(Duration::from_secs(30));
    assert_eq!(names(&pair), ["one"]);
    // An event reports that the Child SA is not set up.
    let is_reported =
        |event: &Event| matches!(event, Event::ChildFailed { reason: DownReason::Unconfigured, .. });
    assert_eq!(pair.left.events.iter().filter(|event| is_reported(event)).count(), 1);
}

/// The configuration is reloaded while the response is in transit.
#[test]
fn a_child_sa_removed_from_the_configuration_during_setup_is_closed() {
    for first in [true, false] {
        let left = with_children("left", "right", &["one", "two"]);
        let mut pair = Pair::new(left.clone(), with_children("right", "left", &["one", "two"]));
        let connection = pair.left.ike.connections()[0].clone();
        if !first {
            pair.left.initiate(pair.now);
            pair.run();
        }
        let two = connection.children[1].clone();
        pair.left
            .with_context(pair.now, |ike, host, context| {
                ike.initiate(&connection, Some(&two), None, host, context)
            })
            .unwrap();
        if first {
            pair.deliver_to_right();
            pair.deliver_to_left();
        }
        let one = Connection { children: vec![left.children[0].clone()], ..left };
        let unconfigured = pair.left.ike.configure(vec![one.into()], &[]);
        assert_eq!((unconfigured.ikes, unconfigured.children), (vec![], vec![]));
        pair.run();
        pair.advance(SECOND);
        assert!(!names(&pair).contains(&"two".into()), "{first}: {:?}", pair.left.events);
        assert_eq!(pair.right.children().len(), usize::from(!first));
    }
}

/// Name, time and attempts of the pending retries of the left side.
fn waits(pair: &Pair) -> Vec<(Option<String>, Instant, u8)> {
    let row = |waiting: casemate_ike::PendingRetry| {
        (waiting.child.map(|child| child.name.clone()), waiting.at, waiting.attempts)
    };
    pair.left.ike.pending_retries().map(row).collect()
}

fn cancel(pair: &mut Pair, child: Option<&str>) -> bool {
    pair.left.with_context(pair.now, |ike, host, context| ike.cancel("left", child, host, context))
}

#[test]
fn a_pending_connection_is_reported_and_can_be_cancelled() {
    for child in [None, Some("one")] {
        let mut pair = waiting(&["one", "two"]);
        let [(Some(name), at, 1)] = &waits(&pair)[..] else { panic!("{:?}", waits(&pair)) };
        assert_eq!(name, "one");
        assert!(*at > pair.now && Some(*at) == pair.left.ike.next_timeout());
        assert!(!cancel(&mut pair, Some("two")), "this child has no pending retry");
        assert_eq!(waits(&pair).len(), 1);
        assert!(cancel(&mut pair, child) && !cancel(&mut pair, child));
        assert_eq!((waits(&pair), pair.left.ike.next_timeout()), (vec![], None));
        route(&mut pair);
        pair.advance(Duration::from_secs(300));
        assert_eq!(pair.left.ike.status().count(), 0);
    }
}

/// One of two pending children is cancelled.
#[test]
fn one_of_two_pending_children_is_cancelled() {
    let mut pair = waiting(&["one", "two"]);
    let connection = pair.left.ike.connections()[0].clone();
    pair.left.with_context(pair.now, |ike, host, context| {
        ike.initiate_or_retry(&connection, &connection.children[1], host, context)
    });
    assert_eq!(waits(&pair).len(), 2);
    assert!(cancel(&mut pair, Some("one")));
    route(&mut pair);
    pair.advance(Duration::from_secs(20));
    assert_eq!((names(&pair), waits(&pair)), (vec!["two".into()], vec![]));
}

#[test]
fn a_pending_child_sa_is_reported_and_can_be_cancelled() {
    for cancelled in [false, true] {
        let both = ["one"];
        let mut pair =
            Pair::new(with_children("left", "right", &both), with_children("right", "left", &both));
        pair.left.initiate(pair.now);
        pair.run();
        let one = pair.right.children()[0].id;
        pair.right.with_context(pair.now, |ike, host, context| {
            ike.terminate_child(one, DownReason::Local, host, context)
        });
        pair.run();
        assert!(matches!(&waits(&pair)[..], [(Some(name), at, 1)] if name == "one" && *at > pair.now));
        if cancelled {
            assert!(cancel(&mut pair, Some("one")));
            let failed =
                |event: &Event| matches!(event, Event::ChildFailed { reason: DownReason::Local, .. });
            assert!(pair.left.events.iter().any(failed));
        }
        pair.advance(Duration::from_secs(30));
        assert_eq!((pair.left.children().len(), waits(&pair)), (usize::from(!cancelled), vec![]));
        assert_eq!(pair.left.ike.status().count(), 1);
    }
}

/// The peer does not respond to IKE_SA_INIT, and only the cancelled child was requested.
#[test]
fn an_ike_sa_started_for_a_cancelled_child_ends() {
    for (child, left) in [("two", 1), ("one", 0)] {
        let connection = with_children("left", "right", &["one", "two"]);
        let mut pair = Pair::new(connection, with_children("right", "left", &["one", "two"]));
        pair.left.initiate(pair.now);
        assert_eq!(cancel(&mut pair, Some(child)), left == 0);
        assert_eq!(pair.left.ike.status().count(), left);
    }
}

/// A client and a gateway. The client demands that its Child SA is kept up.
fn kept_up(change: impl FnOnce(&mut Connection)) -> Pair {
    let mut left = with_children("left", "right", &["one"]);
    Arc::make_mut(&mut left.children[0]).dpd_action = CloseAction::Restart;
    left.keeps_trying = true;
    change(&mut left);
    let mut pair = Pair::new(left, connection("right", "left"));
    pair.left.initiate(pair.now);
    pair.run();
    pair.check_children(1);
    pair
}

/// The right side closes its IKE SA, and refuses the key of the left side from now on.
fn close_and_refuse(pair: &mut Pair) {
    pair.right.keys = Box::new(pair::key(b"another key"));
    let ike = pair.right.ike.status().next().unwrap().id;
    assert!(pair.right.with_context(pair.now, |engine, host, context| {
        engine.terminate(ike, DownReason::Local, host, context)
    }));
    pair.run();
}

fn refusals(pair: &Pair) -> usize {
    let is_refusal = |reason: &&DownReason| matches!(reason, DownReason::Refused(_) | DownReason::Fault(_));
    pair.left.down_reasons().iter().filter(is_refusal).count()
}

#[test]
fn an_ike_sa_that_was_up_is_tried_again_after_refusals() {
    let mut pair = kept_up(|_| {});
    close_and_refuse(&mut pair);
    pair.advance(50 * SECOND);
    assert_eq!(refusals(&pair), 1);
    assert!(matches!(&waits(&pair)[..], [(Some(name), ..)] if name == "one"), "{:?}", waits(&pair));
    // Pauses of 1, 2, 4, 8 and 15 minutes, each up to a quarter longer.
    pair.advance(3_600 * SECOND);
    assert!((5..=8).contains(&refusals(&pair)), "{}", refusals(&pair));
    pair.right.keys = Box::new(pair::key(b"a key that both have"));
    pair.advance(1_200 * SECOND);
    assert_eq!((names(&pair), waits(&pair)), (vec!["one".into()], vec![]));
}

/// A packet brings the connection up before the next attempt after a refusal. Its pause is over then, and the
/// next end is followed by an attempt within seconds.
#[test]
fn the_pause_after_a_refusal_ends_when_the_connection_is_up() {
    let mut pair = kept_up(|_| {});
    close_and_refuse(&mut pair);
    pair.advance(20 * SECOND);
    assert_eq!((refusals(&pair), waits(&pair).len()), (1, 1));
    pair.right.keys = Box::new(pair::key(b"a key that both have"));
    pair.left.initiate(pair.now);
    pair.run();
    assert_eq!((names(&pair), waits(&pair)), (vec!["one".into()], vec![]));
    pair.advance(5 * SECOND);
    let ike = pair.right.ike.status().next().unwrap().id;
    pair.right.with_context(pair.now, |engine, host, context| {
        engine.terminate(ike, DownReason::Local, host, context)
    });
    pair.run();
    assert!(names(&pair).is_empty());
    pair.advance(20 * SECOND);
    assert_eq!(names(&pair), ["one"]);
}

#[test]
fn refusals_end_the_attempts_unless_the_connection_keeps_trying() {
    let never_kept = |left: &mut Connection| left.keeps_trying = false;
    let by_traffic =
        |left: &mut Connection| Arc::make_mut(&mut left.children[0]).close_action = CloseAction::Trap;
    for (change, tried) in [(never_kept as fn(&mut Connection), 1), (by_traffic, 0)] {
        let mut pair = kept_up(change);
        close_and_refuse(&mut pair);
        pair.advance(3_600 * SECOND);
        assert_eq!((refusals(&pair), waits(&pair)), (tried, vec![]));
    }
}

#[test]
fn attempts_after_a_refusal_can_be_cancelled() {
    let mut pair = kept_up(|_| {});
    close_and_refuse(&mut pair);
    pair.advance(30 * SECOND);
    assert!(cancel(&mut pair, None));
    pair.advance(3_600 * SECOND);
    assert_eq!((refusals(&pair), waits(&pair)), (1, vec![]));
}

#[test]
fn a_first_attempt_that_is_refused_is_the_last() {
    let mut left = with_children("left", "right", &["one"]);
    left.keeps_trying = true;
    let mut pair = Pair::new(left, connection("right", "left"));
    pair.right.keys = Box::new(pair::key(b"another key"));
    pair.left.initiate(pair.now);
    pair.run();
    pair.advance(3_600 * SECOND);
    assert_eq!((refusals(&pair), waits(&pair)), (1, vec![]));
}

/// The right side answers nothing for a while. The left side is back within 35 s afterwards, also if packets
/// begin attempts before they are due.
#[test]
fn a_silent_peer_that_comes_back_is_found_within_seconds() {
    for (outage, has_traffic) in
        [200, 400, 600, 3_600].map(|outage| [(outage, false), (outage, true)]).concat()
    {
        let mut pair = kept_up(|left| left.dpd_delay = Some(10 * SECOND));
        for _ in 0..outage {
            pair.now = pair.now.after(SECOND);
            pair.left.handle_timeouts(pair.now);
            if has_traffic && pair.left.ike.status().count() == 0 {
                pair.left.initiate(pair.now);
            }
            pair.left.sent.clear();
        }
        let mut seconds = 0;
        while pair.left.children().is_empty() {
            assert!(seconds <= 35, "{outage} s: {:?}", pair.left.down_reasons());
            pair.advance(SECOND);
            seconds += 1;
        }
    }
}

/// The right side has crashed. The left side begins to replace the IKE SA, whose end it learns while the
/// replacement is outstanding: IKE_AUTH is refused late, or never answered.
#[test]
fn the_attempt_that_replaces_a_forgotten_ike_sa_is_followed_by_others() {
    for is_refused in [true, false] {
        let secret = || Some(casemate_crypto::SecretBytes::new(&[1; 32]));
        let mut left = with_children("left", "right", &["one"]);
        Arc::make_mut(&mut left.children[0]).dpd_action = CloseAction::Restart;
        (left.keeps_trying, left.dpd_delay) = (true, Some(10 * SECOND));
        let mut pair = Pair::new(left, connection("right", "left"));
        pair.right.ike.set_crash_secret(secret());
        pair.left.initiate(pair.now);
        pair.run();
        pair.advance(100 * SECOND);
        let first = pair.left.ike.status().next().unwrap().id;
        let mut crashed = IkePeer::new(pair::RIGHT, 9, connection("right", "left"));
        crashed.keys = Box::new(pair::key(b"another key"));
        crashed.ike.set_crash_secret(secret());
        pair.right = crashed;
        let is_auth = |sent: &Transmit| {
            Header::parse(&sent.message).is_ok_and(|header| header.exchange == ExchangeType::IKE_AUTH)
        };
        for _ in 0..200 {
            pair.now = pair.now.after(SECOND);
            pair.left.handle_timeouts(pair.now);
            let is_first_up = pair.left.ike.status().any(|sa| sa.id == first);
            for _ in 0..10 {
                if is_first_up || !is_refused {
                    pair.left.sent.retain(|sent| !is_auth(sent));
                }
                pair.deliver_to_right();
                pair.deliver_to_left();
            }
        }
        assert!(pair.left.ike.status().all(|sa| sa.id != first), "{:?}", pair.left.down_reasons());
        pair.right.keys = Box::new(pair::key(b"a key that both have"));
        pair.advance(300 * SECOND);
        assert_eq!(names(&pair), ["one"], "{is_refused}: {:?}", pair.left.down_reasons());
    }
}

/// How the left side gives up an IKE SA while a request is outstanding.
#[derive(Debug, Clone, Copy)]
enum GivenUp {
    /// A command closes it.
    Terminated,
    /// A reload has removed its connection, and closes it.
    Unconfigured,
    /// A reload has changed its connection, and has not closed it yet.
    Changed,
}

/// The right side has forgotten the IKE SA, and says so, or proves it with its crash token. No other IKE SA
/// replaces one that the left side has given up.
#[test]
fn a_forgotten_ike_sa_that_is_being_closed_is_not_replaced() {
    let secret = || casemate_crypto::SecretBytes::new(&[1; 32]);
    for (given_up, proves) in [GivenUp::Terminated, GivenUp::Unconfigured, GivenUp::Changed]
        .map(|given_up| [(given_up, false), (given_up, true)])
        .concat()
    {
        let mut left = with_children("left", "right", &["one"]);
        Arc::make_mut(&mut left.children[0]).dpd_action = CloseAction::Restart;
        let mut pair = Pair::new(left.clone(), connection("right", "left"));
        pair.right.ike.set_crash_secret(proves.then(secret));
        pair.left.initiate(pair.now);
        pair.run();
        let (ike, child) = (pair.left.ike.status().next().unwrap().id, pair.left.children()[0].id);
        pair.right = IkePeer::new(pair::RIGHT, 9, connection("right", "left"));
        pair.right.ike.set_crash_secret(proves.then(secret));
        let now = pair.now;
        pair.left.with_context(now, |engine, host, context| engine.rekey_child(child, host, context));
        let reason = match given_up {
            GivenUp::Terminated => Some(DownReason::Local),
            GivenUp::Unconfigured => Some(DownReason::Unconfigured),
            GivenUp::Changed => {
                left.keying_tries = 7;
                assert_eq!(pair.left.ike.configure(vec![left.into()], &[]).ikes, [ike]);
                None
            }
        };
        if let Some(reason) = reason {
            pair.left.with_context(now, |engine, host, context| engine.terminate(ike, reason, host, context));
        }
        pair.advance(200 * SECOND);
        let counts = (pair.left.ike.status().count(), pair.right.ike.status().count());
        assert_eq!(counts, (0, 0), "{given_up:?} {proves}");
        assert!(pair.left.children().is_empty() && waits(&pair).is_empty());
    }
}
