//! A trap pauses after its Child SA was rejected, so that packets of a network do not cause requests at their
//! own rate.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

mod common;

use casemate::Endpoint;
use casemate_datapath::Outbound;
use casemate_ike::config::{AddrPattern, ChildConfig, StartAction};
use casemate_ike::{Path, TrafficSelectorTemplate};
use casemate_sa::AddrRange;
use casemate_wire::ike::{ExchangeType, Header};
use common::node::{Node, connection, exchange_messages};
use common::{OWN, PEER};
use std::sync::Arc;
use std::time::Duration;

const NOBODY: [u8; 4] = [198, 51, 100, 1];

fn trap() -> ChildConfig {
    ChildConfig { start_action: StartAction { at_once: false, on_traffic: true }, ..ChildConfig::new("all") }
}

/// Difference between the configurations of the two nodes.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Secret,
    Traffic,
    Proposal,
}

fn pair(fault: Fault) -> [Node; 2] {
    let addrs = Some(AddrRange::single(NOBODY.into()));
    let elsewhere = vec![TrafficSelectorTemplate { addrs, ..TrafficSelectorTemplate::DYNAMIC }];
    let mut peer = connection(PEER, OWN, ChildConfig::new("all"));
    match fault {
        Fault::Secret => {}
        Fault::Traffic => {
            peer.children = vec![Arc::new(ChildConfig { local_ts: elsewhere, ..ChildConfig::new("all") })]
        }
        Fault::Proposal => {
            let mut child = ChildConfig::new("all");
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

/// Sends a packet every 10 ms and exchanges messages. Returns the number of requests from the first node that
/// initiate an SA.
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
            nodes[from].act(Endpoint::handle_timeouts);
            while nodes[from].endpoint.next_notice().is_some() {}
            while let Some(mut sent) = nodes[from].endpoint.next_transmit() {
                any = true;
                let header = Header::parse(&sent.message).unwrap();
                let begins =
                    matches!(header.exchange, ExchangeType::IKE_SA_INIT | ExchangeType::CREATE_CHILD_SA);
                begun += usize::from(from == 0 && begins && !header.flags.response);
                let path = Path { local: sent.path.remote, remote: sent.path.local };
                nodes[1 - from]
                    .act(|endpoint, context| endpoint.receive_ike(&mut sent.message, path, context));
            }
        }
        if !any {
            return begun;
        }
    }
}

fn paused(node: &Node) -> Vec<(Duration, u8)> {
    node.endpoint.pending_retries().map(|waiting| (waiting.at.since(node.now), waiting.attempts)).collect()
}

/// Attempts follow after 1, 2, 4, 8, 16, 32 and then every 64 seconds.
#[test]
fn pauses_grow_while_the_peer_rejects() {
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
            nodes[0]
                .endpoint
                .next_timeout()
                .is_some_and(|due| due <= nodes[0].now.after(Duration::from_secs(64)))
        );
    }
}

/// After the pause the next packet requests the Child SA, also a packet of a flow that did so before.
#[test]
fn success_ends_pauses() {
    let mut nodes = pair(Fault::Traffic);
    flood(&mut nodes, Duration::from_secs(5));
    nodes[1].configure(vec![connection(PEER, OWN, ChildConfig::new("all"))]);
    flood(&mut nodes, Duration::from_secs(5));
    assert!(matches!(nodes[0].send(), Outbound::Send(_)));
    assert_eq!(paused(&nodes[0]), []);
}

/// Both come from an administrator, who may have removed the cause of the failure.
#[test]
fn command_and_reload_end_the_pause() {
    for is_command in [true, false] {
        let mut nodes = pair(Fault::Traffic);
        flood(&mut nodes, Duration::from_secs(100));
        nodes[1].configure(vec![connection(PEER, OWN, ChildConfig::new("all"))]);
        if is_command {
            let (connection, child) = nodes[0].endpoint.config_by_name("all").unwrap();
            nodes[0]
                .act(|endpoint, context| endpoint.initiate(&connection, child.as_ref(), context))
                .unwrap();
        } else {
            nodes[0].configure(vec![connection(OWN, PEER, trap())]);
            assert!(nodes[0].is_trapped());
        }
        exchange_messages(&mut nodes);
        assert!(matches!(nodes[0].send(), Outbound::Send(_)), "{is_command}");
        assert_eq!(paused(&nodes[0]), []);
    }
}

/// Nothing is sent while IKE cannot initiate, so the pause stays short: the first packet after a new route is
/// not delayed.
#[test]
fn trap_without_route_pauses_for_one_second() {
    let mut own = connection(OWN, PEER, trap());
    own.local_addrs = vec![AddrPattern::Any];
    let mut nodes = [Node::new(own), Node::new(connection(PEER, OWN, ChildConfig::new("all")))];
    assert_eq!(flood(&mut nodes, Duration::from_secs(100)), 0);
    let waiting = paused(&nodes[0]);
    assert!(matches!(waiting[..], [(time, 0)] if time <= Duration::from_secs(1)), "{waiting:?}");
}

/// Any host can leave a half-open IKE SA. Its end must not affect our own requests.
#[test]
fn half_open_ike_sa_of_another_host_changes_nothing() {
    let peer = || Node::new(connection(PEER, OWN, ChildConfig::new("all")));
    let (mut own, mut impostor) = (Node::new(connection(OWN, PEER, trap())), peer());
    (impostor.secret, impostor.now) = (b"another secret here", own.now);
    impostor.reseed(3);
    assert!(own.is_trapped());
    own.act(Endpoint::handle_timeouts);
    let asked: Vec<_> = std::iter::from_fn(|| own.endpoint.next_transmit()).collect();
    assert_eq!(asked.len(), 1);
    let (config, child) = impostor.endpoint.config_by_name("all").unwrap();
    impostor.act(|endpoint, context| endpoint.initiate(&config, child.as_ref(), context)).unwrap();
    let mut nodes = [own, impostor];
    exchange_messages(&mut nodes);
    assert_eq!(nodes[1].endpoint.ike().ike_sa_count(), 0, "the unauthenticated peer is rejected");
    assert!(nodes[0].is_trapped());
    nodes[0].act(Endpoint::handle_timeouts);
    assert_eq!(paused(&nodes[0]), []);
    // The response to the first request arrives.
    let [own, _] = nodes;
    let mut nodes = [own, peer()];
    for mut sent in asked {
        let path = Path { local: sent.path.remote, remote: sent.path.local };
        nodes[1].act(|endpoint, context| endpoint.receive_ike(&mut sent.message, path, context));
    }
    exchange_messages(&mut nodes);
    assert_eq!(nodes.each_ref().map(Node::children), [1, 1], "one request");
}
