//! A host moves from IPv4 to IPv6 (MOBIKE, RFC 4555), and its SAs in the data path move with it: keys,
//! sequence numbers, replay windows and counters stay.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

mod common;

use casemate_crypto::{MacAlg, MacKind};
use casemate_datapath::{Direction, DropReason};
use casemate_ike::TrafficSelectorTemplate;
use casemate_ike::config::{AddrPattern, ChildAlgorithms, ChildConfig, ChildProposal, Connection, EsnPolicy};
use casemate_sa::{AddrRange, Spi};
use common::node::{Node, connection, exchange_messages};
use common::packets::{protect, receive};
use common::{OWN, PEER};
use std::net::IpAddr;
use std::time::Duration;

const MOVED: [u16; 8] = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1];
const PEER_V6: [u16; 8] = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 2];

/// A client with any address, and its gateway with an address of each IP version.
fn established() -> [Node; 2] {
    established_with(&ChildConfig::new("all"))
}

fn established_with(child: &ChildConfig) -> [Node; 2] {
    let v6 = AddrPattern::Range(AddrRange::single(PEER_V6.into()));
    // As with virtual addresses, the selectors do not depend on the addresses of the hosts.
    let only = |addr: [u8; 4]| {
        let addrs = Some(AddrRange::single(addr.into()));
        vec![TrafficSelectorTemplate { addrs, ..TrafficSelectorTemplate::DYNAMIC }]
    };
    let between =
        |local, remote| ChildConfig { local_ts: only(local), remote_ts: only(remote), ..child.clone() };
    let mut client = connection(OWN, PEER, between(OWN, PEER));
    let mut gateway = connection(PEER, OWN, between(PEER, OWN));
    client.local_addrs = vec![AddrPattern::Any];
    client.remote_addrs.push(v6.clone());
    gateway.local_addrs.push(v6);
    gateway.remote_addrs = vec![AddrPattern::Any];
    let node = |connection| Node::new(Connection { mobike: true, ..connection });
    let mut nodes = [node(client), node(gateway)];
    nodes[1].reseed(7);
    nodes[0].source = Some(OWN.into());
    nodes[0].act(|endpoint, context| {
        let connection = endpoint.ike().connections()[0].clone();
        endpoint.initiate(&connection, connection.children.first(), context).unwrap();
    });
    exchange_messages(&mut nodes);
    assert_eq!(nodes.each_ref().map(Node::children), [1, 1]);
    nodes
}

/// SPI, packets and bytes of each SA.
fn counters(node: &Node) -> Vec<(Spi, u64, u64)> {
    node.endpoint.datapath().sas().map(|sa| (sa.spi, sa.meter.packets, sa.meter.bytes)).collect()
}

fn addrs(node: &Node, direction: Direction) -> (IpAddr, IpAddr) {
    let sa = node.endpoint.datapath().sas().find(|sa| sa.id.direction() == direction).unwrap();
    (sa.src, sa.dst)
}

/// The sequence number in an ESP packet behind a header of this length.
fn sequence(packet: &[u8], header: usize) -> u32 {
    u32::from_be_bytes(packet[header + 4..header + 8].try_into().unwrap())
}

#[test]
fn sas_move_to_the_other_ip_version_and_keep_their_state() {
    let mut nodes = established();
    let [client, gateway] = &mut nodes;
    let early: Vec<Vec<u8>> = (0..3).map(|_| protect(client, OWN, PEER)).collect();
    early[..2].iter().for_each(|packet| assert_eq!(receive(gateway, packet), None));
    let back = protect(gateway, PEER, OWN);
    assert_eq!(receive(client, &back), None);
    let before = nodes.each_ref().map(counters);

    nodes[0].source = Some(MOVED.into());
    nodes[0].endpoint.routes_changed();
    exchange_messages(&mut nodes);
    assert_eq!(nodes.each_ref().map(counters), before);
    let (here, there) = (IpAddr::from(MOVED), IpAddr::from(PEER_V6));
    for (node, out) in nodes.iter().zip([(here, there), (there, here)]) {
        assert_eq!(addrs(node, Direction::Outbound), out);
        assert_eq!(addrs(node, Direction::Inbound), (out.1, out.0));
    }

    let [client, gateway] = &mut nodes;
    let late = protect(client, OWN, PEER);
    assert_eq!((late[0] >> 4, sequence(&late, 40)), (6, sequence(&early[2], 20) + 1));
    assert_eq!(receive(gateway, &late), None);
    assert_eq!(receive(gateway, &late), Some(DropReason::Replay), "the replay window stays");
    // A packet that was on its way to the former address has no SA there.
    assert_eq!(receive(gateway, &early[2]), Some(DropReason::NoSa));
    let back = protect(gateway, PEER, OWN);
    assert_eq!((back[0] >> 4, receive(client, &back)), (6, None));
}

/// The AH header has another length over IPv6 if its ICV has 16 bytes. The SAs move there and back.
#[test]
fn ah_moves_to_the_other_ip_version_and_back() {
    let mac = MacAlg::standard(MacKind::HmacSha256);
    let proposal = ChildProposal {
        algorithms: ChildAlgorithms::Ah(vec![mac]),
        kex: Vec::new(),
        additional: casemate_ike::config::AdditionalKexes::new(),
        esn: EsnPolicy::Allowed,
    };
    let mut nodes = established_with(&ChildConfig { proposals: vec![proposal], ..ChildConfig::new("all") });
    let moves = [(IpAddr::from(OWN), 4, 20, 28), (MOVED.into(), 6, 40, 32), (OWN.into(), 4, 20, 28)];
    for (here, version, header, ah_len) in moves {
        nodes[0].source = Some(here);
        nodes[0].endpoint.routes_changed();
        // A further change is followed after a pause.
        nodes.iter_mut().for_each(|node| node.now = node.now.after(Duration::from_secs(1)));
        exchange_messages(&mut nodes);
        let [client, gateway] = &mut nodes;
        for _ in 0..2 {
            let there = protect(client, OWN, PEER);
            assert_eq!((there[0] >> 4, usize::from(there[header + 1]) * 4 + 8), (version, ah_len));
            assert_eq!(receive(gateway, &there), None);
            let back = protect(gateway, PEER, OWN);
            assert_eq!((back[0] >> 4, back.len()), (version, there.len()));
            assert_eq!(receive(client, &back), None);
        }
    }
}

/// Without MOBIKE nothing moves.
#[test]
fn sas_stay_without_mobike() {
    let mut nodes = established();
    nodes[0].act(|endpoint, context| {
        let connection = (*endpoint.ike().connections()[0]).clone();
        let connection = Connection { mobike: false, ..connection };
        endpoint.configure(vec![connection.into()], &[], context).unwrap();
    });
    exchange_messages(&mut nodes);
    nodes[0].act(|endpoint, context| {
        let connection = endpoint.ike().connections()[0].clone();
        endpoint.initiate(&connection, connection.children.first(), context).unwrap();
    });
    exchange_messages(&mut nodes);
    nodes[0].source = Some(MOVED.into());
    nodes[0].endpoint.routes_changed();
    exchange_messages(&mut nodes);
    assert_eq!(addrs(&nodes[0], Direction::Outbound), (OWN.into(), PEER.into()));
}
