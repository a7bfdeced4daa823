//! SAs negotiated by IKE over UDP sockets of the same stack.

use crate::host::{Host, HostAddrs, LIMITS};
use crate::virtual_link::{FrameLog, LinkEnd, VirtualLink};
use casemate::{Datapath, Endpoint, Notice, bypass_control_plane};
use casemate_crypto::SecretBytes;
use casemate_datapath::{Config, Direction};
use casemate_ike::config::{
    AddrPattern, ChildConfig, ChildMode, Connection, Encapsulation, IdPattern, Identity, Lifespan,
    RohcConfig, StartAction,
};
use casemate_ike::{Event, IkeSettings, SharedKeys};
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_sa::{AddrRange, Limits};
use casemate_smoltcp::{IkeConfig, IkeSockets};
use casemate_wire::ip::proto;
use smoltcp::phy::Medium;
use smoltcp::socket::udp;
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{IpAddress, IpEndpoint};
use std::net::IpAddr;
use std::sync::Arc;

/// A host with IKE.
pub(crate) struct IkeHost {
    pub(crate) host: Host,
    pub(crate) ike: IkeSockets,
    pub(crate) notices: Vec<Notice>,
}

/// Parameters of a test.
#[derive(Clone, Copy)]
pub(crate) struct TestParams {
    pub(crate) mode: ChildMode,
    pub(crate) encap: bool,
    /// Seconds until the Child SA is rekeyed.
    pub(crate) rekey: Option<u64>,
    /// Limits of the second host.
    pub(crate) limits: Limits,
    /// Header compression.
    pub(crate) rohc: bool,
    /// Port of the first host.
    pub(crate) local_port: u16,
}

fn id(number: u8) -> Identity {
    Identity::Fqdn(format!("host{number}"))
}

fn connection(number: u8, addrs: HostAddrs, params: TestParams) -> Connection {
    let mut connection = Connection::with_shared_key("peer", id(number), id(3 - number));
    let only = |addr| vec![AddrPattern::Range(AddrRange::single(addr))];
    (connection.local_addrs, connection.remote_addrs) = (only(addrs.own), only(addrs.peer));
    connection.encapsulation = if params.encap { Encapsulation::Always } else { Encapsulation::IfNat };
    if number == 1 {
        connection.local_port = params.local_port;
    }
    let mut child = ChildConfig::new("all");
    child.mode = params.mode;
    child.rohc = params.rohc.then(RohcConfig::default);
    child.start_action = StartAction { at_once: false, on_traffic: number == 1 };
    child.lifespan = params.rekey.map_or(Lifespan::FOREVER, |secs| Lifespan {
        rekey: Some(std::time::Duration::from_secs(secs)),
        ..Lifespan::FOREVER
    });
    connection.children = vec![Arc::new(child)];
    connection
}

/// What a test changes about the connection and the keys of a host with this number.
type Change<'c> = &'c dyn Fn(u8, Connection, SharedKeys) -> (Connection, SharedKeys);

impl IkeHost {
    fn new(
        end: LinkEnd,
        number: u8,
        addrs: HostAddrs,
        params: TestParams,
        now: Instant,
        change: Change<'_>,
    ) -> Self {
        let limits = if number == 1 { LIMITS } else { params.limits };
        let mut datapath = Datapath::new(Config { limits, ..Config::server(9) });
        bypass_control_plane(&mut datapath).unwrap();
        datapath.enable_rohc();
        let endpoint = Endpoint::new(datapath, IkeSettings::DEVICE);
        let len = if addrs.own.is_ipv4() { 24 } else { 64 };
        let mut host = Host::new(end, endpoint, number, &[(addrs.own, len)], addrs.peer);
        let secret = SecretBytes::new(b"known to both");
        let keys = SharedKeys::new().with(IdPattern::Exact(id(3 - number)), secret);
        let (connection, keys) = change(number, connection(number, addrs, params), keys);
        let config =
            IkeConfig { providers: vec![&RUSTCRYPTO], credentials: Box::new(keys), unix_time_at_origin: 0 };
        let ike = IkeSockets::new(&mut host.device, &mut host.sockets, config);
        let connections = vec![Arc::new(connection)];
        let configured = ike.with_endpoint(now, &host.interface, &mut host.device, |endpoint, context| {
            endpoint.configure(connections, &[], context)
        });
        configured.unwrap();
        Self { host, ike, notices: vec![] }
    }

