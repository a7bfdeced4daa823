//! SPDs that belong to one Child SA or IKE SA: two clients with one address and the same traffic never get
//! each other's packets.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may fail")]

mod common;

use casemate::{InstallError, Notice, PolicyChange};
use casemate_datapath::{DropReason, Inbound, Outbound};
use casemate_ike::config::{ChildConfig, Connection, IdPattern, Identity, Unique};
use casemate_ike::{ChildId, IkeSaId, IkeSettings};
use casemate_sa::{Limits, OwnSpd, SpdId, SpdNumbers, SpdOwner, SpdPair, SpdRule, SpdRules};
use casemate_test_support::TestRng;
use casemate_wire::packet::Packet;
use common::node::{Node, advance, connection, exchange_messages, notices_of_exchange};
use common::{OWN, PEER};
use std::sync::Arc;

const FIRST: u32 = 100;
const CLIENTS: u32 = 66;

/// Each owner has an SPD of its own, with one of this many numbers.
fn own(owner: SpdOwner, per_direction: bool, count: u32) -> SpdRules {
    let numbers = SpdNumbers::new(FIRST, FIRST + count - 1).unwrap();
    let rule = SpdRule::Own(OwnSpd { owner, per_direction, numbers });
    SpdRules { outbound: rule, inbound: rule }
}

fn child(name: &str, spds: SpdRules) -> ChildConfig {
    ChildConfig { spds, ..ChildConfig::new(name) }
}

/// Clients with one address, which are one node, and their gateway with these rules. The clients have the
/// SPDs 1, 2 and so on. All but the second one have the same identity.
fn nodes(rules: SpdRules) -> [Node; 2] {
    let client = |number: u32| {
        let spd = SpdId::new(number);
        let mut client = connection(OWN, PEER, child("all", SpdRules::MAIN));
        let fixed = SpdRules::fixed(SpdPair { outbound: spd, inbound: spd });
        client.children = vec![Arc::new(child("all", fixed)), Arc::new(child("more", fixed))];
        let local = Identity::Fqdn(format!("client-{}", if number == 2 { 2 } else { 1 }));
        let peer = Identity::Address(PEER.into());
        let Connection { local_addrs, remote_addrs, children, .. } = client;
        let with_key = Connection::with_shared_key(&format!("{number}"), local, peer);
        Connection { local_addrs, remote_addrs, children, ..with_key }
    };
    let mut gateway = connection(PEER, OWN, child("all", rules));
    gateway.remote.id = IdPattern::Any;
    gateway.dpd_delay = None;
    gateway.unique = Unique::Never;
    let node = |connection| Node::with(Limits::SERVER, IkeSettings::SERVER, connection);
    let mut clients = node(client(1));
    clients.configure((1..=CLIENTS).map(client).collect());
    [clients, node(gateway)]
}

/// A client sets up one of its children. Returns what the gateway notices.
fn initiate(nodes: &mut [Node; 2], client: usize, child: usize) -> Vec<Notice> {
    nodes[0].act(|endpoint, context| {
        let connection = endpoint.ike().connections()[client].clone();
        endpoint.initiate(&connection, connection.children.get(child), context).unwrap();
    });
    let [_, notices] = notices_of_exchange(nodes);
    notices
}

/// The IKE SAs of a node that have Child SAs, with these, the oldest first.
fn ikes(node: &Node) -> Vec<(IkeSaId, Vec<ChildId>)> {
    let ikes = node.endpoint.ike().status().map(|ike| (ike.id, ike.children.iter().map(|c| c.id).collect()));
    ikes.filter(|(_, children): &(_, Vec<_>)| !children.is_empty()).collect()
}

/// Numbers of the SPDs of the gateway's Child SAs, outbound and inbound, the oldest IKE SA first.
fn pairs(node: &Node) -> Vec<[u32; 2]> {
    let children = ikes(node).into_iter().flat_map(|(_, children)| children);
    let pairs = children.map(|child| node.endpoint.spds_of(child).unwrap());
    pairs.map(|pair| [pair.outbound.number(), pair.inbound.number()]).collect()
}

