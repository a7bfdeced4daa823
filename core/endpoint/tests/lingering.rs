//! Inbound SAs of replaced Child SAs receive for five more seconds. Their number is limited to that of the
//! Child SAs of one IKE SA, however fast a peer rekeys.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

mod common;

use casemate_datapath::Direction;
use casemate_ike::IkeSettings;
use casemate_ike::config::{ChildConfig, StartAction};
use casemate_sa::Limits;
use common::node::{Node, advance, connection, exchange_messages};
use common::{OWN, PEER};

const MOST: usize = 4;

/// Two nodes with one Child SA and a limit of [`MOST`].
fn established() -> [Node; 2] {
    // Room for more SAs than may linger.
    let limits = Limits { sas: 256, ..Limits::DEVICE };
    let settings = IkeSettings { max_children: MOST, ..IkeSettings::SERVER };
    let own = ChildConfig {
        start_action: StartAction { at_once: true, on_traffic: false },
        ..ChildConfig::new("all")
    };
    let peer = Node::with(limits, settings, connection(PEER, OWN, ChildConfig::new("all")));
    let mut nodes = [Node::with(limits, settings, connection(OWN, PEER, own)), peer];
    exchange_messages(&mut nodes);
    assert_eq!(nodes.each_ref().map(Node::children), [1, 1]);
    nodes
}

/// Inbound SAs of the first node, and its reserved SPIs.
fn inbound(nodes: &[Node; 2]) -> (usize, usize) {
    let endpoint = &nodes[0].endpoint;
    let sas = endpoint.datapath().sas().filter(|sa| sa.id.direction() == Direction::Inbound);
    (sas.count(), endpoint.reserved_spis())
}

/// The peer rekeys its Child SA.
fn rekey_child(nodes: &mut [Node; 2]) {
    let children: Vec<_> = nodes[1].endpoint.ike().status().flat_map(|ike| ike.children).collect();
    assert!(nodes[1].act(|endpoint, context| endpoint.rekey_child(children[0].id, context)));
    exchange_messages(nodes);
    assert_eq!(nodes.each_ref().map(Node::children), [1, 1]);
}

/// The peer rekeys its IKE SA.
fn rekey(nodes: &mut [Node; 2]) {
    let ike = nodes[1].endpoint.ike().status().last().unwrap().id;
    assert!(nodes[1].act(|endpoint, context| endpoint.rekey(ike, context)));
    exchange_messages(nodes);
}

#[test]
fn replaced_child_sa_receives_for_five_seconds() {
    let mut nodes = established();
    rekey_child(&mut nodes);
    advance(&mut nodes, 4);
    assert_eq!(inbound(&nodes), (2, 2));
    advance(&mut nodes, 1);
    assert_eq!(inbound(&nodes), (1, 1));
}

#[test]
fn rapid_child_rekeying_does_not_fill_the_sad() {
    let mut nodes = established();
    for round in 1..30 {
        rekey_child(&mut nodes);
        let wanted = 1 + round.min(MOST);
        assert_eq!(inbound(&nodes), (wanted, wanted), "{round}");
    }
    advance(&mut nodes, 5);
    assert_eq!(inbound(&nodes), (1, 1));
}

/// The lingering SAs of a replaced IKE SA count for its successor.
#[test]
fn rapid_ike_rekeying_does_not_fill_the_sad() {
    let mut nodes = established();
    for round in 1..12 {
        rekey_child(&mut nodes);
        rekey(&mut nodes);
        assert!(inbound(&nodes).0 <= 1 + MOST, "{round}: {:?}", inbound(&nodes));
    }
}

/// The oldest lingering SA is removed first.
#[test]
fn oldest_lingering_sa_is_removed_first() {
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
