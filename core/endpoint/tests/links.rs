//! Each Child SA uses the MTU of the link towards its peer, also after the peer moved. The MSS of TCP
//! connections follows from it.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may fail")]

mod common;

use casemate::{Context, Datapath, Endpoint, Routes};
use casemate_crypto::{Provider, Providers, SecretBytes};
use casemate_datapath::{Config, HEAD_ROOM, Inbound, Outbound, TAIL_ROOM, pmtu};
use casemate_ike::config::{
    AddrPattern, ChildConfig, Connection, IdPattern, Identity, PacketLimits, StartAction,
};
use casemate_ike::{IkeSettings, Path, SharedKeys, TrafficSelectorTemplate};
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_sa::{AddrRange, Instant, Limits, PortRange};
use casemate_test_support::TestRng;
use casemate_wire::ip::v4::Ipv4;
use casemate_wire::packet::Packet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

const HUB: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// Two addresses of peers, on links with different MTUs.
const WIDE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
const NARROW: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);
const NATT: u16 = 4_500;
/// IPv4 and TCP headers.
const HEADERS: usize = 40;

struct Links;

impl Routes for Links {
    fn source_for(&self, _: IpAddr) -> Option<IpAddr> {
        None
    }

    fn link_mtu(&self, remote: IpAddr) -> Option<usize> {
        [(WIDE, 9_000), (NARROW, 1_300)].into_iter().find(|(addr, _)| remote == *addr).map(|(_, mtu)| mtu)
    }
}

/// The hub has number 0. Its peers have other numbers and are behind NATs.
struct StarNode {
    number: u8,
    endpoint: Endpoint,
    rng: TestRng,
}

/// The address of a node inside its tunnel.
fn inner(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, number, 0, 1)
}

fn own(number: u8) -> Ipv4Addr {
    if number == 0 { HUB } else { Ipv4Addr::new(172, 16, 0, number) }
}

fn traffic(addrs: AddrRange) -> Vec<TrafficSelectorTemplate> {
    vec![TrafficSelectorTemplate { addrs: Some(addrs), proto: None, ports: PortRange::ANY }]
}

impl StarNode {
    fn new(number: u8) -> Self {
        Self::limited(number, PacketLimits::default())
    }

    fn limited(number: u8, limits: PacketLimits) -> Self {
        // The link MTU of the data path is too large to have an effect.
        let config = Config { limits: Limits::DEVICE, link_mtu: 65_535, ..Config::server(1) };
        let endpoint = Endpoint::new(Datapath::new(config), IkeSettings::SERVER);
        let mut node = Self { number, endpoint, rng: TestRng::new(number.into()) };
        let identity = |number: u8| Identity::Fqdn(format!("n{number}"));
        let mut connection = Connection::with_shared_key("peer", identity(number), identity(0));
        let at = |addr: Ipv4Addr| vec![AddrPattern::Range(AddrRange::single(addr.into()))];
        let (mine, all) = (AddrRange::single(inner(number).into()), AddrRange::ANY_V4);
        let mut child = ChildConfig::new("tunnel");
        if number == 0 {
            connection.remote.id = IdPattern::Any;
            (connection.local_addrs, connection.remote_addrs) = (at(HUB), vec![AddrPattern::Any]);
            (child.local_ts, child.remote_ts) = (traffic(mine), traffic(all));
        } else {
            (connection.local_addrs, connection.remote_addrs) = (at(own(number)), at(HUB));
            (child.local_ts, child.remote_ts) = (traffic(mine), traffic(AddrRange::single(inner(0).into())));
            child.start_action = StartAction { at_once: true, on_traffic: false };
        }
        (connection.children, connection.packet_limits) = (vec![Arc::new(child)], limits);
        node.act(|endpoint, context| endpoint.configure(vec![Arc::new(connection)], &[], context)).unwrap();
        node
    }

