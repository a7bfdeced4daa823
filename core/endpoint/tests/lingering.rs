//! Inbound SAs of Child SAs that were replaced receive for five seconds more. However fast a peer replaces Child SAs,
//! there are no more of them than Child SAs of one IKE SA.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

mod common;

use casemate_datapath::Direction;
use casemate_ike::Settings;
use casemate_ike::config::{Child, Start};
use casemate_sa::Limits;
use common::node::{Node, connection, pass, settle};
use common::{OWN, PEER};

const MOST: usize = 4;

/// Both have one Child SA, and there may be [`MOST`] of them.
fn established() -> [Node; 2] {
    // Room for more SAs than may linger.
    let tables = (Limits { sas: 256, ..Limits::DEVICE }, Settings { children: MOST, ..Settings::SERVER });
    let own = Child { start: Start { at_once: true, on_traffic: false }, ..Child::new("all") };
    let peer = Node::with(tables, connection(PEER, OWN, Child::new("all")));
    let mut nodes = [Node::with(tables, connection(OWN, PEER, own)), peer];
    settle(&mut nodes);
    assert_eq!(nodes.each_ref().map(Node::children), [1, 1]);
    nodes
}

/// Inbound SAs of the first node, and SPIs that are taken.
fn inbound(nodes: &[Node; 2]) -> (usize, usize) {
    let endpoint = &nodes[0].endpoint;
    let sas = endpoint.datapath().sas().filter(|sa| sa.id.direction() == Direction::Inbound);
    (sas.count(), endpoint.reserved_spis())
}

/// The peer replaces its Child SA.
fn rekey_child(nodes: &mut [Node; 2]) {
    let children: Vec<_> = nodes[1].endpoint.ike().status().flat_map(|ike| ike.children).collect();
    assert!(nodes[1].act(|endpoint, means| endpoint.rekey_child(children[0].id, means)));
    settle(nodes);
    assert_eq!(nodes.each_ref().map(Node::children), [1, 1]);
}

/// The peer replaces its IKE SA.
fn rekey(nodes: &mut [Node; 2]) {
    let ike = nodes[1].endpoint.ike().status().last().unwrap().id;
    assert!(nodes[1].act(|endpoint, means| endpoint.rekey(ike, means)));
    settle(nodes);
}

#[test]
fn a_child_sa_that_was_replaced_receives_for_five_seconds() {
    let mut nodes = established();
    rekey_child(&mut nodes);
    pass(&mut nodes, 4);
    assert_eq!(inbound(&nodes), (2, 2));
    pass(&mut nodes, 1);
    assert_eq!(inbound(&nodes), (1, 1));
}

#[test]
fn a_peer_that_rekeys_child_sas_without_a_pause_does_not_fill_the_sad() {
    let mut nodes = established();
    for round in 1..30 {
        rekey_child(&mut nodes);
        let wanted = 1 + round.min(MOST);
        assert_eq!(inbound(&nodes), (wanted, wanted), "{round}");
    }
    pass(&mut nodes, 5);
    assert_eq!(inbound(&nodes), (1, 1));
}

/// An IKE SA that replaces another begins with what lingers for that one.
#[test]
fn a_peer_that_rekeys_the_ike_sa_between_does_not_fill_the_sad() {
    let mut nodes = established();
    for round in 1..12 {
        rekey_child(&mut nodes);
        rekey(&mut nodes);
        assert!(inbound(&nodes).0 <= 1 + MOST, "{round}: {:?}", inbound(&nodes));
    }
}

/// The oldest one goes first.
#[test]
fn what_was_replaced_last_still_receives() {
    let mut nodes = established();
    let spis = |nodes: &[Node; 2]| -> Vec<_> {
        let sas = nodes[0].endpoint.datapath().sas();
        sas.filter(|sa| sa.id.direction() == Direction::Inbound).map(|sa| sa.spi).collect()
    };
    let first = spis(&nodes)[0];
    for _ in 0..MOST {
        rekey_child(&mut nodes);
    }
    assert!(spis(&nodes).contains(&first));
    let current = nodes[0].endpoint.ike().status().flat_map(|ike| ike.children).next().unwrap().spi_in;
    rekey_child(&mut nodes);
    assert!(!spis(&nodes).contains(&first) && spis(&nodes).contains(&current));
}
