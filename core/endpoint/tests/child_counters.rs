//! The counters of a child continue when its SAs are replaced or end, and its name is forgotten when nothing
//! uses it.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

mod common;

use casemate::{ChildCounters, Endpoint, Notice};
use casemate_datapath::{Direction, Outbound};
use casemate_ike::config::{ChildConfig, Connection, StartAction};
use casemate_ike::{IkeSaId, IkeSettings, IkeState, Path, TrafficSelectorTemplate};
use casemate_sa::{AddrRange, Limits};
use common::node::{Node, advance, connection, exchange_messages, notices_of_exchange};
use common::packets::{protect, receive};
use common::{OWN, PEER};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn child(name: &str) -> ChildConfig {
    ChildConfig { start_action: StartAction { at_once: true, on_traffic: false }, ..ChildConfig::new(name) }
}

fn established() -> [Node; 2] {
    let peer = Node::new(connection(PEER, OWN, ChildConfig::new("all")));
    let mut nodes = [Node::new(connection(OWN, PEER, child("all"))), peer];
    exchange_messages(&mut nodes);
    assert_eq!(nodes.each_ref().map(Node::children), [1, 1]);
    nodes
}

fn counters(node: &Node) -> Vec<ChildCounters> {
    node.endpoint.child_counters(0).collect()
}

/// The number of packets and bytes that the only child has sent.
fn sent(node: &Node) -> (u64, u64) {
    let [only] = counters(node).try_into().unwrap();
    (only.outbound.packets, only.outbound.bytes)
}

fn send(node: &mut Node) {
    assert!(matches!(node.send(), Outbound::Send { .. }));
}

fn rekey_child(nodes: &mut [Node; 2]) {
    let children: Vec<_> = nodes[0].endpoint.ike().status().flat_map(|ike| ike.children).collect();
    assert!(nodes[0].act(|endpoint, context| endpoint.rekey_child(children[0].id, context)));
    exchange_messages(nodes);
}

#[test]
fn counters_continue_over_rekeying_and_the_end_of_all_sas() {
    let mut nodes = established();
    send(&mut nodes[0]);
    let (_, len) = sent(&nodes[0]);
    for round in 1..5 {
        assert_eq!(sent(&nodes[0]), (round, round * len));
        rekey_child(&mut nodes);
        send(&mut nodes[0]);
    }
    assert_eq!(counters(&nodes[0])[0].child_sas, 1);
    let ike = nodes[0].endpoint.ike().status().next().unwrap().id;
    assert!(nodes[0].act(|endpoint, context| endpoint.terminate(ike, context)));
    exchange_messages(&mut nodes);
    advance(&mut nodes, 10);
    assert_eq!(nodes[0].endpoint.datapath().sas().count(), 0);
    assert_eq!((sent(&nodes[0]), counters(&nodes[0])[0].child_sas), ((5, 5 * len), 0));
    assert_eq!(&*counters(&nodes[0])[0].connection, "peer");
}

/// Packets that the SAs of a node have carried that were removed, inbound and outbound, by the origin of
/// their IKE SA.
fn carried(notices: &[Notice]) -> BTreeMap<IkeSaId, [u64; 2]> {
    let mut sums = BTreeMap::new();
    for notice in notices {
        if let Notice::SaCounters { origin, sa, counters, is_removed: true } = notice {
            sums.entry(*origin).or_insert([0, 0])[sa.direction() as usize] += counters.packets;
        }
    }
    sums
}

/// As accounting needs them: no packet is missing, whenever Child SAs are replaced and removed, also after a
/// rekeying of the IKE SA.
#[test]
fn the_last_counters_of_every_sa_are_reported_on_request() {
    let mut nodes = established();
    nodes[1].endpoint.report_sa_counters(true);
    let origin = nodes[1].endpoint.ike().status().next().unwrap().id;
    let mut notices = [Vec::new(), Vec::new()];
    for round in 1..6 {
        for _ in 0..round {
            let packet = protect(&mut nodes[0], OWN, PEER);
            assert_eq!(receive(&mut nodes[1], &packet), None);
            protect(&mut nodes[1], PEER, OWN);
        }
        // A packet in flight arrives after the end of its Child SA.
        let late = protect(&mut nodes[0], OWN, PEER);
        let child = nodes[0].endpoint.ike().status().flat_map(|ike| ike.children).next().unwrap().id;
        assert!(nodes[0].act(|endpoint, context| endpoint.rekey_child(child, context)));
        notices.iter_mut().zip(notices_of_exchange(&mut nodes)).for_each(|(all, new)| all.extend(new));
        assert_eq!(receive(&mut nodes[1], &late), None);
        let ike = nodes[0].endpoint.ike().status().last().unwrap().id;
        assert!(nodes[0].act(|endpoint, context| endpoint.rekey(ike, context)));
        notices.iter_mut().zip(notices_of_exchange(&mut nodes)).for_each(|(all, new)| all.extend(new));
    }
    let lingering = |notice: &&Notice| matches!(notice, Notice::SaCounters { is_removed: false, .. });
    assert_eq!(notices[1].iter().filter(lingering).count(), 5);
    // The last packets are those of the SAs that end with the IKE SA.
    let packet = protect(&mut nodes[0], OWN, PEER);
    assert_eq!(receive(&mut nodes[1], &packet), None);
    protect(&mut nodes[1], PEER, OWN);
    let ike = nodes[0].endpoint.ike().status().last().unwrap().id;
    assert!(nodes[0].act(|endpoint, context| endpoint.terminate(ike, context)));
    for _ in 0..10 {
        notices.iter_mut().zip(notices_of_exchange(&mut nodes)).for_each(|(all, new)| all.extend(new));
        nodes.iter_mut().for_each(|node| node.now = node.now.after(Duration::from_secs(1)));
    }
    assert_eq!(nodes[1].endpoint.datapath().sas().count(), 0);
    let mut expected = [0, 0];
    expected[Direction::Inbound as usize] = 15 + 5 + 1;
    expected[Direction::Outbound as usize] = 15 + 1;
    assert_eq!(carried(&notices[1]), BTreeMap::from([(origin, expected)]));
    assert!(carried(&notices[0]).is_empty(), "nobody has asked there");
}

