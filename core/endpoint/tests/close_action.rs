//! `close_action = trap` and `dpd_action = trap`: when the Child SA is gone, its traffic is held, and the
//! next packet sets it up again.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may fail")]

mod common;

use casemate::Endpoint;
use casemate_datapath::Outbound;
use casemate_ike::TrafficTemplate;
use casemate_ike::config::{Child, IdPattern, OnClose, Start};
use casemate_sa::AddrRange;
use common::node::{Node, connection, pass, settle};
use common::{OWN, PEER};
use std::sync::Arc;
use std::time::Duration;

fn with(on_close: OnClose, on_dead_peer: OnClose) -> Child {
    Child { on_close, on_dead_peer, ..Child::new("all") }
}

/// Both have the Child SA.
fn established(child: Child) -> [Node; 2] {
    let own = Child { start: Start { at_once: true, on_traffic: false }, ..child };
    let peer = Node::new(connection(PEER, OWN, Child::new("all")));
    let mut nodes = [Node::new(connection(OWN, PEER, own)), peer];
    settle(&mut nodes);
    assert_eq!(nodes.each_ref().map(Node::children), [1, 1]);
    assert!(matches!(nodes[0].send(), Outbound::Send(_)));
    nodes
}

/// The peer closes the Child SA, or the whole IKE SA.
fn closed_by_peer(nodes: &mut [Node; 2], whole: bool) {
    let ike = nodes[1].endpoint.ike().status().next().unwrap();
    nodes[1].act(|endpoint, means| match whole {
        true => endpoint.terminate(ike.id, means),
        false => endpoint.terminate_child(ike.children[0].id, means),
    });
    settle(nodes);
    assert_eq!(nodes.each_ref().map(Node::children), [0, 0]);
}

#[test]
fn what_the_peer_closes_is_held_and_set_up_by_the_next_packet() {
    for whole in [false, true] {
        let mut nodes = established(with(OnClose::Trap, OnClose::Clear));
        for round in 0..3 {
            closed_by_peer(&mut nodes, whole);
            pass(&mut nodes, 30);
            assert_eq!(nodes[0].children(), 0, "nothing without a packet");
            assert!(nodes[0].is_held(), "{whole} {round}");
            settle(&mut nodes);
            assert_eq!(nodes.each_ref().map(Node::children), [1, 1], "{whole} {round}");
            assert!(matches!(nodes[0].send(), Outbound::Send(_)), "{whole} {round}");
        }
        // There is one trap, however often the Child SA ended.
        closed_by_peer(&mut nodes, whole);
        assert_eq!(nodes[0].policies(), 1);
    }
}

#[test]
fn without_the_action_nothing_is_held() {
    for (on_close, on_dead_peer) in [(OnClose::Clear, OnClose::Trap), (OnClose::Clear, OnClose::Clear)] {
        let mut nodes = established(with(on_close, on_dead_peer));
        closed_by_peer(&mut nodes, false);
        assert_eq!(nodes[0].policies(), 0);
        assert!(!nodes[0].is_held());
    }
}

/// What is closed here is not wanted any more.
#[test]
fn what_is_closed_here_is_not_held() {
    let mut nodes = established(with(OnClose::Trap, OnClose::Trap));
    let ike = nodes[0].endpoint.ike().status().next().unwrap().id;
    nodes[0].act(|endpoint, means| endpoint.terminate(ike, means));
    settle(&mut nodes);
    assert_eq!((nodes[0].children(), nodes[0].policies()), (0, 0));
}

#[test]
fn what_a_dead_peer_had_is_held_and_set_up_by_the_next_packet() {
    let [own, silent] = established(with(OnClose::Clear, OnClose::Trap));
    let mut own = own;
    for _ in 0..300 {
        own.now = own.now.after(Duration::from_secs(1));
        own.act(Endpoint::serve);
        while own.endpoint.next_transmit().is_some() {}
    }
    assert_eq!(own.endpoint.ike().counts(), (0, 0));
    assert!(own.is_held());
    let mut nodes = [own, silent];
    nodes[1].now = nodes[0].now;
    settle(&mut nodes);
    assert_eq!(nodes[0].children(), 1);
    assert!(matches!(nodes[0].send(), Outbound::Send(_)));
}

