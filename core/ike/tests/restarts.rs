//! What waits to be set up again, and a configuration that is read again meanwhile.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may fail")]

mod pair;

use casemate_ike::config::{AddrPattern, Child, Connection, OnClose};
use casemate_ike::{Down, Event};
use casemate_sa::Instant;
use pair::{Pair, connection};
use std::sync::Arc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// With children of these names, each of which is set up again when the peer closes it.
fn with_children(own: &str, peer: &str, names: &[&str]) -> Connection {
    let connection = connection(own, peer);
    let child = |name: &&str| Child {
        name: (*name).into(),
        on_close: OnClose::Restart,
        ..(*connection.children[0]).clone()
    };
    Connection { children: names.iter().map(|name| Arc::new(child(name))).collect(), ..connection }
}

fn names(pair: &Pair) -> Vec<String> {
    pair.left.children().iter().map(|up| up.child.name.clone()).collect()
}

/// The left side has no route to the right side, so its connection waits to be begun again.
fn waiting(names: &[&str]) -> Pair {
    let left = Connection {
        local_addrs: vec![AddrPattern::Any],
        keying_tries: 0,
        ..with_children("left", "right", names)
    };
    let mut pair = Pair::new(left, connection("right", "left"));
    let connection = pair.left.ike.connections()[0].clone();
    pair.left.with_env(pair.now, |ike, env| ike.start(&connection, &connection.children[0], env));
    assert!(matches!(pair.left.events[..], [Event::NotBegun { .. }]), "{:?}", pair.left.events);
    pair
}

/// From now on there is a route.
fn route(pair: &mut Pair) {
    pair.left.host.source = Some(pair::LEFT.parse().unwrap());
}

#[test]
fn what_waits_begins_when_there_is_a_route() {
    let mut pair = waiting(&["one"]);
    route(&mut pair);
    pair.pass(Duration::from_secs(10));
    assert_eq!(names(&pair), ["one"]);
}

#[test]
fn a_reload_without_the_children_that_wait_cancels_their_restart() {
    let mut pair = waiting(&["one"]);
    let before = (*pair.left.ike.connections()[0]).clone();
    let children = with_children("left", "right", &["other"]).children;
    pair.left.ike.configure(vec![Connection { children, ..before }.into()], &[]);
    route(&mut pair);
    pair.pass(Duration::from_secs(300));
    assert_eq!((pair.left.ike.status().count(), pair.right.ike.status().count()), (0, 0));
}

/// The peer closes one of two Child SAs, and before it is set up again it is no longer configured.
#[test]
fn a_reload_takes_back_the_request_for_a_child_sa_that_is_no_more() {
    let left = with_children("left", "right", &["one", "two"]);
    let mut pair = Pair::new(left.clone(), with_children("right", "left", &["one", "two"]));
    for child in &pair.left.ike.connections()[0].clone().children {
        let connection = pair.left.ike.connections()[0].clone();
        pair.left.with_env(pair.now, |ike, env| ike.initiate(&connection, Some(child), None, env)).unwrap();
        pair.run();
    }
    pair.check_children(2);
    let two = pair.right.children().iter().find(|up| up.child.name == "two").unwrap().id;
    pair.right.with_env(pair.now, |ike, env| ike.terminate_child(two, Down::Local, env));
    pair.run();
    assert_eq!(names(&pair), ["one"]);
    let one = Connection { children: vec![left.children[0].clone()], ..left };
    let gone = pair.left.ike.configure(vec![one.into()], &[]);
    assert_eq!((gone.ikes, gone.children), (vec![], vec![]));
    pair.pass(Duration::from_secs(30));
    assert_eq!(names(&pair), ["one"]);
    // Who waits for it hears that it does not come.
    let told = |event: &Event| matches!(event, Event::ChildFailed { why: Down::Unconfigured, .. });
    assert_eq!(pair.left.events.iter().filter(|event| told(event)).count(), 1);
}

