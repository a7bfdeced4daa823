//! `close_action = trap` and `dpd_action = trap`: when the Child SA is gone, its traffic is held, and the
//! next packet sets it up again.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may fail")]

mod common;

use casemate::{Datapath, Endpoint, Means};
use casemate_crypto::{Provider, Providers, SecretBytes};
use casemate_datapath::{Config, Direction, DropReason, Outbound};
use casemate_ike::config::{Child, Connection, IdPattern, Identity, OnClose, Start};
use casemate_ike::{Path, Settings, SharedKeys};
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_sa::{Instant, Limits};
use common::{Dice, OWN, PEER, Ways, only, send};
use std::sync::Arc;
use std::time::Duration;

struct Node {
    endpoint: Endpoint,
    dice: Dice,
    now: Instant,
}

/// Between the two, from the point of view of `own`.
fn connection(own: [u8; 4], peer: [u8; 4], child: Child) -> Connection {
    let identity = |addr: [u8; 4]| Identity::Address(addr.into());
    let mut connection = Connection::with_shared_key("peer", identity(own), identity(peer));
    (connection.local_addrs, connection.remote_addrs) = (only(own), only(peer));
    connection.children = vec![Arc::new(child)];
    connection.dpd_delay = (own == OWN).then_some(Duration::from_secs(10));
    connection
}

impl Node {
    fn new(connection: Connection) -> Self {
        let datapath = Datapath::new(Config { limits: Limits::DEVICE, ..Config::server(1) });
        let endpoint = Endpoint::new(datapath, Settings::DEVICE);
        let own = connection.local_addrs[0].single().unwrap();
        let seed = if own == std::net::IpAddr::from(OWN) { 1 } else { 2 };
        let mut node = Self { endpoint, dice: Dice(seed), now: Instant::from_secs(1) };
        node.configure(vec![connection]);
        node
    }

    fn configure(&mut self, connections: Vec<Connection>) {
        let connections = connections.into_iter().map(Arc::new).collect();
        self.act(|endpoint, means| endpoint.configure(connections, &[], means)).unwrap();
    }

    fn act<R>(&mut self, act: impl FnOnce(&mut Endpoint, &mut Means<'_>) -> R) -> R {
        let list: [&dyn Provider; 1] = [&RUSTCRYPTO];
        let mut means = Means {
            now: self.now,
            unix_time: 0,
            rng: &mut self.dice,
            providers: &Providers(&list),
            credentials: &SharedKeys::new().with(IdPattern::Any, SecretBytes::new(b"a secret of both")),
            routes: &Ways,
        };
        act(&mut self.endpoint, &mut means)
    }

    fn children(&self) -> usize {
        self.endpoint.ike().status().map(|ike| ike.children.len()).sum()
    }

    fn policies(&self) -> usize {
        self.endpoint.datapath().policies(Direction::Outbound).count()
    }

    /// What becomes of a packet to the peer.
    fn send(&mut self) -> Outbound {
        send(&mut self.endpoint, self.now, (OWN, PEER))
    }

    fn is_held(&mut self) -> bool {
        matches!(self.send(), Outbound::Drop(DropReason::NoOutboundSa))
    }
}

/// Carries IKE messages between the two until there are none.
fn settle(nodes: &mut [Node; 2]) {
    for _ in 0..100 {
        let mut any = false;
        for from in [0, 1] {
            nodes[from].act(Endpoint::serve);
            while nodes[from].endpoint.next_notice().is_some() {}
            while let Some(mut sent) = nodes[from].endpoint.next_transmit() {
                any = true;
                let path = Path { local: sent.path.remote, remote: sent.path.local };
                nodes[1 - from].act(|endpoint, means| endpoint.receive_ike(&mut sent.message, path, means));
            }
        }
        if !any {
            return;
        }
    }
    panic!("they talk without end");
}

fn pass(nodes: &mut [Node; 2], time: u64) {
    for _ in 0..time {
        nodes.iter_mut().for_each(|node| node.now = node.now.after(Duration::from_secs(1)));
        settle(nodes);
    }
}

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
