//! Header compression that IKE negotiates (RFC 5857): parameters of both directions, keys, rekeying,
//! feedback.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may fail")]

mod common;

use casemate::Notice;
use casemate_crypto::{MacAlg, MacKind};
use casemate_datapath::{Direction, Inbound, Outbound, RohcStatus};
use casemate_ike::AgreedRohc;
use casemate_ike::config::{ChildConfig, RohcConfig, StartAction};
use casemate_rohc::{Profile, ProfileSet};
use casemate_test_support::TestRng;
use casemate_wire::packet::Packet;
use common::node::{Node, connection, exchange_messages};
use common::{OWN, PEER};

const SHA_256: MacAlg = MacAlg::standard(MacKind::HmacSha256);
const SHA_512: MacAlg = MacAlg::standard(MacKind::HmacSha512);

/// Two nodes; the first initiates the Child SA.
fn nodes(configs: [Option<RohcConfig>; 2]) -> [Node; 2] {
    let [own, peer] = configs.map(|rohc| ChildConfig { rohc, ..ChildConfig::new("all") });
    let own = ChildConfig { start_action: StartAction { at_once: true, on_traffic: false }, ..own };
    let mut nodes = [Node::new(connection(OWN, PEER, own)), Node::new(connection(PEER, OWN, peer))];
    nodes.iter_mut().for_each(|node| node.endpoint.datapath_mut().enable_rohc());
    exchange_messages(&mut nodes);
    assert_eq!(nodes.each_ref().map(Node::children), [1, 1]);
    nodes
}

fn agreed(nodes: &[Node; 2]) -> [Option<AgreedRohc>; 2] {
    nodes.each_ref().map(|node| node.endpoint.ike().status().last().unwrap().children[0].rohc)
}

/// A UDP packet between the hosts.
fn udp(from: [u8; 4], to: [u8; 4], number: u8, port: u16) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 36, 0, number, 0, 0, 64, 17, 0, 0];
    packet.extend([from, to].concat());
    packet.extend(port.to_be_bytes());
    packet.extend([0x30, 0, 0, 16, 0, 0, 1, 2, 3, 4, 5, 6, 7, number]);
    let sum: u32 = packet[..20].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet
}

/// Sends a packet from one node to the other. Returns its length on the wire.
fn pass(nodes: &mut [Node; 2], from: usize, number: u8) -> usize {
    pass_from_port(nodes, from, number, 0x2000)
}

fn pass_from_port(nodes: &mut [Node; 2], from: usize, number: u8, port: u16) -> usize {
    let (own, peer) = if from == 0 { (OWN, PEER) } else { (PEER, OWN) };
    let packet = udp(own, peer, number, port);
    let mut storage = vec![0; 700];
    let mut buffer = Packet::new(&mut storage, 256, packet.len()).unwrap();
    buffer.data_mut().copy_from_slice(&packet);
    let mut verdicts = [Outbound::Bypass];
    let (now, datapath) = (nodes[from].now, nodes[from].endpoint.datapath_mut());
    datapath.outbound(now, &mut TestRng::new(1), std::slice::from_mut(&mut buffer), &mut verdicts);
    assert!(matches!(verdicts, [Outbound::Send(_)]), "{verdicts:?}");
    let len = buffer.len();
    assert_eq!(receive(&mut nodes[1 - from], &mut buffer), Some(packet));
    len
}

/// Receives a packet. Returns what was delivered.
fn receive(node: &mut Node, packet: &mut Packet<'_>) -> Option<Vec<u8>> {
    let mut verdicts = [Inbound::Reassemble];
    let now = node.now;
    node.endpoint.datapath_mut().inbound(now, std::slice::from_mut(packet), &mut verdicts);
    match verdicts {
        [Inbound::Deliver(_)] => Some(packet.data().to_vec()),
        [Inbound::Consumed(_)] => None,
        other => panic!("{other:?}"),
    }
}

/// Delivers packets with only feedback from one node to the other. Returns their number.
fn pass_feedback(nodes: &mut [Node; 2], from: usize) -> usize {
    let mut count = 0;
    loop {
        let mut storage = vec![0; 700];
        let mut packet = Packet::new(&mut storage, 256, 0).unwrap();
        let now = nodes[from].now;
        let datapath = nodes[from].endpoint.datapath_mut();
        let verdict = datapath.next_rohc_feedback(now, &mut TestRng::new(1), &mut packet);
        let Some(verdict) = verdict else { return count };
        assert!(matches!(verdict, Outbound::Send(_)), "{verdict:?}");
        assert_eq!(receive(&mut nodes[1 - from], &mut packet), None);
        count += 1;
    }
}

fn status(node: &Node, direction: Direction) -> RohcStatus {
    let datapath = node.endpoint.datapath();
    let last = datapath.sas().filter(|sa| sa.id.direction() == direction).last();
    last.and_then(|sa| sa.rohc).unwrap()
}

