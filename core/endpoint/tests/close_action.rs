//! `close_action = trap` and `dpd_action = trap`: after the end of the Child SA its traffic is trapped, and
//! the next packet sets it up again.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may fail")]

mod common;

use casemate::Endpoint;
use casemate_datapath::Outbound;
use casemate_ike::TrafficSelectorTemplate;
use casemate_ike::config::{ChildConfig, CloseAction, IdPattern, StartAction};
use casemate_sa::AddrRange;
use common::node::{Node, advance, connection, exchange_messages};
use common::{OWN, PEER};
use std::sync::Arc;
use std::time::Duration;

fn with(on_close: CloseAction, on_dead_peer: CloseAction) -> ChildConfig {
    ChildConfig { close_action: on_close, dpd_action: on_dead_peer, ..ChildConfig::new("all") }
}

/// Two nodes with a Child SA.
fn established(child: ChildConfig) -> [Node; 2] {
    let own = ChildConfig { start_action: StartAction { at_once: true, on_traffic: false }, ..child };
    let peer = Node::new(connection(PEER, OWN, ChildConfig::new("all")));
    let mut nodes = [Node::new(connection(OWN, PEER, own)), peer];
    exchange_messages(&mut nodes);
    assert_eq!(nodes.each_ref().map(Node::children), [1, 1]);
    assert!(matches!(nodes[0].send(), Outbound::Send(_)));
    nodes
}

/// The peer closes the Child SA, or the whole IKE SA.
fn closed_by_peer(nodes: &mut [Node; 2], whole: bool) {
    let ike = nodes[1].endpoint.ike().status().next().unwrap();
    nodes[1].act(|endpoint, context| match whole {
        true => endpoint.terminate(ike.id, context),
        false => endpoint.terminate_child(ike.children[0].id, context),
    });
    exchange_messages(nodes);
    assert_eq!(nodes.each_ref().map(Node::children), [0, 0]);
}

#[test]
fn closed_by_peer_is_trapped_and_set_up_again() {
    for whole in [false, true] {
        let mut nodes = established(with(CloseAction::Trap, CloseAction::Clear));
        for round in 0..3 {
            closed_by_peer(&mut nodes, whole);
            advance(&mut nodes, 30);
            assert_eq!(nodes[0].children(), 0, "no IKE message before the first packet");
            assert!(nodes[0].is_trapped(), "{whole} {round}");
            exchange_messages(&mut nodes);
            assert_eq!(nodes.each_ref().map(Node::children), [1, 1], "{whole} {round}");
            assert!(matches!(nodes[0].send(), Outbound::Send(_)), "{whole} {round}");
        }
        // There is one trap, however often the Child SA ended.
        closed_by_peer(&mut nodes, whole);
        assert_eq!(nodes[0].policies(), 1);
    }
}

#[test]
fn nothing_is_trapped_without_the_action() {
    for (on_close, on_dead_peer) in
        [(CloseAction::Clear, CloseAction::Trap), (CloseAction::Clear, CloseAction::Clear)]
    {
        let mut nodes = established(with(on_close, on_dead_peer));
        closed_by_peer(&mut nodes, false);
        assert_eq!(nodes[0].policies(), 0);
        assert!(!nodes[0].is_trapped());
    }
}

/// A Child SA that is closed locally is no longer wanted.
#[test]
fn closed_locally_is_not_trapped() {
    let mut nodes = established(with(CloseAction::Trap, CloseAction::Trap));
    let ike = nodes[0].endpoint.ike().status().next().unwrap().id;
    nodes[0].act(|endpoint, context| endpoint.terminate(ike, context));
    exchange_messages(&mut nodes);
    assert_eq!((nodes[0].children(), nodes[0].policies()), (0, 0));
}

#[test]
fn dead_peer_is_trapped_and_set_up_again() {
    let [own, silent] = established(with(CloseAction::Clear, CloseAction::Trap));
    let mut own = own;
    for _ in 0..300 {
        own.now = own.now.after(Duration::from_secs(1));
        own.act(Endpoint::handle_timeouts);
        while own.endpoint.next_transmit().is_some() {}
    }
    assert_eq!(own.endpoint.ike().ike_sa_count(), 0);
    assert!(own.is_trapped());
    let mut nodes = [own, silent];
    nodes[1].now = nodes[0].now;
    exchange_messages(&mut nodes);
    assert_eq!(nodes[0].children(), 1);
    assert!(matches!(nodes[0].send(), Outbound::Send(_)));
}

