//! ICMP errors quote the beginning of a packet. If a gateway has no address in its own selectors, no policy
//! matches its errors. They must not reveal in clear what came through an SA (RFC 4301 section 6).
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

use casemate_datapath::spd::{Action, Policy};
use casemate_datapath::{Direction, DropReason, Unmatched};
use casemate_sa::{AddrRange, Mode, PortRange, Selector, SpdId};
use casemate_test_support::hosts::{Ends, Host, LinkSpec, PROVIDERS, Sent, packets, suites};
use casemate_wire::icmp::IcmpError;
use casemate_wire::ip::{IpVersion, proto};
use std::net::IpAddr;

/// The gateway of the second network, and an address of the gateway that matches no policy.
struct Gateway {
    host: Host,
    spec: LinkSpec,
    version: IpVersion,
    own: IpAddr,
}

impl Gateway {
    fn new(version: u8, outbound: Policy, with_sa: bool) -> Self {
        let spec = spec(version);
        let mut host = Host::new(Unmatched::PassClear, 1_500);
        if with_sa {
            host.dp.add_sa(&spec.params(0, false), Direction::Outbound, &PROVIDERS, host.now).unwrap();
        }
        host.dp.add_policy(Direction::Outbound, outbound).unwrap();
        let own = if version == 4 { "203.0.113.2" } else { "2001:db8:9::2" };
        let version = if version == 4 { IpVersion::V4 } else { IpVersion::V6 };
        Self { host, spec, version, own: own.parse().unwrap() }
    }

    /// A packet from the first network through the tunnel, or from `src` in clear.
    fn packet(&self, src: Option<IpAddr>, port: u16) -> Vec<u8> {
        let (a, b) = self.spec.ends.inner;
        packets::udp(src.unwrap_or(a), b, (9, port), b"for the second network alone", false)
    }

    /// The gateway's ICMP error about a packet, with at most `quote` bytes of it.
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
fn icmp_error_does_not_reveal_protected_packets() {
    for (version, with_sa) in [(4, true), (6, true), (4, false), (6, false)] {
        let mut gateway = Gateway::new(version, spec(version).policy(false), with_sa);
        let packet = gateway.packet(None, 53);
        let headers = if version == 4 { 20 } else { 40 };
        for quote in [headers, headers + 3, headers + 8, packet.len()] {
            let sent = gateway.host.send(&gateway.error(&packet, quote));
            assert_eq!(sent, Sent::Drop(DropReason::NoPolicy), "IPv{version}, {quote} bytes, SA: {with_sa}");
        }
    }
}

#[test]
fn other_errors_pass() {
    for version in [4, 6] {
        let mut gateway = Gateway::new(version, spec(version).policy(false), true);
        let unknown = if version == 4 { "10.9.0.1" } else { "fd09::1" }.parse().unwrap();
        let error = gateway.error(&gateway.packet(Some(unknown), 53), 1_000);
        assert_eq!(gateway.host.send(&error), Sent::Bypass(error));
        // An echo reply does not quote a packet, whatever its data.
        let mut echo = gateway.packet(None, 53);
        echo.splice(0..0, [if version == 4 { 0 } else { 129 }, 0, 0, 0, 0, 1, 0, 1]);
        let echo = gateway.icmp(gateway.own, &echo);
        assert_eq!(gateway.host.send(&echo), Sent::Bypass(echo));
        // With an address in the selectors, the error goes through the SA.
        let (_, b) = gateway.spec.ends.inner;
        gateway.own = b;
        let error = gateway.error(&gateway.packet(None, 53), 1_000);
        gateway.host.send(&error).wire();
    }
}

#[test]
fn ports_are_those_of_the_reply() {
    for version in [4, 6] {
        let mut policy = spec(version).policy(false);
        (policy.selector.proto, policy.selector.src_port) = (Some(proto::UDP), PortRange::single(53));
        let mut gateway = Gateway::new(version, policy, true);
        let error = gateway.error(&gateway.packet(None, 53), 1_000);
        assert_eq!(gateway.host.send(&error), Sent::Drop(DropReason::NoPolicy));
        let error = gateway.error(&gateway.packet(None, 54), 1_000);
        assert_eq!(gateway.host.send(&error), Sent::Bypass(error));
        // The quote does not contain the ports.
        let error = gateway.error(&gateway.packet(None, 54), if version == 4 { 22 } else { 42 });
        assert_eq!(gateway.host.send(&error), Sent::Drop(DropReason::NoPolicy));
    }
}

#[test]
fn policy_for_the_error_decides() {
    for version in [4, 6] {
        let mut gateway = Gateway::new(version, spec(version).policy(false), true);
        let selector =
            Selector::between(AddrRange::single(gateway.own), AddrRange::single(gateway.spec.ends.inner.0));
        let pass = Policy { spd: SpdId::MAIN, selector, action: Action::Bypass, priority: 9 };
        gateway.host.dp.add_policy(Direction::Outbound, pass).unwrap();
        let error = gateway.error(&gateway.packet(None, 53), 1_000);
        assert_eq!(gateway.host.send(&error), Sent::Bypass(error));
    }
}