/// A trap stays as long as the configuration has the child as it was.
#[test]
fn a_reload_keeps_the_trap_of_a_child_that_stays() {
    let child =
        Child { start: Start { at_once: true, on_traffic: false }, ..with(OnClose::Trap, OnClose::Clear) };
    let mut nodes = established(child.clone());
    closed_by_peer(&mut nodes, false);
    nodes[0].configure(vec![connection(OWN, PEER, child.clone())]);
    assert!(nodes[0].is_held());
    let other = Child { on_close: OnClose::Clear, ..child };
    nodes[0].configure(vec![connection(OWN, PEER, Child { start: Start::default(), ..other })]);
    assert_eq!(nodes[0].policies(), 0);
}

/// A child whose traffic is held whatever ends its Child SA, except a command.
fn holding() -> Child {
    Child { start: Start { at_once: true, on_traffic: false }, ..with(OnClose::Trap, OnClose::Clear) }
}

/// The peer has restarted: it says INITIAL_CONTACT, and sets up no Child SA.
#[test]
fn what_a_restarted_peer_has_forgotten_is_held() {
    for child in [with(OnClose::Trap, OnClose::Clear), with(OnClose::Clear, OnClose::Trap)] {
        let [own, _] = established(child);
        let mut nodes = [own, Node::new(connection(PEER, OWN, Child::new("all")))];
        nodes[1].reseed(3);
        pass(&mut nodes, 1);
        let peer = nodes[1].endpoint.ike().connections()[0].clone();
        nodes[1].act(|endpoint, means| endpoint.initiate(&peer, None, means)).unwrap();
        settle(&mut nodes);
        assert_eq!(nodes.each_ref().map(Node::children), [0, 0]);
        assert!(nodes[0].is_held());
        settle(&mut nodes);
        assert!(matches!(nodes[0].send(), Outbound::Send(_)));
    }
}

/// Here the IKE SA is established, and then the peer rejects our proof.
#[test]
fn what_the_peer_ends_with_authentication_failed_is_held() {
    for (on_close, is_held) in [(OnClose::Trap, true), (OnClose::Clear, false)] {
        let own = Node::new(connection(OWN, PEER, with(on_close, OnClose::Clear)));
        let mut other = connection(PEER, OWN, Child::new("all"));
        other.remote.id = IdPattern::Ending(casemate_ike::config::IdentityKind::Fqdn, ".example".into());
        let mut nodes = [own, Node::new(other)];
        let (peer, child) = nodes[1].endpoint.configured("all").unwrap();
        nodes[1].act(|endpoint, means| endpoint.initiate(&peer, child.as_ref(), means)).unwrap();
        settle(&mut nodes);
        assert_eq!(nodes.each_ref().map(|node| node.endpoint.ike().counts().0), [0, 0]);
        assert_eq!(nodes[0].is_held(), is_held);
    }
}

/// The traffic is that of the child as it is configured now.
#[test]
fn a_reload_that_changes_the_child_keeps_the_trap() {
    const MOVED: [u8; 4] = [192, 0, 2, 77];
    let mut nodes = established(holding());
    closed_by_peer(&mut nodes, false);
    nodes[0].configure(vec![connection(OWN, PEER, Child { rekey_bytes: Some(1 << 30), ..holding() })]);
    assert!(nodes[0].is_held());
    let addrs = Some(AddrRange::single(MOVED.into()));
    let remote_ts = vec![TrafficTemplate { addrs, ..TrafficTemplate::DYNAMIC }];
    nodes[0].configure(vec![connection(OWN, PEER, Child { remote_ts, ..holding() })]);
    assert!(nodes[0].holds(OWN, MOVED) && !nodes[0].holds(OWN, PEER));
    let mut moved = connection(OWN, MOVED, holding());
    nodes[0].configure(vec![moved.clone()]);
    assert!(nodes[0].holds(OWN, MOVED), "`dynamic` is the new address of the peer");
    moved.children = vec![Arc::new(Child { name: "other".into(), ..holding() })];
    nodes[0].configure(vec![moved]);
    assert_eq!(nodes[0].policies(), 0, "no such child");
}