/// A trap stays while the configuration of its child is unchanged.
#[test]
fn reload_keeps_the_trap_of_an_unchanged_child() {
    let child = ChildConfig {
        start_action: StartAction { at_once: true, on_traffic: false },
        ..with(CloseAction::Trap, CloseAction::Clear)
    };
    let mut nodes = established(child.clone());
    closed_by_peer(&mut nodes, false);
    nodes[0].configure(vec![connection(OWN, PEER, child.clone())]);
    assert!(nodes[0].is_trapped());
    let other = ChildConfig { close_action: CloseAction::Clear, ..child };
    nodes[0].configure(vec![connection(
        OWN,
        PEER,
        ChildConfig { start_action: StartAction::default(), ..other },
    )]);
    assert_eq!(nodes[0].policies(), 0);
}

/// A child with a trap after every end of its Child SA, except by a command.
fn trapping_child() -> ChildConfig {
    ChildConfig {
        start_action: StartAction { at_once: true, on_traffic: false },
        ..with(CloseAction::Trap, CloseAction::Clear)
    }
}

/// The peer has restarted: it sends INITIAL_CONTACT and sets up no Child SA.
#[test]
fn initial_contact_of_restarted_peer_sets_the_trap() {
    for child in [with(CloseAction::Trap, CloseAction::Clear), with(CloseAction::Clear, CloseAction::Trap)] {
        let [own, _] = established(child);
        let mut nodes = [own, Node::new(connection(PEER, OWN, ChildConfig::new("all")))];
        nodes[1].reseed(3);
        advance(&mut nodes, 1);
        let peer = nodes[1].endpoint.ike().connections()[0].clone();
        nodes[1].act(|endpoint, context| endpoint.initiate(&peer, None, context)).unwrap();
        exchange_messages(&mut nodes);
        assert_eq!(nodes.each_ref().map(Node::children), [0, 0]);
        assert!(nodes[0].is_trapped());
        exchange_messages(&mut nodes);
        assert!(matches!(nodes[0].send(), Outbound::Send(_)));
    }
}

/// The IKE SA is established locally, and then the peer rejects the authentication.
#[test]
fn authentication_failed_of_the_peer_sets_the_trap() {
    for (on_close, is_trapped) in [(CloseAction::Trap, true), (CloseAction::Clear, false)] {
        let own = Node::new(connection(OWN, PEER, with(on_close, CloseAction::Clear)));
        let mut other = connection(PEER, OWN, ChildConfig::new("all"));
        other.remote.id = IdPattern::Suffix(casemate_ike::config::IdentityKind::Fqdn, ".example".into());
        let mut nodes = [own, Node::new(other)];
        let (peer, child) = nodes[1].endpoint.config_by_name("all").unwrap();
        nodes[1].act(|endpoint, context| endpoint.initiate(&peer, child.as_ref(), context)).unwrap();
        exchange_messages(&mut nodes);
        assert_eq!(nodes.each_ref().map(|node| node.endpoint.ike().ike_sa_count()), [0, 0]);
        assert_eq!(nodes[0].is_trapped(), is_trapped);
    }
}

/// The trap has the traffic of the current configuration.
#[test]
fn reload_keeps_the_trap_of_a_changed_child() {
    const MOVED: [u8; 4] = [192, 0, 2, 77];
    let mut nodes = established(trapping_child());
    closed_by_peer(&mut nodes, false);
    nodes[0].configure(vec![connection(
        OWN,
        PEER,
        ChildConfig { rekey_bytes: Some(1 << 30), ..trapping_child() },
    )]);
    assert!(nodes[0].is_trapped());
    let addrs = Some(AddrRange::single(MOVED.into()));
    let remote_ts = vec![TrafficSelectorTemplate { addrs, ..TrafficSelectorTemplate::DYNAMIC }];
    nodes[0].configure(vec![connection(OWN, PEER, ChildConfig { remote_ts, ..trapping_child() })]);
    assert!(nodes[0].traps(OWN, MOVED) && !nodes[0].traps(OWN, PEER));
    let mut moved = connection(OWN, MOVED, trapping_child());
    nodes[0].configure(vec![moved.clone()]);
    assert!(nodes[0].traps(OWN, MOVED), "`dynamic` is the new address of the peer");
    moved.children = vec![Arc::new(ChildConfig { name: "other".into(), ..trapping_child() })];
    nodes[0].configure(vec![moved]);
    assert_eq!(nodes[0].policies(), 0, "no such child");
}