#[test]
fn packets_of_both_directions_are_compressed_also_after_rekeying() {
    let with_icv = RohcConfig { integrity: vec![Some(SHA_256)], icv_len: Some(4), ..RohcConfig::default() };
    for config in [RohcConfig::default(), with_icv] {
        let mut nodes = nodes([Some(config.clone()), Some(config)]);
        for round in 0..3 {
            let first = pass(&mut nodes, 0, 0);
            assert_eq!(pass_feedback(&mut nodes, 1), 1, "the first packet is acknowledged");
            for number in 1..40 {
                for from in [0, 1] {
                    // The other node's first packet also carries feedback.
                    assert!(pass(&mut nodes, from, number) <= first + 8);
                }
            }
            for node in &nodes {
                let (sent, received) = (status(node, Direction::Outbound), status(node, Direction::Inbound));
                assert!(sent.packets >= 39 && sent.contexts == 1, "{sent:?}");
                assert!(sent.compressed_bytes * 2 < sent.header_bytes, "round {round}: {sent:?}");
                assert_eq!(received.failures, 0);
            }
            // Each side rekeys once.
            let id = nodes[round % 2].endpoint.ike().status().last().unwrap().children[0].id;
            assert!(nodes[round % 2].act(|endpoint, context| endpoint.rekey_child(id, context)));
            exchange_messages(&mut nodes);
            assert!(agreed(&nodes).iter().all(Option::is_some));
        }
    }
}

#[test]
fn each_direction_has_the_parameters_of_its_receiver() {
    let own = RohcConfig {
        max_cid: 3,
        integrity: vec![None, Some(SHA_512), Some(SHA_256)],
        icv_len: Some(8),
        ..RohcConfig::default()
    };
    let profiles: ProfileSet = [Profile::Udp, Profile::Ip].into_iter().collect();
    let peer = RohcConfig { max_cid: 300, profiles, integrity: vec![Some(SHA_256)], icv_len: None };
    let mut nodes = nodes([Some(own), Some(peer)]);
    let [Some(own), Some(peer)] = agreed(&nodes) else { panic!("{:?}", agreed(&nodes)) };
    assert_eq!((own.integrity, peer.integrity), (Some(SHA_256), Some(SHA_256)));
    assert_eq!((own.inbound.max_cid, own.outbound.max_cid), (3, 300));
    assert_eq!((peer.inbound.max_cid, peer.outbound.max_cid), (300, 3));
    assert_eq!((own.icv_in, own.icv_out, peer.icv_in, peer.icv_out), (8, 16, 16, 8));
    assert_eq!((own.outbound.profiles, peer.outbound.profiles), (profiles, profiles));
    assert_eq!(peer.inbound.profiles, profiles);
    // The peer has 301 contexts, but this host spends no more than it has itself.
    for flow in 0..40 {
        pass(&mut nodes, 0, flow);
        pass_from_port(&mut nodes, 0, flow, 0x4000 + u16::from(flow));
    }
    assert_eq!(status(&nodes[0], Direction::Outbound).contexts, 4);
}

#[test]
fn packets_stay_as_they_are_unless_both_sides_agree() {
    let with = |integrity| Some(RohcConfig { integrity, ..RohcConfig::default() });
    for configs in [
        [None, with(vec![None])],
        [with(vec![None]), None],
        [with(vec![None]), with(vec![Some(SHA_256)])],
        [with(vec![Some(SHA_512)]), with(vec![Some(SHA_256), None])],
    ] {
        let mut nodes = nodes(configs);
        assert_eq!(agreed(&nodes), [None, None]);
        let lens: Vec<usize> = (0..30).map(|number| pass(&mut nodes, 0, number)).collect();
        assert!(lens.iter().all(|len| *len == lens[0]), "{lens:?}");
    }
}

#[test]
fn an_icv_of_length_0_is_not_sent() {
    let config = RohcConfig { integrity: vec![Some(SHA_256)], icv_len: Some(0), ..RohcConfig::default() };
    let mut compared = [0; 2];
    let plain = [RohcConfig::default(), config];
    for (len, config) in compared.iter_mut().zip(plain) {
        let mut nodes = nodes([Some(config.clone()), Some(config)]);
        *len = (0..40).map(|number| pass(&mut nodes, 0, number)).sum();
    }
    assert_eq!(compared[0], compared[1]);
}

#[test]
fn a_data_path_that_does_not_allow_it_installs_nothing() {
    let child = ChildConfig { rohc: Some(RohcConfig::default()), ..ChildConfig::new("all") };
    let own = ChildConfig { start_action: StartAction { at_once: true, on_traffic: false }, ..child.clone() };
    let mut nodes = [Node::new(connection(OWN, PEER, own)), Node::new(connection(PEER, OWN, child))];
    nodes[0].endpoint.datapath_mut().enable_rohc();
    let mut refused = Vec::new();
    for _ in 0..6 {
        for from in [0, 1] {
            nodes[from].act(casemate::Endpoint::handle_timeouts);
            while let Some(notice) = nodes[from].endpoint.next_notice() {
                if let Notice::ChildNotInstalled { error, .. } = notice {
                    refused.push((from, error.to_string()));
                }
            }
            while let Some(mut sent) = nodes[from].endpoint.next_transmit() {
                let path = casemate_ike::Path { local: sent.path.remote, remote: sent.path.local };
                nodes[1 - from].act(|endpoint, context| {
                    endpoint.receive_ike(&mut sent.message, path, context);
                });
            }
        }
    }
    assert_eq!(refused, [(1, "header compression is not enabled".into())]);
    assert_eq!(nodes[1].endpoint.datapath().sas().count(), 0);
}
