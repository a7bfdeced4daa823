//! Packets leave on an SA and none arrive: the liveness of the peer is checked, whatever `dpd_delay` is (RFC
//! 7296 section 2.4). A peer that has restarted gets a new IKE SA; traffic that needs no answer causes few
//! checks.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

mod common;

use casemate::Endpoint;
use casemate_datapath::Outbound;
use casemate_ike::config::{AddrPattern, ChildConfig, Connection, StartAction};
use casemate_ike::{IkeSettings, Path};
use casemate_sa::Limits;
use common::node::{Node, connection};
use common::{OWN, PEER};
use std::time::Duration;

const STEP: Duration = Duration::from_millis(100);

/// The connection of the host that sends.
fn sender() -> Connection {
    let start_action = StartAction { at_once: true, on_traffic: false };
    let child = ChildConfig { start_action, ..ChildConfig::new("all") };
    Connection { dpd_delay: None, ..connection(OWN, PEER, child) }
}

/// The connection of the host that receives. It names no address, so it cannot initiate.
fn receiver() -> Connection {
    let connection = connection(PEER, OWN, ChildConfig::new("all"));
    Connection { remote_addrs: vec![AddrPattern::Any], dpd_delay: None, ..connection }
}

/// Two hosts, of which only the first one sends packets.
struct Pair {
    nodes: [Node; 2],
    /// Number of IKE messages of the first host.
    messages: usize,
    is_sending: bool,
    is_link_up: bool,
}

impl Pair {
    fn new() -> Self {
        let node = |connection| Node::with(Limits::DEVICE, IkeSettings::DEVICE, connection);
        let mut pair = Self {
            nodes: [node(sender()), node(receiver())],
            messages: 0,
            is_sending: false,
            is_link_up: true,
        };
        pair.run(1);
        assert_eq!(pair.children(), [1, 1]);
        pair.messages = 0;
        pair.is_sending = true;
        pair
    }

    fn children(&self) -> [usize; 2] {
        self.nodes.each_ref().map(Node::children)
    }

    /// Runs for some seconds. Whether the last packet was protected.
    fn run(&mut self, seconds: u32) -> bool {
        let mut was_sent = false;
        for _ in 0..seconds * 10 {
            self.nodes.iter_mut().for_each(|node| node.now = node.now.after(STEP));
            self.exchange();
            if self.is_sending {
                was_sent = matches!(self.nodes[0].send(), Outbound::Send { .. });
            }
        }
        was_sent
    }

    fn exchange(&mut self) {
        for _ in 0..20 {
            for from in [0, 1] {
                self.nodes[from].act(Endpoint::handle_timeouts);
                while self.nodes[from].endpoint.next_notice().is_some() {}
                while let Some(mut sent) = self.nodes[from].endpoint.next_transmit() {
                    self.messages += usize::from(from == 0);
                    let path = Path { local: sent.path.remote, remote: sent.path.local };
                    if self.is_link_up {
                        self.nodes[1 - from]
                            .act(|endpoint, context| endpoint.receive_ike(&mut sent.message, path, context));
                    }
                }
            }
        }
    }

    fn restart_receiver(&mut self) {
        let now = self.nodes[1].now;
        self.nodes[1] = Node::with(Limits::DEVICE, IkeSettings::DEVICE, receiver());
        self.nodes[1].reseed(9);
        self.nodes[1].now = now;
    }
}

#[test]
fn a_peer_that_has_restarted_is_noticed_within_fifteen_seconds() {
    let mut pair = Pair::new();
    // The pauses for one-way traffic are at their longest.
    pair.run(600);
    pair.is_sending = false;
    pair.run(100);
    pair.restart_receiver();
    pair.is_sending = true;
    pair.run(14);
    assert_eq!(pair.children(), [1, 1]);
    assert!(pair.run(1));
    assert_eq!(pair.nodes[0].endpoint.ike().ike_sa_count(), 1, "the old IKE SA is closed");
}

#[test]
fn a_peer_that_only_receives_is_rarely_checked() {
    let mut pair = Pair::new();
    pair.run(3_600);
    assert_eq!(pair.children(), [1, 1]);
    assert!((40..60).contains(&pair.messages), "{}", pair.messages);
}

#[test]
fn an_idle_sa_is_not_checked() {
    let mut pair = Pair::new();
    pair.is_sending = false;
    // Rekeying begins later.
    pair.run(2_400);
    assert_eq!(pair.messages, 0);
}

#[test]
fn a_dead_peer_is_given_up() {
    let mut pair = Pair::new();
    pair.is_link_up = false;
    pair.run(6);
    assert_eq!(pair.messages, 1, "one liveness check");
    pair.run(8);
    assert_eq!(pair.nodes[0].endpoint.ike().ike_sa_count(), 2, "a new IKE SA is tried beside the old one");
    pair.run(110);
    // The first request of the new one is sent again every 16 seconds at least.
    assert_eq!(pair.messages, 7 + 11, "the requests and retransmissions of both");
    pair.run(20);
    assert_eq!(pair.nodes[0].endpoint.ike().ike_sa_count(), 0);
}

#[test]
fn a_short_interruption_does_not_harm() {
    let mut pair = Pair::new();
    pair.is_link_up = false;
    pair.run(8);
    pair.is_link_up = true;
    pair.run(20);
    let states: Vec<_> = pair.nodes[0].endpoint.ike().status().map(|ike| ike.state).collect();
    assert_eq!((pair.children(), states.len()), ([1, 1], 1), "{states:?}");
    assert!(pair.run(1));
}

/// No packet leaves on a Child SA that this host is closing. That the peer does not respond proves nothing
/// about its other packets.
#[test]
fn a_child_sa_that_is_being_closed_carries_nothing() {
    let mut pair = Pair::new();
    pair.is_link_up = false;
    let child = pair.nodes[0].endpoint.ike().status().next().unwrap().children[0].id;
    pair.nodes[0].act(|endpoint, context| assert!(endpoint.terminate_child(child, context)));
    assert!(!pair.run(14), "no packet leaves");
    assert_eq!(pair.nodes[0].endpoint.ike().ike_sa_count(), 1, "no IKE SA is set up beside it");
    pair.is_link_up = true;
    pair.run(10);
    assert_eq!((pair.children(), pair.nodes[0].endpoint.ike().ike_sa_count()), ([0, 0], 1));
}
