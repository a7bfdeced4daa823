//! Several Child SAs for the same traffic, one for each class of service (RFC 4301 section 4.1).
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may fail")]

mod common;

use casemate::{Context, Datapath, Endpoint};
use casemate_crypto::{Provider, Providers, SecretBytes};
use casemate_datapath::{Config, Direction, DropReason, HEAD_ROOM, Inbound, Outbound, SaId, TAIL_ROOM};
use casemate_ike::config::{AddrPattern, ChildConfig, Connection, IdPattern, Identity, StartAction};
use casemate_ike::{
    ChildId, ChildState, ChildStatus, IkeSettings, Path, SharedKeys, TrafficSelectorTemplate,
};
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_sa::{AddrRange, DscpSet, Instant, Limits, PortRange};
use casemate_test_support::TestRng;
use casemate_wire::dscp::Dscp;
use casemate_wire::packet::Packet;
use common::NoRoutes;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

const EF: u8 = 0xb8;
const AF41: u8 = 34 << 2;
const PLAIN: u8 = 0;

/// One of two endpoints: 192.0.2.1 in front of 10.1.0.0/16, or 192.0.2.2 in front of 10.2.0.0/16.
struct ClassNode {
    number: u8,
    endpoint: Endpoint,
    rng: TestRng,
    now: Instant,
}

/// Configuration of a child.
#[derive(Clone, Copy)]
struct Class {
    name: &'static str,
    dscp: &'static [&'static str],
}

const BULK: Class = Class { name: "bulk", dscp: &[] };
const VOICE: Class = Class { name: "voice", dscp: &["ef", "cs5"] };
const VIDEO: Class = Class { name: "video", dscp: &["af41"] };
const AT_ONCE: StartAction = StartAction { at_once: true, on_traffic: false };
const ON_TRAFFIC: StartAction = StartAction { at_once: false, on_traffic: true };
const NEVER: StartAction = StartAction { at_once: false, on_traffic: false };

fn network(number: u8) -> Vec<TrafficSelectorTemplate> {
    let addrs = AddrRange::prefix([10, number, 0, 0].into(), 16).unwrap();
    vec![TrafficSelectorTemplate { addrs: Some(addrs), proto: None, ports: PortRange::ANY }]
}

fn identity(number: u8) -> Identity {
    Identity::Fqdn(format!("n{number}"))
}

impl ClassNode {
    fn new(number: u8, classes: &[Class], start: StartAction) -> Self {
        let datapath = Datapath::new(Config { limits: Limits::DEVICE, ..Config::server(1) });
        let endpoint = Endpoint::new(datapath, IkeSettings::SERVER);
        let mut node =
            Self { number, endpoint, rng: TestRng::new(number.into()), now: Instant::from_secs(1) };
        node.configure(classes, start);
        node
    }

    fn configure(&mut self, classes: &[Class], start: StartAction) {
        let (own, peer) = (self.number, 3 - self.number);
        let mut connection = Connection::with_shared_key("peer", identity(own), identity(peer));
        let only = |number: u8| vec![AddrPattern::Range(AddrRange::single(addr(number)))];
        // The responder accepts the initiator from any address.
        let from = if own == 1 || start != NEVER { only(peer) } else { vec![AddrPattern::Any] };
        (connection.local_addrs, connection.remote_addrs) = (only(own), from);
        let child = |class: &Class| ChildConfig {
            local_ts: network(own),
            remote_ts: network(peer),
            start_action: start,
            dscp: class.dscp.iter().map(|name| name.parse::<Dscp>().unwrap()).collect::<DscpSet>(),
            ..ChildConfig::new(class.name)
        };
        connection.children = classes.iter().map(child).map(Arc::new).collect();
        self.act(|endpoint, context| endpoint.configure(vec![Arc::new(connection)], &[], context)).unwrap();
    }