/// A reload closes the Child SA of a changed child.
#[test]
fn reload_sets_the_trap_of_the_new_configuration() {
    for (on_close, is_trapped) in [(CloseAction::Trap, true), (CloseAction::Clear, false)] {
        let mut nodes = established(with(CloseAction::Trap, CloseAction::Clear));
        let child = ChildConfig { rekey_bytes: Some(1 << 30), ..with(on_close, CloseAction::Clear) };
        nodes[0].configure(vec![connection(OWN, PEER, child)]);
        exchange_messages(&mut nodes);
        assert_eq!(nodes[0].children(), 0);
        assert_eq!(nodes[0].is_trapped(), is_trapped);
    }
}

/// A rekeyed Child SA leaves no trap: its successor uses its policies.
#[test]
fn rekeyed_child_sa_is_not_trapped() {
    let mut nodes = established(with(CloseAction::Trap, CloseAction::Trap));
    let child = nodes[0].endpoint.ike().status().next().unwrap().children[0].id;
    nodes[0].act(|endpoint, context| endpoint.rekey_child(child, context));
    exchange_messages(&mut nodes);
    assert_eq!((nodes[0].children(), nodes[0].policies()), (1, 1));
    assert!(matches!(nodes[0].send(), Outbound::Send(_)));
}

#[test]
fn command_removes_the_trap_of_close_action() {
    for name in ["all", "peer", "peer/all"] {
        let mut nodes = established(with(CloseAction::Trap, CloseAction::Clear));
        assert!(!nodes[0].act(|endpoint, context| endpoint.cancel(name, context)));
        closed_by_peer(&mut nodes, false);
        assert!(nodes[0].is_trapped());
        exchange_messages(&mut nodes);
        closed_by_peer(&mut nodes, false);
        assert!(nodes[0].act(|endpoint, context| endpoint.cancel(name, context)), "{name}");
        assert_eq!(nodes[0].policies(), 0);
        assert!(!nodes[0].is_trapped());
    }
}

/// Closing the Child SA by a command also removes the trap that an earlier end left.
#[test]
fn closing_the_child_sa_removes_the_trap_of_close_action() {
    for whole in [false, true] {
        let mut nodes = established(with(CloseAction::Trap, CloseAction::Clear));
        closed_by_peer(&mut nodes, false);
        assert!(nodes[0].is_trapped());
        exchange_messages(&mut nodes);
        assert_eq!((nodes[0].children(), nodes[0].policies()), (1, 2));
        let ike = nodes[0].endpoint.ike().status().next().unwrap();
        nodes[0].act(|endpoint, context| match whole {
            true => endpoint.terminate(ike.id, context),
            false => endpoint.terminate_child(ike.children[0].id, context),
        });
        exchange_messages(&mut nodes);
        assert_eq!((nodes[0].children(), nodes[0].policies()), (0, 0));
    }
}

/// `start_action = trap` belongs to the configuration, so commands do not remove it.
#[test]
fn command_keeps_the_trap_of_start_action() {
    let own = ChildConfig {
        start_action: StartAction { at_once: false, on_traffic: true },
        ..with(CloseAction::Trap, CloseAction::Trap)
    };
    let peer = Node::new(connection(PEER, OWN, ChildConfig::new("all")));
    let mut nodes = [Node::new(connection(OWN, PEER, own)), peer];
    assert!(nodes[0].is_trapped());
    exchange_messages(&mut nodes);
    assert_eq!(nodes[0].children(), 1);
    let ike = nodes[0].endpoint.ike().status().next().unwrap().id;
    nodes[0].act(|endpoint, context| endpoint.cancel("peer", context));
    nodes[0].act(|endpoint, context| endpoint.terminate(ike, context));
    exchange_messages(&mut nodes);
    assert!(!nodes[0].act(|endpoint, context| endpoint.cancel("peer", context)));
    assert!(nodes[0].is_trapped());
}