    pub(crate) fn serve(&mut self, now: Instant) {
        let Self { host, ike, notices } = self;
        let Host { device, interface, sockets } = host;
        ike.serve(now, interface, device, sockets, |notice| notices.push(notice));
    }

    pub(crate) fn count(&self, what: impl Fn(&Event) -> bool) -> usize {
        self.notices.iter().filter(|notice| matches!(notice, Notice::Ike(event) if what(event))).count()
    }
}

/// Two hosts that negotiate SAs; only A starts to.
pub(crate) struct IkePair {
    pub(crate) a: IkeHost,
    pub(crate) b: IkeHost,
    pub(crate) seen: FrameLog,
    pub(crate) now: Instant,
    /// Address of A, and that of its peer B.
    pub(crate) addrs: HostAddrs,
}

impl IkePair {
    pub(crate) fn new(version: u8, medium: Medium, params: TestParams) -> Self {
        Self::changed(version, medium, params, &|_, connection, keys| (connection, keys))
    }

    /// Creates two hosts whose connections and keys were changed.
    pub(crate) fn changed(version: u8, medium: Medium, params: TestParams, change: Change<'_>) -> Self {
        let prefix = if version == 4 { "192.0.2." } else { "2001:db8::" };
        let [own, peer] = [1, 2].map(|number| format!("{prefix}{number}").parse::<IpAddr>().unwrap());
        let addrs = HostAddrs { own, peer };
        let VirtualLink { a: end_a, b: end_b, seen } = VirtualLink::new(medium, 100);
        let now = Instant::from_millis(5_000);
        let a = IkeHost::new(end_a, 1, addrs, params, now, change);
        let b = IkeHost::new(end_b, 2, addrs.reversed(), params, now, change);
        Self { a, b, seen, now, addrs }
    }

    /// Runs both hosts until no message is in flight.
    pub(crate) fn round(&mut self) {
        for _ in 0..3 {
            for end in [&mut self.a, &mut self.b] {
                end.host.poll(self.now);
                end.serve(self.now);
            }
        }
    }

    /// Sends a datagram every 10 ms until `count` have arrived. After the first arrival no datagram may
    /// be lost.
    pub(crate) fn stream(&mut self, count: u32) {
        let (from, to) = (self.a.host.udp(1_000), self.b.host.udp(2_000));
        let (mut sent, mut next) = (0u32, None);
        let started = self.now;
        while next.is_none_or(|next| next < count) {
            assert!(
                self.now - started < Duration::from_secs(300),
                "{sent} sent, {next:?}: {:?}",
                self.a.host.drops()
            );
            let peer = IpEndpoint::new(IpAddress::from(self.addrs.peer), 2_000);
            let socket = self.a.host.sockets.get_mut::<udp::Socket>(from);
            socket.send_slice(&sent.to_be_bytes(), peer).unwrap();
            sent += 1;
            self.round();
            while let Ok((data, _)) = self.b.host.sockets.get_mut::<udp::Socket>(to).recv() {
                let number = u32::from_be_bytes(data.try_into().unwrap());
                assert!(next.is_none_or(|next| next == number), "{number} came instead of {next:?}");
                next = Some(number + 1);
            }
            self.now += Duration::from_millis(10);
        }
        self.a.host.sockets.remove(from);
        self.b.host.sockets.remove(to);
    }
}