#[test]
fn a_child_without_sas_is_known_while_it_is_configured() {
    let mut nodes = established();
    let numbers = |node: &Node| counters(node).iter().map(|one| one.number).collect::<Vec<_>>();
    // A child that is removed from the configuration is known while its SAs exist.
    let renamed = connection(OWN, PEER, ChildConfig::new("other"));
    nodes[0].configure(vec![renamed.clone()]);
    assert_eq!(numbers(&nodes[0]), [1, 2]);
    exchange_messages(&mut nodes);
    advance(&mut nodes, 10);
    nodes[0].configure(vec![renamed]);
    assert_eq!(numbers(&nodes[0]), [2]);
    assert_eq!(nodes[0].endpoint.child_counters(3).count(), 0);
    for round in 0..100 {
        nodes[0].configure(vec![connection(OWN, PEER, ChildConfig::new(&format!("child{round}")))]);
        assert_eq!(counters(&nodes[0]).len(), 1);
    }
}

#[test]
fn states_of_ike_sas_are_those_of_the_status() {
    let mut nodes = established();
    let states = |node: &Node| -> Vec<_> {
        node.endpoint.ike().states(None).map(|sa| (sa.id, sa.connection.name.clone(), sa.state)).collect()
    };
    let status = |node: &Node| -> Vec<_> {
        node.endpoint.ike().status().map(|sa| (sa.id, sa.connection.name.clone(), sa.state)).collect()
    };
    assert_eq!(states(&nodes[0])[0].2, IkeState::Established);
    let first = states(&nodes[0])[0].0;
    assert_eq!(nodes[0].endpoint.ike().states(Some(first)).count(), 0);
    assert!(nodes[0].act(|endpoint, context| endpoint.rekey(first, context)));
    assert_eq!(states(&nodes[0]), status(&nodes[0]));
    exchange_messages(&mut nodes);
    assert_eq!(states(&nodes[0]), status(&nodes[0]));
    assert_eq!(nodes[0].endpoint.ike().states(Some(first)).count(), 1);
}

/// Many children are read in parts, each of which takes little time: the caller reads them under a lock.
#[test]
fn parts_contain_every_child_once() {
    const PART: usize = 512;
    let count =
        std::env::var("CASEMATE_METRICS_TUNNELS").ok().and_then(|text| text.parse().ok()).unwrap_or(600);
    let of_own = |own: bool| {
        let one = |number: u16| {
            let [upper, lower] = number.to_be_bytes();
            let net = TrafficSelectorTemplate {
                addrs: Some(AddrRange::single([10, upper, lower, 1].into())),
                ..TrafficSelectorTemplate::DYNAMIC
            };
            let mut config = ChildConfig::new(&format!("c{number}"));
            config.start_action.at_once = own;
            *(if own { &mut config.remote_ts } else { &mut config.local_ts }) = vec![net];
            Arc::new(config)
        };
        let (from, to) = if own { (OWN, PEER) } else { (PEER, OWN) };
        Connection { children: (0..count).map(one).collect(), ..connection(from, to, child("all")) }
    };
    let settings = IkeSettings { max_children: usize::from(count), ..IkeSettings::SERVER };
    let mut nodes = [true, false].map(|own| Node::with(Limits::SERVER, settings, of_own(own)));
    for _ in 0..usize::from(count) {
        if nodes[0].children() == usize::from(count) {
            break;
        }
        exchange_messages_for(&mut nodes, 90);
    }
    assert_eq!(nodes[0].endpoint.datapath().sas().count(), 2 * usize::from(count));
    let (mut next, mut numbers, mut longest) = (0, Vec::new(), Duration::ZERO);
    loop {
        let begun = Instant::now();
        let part: Vec<_> = nodes[0].endpoint.child_counters(next).take(PART).collect();
        longest = longest.max(begun.elapsed());
        numbers.extend(part.iter().map(|one| one.number));
        match part.last() {
            Some(last) if part.len() == PART => next = last.number + 1,
            _ => break,
        }
    }
    println!("{count} children in parts of {PART}: at most {longest:?} for a part");
    assert_eq!(numbers, (1..=u64::from(count)).collect::<Vec<_>>());
}

/// Exchanges IKE messages between the nodes for some rounds.
fn exchange_messages_for(nodes: &mut [Node; 2], rounds: usize) {
    for _ in 0..rounds {
        for from in [0, 1] {
            nodes[from].act(Endpoint::handle_timeouts);
            while nodes[from].endpoint.next_notice().is_some() {}
            while let Some(mut sent) = nodes[from].endpoint.next_transmit() {
                let path = Path { local: sent.path.remote, remote: sent.path.local };
                nodes[1 - from]
                    .act(|endpoint, context| endpoint.receive_ike(&mut sent.message, path, context));
            }
        }
    }
}