/// SPDs that were added (positive) and removed (negative).
fn changes(notices: &[Notice]) -> Vec<i64> {
    let number = |notice: &Notice| match notice {
        Notice::Policy(PolicyChange::SpdAdded { spd }) => Some(i64::from(spd.number())),
        Notice::Policy(PolicyChange::SpdRemoved { spd }) => Some(-i64::from(spd.number())),
        _ => None,
    };
    notices.iter().filter_map(number).collect()
}

/// What was not installed, and why.
fn failures(notices: &[Notice]) -> Vec<InstallError> {
    let error = |notice: &Notice| match notice {
        Notice::ChildNotInstalled { error, .. } => Some(*error),
        _ => None,
    };
    notices.iter().filter_map(error).collect()
}

/// Protects a packet that enters an SPD. Returns the packet on the wire, or why it was dropped.
fn protect(node: &mut Node, spd: u32, src: [u8; 4], dst: [u8; 4]) -> Result<Vec<u8>, DropReason> {
    let header = [0x45, 0, 0, 28, 0, 0, 0, 0, 64, 253, 0, 0];
    let (bytes, mut storage) = ([&header[..], &src, &dst, &[0; 8]].concat(), vec![0; 600]);
    let mut packet = Packet::new(&mut storage, 256, bytes.len()).unwrap();
    packet.data_mut().copy_from_slice(&bytes);
    let (datapath, now) = (node.endpoint.datapath_mut(), node.now);
    let (spd, rng) = (SpdId::new(spd), &mut TestRng::new(1));
    match datapath.outbound_reassembled(spd, now, rng, &mut packet) {
        Outbound::Send { .. } => Ok(packet.data().to_vec()),
        Outbound::Drop(reason) => Err(reason),
        other => panic!("{other:?}"),
    }
}

/// The number of the SPD by which a received packet leaves.
fn receive(node: &mut Node, bytes: &[u8]) -> u32 {
    let mut storage = vec![0; 600];
    let mut packet = Packet::new(&mut storage, 100, bytes.len()).unwrap();
    packet.data_mut().copy_from_slice(bytes);
    let mut verdict = [Inbound::Drop(DropReason::MalformedHeader)];
    let now = node.now;
    node.endpoint.datapath_mut().inbound(now, std::slice::from_mut(&mut packet), &mut verdict);
    match &verdict[0] {
        Inbound::Deliver(delivery) => delivery.spd.number(),
        other => panic!("{other:?}"),
    }
}

/// A packet from the gateway in this SPD reaches this client, and its answer comes back to the SPD.
fn assert_reaches(nodes: &mut [Node; 2], [outbound, inbound]: [u32; 2], client: u32) {
    let packet = protect(&mut nodes[1], outbound, PEER, OWN).unwrap();
    assert_eq!(receive(&mut nodes[0], &packet), client);
    let answer = protect(&mut nodes[0], client, OWN, PEER).unwrap();
    assert_eq!(receive(&mut nodes[1], &answer), inbound);
}

#[test]
fn clients_with_one_address_and_the_same_traffic_are_kept_apart() {
    let mut nodes = nodes(own(SpdOwner::ChildSa, false, 8));
    assert_eq!(changes(&initiate(&mut nodes, 0, 0)), [100]);
    assert_eq!(changes(&initiate(&mut nodes, 1, 0)), [101]);
    assert_eq!(pairs(&nodes[1]), [[100, 100], [101, 101]]);
    for _ in 0..2 {
        assert_reaches(&mut nodes, [100, 100], 1);
        assert_reaches(&mut nodes, [101, 101], 2);
    }
    for spd in [0, 1, 102] {
        let dropped = protect(&mut nodes[1], spd, PEER, OWN);
        assert!(dropped.is_err() || spd == 0, "nothing leads into a tunnel but its own SPD: {dropped:?}");
    }
    // The first client disconnects. Packets into its SPD do not reach the second client.
    let (ike, _) = ikes(&nodes[1])[0].clone();
    nodes[1].act(|endpoint, context| endpoint.terminate(ike, context));
    let [_, notices] = notices_of_exchange(&mut nodes);
    assert_eq!(changes(&notices), [-100]);
    assert_eq!(protect(&mut nodes[1], 100, PEER, OWN), Err(DropReason::NoPolicy));
    assert_reaches(&mut nodes, [101, 101], 2);
    // A released number is used again as late as possible.
    assert_eq!(changes(&initiate(&mut nodes, 0, 0)), [102]);
    assert_reaches(&mut nodes, [102, 102], 1);
}