pub(crate) const PLAIN: TestParams = TestParams {
    mode: ChildMode::Tunnel,
    encap: false,
    rekey: None,
    limits: LIMITS,
    rohc: false,
    local_port: 500,
};

#[test]
fn the_first_packet_triggers_an_sa_and_later_packets_use_it() {
    for (version, medium) in [(4, Medium::Ip), (4, Medium::Ethernet), (6, Medium::Ip), (6, Medium::Ethernet)]
    {
        for mode in [ChildMode::Tunnel, ChildMode::Transport] {
            for encap in [false, true] {
                let mut pair = IkePair::new(version, medium, TestParams { mode, encap, ..PLAIN });
                pair.stream(20);
                for end in [&pair.a, &pair.b] {
                    assert_eq!(end.count(|event| matches!(event, Event::IkeUp { .. })), 1);
                    assert_eq!(end.count(|event| matches!(event, Event::ChildUp(_))), 1);
                }
                let mut protocols = pair.seen.protocols();
                protocols.retain(|protocol| ![0, proto::ICMPV6].contains(protocol));
                let expected = if encap { vec![proto::UDP] } else { vec![proto::UDP, proto::ESP] };
                assert_eq!(protocols, expected, "{version} {mode:?} {encap}");
            }
        }
    }
}

#[test]
fn child_sas_are_rekeyed_without_loss() {
    let mut pair = IkePair::new(4, Medium::Ip, TestParams { rekey: Some(5), ..PLAIN });
    pair.stream(3_000);
    let ups = pair.a.count(|event| matches!(event, Event::ChildUp(_)));
    assert!(ups >= 5, "{ups} Child SAs in 30 seconds");
}

#[test]
fn headers_are_compressed() {
    for version in [4, 6] {
        for medium in [Medium::Ip, Medium::Ethernet] {
            let mut pair = IkePair::new(version, medium, TestParams { rohc: true, rekey: Some(3), ..PLAIN });
            pair.stream(1_000);
            for (end, direction) in [(&pair.a, Direction::Outbound), (&pair.b, Direction::Inbound)] {
                let sas = end.host.device.endpoint().datapath().sas();
                let rohc =
                    sas.filter(|sa| sa.id.direction() == direction).last().and_then(|sa| sa.rohc).unwrap();
                assert!(rohc.packets > 50 && rohc.compressed_bytes * 2 < rohc.header_bytes, "{rohc:?}");
                assert_eq!(rohc.failures, 0);
            }
        }
    }
}

#[test]
fn messages_from_a_port_without_a_socket_are_counted() {
    let mut pair = IkePair::new(4, Medium::Ip, TestParams { local_port: 501, ..PLAIN });
    let socket = pair.a.host.udp(1_000);
    let peer = IpEndpoint::new(IpAddress::from(pair.addrs.peer), 2_000);
    pair.a.host.sockets.get_mut::<udp::Socket>(socket).send_slice(&[1], peer).unwrap();
    pair.round();
    assert_eq!((pair.a.ike.unsent(), pair.b.ike.unsent()), (1, 0));
}

#[test]
fn terminating_an_ike_sa_notifies_the_peer() {
    let mut pair = IkePair::new(6, Medium::Ethernet, PLAIN);
    pair.stream(3);
    let IkeHost { host, ike, .. } = &mut pair.a;
    let id = host.device.endpoint().ike().status().next().unwrap().id;
    let closed = ike.with_endpoint(pair.now, &host.interface, &mut host.device, |endpoint, context| {
        endpoint.terminate(id, context)
    });
    assert!(closed);
    let (a, b) = (&mut pair.a, &mut pair.b);
    for _ in 0..10 {
        a.serve(pair.now);
        a.host.poll(pair.now);
        b.host.poll(pair.now);
        b.serve(pair.now);
    }
    for end in [a, b] {
        assert_eq!(end.count(|event| matches!(event, Event::IkeDown { .. })), 1);
        assert_eq!(end.host.device.endpoint().datapath().sas().count(), 0);
    }
}
