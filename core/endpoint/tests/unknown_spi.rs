//! A host restarts without its SAs, and only its peer sends. The packets have an unknown SPI, so the host
//! starts the connection (RFC 7296 sections 1.5 and 2.4). Forged packets cause no more than a few attempts.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may fail")]

mod common;

use casemate::Notice;
use casemate_datapath::DropReason;
use casemate_ike::config::{AddrPattern, ChildConfig, StartAction};
use casemate_ike::{DownReason, Event, Path};
use common::node::{Node, advance, connection, exchange_messages};
use common::packets::{forged, protect, receive};
use common::{OWN, PEER};
use std::time::Duration;

const NONE: StartAction = StartAction { at_once: false, on_traffic: false };
const TRAP: StartAction = StartAction { at_once: false, on_traffic: true };
const START: StartAction = StartAction { at_once: true, on_traffic: false };

/// Name of the child, in both configurations.
fn child(start_action: StartAction) -> ChildConfig {
    ChildConfig { start_action, ..ChildConfig::new("all") }
}

/// The host that restarts.
fn host(start_action: StartAction) -> Node {
    Node::new(connection(OWN, PEER, child(start_action)))
}

/// The host with `start_action`, and its peer, which has started the connection.
fn established(start_action: StartAction) -> [Node; 2] {
    let peer = Node::new(connection(PEER, OWN, child(START)));
    let mut nodes = [host(start_action), peer];
    exchange_messages(&mut nodes);
    assert!(nodes.iter().all(|node| node.children() >= 1));
    nodes
}

/// The host restarts and has forgotten its SAs.
fn restart(nodes: &mut [Node; 2], start_action: StartAction) {
    let now = nodes[0].now;
    nodes[0] = host(start_action);
    (nodes[0].now, nodes[1].now) = (now, now);
    nodes[0].reseed(3);
}

/// Processes the events of a node. Returns the number of first IKE messages among those that it sends, and
/// its notices.
fn reactions(node: &mut Node) -> (usize, Vec<Notice>) {
    node.act(casemate::Endpoint::handle_timeouts);
    let sent = std::iter::from_fn(|| node.endpoint.next_transmit()).count();
    (sent, std::iter::from_fn(|| node.endpoint.next_notice()).collect())
}

#[test]
fn packets_of_the_peer_start_the_connection_again() {
    for start_action in [NONE, TRAP, START] {
        let mut nodes = established(start_action);
        restart(&mut nodes, start_action);
        if start_action == START {
            // The first attempt of the restarted host is lost.
            while nodes[0].endpoint.next_transmit().is_some() {}
        }
        let lost = protect(&mut nodes[1], PEER, OWN);
        assert_eq!(receive(&mut nodes[0], &lost), Some(DropReason::NoSa));
        advance(&mut nodes, 2);
        let received = protect(&mut nodes[1], PEER, OWN);
        assert_eq!(receive(&mut nodes[0], &received), None, "{start_action:?}");
        assert_eq!(nodes.each_ref().map(Node::children), [1, 1], "INITIAL_CONTACT closes the old SAs");
    }
}

#[test]
fn forged_packets_cause_few_attempts() {
    let mut node = host(NONE);
    let (mut starts, mut messages) = (0, 0);
    for second in 0..3_600 {
        for _ in 0..20 {
            receive(&mut node, &forged(PEER, OWN));
            let (sent, notices) = reactions(&mut node);
            messages += sent;
            starts += notices.iter().filter(|it| matches!(it, Notice::PeerUsesUnknownSpi { .. })).count();
        }
        assert!(starts <= 1 || second > 10);
        node.now = node.now.after(Duration::from_secs(1));
    }
    // Each attempt ends after 123 s, and from the sixth on the pause is 320 s.
    assert!((8..=20).contains(&starts), "{starts}");
    assert_eq!(messages, starts * 7);
}

/// Requests with the peer's address, whose sender gets no response, do not keep the host from starting the
/// connection.
#[test]
fn forged_first_requests_delay_the_start_by_seconds() {
    let mut nodes = established(NONE);
    restart(&mut nodes, NONE);
    for second in 0..30 {
        if second % 10 == 0 {
            let mut forger = Node::new(connection(PEER, OWN, child(START)));
            forger.now = nodes[0].now;
            forger.reseed(20 + second);
            forger.act(casemate::Endpoint::handle_timeouts);
            while let Some(mut request) = forger.endpoint.next_transmit() {
                let path = Path { local: request.path.remote, remote: request.path.local };
                nodes[0].act(|endpoint, context| endpoint.receive_ike(&mut request.message, path, context));
            }
            while nodes[0].endpoint.next_transmit().is_some() {}
        }
        let lost = protect(&mut nodes[1], PEER, OWN);
        receive(&mut nodes[0], &lost);
        let (_, notices) = reactions(&mut nodes[0]);
        if notices.iter().any(|it| matches!(it, Notice::PeerUsesUnknownSpi { .. })) {
            assert!((9..=12).contains(&second), "after {second} s");
            return;
        }
        nodes.iter_mut().for_each(|node| node.now = node.now.after(Duration::from_secs(1)));
    }
    panic!("the connection was not started");
}

