//! What arrives from the unprotected side must not change more than RFC 4301 lets it.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

use casemate_crypto::{MacAlg, MacKind};
use casemate_datapath::{Consumed, Direction, DropReason, Inbound, Unmatched};
use casemate_datapath_tests::{Ends, Host, LinkSpec, PROVIDERS, Received, Sent, packets, suites};
use casemate_sa::Mode;
use casemate_wire::icmp::IcmpError;
use casemate_wire::ip::{IpVersion, Ipv4, Ipv6, proto};

/// The ICMP error of a router about `sent`, which quotes at most `quote` bytes of it.
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

/// Addresses and ports of an encapsulated SA are no secret: whoever cannot quote its SPI has not seen one of
/// its packets.
#[test]
fn an_icmp_error_without_an_spi_does_not_lower_the_path_mtu() {
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
        let honest = too_big(&wire, 1_280, headers + 12);
        assert_eq!(link.a.receive(&honest), Received::Other(Inbound::Consumed(Consumed::PathMtu)));
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

/// RFC 4301 section 5.2: what no policy names is discarded. That clear text passes by default says nothing
/// about what an SA opens.
#[test]
fn what_a_transport_sa_delivers_needs_a_policy() {
    for version in [4, 6] {
        let ends = Ends::transport(version);
        let spec = LinkSpec::single(ends, Mode::Transport, suites::esp(suites::gcm(), 1));
        let packet = packets::udp(ends.inner.0, ends.inner.1, (1, 2), b"x", false);
        let wire = spec.build().a.send(&packet).wire();
        let mut open = Host::new(Unmatched::PassClear, 1_500);
        open.dp.add_sa(&spec.params(0, true), Direction::Inbound, &PROVIDERS, open.now).unwrap();
        open.must_drop(&wire, DropReason::NoPolicy);
        assert_eq!(open.receive(&packet), Received::Packet(packet.clone()), "clear text passes");
        // With its policy the same SA delivers.
        let wire = {
            let mut link = spec.build();
            link.a.send(&packet).wire();
            link.a.send(&packet).wire()
        };
        open.dp.add_policy(Direction::Inbound, spec.policy(true)).unwrap();
        assert_eq!(open.receive(&wire), Received::Packet(packet));
    }
}