/// The configuration is read again while the response is on its way.
#[test]
fn a_child_sa_that_comes_after_it_was_taken_out_of_the_configuration_is_closed() {
    for first in [true, false] {
        let left = with_children("left", "right", &["one", "two"]);
        let mut pair = Pair::new(left.clone(), with_children("right", "left", &["one", "two"]));
        let connection = pair.left.ike.connections()[0].clone();
        if !first {
            pair.left.initiate(pair.now);
            pair.run();
        }
        let two = connection.children[1].clone();
        pair.left.with_env(pair.now, |ike, env| ike.initiate(&connection, Some(&two), None, env)).unwrap();
        if first {
            pair.right_takes_all();
            pair.left_takes_all();
        }
        let one = Connection { children: vec![left.children[0].clone()], ..left };
        let gone = pair.left.ike.configure(vec![one.into()], &[]);
        assert_eq!((gone.ikes, gone.children), (vec![], vec![]));
        pair.run();
        pair.pass(SECOND);
        assert!(!names(&pair).contains(&"two".into()), "{first}: {:?}", pair.left.events);
        assert_eq!(pair.right.children().len(), usize::from(!first));
    }
}

/// Name, time and attempts of what waits on the left side.
fn waits(pair: &Pair) -> Vec<(Option<String>, Instant, u8)> {
    let row = |waiting: casemate_ike::Waiting| {
        (waiting.child.map(|child| child.name.clone()), waiting.at, waiting.attempts)
    };
    pair.left.ike.waiting().map(row).collect()
}

fn cancel(pair: &mut Pair, child: Option<&str>) -> bool {
    pair.left.with_env(pair.now, |ike, env| ike.cancel("left", child, env))
}

#[test]
fn a_connection_that_waits_is_shown_and_can_be_cancelled() {
    for child in [None, Some("one")] {
        let mut pair = waiting(&["one", "two"]);
        let [(Some(name), at, 1)] = &waits(&pair)[..] else { panic!("{:?}", waits(&pair)) };
        assert_eq!(name, "one");
        assert!(*at > pair.now && Some(*at) == pair.left.ike.due());
        assert!(!cancel(&mut pair, Some("two")), "it does not wait");
        assert_eq!(waits(&pair).len(), 1);
        assert!(cancel(&mut pair, child) && !cancel(&mut pair, child));
        assert_eq!((waits(&pair), pair.left.ike.due()), (vec![], None));
        route(&mut pair);
        pair.pass(Duration::from_secs(300));
        assert_eq!(pair.left.ike.status().count(), 0);
    }
}

/// Of two children that wait, one is cancelled.
#[test]
fn a_child_that_waits_is_cancelled_alone() {
    let mut pair = waiting(&["one", "two"]);
    let connection = pair.left.ike.connections()[0].clone();
    pair.left.with_env(pair.now, |ike, env| ike.start(&connection, &connection.children[1], env));
    assert_eq!(waits(&pair).len(), 2);
    assert!(cancel(&mut pair, Some("one")));
    route(&mut pair);
    pair.pass(Duration::from_secs(20));
    assert_eq!((names(&pair), waits(&pair)), (vec!["two".into()], vec![]));
}

#[test]
fn a_child_sa_that_waits_in_an_ike_sa_is_shown_and_can_be_cancelled() {
    for cancelled in [false, true] {
        let both = ["one"];
        let mut pair =
            Pair::new(with_children("left", "right", &both), with_children("right", "left", &both));
        pair.left.initiate(pair.now);
        pair.run();
        let one = pair.right.children()[0].id;
        pair.right.with_env(pair.now, |ike, env| ike.terminate_child(one, Down::Local, env));
        pair.run();
        assert!(matches!(&waits(&pair)[..], [(Some(name), at, 1)] if name == "one" && *at > pair.now));
        if cancelled {
            assert!(cancel(&mut pair, Some("one")));
            let failed = |event: &Event| matches!(event, Event::ChildFailed { why: Down::Local, .. });
            assert!(pair.left.events.iter().any(failed));
        }
        pair.pass(Duration::from_secs(30));
        assert_eq!((pair.left.children().len(), waits(&pair)), (usize::from(!cancelled), vec![]));
        assert_eq!(pair.left.ike.status().count(), 1);
    }
}

/// The peer does not answer IKE_SA_INIT: nothing but the child was wanted.
#[test]
fn an_ike_sa_that_is_begun_for_a_cancelled_child_ends() {
    for (child, left) in [("two", 1), ("one", 0)] {
        let connection = with_children("left", "right", &["one", "two"]);
        let mut pair = Pair::new(connection, with_children("right", "left", &["one", "two"]));
        pair.left.initiate(pair.now);
        assert_eq!(cancel(&mut pair, Some(child)), left == 0);
        assert_eq!(pair.left.ike.status().count(), left);
    }
}
