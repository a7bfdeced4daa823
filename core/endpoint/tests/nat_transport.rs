//! Transport mode through a NAT (RFC 3948 sections 3.1.2 and 5.2, RFC 7296 section 2.23.1): checksums are
//! correct in both directions, and two hosts behind one NAT do not receive each other's packets.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may fail")]

mod common;

use casemate::{Context, Datapath, Endpoint};
use casemate_crypto::{Provider, Providers, SecretBytes};
use casemate_datapath::{Config, HEAD_ROOM, Inbound, Outbound, TAIL_ROOM};
use casemate_ike::config::{
    AddrPattern, ChildConfig, ChildMode, Connection, IdPattern, Identity, StartAction,
};
use casemate_ike::{IkeSettings, Path, SharedKeys, TrafficSelectorTemplate};
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_sa::{AddrRange, Instant, Limits, PortRange};
use casemate_test_support::TestRng;
use casemate_wire::checksum::pseudo_v4;
use casemate_wire::ip::v4::Ipv4;
use casemate_wire::packet::Packet;
use common::NoRoutes;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

/// The NAT in front of the clients, and the address that leads to the server behind its own NAT.
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
const SERVER_OUTSIDE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 2);
const SERVER: Ipv4Addr = Ipv4Addr::new(172, 16, 0, 9);
const UDP: u8 = 17;

/// Number of the NAT in front of the clients, which may be a client itself.
const NAT: u8 = 99;

/// An endpoint. Client n has the address 10.0.0.n; the server has number 0.
struct NatNode {
    number: u8,
    addr: Ipv4Addr,
    endpoint: Endpoint,
    rng: TestRng,
    now: Instant,
}

fn client_addr(number: u8) -> Ipv4Addr {
    match number {
        NAT => OUTSIDE,
        number => Ipv4Addr::new(10, 0, 0, number),
    }
}

/// The port from which the server sees a client that sends from `port`.
fn outside(client: u8, port: u16) -> u16 {
    match client {
        NAT => port,
        client => outside_port(client),
    }
}

/// The port that the NAT assigns to a client.
fn outside_port(client: u8) -> u16 {
    1_024 + u16::from(client)
}

impl NatNode {
    /// A node whose traffic is restricted to this UDP port, if there is one.
    fn new(number: u8, port: Option<u16>) -> Self {
        Self::named(number, number, port)
    }

    /// A node with the identity of the client `name`.
    fn named(number: u8, name: u8, port: Option<u16>) -> Self {
        let addr = if number == 0 { SERVER } else { client_addr(number) };
        Self::at(addr, number, name, port)
    }

    /// A server without a NAT.
    fn open_server() -> Self {
        Self::at(SERVER_OUTSIDE, 0, 0, None)
    }

    fn at(addr: Ipv4Addr, number: u8, name: u8, port: Option<u16>) -> Self {
        let datapath = Datapath::new(Config { limits: Limits::DEVICE, ..Config::server(1) });
        let endpoint = Endpoint::new(datapath, IkeSettings::SERVER);
        let mut node =
            Self { number, addr, endpoint, rng: TestRng::new(number.into()), now: Instant::from_secs(1) };
        let identity = |number: u8| Identity::Fqdn(format!("n{number}"));
        let mut connection = Connection::with_shared_key("peer", identity(name), identity(0));
        let range = |addr: Ipv4Addr| vec![AddrPattern::Range(AddrRange::single(addr.into()))];
        (connection.local_addrs, connection.remote_addrs) = match number {
            0 => (range(addr), vec![AddrPattern::Any]),
            _ => (range(addr), range(SERVER_OUTSIDE)),
        };
        if number == 0 {
            connection.remote.id = IdPattern::Any;
        }
        let own = TrafficSelectorTemplate {
            addrs: None,
            proto: port.map(|_| UDP),
            ports: port.map_or(PortRange::ANY, |port| PortRange::new(port, port).unwrap()),
        };
        let child = ChildConfig {
            mode: ChildMode::Transport,
            local_ts: vec![own],
            remote_ts: vec![TrafficSelectorTemplate::DYNAMIC],
            start_action: StartAction { at_once: number != 0, on_traffic: false },
            ..ChildConfig::new("transport")
        };
        connection.children = vec![Arc::new(child)];
        node.act(|endpoint, context| endpoint.configure(vec![Arc::new(connection)], &[], context)).unwrap();
        node
    }