#[test]
fn rekeying_keeps_the_spds() {
    let mut nodes = nodes(own(SpdOwner::ChildSa, true, 8));
    assert_eq!(changes(&initiate(&mut nodes, 0, 0)), [100, 101]);
    assert_eq!(changes(&initiate(&mut nodes, 1, 0)), [102, 103]);
    let before = pairs(&nodes[1]);
    assert_eq!(before, [[100, 101], [102, 103]]);
    for side in [0, 1] {
        for (ike, children) in ikes(&nodes[side]) {
            nodes[side].act(|endpoint, context| endpoint.rekey_child(children[0], context));
            let [_, notices] = notices_of_exchange(&mut nodes);
            assert_eq!(changes(&notices), [0; 0]);
            nodes[side].act(|endpoint, context| endpoint.rekey(ike, context));
            let [_, notices] = notices_of_exchange(&mut nodes);
            assert_eq!(changes(&notices), [0; 0]);
        }
        advance(&mut nodes, 10);
        assert_eq!(pairs(&nodes[1]), before);
        assert_reaches(&mut nodes, [100, 101], 1);
        assert_reaches(&mut nodes, [102, 103], 2);
    }
}

#[test]
fn the_child_sas_of_an_ike_sa_share_what_belongs_to_it() {
    let mut nodes = nodes(own(SpdOwner::IkeSa, true, 8));
    assert_eq!(changes(&initiate(&mut nodes, 0, 0)), [100, 101]);
    assert_eq!(changes(&initiate(&mut nodes, 0, 1)), [0; 0]);
    assert_eq!(changes(&initiate(&mut nodes, 1, 0)), [102, 103]);
    assert_eq!(pairs(&nodes[1]), [[100, 101], [100, 101], [102, 103]]);
    let (ike, children) = ikes(&nodes[1])[0].clone();
    let connection = nodes[1].endpoint.ike().connections()[0].clone();
    let of_ike = |nodes: &[Node; 2], ike| nodes[1].endpoint.spds_of_ike(ike, &connection);
    let pair = SpdPair { outbound: SpdId::new(100), inbound: SpdId::new(101) };
    assert_eq!(of_ike(&nodes, ike), Some(pair));
    nodes[1].act(|endpoint, context| endpoint.rekey(ike, context));
    exchange_messages(&mut nodes);
    let (successor, _) = ikes(&nodes[1]).into_iter().find(|(_, now)| *now == children).unwrap();
    assert_ne!(successor, ike);
    assert_eq!(of_ike(&nodes, successor), Some(pair));
    // They belong to the IKE SA also while it has no Child SA.
    for child in children {
        nodes[1].act(|endpoint, context| endpoint.terminate_child(child, context));
    }
    let [_, notices] = notices_of_exchange(&mut nodes);
    assert_eq!(changes(&notices), [0; 0]);
    assert_eq!(changes(&initiate(&mut nodes, 0, 0)), [0; 0]);
    assert_reaches(&mut nodes, [100, 101], 1);
    nodes[1].act(|endpoint, context| endpoint.terminate(successor, context));
    let [_, notices] = notices_of_exchange(&mut nodes);
    assert_eq!(changes(&notices), [-100, -101]);
    assert_reaches(&mut nodes, [102, 103], 2);
}

