//! Transport mode through NATs (RFC 7296 section 2.23.1): traffic selectors on the wire and in the installed
//! SAs, with the initiator, the responder or both behind a NAT.

use crate::forge::{Raw, first_request, give_right, notifies, plain, read_plain};
use crate::pair::{IkePeer, LEFT, Pair, RIGHT, child, connection};
use casemate_ike::config::{AddrPattern, ChildConfig, ChildMode, Connection, Encapsulation};
use casemate_ike::{ChildUp, Path, TrafficSelector, TrafficSelectorTemplate};
use casemate_sa::{AddrPair, AddrRange, Mode, PortRange};
use casemate_wire::ike::{Header, NotifyType};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Public addresses of NAT A and NAT B: IPN1 and IPN2 of the RFC.
const LEFT_OUTSIDE: &str = "198.51.100.7";
const RIGHT_OUTSIDE: &str = "203.0.113.2";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Which hosts are behind a NAT.
#[derive(Debug, Clone, Copy)]
struct Nats {
    left: bool,
    right: bool,
}

/// Two hosts, and the addresses at which each sees the other.
struct NattedPair {
    pair: Pair,
    /// Address of the left host as the right one sees it.
    seen_left: IpAddr,
    /// Address of the right host as the left one sees it.
    seen_right: IpAddr,
    /// Port that NAT A assigns to the left host.
    port: u16,
}

impl NattedPair {
    /// Creates a pair with the initiator, the responder or both behind a NAT. `alter` changes the right
    /// child.
    fn new(nats: Nats, alter: impl Fn(&mut ChildConfig)) -> Self {
        Self::with(nats, Encapsulation::IfNat, alter)
    }

    fn with(nats: Nats, encapsulation: Encapsulation, alter: impl Fn(&mut ChildConfig)) -> Self {
        let seen_left = ip(if nats.left { LEFT_OUTSIDE } else { LEFT });
        let seen_right = ip(if nats.right { RIGHT_OUTSIDE } else { RIGHT });
        let host = |own, peer| {
            let dynamic = || vec![TrafficSelectorTemplate::DYNAMIC];
            let transport = ChildConfig { mode: ChildMode::Transport, ..child(dynamic(), dynamic()) };
            Connection { children: vec![Arc::new(transport)], encapsulation, ..connection(own, peer) }
        };
        let to = AddrPattern::Range(AddrRange::single(seen_right));
        let left = Connection { remote_addrs: vec![to], ..host("left", "right") };
        let mut right = Connection { remote_addrs: vec![AddrPattern::Any], ..host("right", "left") };
        let mut changed = (*right.children[0]).clone();
        alter(&mut changed);
        right.children = vec![Arc::new(changed)];
        Self { pair: Pair::new(left, right), seen_left, seen_right, port: 1_024 }
    }

    fn established(nats: Nats) -> Self {
        let mut natted = Self::new(nats, |_| {});
        natted.pair.left.initiate(natted.pair.now);
        natted.run();
        natted
    }

    fn run(&mut self) {
        let Self { pair, seen_left, seen_right, port } = self;
        for _ in 0..50 {
            if let Some(transmit) = pair.left.sent.pop_front() {
                assert_eq!(transmit.path.remote.ip(), *seen_right);
                let outside = if *seen_left == ip(LEFT) { transmit.path.local.port() } else { *port };
                let path = Path {
                    local: (pair.right.addr, transmit.path.remote.port()).into(),
                    remote: (*seen_left, outside).into(),
                };
                give(&mut pair.right, transmit.message, path, pair.now);
            }
            if let Some(transmit) = pair.right.sent.pop_front() {
                let local: SocketAddr = (pair.left.addr, transmit.path.local.port()).into();
                let path = Path { local, remote: (*seen_right, transmit.path.local.port()).into() };
                give(&mut pair.left, transmit.message, path, pair.now);
            }
        }
    }

    /// The Child SAs that both hosts installed last.
    fn last(&self) -> (ChildUp, ChildUp) {
        let last = |side: &IkePeer| side.children().pop().unwrap();
        (last(&self.pair.left), last(&self.pair.right))
    }

