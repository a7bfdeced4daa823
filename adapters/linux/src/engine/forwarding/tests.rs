//! Tests of forwarding in an engine, between sockets on loopback.

use super::super::event_loop::ReadySet;
use super::super::tests::{LockChecker, parts};
use super::*;
use crate::engine::{Engine, EngineParts};
use crate::netlink::Netlink;
use crate::netns::Netns;
use casemate_rustcrypto::RustCrypto;
use casemate_test_support::eventually;
use std::net::UdpSocket;
use std::time::Duration;

const LIST: &[&dyn Provider] = &[&RustCrypto];
const PROVIDERS: Providers<'static> = Providers(LIST);
const MESSAGE: &[u8] = b"an IKE message, which no engine reads here";

fn wrapping_key() -> SecretBytes {
    SecretBytes::new(&[7; 32])
}

/// Another node of the cell.
struct Node {
    socket: UdpSocket,
    run: RunId,
    sealer: FrameSealer,
    opener: FrameOpener,
}

impl Node {
    fn new() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let run = RunId::random(&mut SystemRng::new().unwrap());
        let sealer = FrameSealer::new(&wrapping_key(), run, &PROVIDERS).unwrap();
        let opener = FrameOpener::new(&wrapping_key(), None, run, &PROVIDERS).unwrap();
        Self { socket, run, sealer, opener }
    }

    fn address(&self) -> ForwardAddress {
        ForwardAddress { address: self.socket.local_addr().unwrap(), run: self.run }
    }

    /// The frame of an IKE message to this address and port.
    fn frame(&mut self, to: ForwardAddress, destination: &str) -> Vec<u8> {
        let ingress = if destination.ends_with(":500") { Ingress::IkePort } else { Ingress::NattPort };
        let remote = "127.0.0.9:500".parse().unwrap();
        let packet = crate::udp::datagram(remote, destination.parse().unwrap(), [MESSAGE, &[]]).unwrap();
        let mut frame = Vec::new();
        self.sealer.seal(&to.run, ingress, &packet, &mut frame).unwrap();
        frame
    }

    /// Forwards an IKE message. Returns its frame.
    fn forward(&mut self, to: ForwardAddress, destination: &str) -> Vec<u8> {
        let frame = self.frame(to, destination);
        self.socket.send_to(&frame, to.address).unwrap();
        frame
    }

    /// The next forwarded packet.
    fn receive(&mut self) -> Option<(Ingress, Vec<u8>)> {
        let mut frame = vec![0; 2_000];
        let len = self.socket.recv(&mut frame).ok()?;
        let (ingress, packet) = self.opener.open(&mut frame[..len], &PROVIDERS).unwrap();
        Some((ingress, frame[packet].to_vec()))
    }
}

/// Runs a test with an engine that forwards, in a new network namespace.
fn with_engine(test: impl FnOnce(&mut Engine, ForwardAddress) + Send) {
    let Some(netns) = Netns::new().map_err(casemate_test_support::skip).ok() else { return };
    let scratch = casemate_test_support::TempDir::new("forwarding").unwrap();
    let run = || {
        let mut netlink = Netlink::open().unwrap();
        let lo = netlink.link("lo").unwrap().index;
        netlink.set_up(lo, 65_536).unwrap();
        let mut rng = SystemRng::new().unwrap();
        let address = "127.0.0.1:0".parse().unwrap();
        let forwarding = Forwarding::open(address, (&wrapping_key(), None), LIST, &mut rng).unwrap();
        let own = forwarding.address();
        let parts = EngineParts { forwarding: Some(forwarding), ike_enabled: true, ..parts(scratch.path()) };
        let mut engine = Engine::new(parts).unwrap();
        engine.shared.endpoint_mut().endpoint.datapath_mut().set_local_addrs(&["127.0.0.1".parse().unwrap()]);
        test(&mut engine, own);
        engine.close().unwrap();
    };
    netns.run(run).unwrap();
}

/// Handles what has arrived, until this many packets are counted.
fn poll(engine: &mut Engine, count: u64) -> ForwardStatus {
    let Engine { shared, event_loop, .. } = engine;
    let epoll = event_loop.epoll(shared, &LockChecker::new(shared)).unwrap();
    let forwarder = shared.forwarder.as_ref().unwrap();
    eventually("the packets are counted", || {
        let ready = ReadySet::poll(shared, &epoll).unwrap();
        shared.poll_all(&ready, &mut super::super::shared::Batch::new()).unwrap();
        let status = forwarder.status();
        (status.sent + status.received + status.rejected + status.dropped >= count).then_some(status)
    })
}