    fn act<R>(&mut self, act: impl FnOnce(&mut Endpoint, &mut Context<'_>) -> R) -> R {
        let list: [&dyn Provider; 1] = [&RUSTCRYPTO];
        let mut context = Context {
            now: self.now,
            unix_time: 0,
            rng: &mut self.rng,
            providers: &Providers(&list),
            credentials: &SharedKeys::new().with(IdPattern::Any, SecretBytes::new(b"a secret of all")),
            routes: &NoRoutes,
        };
        act(&mut self.endpoint, &mut context)
    }

    fn children(&self) -> usize {
        self.endpoint.ike().status().map(|ike| ike.children.len()).sum()
    }

    /// Protects a UDP datagram; `None` if it is dropped.
    fn send(&mut self, src: SocketAddrV4, dst: SocketAddrV4) -> Option<Vec<u8>> {
        let bytes = datagram(src, dst);
        let mut storage = vec![0; HEAD_ROOM + bytes.len() + TAIL_ROOM];
        storage[HEAD_ROOM..HEAD_ROOM + bytes.len()].copy_from_slice(&bytes);
        let mut packets = [Packet::new(&mut storage, HEAD_ROOM, bytes.len()).unwrap()];
        let mut verdicts = [Outbound::Bypass];
        self.endpoint.datapath_mut().outbound(self.now, &mut self.rng, &mut packets, &mut verdicts);
        match verdicts[0] {
            Outbound::Send(_) => Some(packets[0].data().to_vec()),
            Outbound::Drop(_) => None,
            other => panic!("{other:?}"),
        }
    }

    /// Whether a protected packet is delivered. Its checksum must be correct.
    fn receive(&mut self, bytes: &[u8]) -> bool {
        let mut storage = vec![0; HEAD_ROOM + bytes.len() + TAIL_ROOM];
        storage[HEAD_ROOM..HEAD_ROOM + bytes.len()].copy_from_slice(bytes);
        let mut packets = [Packet::new(&mut storage, HEAD_ROOM, bytes.len()).unwrap()];
        let mut verdicts = [Inbound::Ike(0)];
        self.endpoint.datapath_mut().inbound(self.now, &mut packets, &mut verdicts);
        let [verdict] = verdicts;
        match verdict {
            Inbound::Deliver(_) => {
                assert!(has_right_checksum(packets[0].data()));
                true
            }
            Inbound::Drop(_) => false,
            other => panic!("{other:?}"),
        }
    }
}

fn datagram(src: SocketAddrV4, dst: SocketAddrV4) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 37, 0, 0, 0, 0, 64, UDP, 0, 0];
    packet.extend([src.ip().octets(), dst.ip().octets()].concat());
    packet.extend([src.port().to_be_bytes(), dst.port().to_be_bytes(), [0, 17], [0, 0]].concat());
    packet.extend(b"a payload");
    let checksum = pseudo_v4(*src.ip(), *dst.ip(), UDP, 17).add_bytes(&packet[20..]).finish();
    packet[26..28].copy_from_slice(&checksum.to_be_bytes());
    Ipv4::parse(&mut packet[..]).unwrap().fill_checksum();
    packet
}

fn has_right_checksum(packet: &[u8]) -> bool {
    let ip = Ipv4::parse(packet).unwrap();
    pseudo_v4(ip.src(), ip.dst(), UDP, 17).add_bytes(&packet[20..]).is_valid()
}

/// A protected packet after the NATs.
fn translated(mut packet: Vec<u8>, src: SocketAddrV4, dst: SocketAddrV4) -> Vec<u8> {
    packet[12..16].copy_from_slice(&src.ip().octets());
    packet[16..20].copy_from_slice(&dst.ip().octets());
    packet[20..22].copy_from_slice(&src.port().to_be_bytes());
    packet[22..24].copy_from_slice(&dst.port().to_be_bytes());
    Ipv4::parse(&mut packet[..]).unwrap().fill_checksum();
    packet
}

/// Exchanges IKE messages between the server, which is the first node, and the clients until there are none.
fn exchange_messages(nodes: &mut [NatNode]) {
    for _ in 0..100 {
        let mut messages = Vec::new();
        for node in &mut *nodes {
            node.act(Endpoint::handle_timeouts);
            messages
                .extend(std::iter::from_fn(|| node.endpoint.next_transmit()).map(|sent| (node.number, sent)));
            while node.endpoint.next_notice().is_some() {}
        }
        if messages.is_empty() {
            return;
        }
        for (from, mut sent) in messages {
            let (to, local, remote): (u8, IpAddr, IpAddr) = if from == 0 {
                let port = sent.path.remote.port();
                let own = sent.path.local.port();
                let to = nodes.iter().find(|node| node.number > 0 && outside(node.number, own) == port);
                let to = to.unwrap();
                (to.number, to.addr.into(), SERVER_OUTSIDE.into())
            } else {
                (0, nodes[0].addr.into(), OUTSIDE.into())
            };
            let path = if from == 0 {
                let port = sent.path.local.port();
                Path { local: (local, port).into(), remote: (remote, port).into() }
            } else {
                let (own, port) = (sent.path.local.port(), sent.path.remote.port());
                Path { local: (local, port).into(), remote: (remote, outside(from, own)).into() }
            };
            let node = nodes.iter_mut().find(|node| node.number == to).unwrap();
            node.act(|endpoint, context| endpoint.receive_ike(&mut sent.message, path, context));
        }
    }
    panic!("the nodes never stop sending");
}