    /// Checks that each host has the addresses that it sees, and for checksums those that the other sees.
    fn check(&self) {
        let Self { seen_left, seen_right, .. } = *self;
        let (left, right) = self.last();
        let one = |addr| vec![TrafficSelector::any(AddrRange::single(addr))];
        assert_eq!((left.local.clone(), left.remote.clone()), (one(ip(LEFT)), one(seen_right)));
        assert_eq!((right.local.clone(), right.remote.clone()), (one(ip(RIGHT)), one(seen_left)));
        for up in [&left, &right] {
            assert_eq!((up.inbound.mode, up.outbound.mode), (Mode::Transport, Mode::Transport));
            assert!(up.inbound.encap.is_some());
            assert_eq!(up.outbound.original_addrs, None);
        }
        // The addresses as the sender sees them.
        assert_eq!(left.inbound.original_addrs, Some(AddrPair { src: ip(RIGHT), dst: seen_left }));
        assert_eq!(right.inbound.original_addrs, Some(AddrPair { src: ip(LEFT), dst: seen_right }));
        assert_eq!((left.inbound.src, left.inbound.dst), (seen_right, ip(LEFT)));
        assert_eq!((right.inbound.src, right.inbound.dst), (seen_left, ip(RIGHT)));
        assert_eq!(left.inbound.spi, right.outbound.spi);
    }
}

fn give(side: &mut IkePeer, mut message: Vec<u8>, path: Path, now: casemate_sa::Instant) {
    side.with_context(now, |ike, host, context| ike.receive(&mut message, path, host, context));
}

const NEITHER: Nats = Nats { left: false, right: false };
const LEFT_ONLY: Nats = Nats { left: true, right: false };
const RIGHT_ONLY: Nats = Nats { left: false, right: true };
const BOTH: Nats = Nats { left: true, right: true };

#[test]
fn selectors_are_substituted_with_nat_on_either_side() {
    for nats in [LEFT_ONLY, RIGHT_ONLY, BOTH] {
        let natted = NattedPair::established(nats);
        assert_eq!(natted.pair.left.children().len(), 1, "{nats:?}: {:?}", natted.pair.left.events);
        natted.check();
    }
}

#[test]
fn either_side_rekeys_again() {
    for nats in [LEFT_ONLY, RIGHT_ONLY, BOTH] {
        for from_left in [true, false] {
            let mut natted = NattedPair::established(nats);
            let now = natted.pair.now;
            let side = if from_left { &mut natted.pair.left } else { &mut natted.pair.right };
            let old = side.children()[0].id;
            side.with_context(now, |ike, host, context| ike.rekey_child(old, host, context));
            natted.run();
            let (left, right) = natted.last();
            assert!(left.replaces.is_some() && right.replaces.is_some(), "{nats:?} {from_left}");
            natted.check();
        }
    }
}

/// RFC 7296 section 2.23: the path follows the peer's last message. The traffic selector is the address of
/// the path, which may be that of another host, so a Child SA in transport mode does not follow: the IKE SA
/// is closed, and the peer proves its new address with another one.
#[test]
fn a_peer_that_moves_sets_up_another_ike_sa() {
    for moved in ["198.51.100.8", LEFT_OUTSIDE] {
        let mut natted = NattedPair::established(LEFT_ONLY);
        let before = natted.pair.right.children()[0].id;
        natted.seen_left = ip(moved);
        natted.port = 2_048;
        let now = natted.pair.now;
        let ike = natted.pair.left.ike.status().next().unwrap().id;
        // Any message of the peer shows its address.
        natted.pair.left.with_context(now, |all, host, context| all.rekey(ike, host, context));
        natted.run();
        // A change of the port alone closes nothing.
        let same = natted.pair.right.children().iter().any(|child| child.id == before);
        assert_eq!(same, moved == LEFT_OUTSIDE);
        if !same {
            assert_eq!(natted.pair.left.ike.status().count(), 0);
            natted.pair.left.initiate(now);
            natted.run();
        }
        natted.check();
    }
}

/// A peer that moves repeatedly causes one Delete request only.
#[test]
fn a_peer_that_moves_often_gets_one_request() {
    let mut natted = NattedPair::established(LEFT_ONLY);
    let (now, ike) = (natted.pair.now, natted.pair.left.ike.status().next().unwrap().id);
    let mut requests = 0;
    for last in 100..120 {
        natted.seen_left = IpAddr::from([198, 51, 100, last]);
        natted.pair.left.with_context(now, |all, host, context| all.rekey(ike, host, context));
        let Some(request) = natted.pair.left.sent.pop_front() else { continue };
        let path = Path {
            local: (natted.pair.right.addr, request.path.remote.port()).into(),
            remote: (natted.seen_left, natted.port).into(),
        };
        give(&mut natted.pair.right, request.message, path, now);
        let sent = natted.pair.right.sent.drain(..);
        let is_response = |message: &[u8]| Header::parse(message).unwrap().flags.response;
        let (responses, own): (Vec<_>, Vec<_>) = sent.partition(|sent| is_response(&sent.message));
        requests += own.len();
        natted.pair.right.sent.extend(responses);
        natted.run();
    }
    assert_eq!((requests, natted.pair.right.children().len()), (1, 0));
}