fn counts(status: ForwardStatus) -> [u64; 4] {
    [status.sent, status.received, status.rejected, status.dropped]
}

#[test]
fn a_standby_forwards_what_arrives_from_the_network_and_nothing_else() {
    with_engine(|engine, own| {
        let (mut owner, mut other, peer) =
            (Node::new(), Node::new(), UdpSocket::bind("127.0.0.1:0").unwrap());
        let forwarder = engine.shared.forwarder.as_ref().unwrap();
        forwarder.set_target(false, Some(owner.address()));
        peer.send_to(MESSAGE, "127.0.0.1:4500").unwrap();
        assert_eq!(counts(poll(engine, 1)), [1, 0, 0, 0]);
        let (ingress, packet) = owner.receive().unwrap();
        assert_eq!(ingress, Ingress::NattPort);
        let ip = Ipv4::parse(&packet[..]).unwrap();
        assert_eq!((ip.src(), ip.dst()), ("127.0.0.1".parse().unwrap(), "127.0.0.1".parse().unwrap()));
        assert_eq!(packet[20..24], [peer.local_addr().unwrap().port(), 4_500].map(u16::to_be_bytes).concat());
        assert!(packet.ends_with(MESSAGE));

        // Another node believes that this one is the owner.
        other.forward(own, "127.0.0.1:500");
        other.forward(own, "127.0.0.1:4500");
        assert_eq!(counts(poll(engine, 3)), [1, 0, 0, 2]);
        assert!(engine.shared.reports.take_ike().is_empty());
        assert_eq!(owner.receive(), None, "a packet takes one hop");

        // Nothing is known of an owner, or the target is this node.
        for target in [None, Some(own)] {
            engine.shared.forwarder.as_ref().unwrap().set_target(false, target);
            peer.send_to(MESSAGE, "127.0.0.1:4500").unwrap();
            std::thread::sleep(Duration::from_millis(50));
            assert_eq!(counts(poll(engine, 3)), [1, 0, 0, 2]);
        }
    });
}

#[test]
fn a_port_that_cannot_be_opened_is_an_error_with_its_cause() {
    let open = |address: &str| {
        let mut rng = SystemRng::new().unwrap();
        let opened = Forwarding::open(address.parse().unwrap(), (&wrapping_key(), None), LIST, &mut rng);
        opened.map(|forwarding| forwarding.address().address).map_err(|error| error.to_string())
    };
    // TEST-NET-1.
    let why = open("192.0.2.77:4510").unwrap_err();
    assert!(why.contains("192.0.2.77:4510: ") && why.contains("before the start"), "{why}");
    let other = UdpSocket::bind("127.0.0.1:0").unwrap();
    let why = open(&other.local_addr().unwrap().to_string()).unwrap_err();
    assert!(why.contains("in use"), "{why}");
}

#[test]
fn an_owner_handles_authentic_packets_for_its_addresses_once() {
    with_engine(|engine, own| {
        let mut node = Node::new();
        let forwarder = engine.shared.forwarder.as_ref().unwrap();
        forwarder.set_target(true, Some(node.address()));
        let frame = node.forward(own, "127.0.0.1:500");
        assert_eq!(counts(poll(engine, 1)), [0, 1, 0, 0]);
        let datagrams = engine.shared.reports.take_ike();
        let [datagram] = &datagrams[..] else { panic!("{datagrams:?}") };
        assert_eq!(datagram.message, MESSAGE);
        let ends = [datagram.path.local, datagram.path.remote].map(|end| end.to_string());
        assert_eq!(ends, ["127.0.0.1:500", "127.0.0.9:500"]);

        // Again, changed, and what is no frame at all.
        let mut changed = node.frame(own, "127.0.0.1:500");
        *changed.last_mut().unwrap() ^= 1;
        for datagram in [&frame[..], &changed, b"x", b""] {
            node.socket.send_to(datagram, own.address).unwrap();
        }
        assert_eq!(counts(poll(engine, 5)), [0, 1, 4, 0]);
        assert!(engine.shared.reports.take_ike().is_empty());
        // An address that this host does not have.
        node.forward(own, "127.0.0.2:500");
        assert_eq!(counts(poll(engine, 6)), [0, 1, 4, 1]);
        assert!(engine.shared.reports.take_ike().is_empty());

        // An owner keeps what arrives from the network.
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        peer.send_to(&[&[0; 4], MESSAGE].concat(), "127.0.0.1:4500").unwrap();
        let taken = eventually("the message arrives", || {
            poll(engine, 6);
            engine.shared.reports.take_ike().pop()
        });
        assert_eq!((taken.message, counts(poll(engine, 6))), (MESSAGE.to_vec(), [0, 1, 4, 1]));
    });
}