/// Whether a datagram from the client arrives, and one to the client.
fn both_ways(nodes: &mut [NatNode], client: usize, port: u16) -> (bool, bool) {
    let addr = client_addr(nodes[client].number);
    let at = SocketAddrV4::new;
    let sent = nodes[client].send(at(addr, port), at(SERVER_OUTSIDE, 80));
    let outside = at(OUTSIDE, outside_port(nodes[client].number));
    let forth = sent.is_some_and(|wire| nodes[0].receive(&translated(wire, outside, at(SERVER, 4_500))));
    let sent = nodes[0].send(at(SERVER, 80), at(OUTSIDE, port));
    let back = sent.is_some_and(|wire| {
        nodes[client].receive(&translated(wire, at(SERVER_OUTSIDE, 4_500), at(addr, 4_500)))
    });
    (forth, back)
}

#[test]
fn checksums_are_correct_in_both_directions() {
    let mut nodes = [NatNode::new(0, None), NatNode::new(1, None)];
    exchange_messages(&mut nodes);
    assert_eq!(nodes.each_ref().map(NatNode::children), [1, 1]);
    assert_eq!(both_ways(&mut nodes, 1, 5_000), (true, true));
}

/// RFC 3948 section 5.2: packets for one host would reach the other.
#[test]
fn second_host_behind_nat_with_same_traffic_is_rejected() {
    let mut nodes = vec![NatNode::new(0, None), NatNode::new(1, None)];
    exchange_messages(&mut nodes);
    nodes.push(NatNode::new(2, None));
    exchange_messages(&mut nodes);
    assert_eq!(nodes.iter().map(NatNode::children).collect::<Vec<_>>(), [1, 1, 0]);
    assert_eq!(both_ways(&mut nodes, 1, 5_000), (true, true));
    assert!(!both_ways(&mut nodes, 2, 5_000).0);
    // After the first host has left, the second can connect.
    let ike = nodes[1].endpoint.ike().status().next().unwrap().id;
    nodes[1].act(|endpoint, context| endpoint.terminate(ike, context));
    exchange_messages(&mut nodes);
    let connection = nodes[2].endpoint.ike().connections()[0].clone();
    let child = connection.children[0].clone();
    nodes[2].act(|endpoint, context| endpoint.initiate(&connection, Some(&child), context)).unwrap();
    exchange_messages(&mut nodes);
    assert_eq!(both_ways(&mut nodes, 2, 5_000), (true, true));
}

/// The host gets another port from the NAT, and its old Child SA still exists.
#[test]
fn restarted_host_behind_nat_replaces_its_old_sa() {
    let mut nodes = vec![NatNode::new(0, None), NatNode::new(1, None)];
    exchange_messages(&mut nodes);
    nodes.push(NatNode::named(2, 1, None));
    nodes.iter_mut().for_each(|node| node.now = Instant::from_secs(2));
    exchange_messages(&mut nodes);
    assert_eq!((nodes[0].children(), nodes[2].children()), (1, 1));
    assert_eq!(both_ways(&mut nodes, 2, 5_000), (true, true));
}

#[test]
fn hosts_behind_one_nat_are_distinguished_by_port() {
    let mut nodes = [NatNode::new(0, None), NatNode::new(1, Some(5_001)), NatNode::new(2, Some(5_002))];
    exchange_messages(&mut nodes);
    assert_eq!(nodes.each_ref().map(NatNode::children), [2, 1, 1]);
    assert_eq!(both_ways(&mut nodes, 1, 5_001), (true, true));
    assert_eq!(both_ways(&mut nodes, 2, 5_002), (true, true));
    assert_eq!(both_ways(&mut nodes, 2, 5_001), (false, false));
}

/// RFC 3948 section 5.2: the NAT has the same address as the hosts behind it, but is not behind a NAT.
#[test]
fn nat_and_host_behind_it_cannot_share_traffic() {
    for clients in [[1, NAT], [NAT, 1]] {
        let mut nodes = vec![NatNode::open_server()];
        for client in clients {
            nodes.push(NatNode::new(client, None));
            exchange_messages(&mut nodes);
        }
        assert_eq!(nodes.iter().map(NatNode::children).collect::<Vec<_>>(), [1, 1, 0], "{clients:?}");
        // Different ports distinguish them.
        let mut nodes = vec![NatNode::open_server()];
        for (client, port) in clients.into_iter().zip([5_001, 5_002]) {
            nodes.push(NatNode::new(client, Some(port)));
            exchange_messages(&mut nodes);
        }
        assert_eq!(nodes.iter().map(NatNode::children).collect::<Vec<_>>(), [2, 1, 1], "{clients:?}");
    }
}

/// The NAT itself restarts, or requests the same traffic again: that is the same host.
#[test]
fn host_without_nat_may_have_two_child_sas() {
    let mut nodes = vec![NatNode::open_server(), NatNode::new(NAT, None)];
    exchange_messages(&mut nodes);
    let connection = nodes[1].endpoint.ike().connections()[0].clone();
    let child = connection.children[0].clone();
    nodes[1].act(|endpoint, context| endpoint.initiate(&connection, Some(&child), context)).unwrap();
    exchange_messages(&mut nodes);
    assert_eq!(nodes.iter().map(NatNode::children).collect::<Vec<_>>(), [2, 2]);
}
