//! What may cross the IPsec boundary, and what packets from the unprotected side may change (RFC 4301).
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

use casemate_crypto::{MacAlg, MacKind};
use casemate_datapath::{Config, Consumed, Datapath, Direction, DropReason, Inbound, Unmatched};
use casemate_sa::{Instant, Mode};
use casemate_test_support::hosts::{Ends, Host, LinkSpec, PROVIDERS, Received, Sent, packets, suites};
use casemate_wire::icmp::IcmpError;
use casemate_wire::ip::{IpVersion, Ipv4, Ipv6, proto};

/// A router's ICMP error about `sent`, with at most `quote` bytes of it.
fn too_big(sent: &[u8], mtu: u32, quote: usize) -> Vec<u8> {
    let (mut message, quote) = (vec![0; 2_000], &sent[..quote.min(sent.len())]);
    match casemate_wire::ip::version(sent).unwrap() {
        IpVersion::V4 => {
            let ip = Ipv4::parse(sent).unwrap();
            let len = IcmpError::too_big(IpVersion::V4, mtu).emit_v4(quote, &mut message).unwrap();
            packets::ip("198.51.100.9".parse().unwrap(), ip.src().into(), proto::ICMP, &message[..len], false)
        }
        IpVersion::V6 => {
            let (router, ip) = ("2001:db8:9::9".parse().unwrap(), Ipv6::parse(sent).unwrap());
            let error = IcmpError::too_big(IpVersion::V6, mtu);
            let len = error.emit_v6(quote, router, ip.src(), &mut message).unwrap();
            packets::ip(router.into(), ip.src().into(), proto::ICMPV6, &message[..len], false)
        }
    }
}

/// Addresses and ports of an encapsulated SA are no secret. A host that cannot quote its SPI has not seen its
/// packets.
#[test]
fn icmp_error_without_spi_does_not_lower_the_path_mtu() {
    for outer in [4, 6] {
        let mut spec = LinkSpec::single(Ends::tunnel(outer, 4), Mode::Tunnel, suites::esp(suites::gcm(), 1));
        (spec.link_mtu, spec.encap) = (1_500, true);
        let mut link = spec.build();
        let (a, b) = spec.ends.inner;
        let big = packets::udp(a, b, (1, 2), &[0; 1_340], true);
        let wire = link.a.send(&big).wire();
        let headers = if outer == 4 { 20 } else { 40 };
        for quote in [headers + 8, headers + 11] {
            let forged = too_big(&wire, 1_280, quote);
            assert!(
                matches!(link.a.receive(&forged), Received::Other(Inbound::Drop(_))),
                "IPv{outer}, {quote} bytes"
            );
            link.a.send(&big).wire();
        }
        let authentic = too_big(&wire, 1_280, headers + 12);
        assert_eq!(link.a.receive(&authentic), Received::Other(Inbound::Consumed(Consumed::PathMtu)));
        assert!(matches!(link.a.send(&big), Sent::Reply(DropReason::TooBig, _)));
    }
}

/// RFC 1122 section 3.2.1.2: a host verifies the checksum of the IP header and discards the datagram if it is
/// wrong. Transport mode computes a new checksum, which would hide the error. The sequence number of such a
/// packet stays unused.
#[test]
fn transport_mode_does_not_repair_a_wrong_header_checksum() {
    let ends = Ends::transport(4);
    let esp = suites::esp(suites::gcm(), 1);
    let ah = suites::ah(MacAlg::standard(MacKind::HmacSha256), 1);
    for transform in [esp, ah] {
        let spec = LinkSpec::single(ends, Mode::Transport, transform);
        let mut link = spec.build();
        let packet = packets::udp(ends.inner.0, ends.inner.1, (1, 2), b"sound", false);
        let wire = link.a.send(&packet).wire();
        for at in [8, 10, 11] {
            let mut damaged = wire.clone();
            damaged[at] ^= 0x10;
            link.b.must_drop(&damaged, DropReason::MalformedHeader);
        }
        assert_eq!(link.b.receive(&wire), Received::Packet(packet));
    }
}

/// RFC 4301 section 5.2: packets without a policy are discarded. A default that lets clear text pass does not
/// apply to packets from SAs.
#[test]
fn packets_of_a_transport_sa_need_a_policy() {
    for version in [4, 6] {
        let ends = Ends::transport(version);
        let spec = LinkSpec::single(ends, Mode::Transport, suites::esp(suites::gcm(), 1));
        let packet = packets::udp(ends.inner.0, ends.inner.1, (1, 2), b"x", false);
        let wire = spec.build().a.send(&packet).wire();
        let mut open = Host::new(Unmatched::PassClear, 1_500);
        open.dp.add_sa(&spec.params(0, true), Direction::Inbound, &PROVIDERS, open.now).unwrap();
        open.must_drop(&wire, DropReason::NoPolicy);
        assert_eq!(open.receive(&packet), Received::Packet(packet.clone()), "clear text passes");
        // With a policy the same SA delivers.
        let wire = {
            let mut link = spec.build();
            link.a.send(&packet).wire();
            link.a.send(&packet).wire()
        };
        open.dp.add_policy(Direction::Inbound, spec.policy(true)).unwrap();
        assert_eq!(open.receive(&wire), Received::Packet(packet));
    }
}

/// A data path without SAs and policies passes all packets and reports that.
#[test]
fn passes_everything_until_an_sa_or_policy_is_added() {
    let config = Config::server(1);
    assert!(!Datapath::new(config).passes_everything(), "a packet without policy is dropped");
    let mut datapath = Datapath::new(Config { unmatched: Unmatched::PassClear, ..config });
    assert!(datapath.passes_everything());
    let spec = LinkSpec::single(Ends::transport(4), Mode::Transport, suites::esp(suites::gcm(), 1));
    let peer = spec.build().a.dp;
    for direction in [Direction::Outbound, Direction::Inbound] {
        let (_, policy) = peer.policies(direction).next().unwrap();
        let id = datapath.add_policy(direction, policy.clone()).unwrap();
        assert!(!datapath.passes_everything());
        datapath.remove_policy(direction, id).unwrap();
        assert!(datapath.passes_everything());
    }
    for direction in [Direction::Outbound, Direction::Inbound] {
        let sa = spec.params(0, true);
        let now = Instant::ZERO;
        let id = datapath.add_sa(&sa, direction, &PROVIDERS, now).unwrap();
        assert!(!datapath.passes_everything());
        datapath.remove_sa(id);
        assert!(datapath.passes_everything());
    }
}
