//! SAs that IKE sets up, over UDP sockets of the same stack.

use crate::host::{Host, LIMITS};
use crate::wire::{Seen, wire};
use casemate::{Datapath, Endpoint, Notice, housekeeping};
use casemate_crypto::SecretBytes;
use casemate_datapath::Config;
use casemate_ike::config::{AddrPattern, Child, ChildMode, Connection, IdPattern, Identity, Lifespan, Start};
use casemate_ike::{Event, Settings, SharedKeys};
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_sa::{AddrRange, Limits};
use casemate_smoltcp::{IkeSockets, Keys};
use casemate_wire::ip::proto;
use smoltcp::phy::Medium;
use smoltcp::socket::udp;
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{IpAddress, IpEndpoint};
use std::net::IpAddr;
use std::sync::Arc;

/// A host that speaks IKE.
pub(crate) struct Speaker {
    pub(crate) host: Host,
    pub(crate) ike: IkeSockets,
    pub(crate) told: Vec<Notice>,
}

/// What the two agree on.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) mode: ChildMode,
    pub(crate) encap: bool,
    /// Seconds after which the Child SA is replaced.
    pub(crate) rekey: Option<u64>,
    /// Tables of the second host.
    pub(crate) limits: Limits,
}

fn id(number: u8) -> Identity {
    Identity::Fqdn(format!("host{number}"))
}

fn connection(own: u8, addrs: (IpAddr, IpAddr), wanted: Wanted) -> Connection {
    let peer = 3 - own;
    let mut connection = Connection::with_shared_key("peer", id(own), id(peer));
    let only = |addr| vec![AddrPattern::Range(AddrRange::single(addr))];
    (connection.local_addrs, connection.remote_addrs) = (only(addrs.0), only(addrs.1));
    connection.force_encap = wanted.encap;
    let mut child = Child::new("all");
    child.mode = wanted.mode;
    child.start = Start { at_once: false, on_traffic: own == 1 };
    child.lifespan = wanted.rekey.map_or(Lifespan::FOREVER, |secs| Lifespan {
        rekey: Some(std::time::Duration::from_secs(secs)),
        ..Lifespan::FOREVER
    });
    connection.children = vec![Arc::new(child)];
    connection
}

impl Speaker {
    fn new(end: crate::wire::End, number: u8, addrs: (IpAddr, IpAddr), wanted: Wanted, now: Instant) -> Self {
        let limits = if number == 1 { LIMITS } else { wanted.limits };
        let mut datapath = Datapath::new(Config { limits, ..Config::server(9) });
        housekeeping(&mut datapath).unwrap();
        let endpoint = Endpoint::new(datapath, Settings::DEVICE);
        let len = if addrs.0.is_ipv4() { 24 } else { 64 };
        let mut host = Host::new(end, endpoint, number, &[(addrs.0, len)], addrs.1);
        let secret = SecretBytes::new(b"known to both");
        let keys = Keys {
            providers: vec![&RUSTCRYPTO],
            credentials: Box::new(SharedKeys::new().with(IdPattern::Exactly(id(3 - number)), secret)),
            unix_time_at_origin: 0,
        };
        let ike = IkeSockets::new(&mut host.device, &mut host.sockets, keys);
        let connections = vec![Arc::new(connection(number, addrs, wanted))];
        let configured = ike.with(now, &host.interface, &mut host.device, |endpoint, means| {
            endpoint.configure(connections, &[], means)
        });
        configured.unwrap();
        Self { host, ike, told: vec![] }
    }

    pub(crate) fn serve(&mut self, now: Instant) {
        let Self { host, ike, told } = self;
        let Host { device, interface, sockets } = host;
        ike.serve(now, interface, device, sockets, |notice| told.push(notice));
    }

    pub(crate) fn count(&self, what: impl Fn(&Event) -> bool) -> usize {
        self.told.iter().filter(|notice| matches!(notice, Notice::Ike(event) if what(event))).count()
    }
}

pub(crate) struct Pair {
    pub(crate) a: Speaker,
    pub(crate) b: Speaker,
    pub(crate) seen: Seen,
    pub(crate) now: Instant,
    pub(crate) addrs: (IpAddr, IpAddr),
}

impl Pair {
    pub(crate) fn new(version: u8, medium: Medium, wanted: Wanted) -> Self {
        let names = if version == 4 { ("192.0.2.1", "192.0.2.2") } else { ("2001:db8::1", "2001:db8::2") };
        let (one, other): (IpAddr, IpAddr) = (names.0.parse().unwrap(), names.1.parse().unwrap());
        let (end_a, end_b, seen) = wire(medium, 100);
        let now = Instant::from_millis(5_000);
        let a = Speaker::new(end_a, 1, (one, other), wanted, now);
        let b = Speaker::new(end_b, 2, (other, one), wanted, now);
        Self { a, b, seen, now, addrs: (one, other) }
    }

    /// Lets both do what there is to do at this moment.
    pub(crate) fn round(&mut self) {
        for _ in 0..3 {
            for speaker in [&mut self.a, &mut self.b] {
                speaker.host.poll(self.now);
                speaker.serve(self.now);
            }
        }
    }

    /// Sends a datagram every 10 ms until `count` have come; none may be lost once the first has arrived.
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
            let peer = IpEndpoint::new(IpAddress::from(self.addrs.1), 2_000);
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

pub(crate) const PLAIN: Wanted =
    Wanted { mode: ChildMode::Tunnel, encap: false, rekey: None, limits: LIMITS };

#[test]
fn the_first_packet_calls_for_an_sa_and_the_others_go_through_it() {
    for (version, medium) in [(4, Medium::Ip), (4, Medium::Ethernet), (6, Medium::Ip), (6, Medium::Ethernet)]
    {
        for mode in [ChildMode::Tunnel, ChildMode::Transport] {
            for encap in [false, true] {
                let mut pair = Pair::new(version, medium, Wanted { mode, encap, ..PLAIN });
                pair.stream(20);
                for speaker in [&pair.a, &pair.b] {
                    assert_eq!(speaker.count(|event| matches!(event, Event::IkeUp { .. })), 1);
                    assert_eq!(speaker.count(|event| matches!(event, Event::ChildUp(_))), 1);
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
fn child_sas_are_replaced_and_no_datagram_is_lost() {
    let mut pair = Pair::new(4, Medium::Ip, Wanted { rekey: Some(5), ..PLAIN });
    pair.stream(3_000);
    let ups = pair.a.count(|event| matches!(event, Event::ChildUp(_)));
    assert!(ups >= 5, "{ups} Child SAs in 30 seconds");
}

#[test]
fn the_end_is_told_to_the_peer() {
    let mut pair = Pair::new(6, Medium::Ethernet, PLAIN);
    pair.stream(3);
    let Speaker { host, ike, .. } = &mut pair.a;
    let id = host.device.endpoint().ike().status().next().unwrap().id;
    let closed = ike
        .with(pair.now, &host.interface, &mut host.device, |endpoint, means| endpoint.terminate(id, means));
    assert!(closed);
    let (a, b) = (&mut pair.a, &mut pair.b);
    for _ in 0..10 {
        a.serve(pair.now);
        a.host.poll(pair.now);
        b.host.poll(pair.now);
        b.serve(pair.now);
    }
    for speaker in [a, b] {
        assert_eq!(speaker.count(|event| matches!(event, Event::IkeDown { .. })), 1);
        assert_eq!(speaker.host.device.endpoint().datapath().sas().count(), 0);
    }
}
