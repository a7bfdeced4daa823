//! A trap whose Child SA is refused pauses: packets of a network behind the host do not make it begin at their own rate.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

mod common;

use casemate::Endpoint;
use casemate_datapath::Outbound;
use casemate_ike::config::{AddrPattern, Child, Start};
use casemate_ike::{Path, TrafficTemplate};
use casemate_sa::AddrRange;
use casemate_wire::ike::{ExchangeType, Header};
use common::node::{Node, connection, settle};
use common::{OWN, PEER};
use std::sync::Arc;
use std::time::Duration;

const NOBODY: [u8; 4] = [198, 51, 100, 1];

fn trap() -> Child {
    Child { start: Start { at_once: false, on_traffic: true }, ..Child::new("all") }
}

/// What the peer has instead of the child that would fit.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Secret,
    Traffic,
    Proposal,
}

fn pair(fault: Fault) -> [Node; 2] {
    let addrs = Some(AddrRange::single(NOBODY.into()));
    let elsewhere = vec![TrafficTemplate { addrs, ..TrafficTemplate::DYNAMIC }];
    let mut peer = connection(PEER, OWN, Child::new("all"));
    match fault {
        Fault::Secret => {}
        Fault::Traffic => peer.children = vec![Arc::new(Child { local_ts: elsewhere, ..Child::new("all") })],
        Fault::Proposal => {
            let mut child = Child::new("all");
            child.proposals.truncate(1);
            peer.children = vec![Arc::new(child)];
        }
    }
    let mut own = connection(OWN, PEER, trap());
    if let Fault::Proposal = fault {
        let mut child = trap();
        child.proposals.remove(0);
        own.children = vec![Arc::new(child)];
    }
    let mut nodes = [Node::new(own), Node::new(peer)];
    if let Fault::Secret = fault {
        nodes[1].secret = b"another secret here";
    }
    nodes
}

/// Sends a packet every 10 ms, and carries messages. Returns the requests of the first node that begin something.
fn flood(nodes: &mut [Node; 2], time: Duration) -> usize {
    let end = nodes[0].now.after(time);
    let mut begun = 0;
    while nodes[0].now < end {
        nodes.iter_mut().for_each(|node| node.now = node.now.after(Duration::from_millis(10)));
        assert!(!matches!(nodes[0].send(), Outbound::Bypass), "clear text");
        begun += exchange(nodes);
    }
    begun
}

fn exchange(nodes: &mut [Node; 2]) -> usize {
    let mut begun = 0;
    loop {
        let mut any = false;
        for from in [0, 1] {
            nodes[from].act(Endpoint::serve);
            while nodes[from].endpoint.next_notice().is_some() {}
            while let Some(mut sent) = nodes[from].endpoint.next_transmit() {
                any = true;
                let header = Header::parse(&sent.message).unwrap();
                let begins =
                    matches!(header.exchange, ExchangeType::IKE_SA_INIT | ExchangeType::CREATE_CHILD_SA);
                begun += usize::from(from == 0 && begins && !header.flags.response);
                let path = Path { local: sent.path.remote, remote: sent.path.local };
                nodes[1 - from].act(|endpoint, means| endpoint.receive_ike(&mut sent.message, path, means));
            }
        }
        if !any {
            return begun;
        }
    }
}

fn paused(node: &Node) -> Vec<(Duration, u8)> {
    node.endpoint.waiting().map(|waiting| (waiting.at.since(node.now), waiting.attempts)).collect()
}

/// Attempts follow after 1, 2, 4, 8, 16, 32 and then every 64 seconds.
#[test]
fn what_the_peer_refuses_is_asked_for_ever_more_seldom() {
    for fault in [Fault::Secret, Fault::Traffic, Fault::Proposal] {
        let mut nodes = pair(fault);
        let begun = flood(&mut nodes, Duration::from_secs(6));
        assert!((2..=5).contains(&begun), "{fault:?}: {begun} in 6 s");
        assert!(!paused(&nodes[0]).is_empty(), "{fault:?}: status shows the pause");
        let begun = flood(&mut nodes, Duration::from_secs(200));
        assert!((4..=8).contains(&begun), "{fault:?}: {begun} in 200 s more");
        let waiting = paused(&nodes[0]);
        assert!(matches!(waiting[..], [(time, 6..)] if time <= Duration::from_secs(64)), "{waiting:?}");
        assert!(
            nodes[0].endpoint.due().is_some_and(|due| due <= nodes[0].now.after(Duration::from_secs(64)))
        );
    }
}