#[test]
fn packets_of_others_cause_nothing() {
    let mut node = host(NONE);
    for bytes in [forged([192, 0, 2, 9], OWN), forged(PEER, [192, 0, 2, 8]), forged(OWN, PEER)] {
        receive(&mut node, &bytes);
        assert_eq!(reactions(&mut node).0, 0);
    }
    receive(&mut node, &forged(PEER, OWN));
    assert_eq!(reactions(&mut node).0, 1);

    // The connection names no address, so this host cannot initiate.
    let mut any = connection(OWN, PEER, child(NONE));
    any.remote_addrs = vec![AddrPattern::Any];
    let mut node = Node::new(any);
    receive(&mut node, &forged(PEER, OWN));
    assert!(!reactions(&mut node).1.iter().any(|it| matches!(it, Notice::PeerUsesUnknownSpi { .. })));
}

#[test]
fn forged_packets_do_not_touch_an_established_ike_sa() {
    let mut nodes = established(NONE);
    for _ in 0..100 {
        receive(&mut nodes[0], &forged(PEER, OWN));
        assert_eq!(reactions(&mut nodes[0]).0, 0);
        nodes[0].now = nodes[0].now.after(Duration::from_millis(50));
    }
    assert_eq!(nodes.each_ref().map(Node::children), [1, 1]);
}

#[test]
fn a_connection_that_was_closed_by_command_is_not_started() {
    let mut nodes = established(NONE);
    let ike = nodes[0].endpoint.ike().status().next().unwrap().id;
    nodes[0].act(|endpoint, context| endpoint.terminate(ike, context));
    exchange_messages(&mut nodes);
    receive(&mut nodes[0], &forged(PEER, OWN));
    assert_eq!(reactions(&mut nodes[0]).0, 0);
    // The user starts it again, and later the peer closes it.
    let connection = nodes[0].endpoint.ike().connections()[0].clone();
    nodes[0]
        .act(|endpoint, context| endpoint.initiate(&connection, Some(&connection.children[0]), context))
        .unwrap();
    exchange_messages(&mut nodes);
    let ike = nodes[1].endpoint.ike().status().next().unwrap().id;
    nodes[1].act(|endpoint, context| endpoint.terminate(ike, context));
    exchange_messages(&mut nodes);
    assert_eq!(nodes[0].children(), 0);
    advance(&mut nodes, 60);
    receive(&mut nodes[0], &forged(PEER, OWN));
    let (sent, notices) = reactions(&mut nodes[0]);
    assert_eq!(sent, 1, "{notices:?}");
    assert!(
        !notices
            .iter()
            .any(|it| { matches!(it, Notice::Ike(Event::IkeDown { reason: DownReason::Local, .. })) })
    );
}

/// Packets that the peer sent before it learnt of the end arrive while the host closes the connection, or
/// just after the peer has closed it.
#[test]
fn packets_in_flight_do_not_start_a_connection_that_is_being_closed() {
    let mut nodes = established(NONE);
    let in_flight = protect(&mut nodes[1], PEER, OWN);
    let ike = nodes[0].endpoint.ike().status().next().unwrap().id;
    nodes[0].act(|endpoint, context| endpoint.terminate(ike, context));
    let messages: Vec<_> = std::iter::from_fn(|| nodes[0].endpoint.next_transmit()).collect();
    assert_eq!(messages.len(), 1, "the Delete payload");
    assert_eq!(receive(&mut nodes[0], &in_flight), Some(DropReason::NoSa));
    assert_eq!(reactions(&mut nodes[0]).0, 0);

    let mut nodes = established(NONE);
    let in_flight = protect(&mut nodes[1], PEER, OWN);
    let ike = nodes[1].endpoint.ike().status().next().unwrap().id;
    nodes[1].act(|endpoint, context| endpoint.terminate(ike, context));
    exchange_messages(&mut nodes);
    assert_eq!(receive(&mut nodes[0], &in_flight), Some(DropReason::NoSa));
    assert_eq!(reactions(&mut nodes[0]).0, 0);
}