    fn act<R>(&mut self, act: impl FnOnce(&mut Endpoint, &mut Context<'_>) -> R) -> R {
        let list: [&dyn Provider; 1] = [&RUSTCRYPTO];
        let mut context = Context {
            now: Instant::from_secs(1),
            unix_time: 0,
            rng: &mut self.rng,
            providers: &Providers(&list),
            credentials: &SharedKeys::new().with(IdPattern::Any, SecretBytes::new(b"a secret of all")),
            routes: &Links,
        };
        act(&mut self.endpoint, &mut context)
    }

    /// Sends a SYN with an MSS of 65,000 to the peer. Returns the MSS that arrives.
    fn mss_at(&mut self, peer: &mut Self) -> usize {
        let mut bytes = vec![0x45, 0, 0, 44, 0, 0, 0x40, 0, 64, 6, 0, 0];
        bytes.extend([inner(self.number).octets(), inner(peer.number).octets()].concat());
        bytes.extend([0, 80, 0x30, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0x60, 2, 0xff, 0xff, 0, 0, 0, 0]);
        bytes.extend([2, 4, 0xfd, 0xe8]);
        Ipv4::parse(&mut bytes[..]).unwrap().fill_checksum();
        let mut storage = vec![0; HEAD_ROOM + bytes.len() + TAIL_ROOM];
        storage[HEAD_ROOM..HEAD_ROOM + bytes.len()].copy_from_slice(&bytes);
        let mut packets = [Packet::new(&mut storage, HEAD_ROOM, bytes.len()).unwrap()];
        let mut sent = [Outbound::Bypass];
        let now = Instant::from_secs(1);
        self.endpoint.datapath_mut().outbound(now, &mut self.rng, &mut packets, &mut sent);
        assert!(matches!(sent[0], Outbound::Send(_)), "{sent:?}");
        if peer.number != 0 {
            // The NAT in front of the peer.
            packets[0].data_mut()[16..20].copy_from_slice(&own(peer.number).octets());
            packets[0].data_mut()[22..24].copy_from_slice(&NATT.to_be_bytes());
        }
        Ipv4::parse(packets[0].data_mut()).unwrap().fill_checksum();
        let mut received = [Inbound::Ike(0)];
        peer.endpoint.datapath_mut().inbound(now, &mut packets, &mut received);
        assert!(matches!(received[0], Inbound::Deliver(_)), "{received:?}");
        usize::from(u16::from_be_bytes([packets[0].data()[42], packets[0].data()[43]]))
    }

    /// The MSS that fits the hub's SA towards this address with a link of `mtu`.
    fn fits(&mut self, peer: Ipv4Addr, mtu: usize) -> usize {
        let datapath = self.endpoint.datapath_mut();
        let sa = datapath.sas().find(|sa| sa.dst == peer).unwrap().id;
        datapath.inner_mtu(sa, mtu).unwrap() - HEADERS
    }
}

/// Exchanges IKE messages until there are none. The hub sees the peer `n` at `outside[n - 1]`.
fn exchange_messages(nodes: &mut [StarNode], outside: &[Ipv4Addr]) {
    for _ in 0..100 {
        let mut messages = Vec::new();
        for node in &mut *nodes {
            node.act(Endpoint::handle_timeouts);
            let number = node.number;
            messages.extend(std::iter::from_fn(|| node.endpoint.next_transmit()).map(|sent| (number, sent)));
            while node.endpoint.next_notice().is_some() {}
        }
        if messages.is_empty() {
            return;
        }
        for (from, mut sent) in messages {
            let (near, far) = (sent.path.local.port(), sent.path.remote.port());
            let (to, path) = if from == 0 {
                // A message to the former address of the NAT is lost.
                let Some(at) = outside.iter().position(|addr| sent.path.remote.ip() == *addr) else {
                    continue;
                };
                let to = at as u8 + 1;
                (to, Path { local: (own(to), far).into(), remote: (HUB, near).into() })
            } else {
                let seen = outside[usize::from(from) - 1];
                (0, Path { local: (HUB, far).into(), remote: (seen, near).into() })
            };
            nodes[usize::from(to)]
                .act(|endpoint, context| endpoint.receive_ike(&mut sent.message, path, context));
        }
    }
    panic!("the nodes never stop sending");
}

#[test]
fn child_sa_uses_the_link_mtu_of_its_peer() {
    let mut nodes = [StarNode::new(0), StarNode::new(1), StarNode::new(2)];
    exchange_messages(&mut nodes, &[WIDE, NARROW]);
    let [hub, wide, narrow] = &mut nodes;
    assert_eq!(hub.mss_at(wide), hub.fits(WIDE, 9_000));
    assert_eq!(hub.mss_at(narrow), hub.fits(NARROW, 1_300));
}

#[test]
fn child_sa_uses_the_link_mtu_after_the_peer_moved() {
    let mut nodes = [StarNode::new(0), StarNode::new(1)];
    exchange_messages(&mut nodes, &[WIDE]);
    let sa = nodes[0].endpoint.datapath().sas().find(|sa| sa.dst == WIDE).unwrap().id;
    // A router on the old path has reported an MTU that does not apply to the new path.
    nodes[0].endpoint.datapath_mut().set_path_mtu(sa, pmtu::V4_MIN_MTU, Instant::from_secs(1));
    // The NAT in front of the peer gets another address, and the peer sends a message.
    let ike = nodes[1].endpoint.ike().status().next().unwrap().id;
    assert!(nodes[1].act(|endpoint, context| endpoint.rekey(ike, context)));
    exchange_messages(&mut nodes, &[NARROW]);
    let [hub, peer] = &mut nodes;
    assert_eq!(hub.mss_at(peer), hub.fits(NARROW, 1_300));
}

#[test]
fn configured_limits_apply_to_the_packets_of_a_connection() {
    for (limits, mtu, mss) in [
        (PacketLimits { mtu: Some(1_200), mss: None }, 1_200, usize::MAX),
        // The link to this peer has an MTU of 1,300.
        (PacketLimits { mtu: Some(1_400), mss: None }, 1_300, usize::MAX),
        (PacketLimits { mtu: Some(1_200), mss: Some(1_000) }, 1_200, 1_000),
        (PacketLimits { mtu: None, mss: Some(9_000) }, 1_300, 9_000),
    ] {
        let mut nodes = [StarNode::limited(0, limits), StarNode::new(1)];
        exchange_messages(&mut nodes, &[NARROW]);
        let [hub, peer] = &mut nodes;
        let fits = hub.fits(NARROW, mtu);
        assert_eq!(hub.mss_at(peer), fits.min(mss), "{limits:?}");
        // The SYN of the peer passes its own SA, whose link is wide, and is limited on arrival.
        assert_eq!(peer.mss_at(hub), fits.min(mss), "{limits:?}");
    }
}
