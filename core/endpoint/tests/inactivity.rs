//! A Child SA without traffic is closed after the time that its configuration allows. Packets in both
//! directions count.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

mod common;

use casemate_ike::config::{ChildConfig, StartAction};
use common::node::{Node, advance, connection, exchange_messages};
use common::packets::{protect, receive};
use common::{OWN, PEER};
use std::time::Duration;

/// Two hosts with a Child SA, of which the first one closes it after ten seconds without a packet.
fn pair(start_action: StartAction) -> [Node; 2] {
    let child =
        ChildConfig { inactivity: Some(Duration::from_secs(10)), start_action, ..ChildConfig::new("all") };
    let mut nodes = [Node::new(connection(OWN, PEER, child)), {
        let mut peer = connection(PEER, OWN, ChildConfig::new("all"));
        peer.dpd_delay = None;
        Node::new(peer)
    }];
    nodes[0].send();
    exchange_messages(&mut nodes);
    assert_eq!(children(&nodes), [1, 1]);
    nodes
}

const AT_ONCE: StartAction = StartAction { at_once: true, on_traffic: false };

fn children(nodes: &[Node; 2]) -> [usize; 2] {
    nodes.each_ref().map(Node::children)
}

#[test]
fn an_unused_child_sa_is_closed_and_the_ike_sa_stays() {
    let mut nodes = pair(AT_ONCE);
    advance(&mut nodes, 9);
    assert_eq!(children(&nodes), [1, 1]);
    advance(&mut nodes, 1);
    assert_eq!(children(&nodes), [0, 0], "also although it was started at once");
    assert!(nodes.iter().all(|node| node.endpoint.ike().status().count() == 1));
}

#[test]
fn packets_in_either_direction_keep_it() {
    for (from, to) in [(0, 1), (1, 0)] {
        let mut nodes = pair(AT_ONCE);
        let addrs = [OWN, PEER];
        for _ in 0..6 {
            advance(&mut nodes, 7);
            let bytes = protect(&mut nodes[from], addrs[from], addrs[to]);
            assert_eq!(receive(&mut nodes[to], &bytes), None);
        }
        assert_eq!(children(&nodes), [1, 1]);
        advance(&mut nodes, 9);
        assert_eq!(children(&nodes), [1, 1]);
        advance(&mut nodes, 1);
        assert_eq!(children(&nodes), [0, 0]);
    }
}

#[test]
fn a_trap_sets_it_up_again() {
    let mut nodes = pair(StartAction { at_once: false, on_traffic: true });
    advance(&mut nodes, 11);
    assert_eq!(children(&nodes), [0, 0]);
    assert!(nodes[0].is_trapped());
    exchange_messages(&mut nodes);
    assert_eq!(children(&nodes), [1, 1]);
}