#[test]
fn a_child_sa_without_a_number_is_closed() {
    let mut nodes = nodes(own(SpdOwner::ChildSa, false, 1));
    assert_eq!(failures(&initiate(&mut nodes, 0, 0)), []);
    let notices = initiate(&mut nodes, 1, 0);
    assert_eq!((failures(&notices), changes(&notices)), (vec![InstallError::SpdNumbers], vec![]));
    assert_eq!(pairs(&nodes[1]), [[100, 100]]);
    assert_reaches(&mut nodes, [100, 100], 1);
    let (ike, _) = ikes(&nodes[1])[0].clone();
    nodes[1].act(|endpoint, context| endpoint.terminate(ike, context));
    exchange_messages(&mut nodes);
    assert_eq!(changes(&initiate(&mut nodes, 1, 0)), [100], "the number is free again");
}

/// A number that was released is used again after all others that are free.
#[test]
fn a_released_number_goes_to_the_end_of_the_free_ones() {
    let mut nodes = nodes(own(SpdOwner::ChildSa, false, 4));
    for (client, spd) in [100, 101, 102].into_iter().enumerate() {
        assert_eq!(changes(&initiate(&mut nodes, client, 0)), [spd]);
    }
    let release = |nodes: &mut [Node; 2], spd: u32| {
        let at = pairs(&nodes[1]).iter().position(|pair| pair[0] == spd).unwrap();
        let (ike, _) = ikes(&nodes[1])[at].clone();
        nodes[1].act(|endpoint, context| endpoint.terminate(ike, context));
        exchange_messages(nodes);
    };
    release(&mut nodes, 102);
    release(&mut nodes, 101);
    for (client, spd) in [(3, 103), (4, 102), (5, 101)] {
        assert_eq!(changes(&initiate(&mut nodes, client, 0)), [spd]);
    }
    release(&mut nodes, 100);
    release(&mut nodes, 103);
    assert_eq!(changes(&initiate(&mut nodes, 0, 0)), [100], "released before 103");
}

/// An authenticated client that goes on to request Child SAs leaves numbers for others.
#[test]
fn one_client_cannot_have_all_numbers() {
    let mut nodes = nodes(own(SpdOwner::ChildSa, true, 300));
    let of_one = |index: usize| if index == 0 { 0 } else { index + 1 };
    for index in 0..64 {
        let notices = initiate(&mut nodes, of_one(index), 0);
        assert_eq!((failures(&notices), changes(&notices).len()), (vec![], 2));
    }
    let notices = initiate(&mut nodes, of_one(64), 0);
    assert_eq!((failures(&notices), changes(&notices)), (vec![InstallError::SpdNumbersOfPeer], vec![]));
    let notices = initiate(&mut nodes, 1, 0);
    assert_eq!((failures(&notices), changes(&notices)), (vec![], vec![228, 229]));
    let (ike, _) = ikes(&nodes[1])[0].clone();
    nodes[1].act(|endpoint, context| endpoint.terminate(ike, context));
    exchange_messages(&mut nodes);
    assert_eq!(changes(&initiate(&mut nodes, 0, 0)).len(), 2, "its own numbers are free again");
}

#[test]
fn a_child_sa_without_an_interface_is_closed() {
    for owner in [SpdOwner::ChildSa, SpdOwner::IkeSa] {
        let mut nodes = nodes(own(owner, false, 8));
        assert_eq!(changes(&initiate(&mut nodes, 0, 0)), [100]);
        assert_eq!(changes(&initiate(&mut nodes, 1, 0)), [101]);
        nodes[1].act(|endpoint, context| endpoint.reject_spd(SpdId::new(100), context));
        let [_, notices] = notices_of_exchange(&mut nodes);
        assert_eq!(failures(&notices), [InstallError::Interface]);
        assert_eq!(changes(&notices), [-100]);
        assert_eq!(pairs(&nodes[1]), [[101, 101]]);
        assert_reaches(&mut nodes, [101, 101], 2);
        assert_eq!(changes(&initiate(&mut nodes, 0, 0)), [102], "the next one gets another number");
    }
}