    fn act<R>(&mut self, act: impl FnOnce(&mut Endpoint, &mut Context<'_>) -> R) -> R {
        let list: [&dyn Provider; 1] = [&RUSTCRYPTO];
        let secret = SecretBytes::new(b"a secret of the two");
        let mut context = Context {
            now: self.now,
            unix_time: 0,
            rng: &mut self.rng,
            providers: &Providers(&list),
            credentials: &SharedKeys::new().with(IdPattern::Any, secret),
            routes: &NoRoutes,
        };
        act(&mut self.endpoint, &mut context)
    }

    /// The installed Child SAs.
    fn children(&self) -> Vec<ChildStatus> {
        let all = self.endpoint.ike().status().flat_map(|ike| ike.children);
        all.filter(|child| child.state == ChildState::Installed).collect()
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.children().iter().map(|child| child.child.name.clone()).collect();
        names.sort();
        names
    }

    fn id(&self, name: &str) -> ChildId {
        self.children().iter().find(|child| child.child.name == name).unwrap().id
    }

    fn begin(&mut self, name: &str) {
        let connection = self.endpoint.ike().connections()[0].clone();
        let child = connection.children.iter().find(|child| child.name == name).unwrap().clone();
        self.act(|endpoint, context| endpoint.initiate(&connection, Some(&child), context)).unwrap();
    }

    /// Name of the child that an SA of the data path belongs to.
    fn name_of(&self, sa: SaId) -> String {
        let is_its = |child: &&ChildStatus| {
            let sas = self.endpoint.sas_of(child.id).unwrap();
            sa == sas.inbound || Some(sa) == sas.outbound
        };
        self.children().iter().find(is_its).unwrap().child.name.clone()
    }

    /// Sends a packet with this TOS byte. Returns the name of its child and the protected packet.
    fn send(&mut self, tos: u8) -> Option<(String, Vec<u8>)> {
        let (own, peer) = (self.number, 3 - self.number);
        let header = [0x45, tos, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, own, 0, 1, 10, peer, 0, 1];
        let bytes = [&header[..], &[0, 7, 0, 7, 0, 8, 0, 0]].concat();
        let mut storage = vec![0; HEAD_ROOM + bytes.len() + TAIL_ROOM];
        storage[HEAD_ROOM..HEAD_ROOM + bytes.len()].copy_from_slice(&bytes);
        let mut packets = [Packet::new(&mut storage, HEAD_ROOM, bytes.len()).unwrap()];
        let mut verdicts = [Outbound::Drop(DropReason::NoRoom)];
        self.endpoint.datapath_mut().outbound(self.now, &mut self.rng, &mut packets, &mut verdicts);
        match verdicts[0] {
            Outbound::Send(sealed) => Some((self.name_of(sealed.sa), packets[0].data().to_vec())),
            Outbound::Drop(DropReason::NoOutboundSa) => None,
            other => panic!("{other:?}"),
        }
    }

    /// Receives a protected packet, which must be delivered. Returns the name of its child.
    fn receive(&mut self, bytes: &[u8]) -> String {
        let mut storage = vec![0; HEAD_ROOM + bytes.len() + TAIL_ROOM];
        storage[HEAD_ROOM..HEAD_ROOM + bytes.len()].copy_from_slice(bytes);
        let mut packets = [Packet::new(&mut storage, HEAD_ROOM, bytes.len()).unwrap()];
        let mut verdicts = [Inbound::Drop(DropReason::NoRoom)];
        self.endpoint.datapath_mut().inbound(self.now, &mut packets, &mut verdicts);
        let [verdict] = verdicts;
        match verdict {
            Inbound::Deliver(admitted) => self.name_of(admitted.sa.unwrap()),
            other => panic!("{other:?}"),
        }
    }
}

fn addr(number: u8) -> IpAddr {
    [192, 0, 2, number].into()
}

/// Exchanges IKE messages until there are none.
fn exchange_messages(nodes: &mut [ClassNode; 2]) {
    exchange_behind_nat(nodes, addr(1));
}

/// Does the same with a NAT in front of the first endpoint, so that the second sees the address `outside`.
fn exchange_behind_nat(nodes: &mut [ClassNode; 2], outside: IpAddr) {
    for _ in 0..100 {
        let mut messages = Vec::new();
        for node in &mut *nodes {
            node.act(Endpoint::handle_timeouts);
            while let Some(sent) = node.endpoint.next_transmit() {
                messages.push(sent);
            }
            while node.endpoint.next_notice().is_some() {}
        }
        if messages.is_empty() {
            return;
        }
        for mut sent in messages {
            let mut path = Path { local: sent.path.remote, remote: sent.path.local };
            let is_answer = path.local.ip() == outside;
            if is_answer {
                path.local.set_ip(addr(1));
            } else {
                path.remote.set_ip(outside);
            }
            nodes[usize::from(!is_answer)]
                .act(|endpoint, context| endpoint.receive_ike(&mut sent.message, path, context));
        }
    }
    panic!("the nodes never stop sending");
}

fn later(nodes: &mut [ClassNode; 2], time: Duration) {
    nodes.iter_mut().for_each(|node| node.now = node.now.after(time));
    exchange_messages(nodes);
}

/// Names of the children that carry packets with these TOS bytes, in both directions. Each packet must arrive
/// through the child with the same name.
fn children_used(nodes: &mut [ClassNode; 2], tos: &[u8]) -> [Vec<String>; 2] {
    [[0, 1], [1, 0]].map(|[from, to]| {
        let children_used = tos.iter().map(|tos| {
            let (name, wire) = nodes[from].send(*tos).unwrap();
            assert_eq!(nodes[to].receive(&wire), name);
            name
        });
        children_used.collect()
    })
}

/// Checks which children carry packets with these TOS bytes, in both directions.
fn assert_children(nodes: &mut [ClassNode; 2], expected: &[(u8, &str)]) {
    let tos: Vec<u8> = expected.iter().map(|(tos, _)| *tos).collect();
    for (direction, children_used) in children_used(nodes, &tos).iter().enumerate() {
        let seen: Vec<(u8, &str)> =
            tos.iter().copied().zip(children_used.iter().map(String::as_str)).collect();
        assert_eq!(seen, expected, "direction {direction}");
    }
}

const BOTH: [(u8, &str); 4] = [(EF, "voice"), (PLAIN, "bulk"), (AF41, "bulk"), (40 << 2 | 3, "voice")];

#[test]
fn each_class_keeps_its_child_sa_through_rekeying() {
    let classes = [BULK, VOICE];
    let mut nodes = [ClassNode::new(1, &classes, AT_ONCE), ClassNode::new(2, &classes, NEVER)];
    exchange_messages(&mut nodes);
    assert_eq!(nodes.each_ref().map(ClassNode::names), [["bulk", "voice"]; 2]);
    assert_children(&mut nodes, &BOTH);
    // Both Child SAs share one policy.
    for direction in [Direction::Outbound, Direction::Inbound] {
        assert_eq!(nodes[0].endpoint.datapath().policies(direction).count(), 1);
    }
    for (node, name) in [(0, "voice"), (1, "bulk"), (1, "voice"), (0, "bulk")] {
        let old = nodes[node].id(name);
        nodes[node].act(|endpoint, context| assert!(endpoint.rekey_child(old, context)));
        exchange_messages(&mut nodes);
        later(&mut nodes, Duration::from_secs(6));
        assert_ne!(nodes[node].id(name), old);
        assert_eq!(nodes.each_ref().map(ClassNode::names), [["bulk", "voice"]; 2], "after {name}");
        assert_children(&mut nodes, &BOTH);
    }
    let outbound = nodes[0].endpoint.datapath().sas().filter(|sa| sa.id.direction() == Direction::Outbound);
    let sets: Vec<usize> = outbound.map(|sa| sa.dscp.iter().count()).collect();
    assert_eq!(sets.iter().sum::<usize>(), 2, "{sets:?}");
}

#[test]
fn other_child_sa_carries_the_class_while_its_own_is_missing() {
    let classes = [BULK, VOICE, VIDEO];
    let mut nodes = [ClassNode::new(1, &classes, NEVER), ClassNode::new(2, &classes, NEVER)];
    let all = [EF, AF41, PLAIN];
    for (begun, expected) in [
        ("voice", ["voice", "voice", "voice"]),
        ("video", ["voice", "video", "voice"]),
        ("bulk", ["voice", "video", "bulk"]),
    ] {
        nodes[0].begin(begun);
        exchange_messages(&mut nodes);
        assert_eq!(all.map(|tos| nodes[0].send(tos).unwrap().0), expected, "{begun}");
    }
    for (ended, expected) in [("bulk", ["voice", "video", "voice"]), ("voice", ["video", "video", "video"])] {
        let id = nodes[0].id(ended);
        nodes[0].act(|endpoint, context| assert!(endpoint.terminate_child(id, context)));
        exchange_messages(&mut nodes);
        assert_eq!(all.map(|tos| nodes[0].send(tos).unwrap().0), expected, "{ended}");
    }
}

#[test]
fn packet_triggers_all_traps_that_differ_in_dscp_only() {
    let classes = [BULK, VOICE];
    for tos in [PLAIN, EF] {
        let mut nodes = [ClassNode::new(1, &classes, ON_TRAFFIC), ClassNode::new(2, &classes, ON_TRAFFIC)];
        exchange_messages(&mut nodes);
        assert_eq!(nodes[0].names(), [""; 0]);
        assert!(nodes[0].send(tos).is_none());
        exchange_messages(&mut nodes);
        assert_eq!(nodes.each_ref().map(ClassNode::names), [["bulk", "voice"]; 2]);
        assert_eq!(nodes[0].endpoint.ike().ike_sa_count(), 1, "all in one IKE SA");
        assert_children(&mut nodes, &BOTH);
        // Both Child SAs are closed, and the next packet requests both again.
        for name in ["bulk", "voice"] {
            let id = nodes[1].id(name);
            nodes[1].act(|endpoint, context| assert!(endpoint.terminate_child(id, context)));
        }
        exchange_messages(&mut nodes);
        assert!(nodes[0].send(tos).is_none());
        exchange_messages(&mut nodes);
        assert_eq!(nodes.each_ref().map(ClassNode::names), [["bulk", "voice"]; 2]);
        assert_children(&mut nodes, &BOTH);
    }
}

#[test]
fn traps_with_equal_dscps_are_triggered_one_by_one() {
    let classes = [BULK, Class { name: "other", ..BULK }];
    let mut nodes = [ClassNode::new(1, &classes, ON_TRAFFIC), ClassNode::new(2, &[BULK], NEVER)];
    assert!(nodes[0].send(EF).is_none());
    exchange_messages(&mut nodes);
    assert_eq!(nodes[0].names(), ["bulk"]);
}

#[test]
fn peer_with_one_child_carries_both_classes() {
    let mut nodes = [ClassNode::new(1, &[BULK, VOICE], AT_ONCE), ClassNode::new(2, &[BULK], NEVER)];
    exchange_messages(&mut nodes);
    assert_eq!(nodes.each_ref().map(ClassNode::names), [["bulk", "voice"], ["bulk", "bulk"]]);
    for (tos, name) in BOTH {
        let (way, wire) = nodes[0].send(tos).unwrap();
        assert_eq!(way, name);
        nodes[1].receive(&wire);
        let (_, wire) = nodes[1].send(tos).unwrap();
        nodes[0].receive(&wire);
    }
}

#[test]
fn later_class_joins_the_group_after_the_peer_moved() {
    let classes = [BULK, VOICE];
    let mut nodes = [ClassNode::new(1, &classes, NEVER), ClassNode::new(2, &classes, NEVER)];
    for (name, outside) in [("bulk", [198, 51, 100, 1]), ("voice", [198, 51, 100, 2])] {
        nodes[0].begin(name);
        exchange_behind_nat(&mut nodes, outside.into());
    }
    assert_eq!(nodes.each_ref().map(ClassNode::names), [["bulk", "voice"]; 2]);
    for direction in [Direction::Outbound, Direction::Inbound] {
        assert_eq!(nodes[1].endpoint.datapath().policies(direction).count(), 1);
    }
    for (tos, name) in BOTH {
        let (way, wire) = nodes[0].send(tos).unwrap();
        assert_eq!((&*way, &*nodes[1].receive(&wire)), (name, name));
        assert_eq!(nodes[1].send(tos).unwrap().0, name);
    }
}

#[test]
fn closing_child_is_available_for_the_next_request() {
    let mut nodes =
        [ClassNode::new(1, &[BULK, VOICE, VIDEO], NEVER), ClassNode::new(2, &[BULK, VOICE], NEVER)];
    for name in ["bulk", "voice"] {
        nodes[0].begin(name);
        exchange_messages(&mut nodes);
    }
    // The request crosses the deletion.
    let id = nodes[1].id("voice");
    nodes[1].act(|endpoint, context| assert!(endpoint.terminate_child(id, context)));
    nodes[0].begin("video");
    exchange_messages(&mut nodes);
    assert_eq!(nodes.each_ref().map(ClassNode::names), [["bulk", "video"], ["bulk", "voice"]]);
}
