//! What waits to be set up again, and a configuration that is read again meanwhile.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

mod pair;

use casemate_ike::config::{AddrPattern, Child, Connection, OnClose};
use casemate_ike::{Down, Event};
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