/// When the pause is over, the next packet asks, also one of a flow that asked before.
#[test]
fn success_ends_the_pauses() {
    let mut nodes = pair(Fault::Traffic);
    flood(&mut nodes, Duration::from_secs(5));
    nodes[1].configure(vec![connection(PEER, OWN, Child::new("all"))]);
    flood(&mut nodes, Duration::from_secs(5));
    assert!(matches!(nodes[0].send(), Outbound::Send(_)));
    assert_eq!(paused(&nodes[0]), []);
}

/// Each of these is said by someone who may know that the cause is gone.
#[test]
fn a_command_and_a_reload_end_the_pause() {
    for is_command in [true, false] {
        let mut nodes = pair(Fault::Traffic);
        flood(&mut nodes, Duration::from_secs(100));
        nodes[1].configure(vec![connection(PEER, OWN, Child::new("all"))]);
        if is_command {
            let (connection, child) = nodes[0].endpoint.configured("all").unwrap();
            nodes[0].act(|endpoint, means| endpoint.initiate(&connection, child.as_ref(), means)).unwrap();
        } else {
            nodes[0].configure(vec![connection(OWN, PEER, trap())]);
            assert!(nodes[0].is_held());
        }
        settle(&mut nodes);
        assert!(matches!(nodes[0].send(), Outbound::Send(_)), "{is_command}");
        assert_eq!(paused(&nodes[0]), []);
    }
}

/// Nothing is sent while IKE cannot begin, so the pause stays short: the first packet after a route has appeared is not late.
#[test]
fn what_cannot_be_begun_pauses_for_a_second() {
    let mut own = connection(OWN, PEER, trap());
    own.local_addrs = vec![AddrPattern::Any];
    let mut nodes = [Node::new(own), Node::new(connection(PEER, OWN, Child::new("all")))];
    assert_eq!(flood(&mut nodes, Duration::from_secs(100)), 0);
    let waiting = paused(&nodes[0]);
    assert!(matches!(waiting[..], [(time, 0)] if time <= Duration::from_secs(1)), "{waiting:?}");
}

/// Any host can begin an IKE SA and leave it half-open. Its end says nothing of what we asked for.
#[test]
fn a_half_open_ike_sa_of_a_stranger_changes_nothing() {
    let peer = || Node::new(connection(PEER, OWN, Child::new("all")));
    let (mut own, mut stranger) = (Node::new(connection(OWN, PEER, trap())), peer());
    (stranger.secret, stranger.now) = (b"another secret here", own.now);
    stranger.reseed(3);
    assert!(own.is_held());
    own.act(Endpoint::serve);
    let asked: Vec<_> = std::iter::from_fn(|| own.endpoint.next_transmit()).collect();
    assert_eq!(asked.len(), 1);
    let (config, child) = stranger.endpoint.configured("all").unwrap();
    stranger.act(|endpoint, means| endpoint.initiate(&config, child.as_ref(), means)).unwrap();
    let mut nodes = [own, stranger];
    settle(&mut nodes);
    assert_eq!(nodes[1].endpoint.ike().counts(), (0, 0), "the stranger is refused");
    assert!(nodes[0].is_held());
    nodes[0].act(Endpoint::serve);
    assert_eq!(paused(&nodes[0]), []);
    // The response to the first request arrives.
    let [own, _] = nodes;
    let mut nodes = [own, peer()];
    for mut sent in asked {
        let path = Path { local: sent.path.remote, remote: sent.path.local };
        nodes[1].act(|endpoint, means| endpoint.receive_ike(&mut sent.message, path, means));
    }
    settle(&mut nodes);
    assert_eq!(nodes.each_ref().map(Node::children), [1, 1], "it was asked for once");
}