/// A reload closes the Child SA of a child that changed.
#[test]
fn what_a_reload_closes_is_held_if_the_new_child_says_so() {
    for (on_close, is_held) in [(OnClose::Trap, true), (OnClose::Clear, false)] {
        let mut nodes = established(with(OnClose::Trap, OnClose::Clear));
        let child = Child { rekey_bytes: Some(1 << 30), ..with(on_close, OnClose::Clear) };
        nodes[0].configure(vec![connection(OWN, PEER, child)]);
        settle(&mut nodes);
        assert_eq!(nodes[0].children(), 0);
        assert_eq!(nodes[0].is_held(), is_held);
    }
}

/// A rekeyed Child SA leaves no trap behind: its successor has its policies.
#[test]
fn what_is_replaced_is_not_held() {
    let mut nodes = established(with(OnClose::Trap, OnClose::Trap));
    let child = nodes[0].endpoint.ike().status().next().unwrap().children[0].id;
    nodes[0].act(|endpoint, means| endpoint.rekey_child(child, means));
    settle(&mut nodes);
    assert_eq!((nodes[0].children(), nodes[0].policies()), (1, 1));
    assert!(matches!(nodes[0].send(), Outbound::Send(_)));
}

#[test]
fn a_command_ends_what_close_action_holds() {
    for name in ["all", "peer", "peer/all"] {
        let mut nodes = established(with(OnClose::Trap, OnClose::Clear));
        assert!(!nodes[0].act(|endpoint, means| endpoint.cancel(name, means)));
        closed_by_peer(&mut nodes, false);
        assert!(nodes[0].is_held());
        settle(&mut nodes);
        closed_by_peer(&mut nodes, false);
        assert!(nodes[0].act(|endpoint, means| endpoint.cancel(name, means)), "{name}");
        assert_eq!(nodes[0].policies(), 0);
        assert!(!nodes[0].is_held());
    }
}

/// The trap that an earlier end left goes with the Child SA that a command closes.
#[test]
fn a_command_that_closes_the_child_sa_ends_what_close_action_holds() {
    for whole in [false, true] {
        let mut nodes = established(with(OnClose::Trap, OnClose::Clear));
        closed_by_peer(&mut nodes, false);
        assert!(nodes[0].is_held());
        settle(&mut nodes);
        assert_eq!((nodes[0].children(), nodes[0].policies()), (1, 2));
        let ike = nodes[0].endpoint.ike().status().next().unwrap();
        nodes[0].act(|endpoint, means| match whole {
            true => endpoint.terminate(ike.id, means),
            false => endpoint.terminate_child(ike.children[0].id, means),
        });
        settle(&mut nodes);
        assert_eq!((nodes[0].children(), nodes[0].policies()), (0, 0));
    }
}

/// `start_action = trap` is a promise of the configuration.
#[test]
fn a_command_does_not_end_what_start_action_holds() {
    let own =
        Child { start: Start { at_once: false, on_traffic: true }, ..with(OnClose::Trap, OnClose::Trap) };
    let peer = Node::new(connection(PEER, OWN, Child::new("all")));
    let mut nodes = [Node::new(connection(OWN, PEER, own)), peer];
    assert!(nodes[0].is_held());
    settle(&mut nodes);
    assert_eq!(nodes[0].children(), 1);
    let ike = nodes[0].endpoint.ike().status().next().unwrap().id;
    nodes[0].act(|endpoint, means| endpoint.cancel("peer", means));
    nodes[0].act(|endpoint, means| endpoint.terminate(ike, means));
    settle(&mut nodes);
    assert!(!nodes[0].act(|endpoint, means| endpoint.cancel("peer", means)));
    assert!(nodes[0].is_held());
}