#[test]
fn ports_of_selectors_are_kept() {
    let port = |proto, port| TrafficSelectorTemplate {
        addrs: None,
        proto: Some(proto),
        ports: PortRange::new(port, port).unwrap(),
    };
    let mut natted = NattedPair::new(BOTH, |child| child.local_ts = vec![port(17, 1_701), port(6, 80)]);
    natted.pair.left.initiate(natted.pair.now);
    natted.run();
    let (left, right) = natted.last();
    let shown = |traffic: &[TrafficSelector]| traffic.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(shown(&right.local), ["192.0.2.2/32[udp/1701]", "192.0.2.2/32[tcp/80]"]);
    assert_eq!(shown(&left.remote), ["203.0.113.2/32[udp/1701]", "203.0.113.2/32[tcp/80]"]);
}

/// RFC 7296 section 2.23.1: the lookup is repeated with the original selectors, for a tunnel.
#[test]
fn a_tunnel_is_accepted_with_the_original_selectors() {
    let mut natted = NattedPair::new(LEFT_ONLY, |child| {
        child.mode = ChildMode::Tunnel;
        child.remote_ts[0].addrs = Some(AddrRange::ANY_V4);
    });
    natted.pair.left.initiate(natted.pair.now);
    natted.run();
    let (left, right) = natted.last();
    assert_eq!((left.inbound.mode, right.inbound.mode), (Mode::Tunnel, Mode::Tunnel));
    assert_eq!(right.remote, [TrafficSelector::any(AddrRange::single(ip(LEFT)))]);
    assert_eq!((left.inbound.original_addrs, right.inbound.original_addrs), (None, None));
}

#[test]
fn traffic_of_another_host_behind_the_nat_is_refused() {
    let mut natted = NattedPair::new(LEFT_ONLY, |_| {});
    natted.pair.right.host.transport_taken = true;
    natted.pair.left.initiate(natted.pair.now);
    natted.run();
    assert!(natted.pair.left.children().is_empty() && natted.pair.right.children().is_empty());
    assert_eq!(crate::forge::count(&natted.pair.right, "ts-unacceptable"), 1);
    assert_eq!(natted.pair.right.leaked_spis(), []);
}

#[test]
fn without_a_nat_selectors_are_not_substituted() {
    let natted = NattedPair::established(NEITHER);
    let (left, right) = natted.last();
    assert_eq!((left.inbound.mode, left.inbound.encap), (Mode::Transport, None));
    assert_eq!((left.inbound.original_addrs, right.inbound.original_addrs), (None, None));
}

#[test]
fn addresses_stay_the_same_if_both_sides_prefer_udp() {
    let mut natted = NattedPair::with(NEITHER, Encapsulation::Auto, |_| {});
    natted.pair.left.initiate(natted.pair.now);
    natted.run();
    let (left, right) = natted.last();
    for up in [&left, &right] {
        assert_eq!((up.inbound.mode, up.inbound.original_addrs), (Mode::Transport, None));
        assert!(up.inbound.encap.is_some() && up.outbound.encap.is_some());
    }
    assert_eq!(left.remote, [TrafficSelector::any(AddrRange::single(ip(RIGHT)))]);
    assert_eq!(right.remote, [TrafficSelector::any(AddrRange::single(ip(LEFT)))]);
}

/// Response to a first request with or without NAT detection, of a side with this encapsulation.
fn first_response(detection: bool, encapsulation: Encapsulation) -> Vec<u8> {
    let mut pair = Pair::with_defaults();
    pair.right = IkePeer::new(RIGHT, 2, Connection { encapsulation, ..connection("right", "left") });
    let (header, mut payloads) = read_plain(&first_request(&mut pair));
    let is_detection = |payload: &Raw| {
        let kinds = [NotifyType::NAT_DETECTION_SOURCE_IP, NotifyType::NAT_DETECTION_DESTINATION_IP];
        notifies(std::slice::from_ref(payload)).iter().any(|(kind, _)| kinds.contains(kind))
    };
    payloads.retain(|payload| detection || !is_detection(payload));
    give_right(&mut pair, &plain(&header, &payloads)).remove(0)
}

/// Such a peer would neither encapsulate nor understand encapsulated packets.
#[test]
fn a_peer_without_nat_detection_is_not_forced_to_encapsulate() {
    use Encapsulation::{Always, IfNat};
    assert_ne!(first_response(true, Always), first_response(true, IfNat));
    assert_eq!(first_response(false, Always), first_response(false, IfNat));
}
