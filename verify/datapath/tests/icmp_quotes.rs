//! An ICMP error shows the beginning of the packet that it is about. A gateway without an address in its own selectors
//! sends errors that no policy names, and what came through an SA must not leave in clear in one (RFC 4301 section 6).
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

use casemate_datapath::spd::{Action, Policy};
use casemate_datapath::{Direction, DropReason, Unmatched};
use casemate_datapath_tests::{Ends, Host, LinkSpec, PROVIDERS, Sent, packets, suites};
use casemate_sa::{AddrRange, Mode, PortRange, Selector};
use casemate_wire::icmp::IcmpError;
use casemate_wire::ip::{IpVersion, proto};
use std::net::IpAddr;

/// The gateway of the second network, the host of the first, and an address of the gateway that no policy names.
struct World {
    gateway: Host,
    spec: LinkSpec,
    version: IpVersion,
    own: IpAddr,
}

impl World {
    fn new(version: u8, outbound: Policy, with_sa: bool) -> Self {
        let spec = spec(version);
        let mut gateway = Host::new(Unmatched::PassClear, 1_500);
        if with_sa {
            gateway.dp.add_sa(&spec.params(0, false), Direction::Outbound, &PROVIDERS, gateway.now).unwrap();
        }
        gateway.dp.add_policy(Direction::Outbound, outbound).unwrap();
        let own = if version == 4 { "203.0.113.2" } else { "2001:db8:9::2" };
        let version = if version == 4 { IpVersion::V4 } else { IpVersion::V6 };
        Self { gateway, spec, version, own: own.parse().unwrap() }
    }

    /// What the first host sends through the tunnel, or another one in clear.
    fn packet(&self, src: Option<IpAddr>, port: u16) -> Vec<u8> {
        let (a, b) = self.spec.ends.inner;
        packets::udp(src.unwrap_or(a), b, (9, port), b"for the second network alone", false)
    }

    /// The gateway's error about a packet, or as much of it as `quote` bytes show.
    fn error(&self, about: &[u8], quote: usize) -> Vec<u8> {
        let (a, _) = self.spec.ends.inner;
        let (mut message, about) = (vec![0; 2_000], &about[..quote.min(about.len())]);
        let error = IcmpError::hop_limit_exceeded(self.version);
        let len = match (self.own, a) {
            (IpAddr::V6(own), IpAddr::V6(a)) => error.emit_v6(about, own, a, &mut message),
            _ => error.emit_v4(about, &mut message),
        };
        self.icmp(self.own, &message[..len.unwrap()])
    }

    fn icmp(&self, from: IpAddr, message: &[u8]) -> Vec<u8> {
        let protocol = if self.version == IpVersion::V4 { proto::ICMP } else { proto::ICMPV6 };
        packets::ip(from, self.spec.ends.inner.0, protocol, message, false)
    }
}

fn spec(version: u8) -> LinkSpec {
    LinkSpec::single(Ends::tunnel(4, version), Mode::Tunnel, suites::esp(suites::gcm(), 1))
}

#[test]
fn what_came_through_an_sa_does_not_leave_in_an_error() {
    for (version, with_sa) in [(4, true), (6, true), (4, false), (6, false)] {
        let mut world = World::new(version, spec(version).policy(false), with_sa);
        let packet = world.packet(None, 53);
        let headers = if version == 4 { 20 } else { 40 };
        for quote in [headers, headers + 3, headers + 8, packet.len()] {
            let sent = world.gateway.send(&world.error(&packet, quote));
            assert_eq!(sent, Sent::Drop(DropReason::NoPolicy), "IPv{version}, {quote} bytes, SA: {with_sa}");
        }
    }
}

#[test]
fn other_errors_pass() {
    for version in [4, 6] {
        let mut world = World::new(version, spec(version).policy(false), true);
        let stranger = if version == 4 { "10.9.0.1" } else { "fd09::1" }.parse().unwrap();
        let error = world.error(&world.packet(Some(stranger), 53), 1_000);
        assert_eq!(world.gateway.send(&error), Sent::Bypass(error));
        // An echo reply has no packet in it, whatever its data look like.
        let mut echo = world.packet(None, 53);
        echo.splice(0..0, [if version == 4 { 0 } else { 129 }, 0, 0, 0, 0, 1, 0, 1]);
        let echo = world.icmp(world.own, &echo);
        assert_eq!(world.gateway.send(&echo), Sent::Bypass(echo));
        // With an address in the selectors, it goes through the SA.
        let (_, b) = world.spec.ends.inner;
        world.own = b;
        let error = world.error(&world.packet(None, 53), 1_000);
        world.gateway.send(&error).wire();
    }
}

#[test]
fn ports_are_those_of_the_way_back() {
    for version in [4, 6] {
        let mut policy = spec(version).policy(false);
        (policy.selector.proto, policy.selector.src_port) = (Some(proto::UDP), PortRange::single(53));
        let mut world = World::new(version, policy, true);
        let error = world.error(&world.packet(None, 53), 1_000);
        assert_eq!(world.gateway.send(&error), Sent::Drop(DropReason::NoPolicy));
        let error = world.error(&world.packet(None, 54), 1_000);
        assert_eq!(world.gateway.send(&error), Sent::Bypass(error));
        // It does not say whether it is about such a packet.
        let error = world.error(&world.packet(None, 54), if version == 4 { 22 } else { 42 });
        assert_eq!(world.gateway.send(&error), Sent::Drop(DropReason::NoPolicy));
    }
}

#[test]
fn a_policy_that_names_the_error_decides() {
    for version in [4, 6] {
        let mut world = World::new(version, spec(version).policy(false), true);
        let selector =
            Selector::between(AddrRange::single(world.own), AddrRange::single(world.spec.ends.inner.0));
        let pass = Policy { selector, action: Action::Bypass, priority: 9 };
        world.gateway.dp.add_policy(Direction::Outbound, pass).unwrap();
        let error = world.error(&world.packet(None, 53), 1_000);
        assert_eq!(world.gateway.send(&error), Sent::Bypass(error));
    }
}
