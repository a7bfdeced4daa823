//! Several SAs for the same traffic (RFC 4301 sections 4.1 and 4.4.2.1): the DSCP of each packet chooses the
//! SA.
// Helpers outside #[test] functions: a broken expectation is meant to stop the test.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use casemate_datapath::{Direction, SaId};
use casemate_sa::{DscpSet, Mode, SaParams, Spi};
use casemate_test_support::hosts::{Ends, Host, Link, LinkSpec, PROVIDERS, Received, Sent, packets, suites};
use casemate_wire::dscp::Dscp;
use casemate_wire::ip::{Ipv4, Ipv6};

const EF: u8 = 46;
const VOICE: u32 = 0x2000;

/// Two hosts with an SA for all packets in each direction.
fn link(version: u8) -> (LinkSpec, Link) {
    let spec = LinkSpec::single(Ends::tunnel(version, 4), Mode::Tunnel, suites::esp(suites::gcm(), 1));
    let link = spec.build();
    (spec, link)
}

/// A packet of the only flow with this DSCP.
fn packet(spec: &LinkSpec, dscp: u8) -> Vec<u8> {
    let (src, dst) = spec.ends.inner;
    let mut packet = packets::udp(src, dst, (1000, 2000), b"one flow", false);
    if src.is_ipv4() {
        packet[1] = dscp << 2;
        Ipv4::parse(&mut packet[..]).unwrap().fill_checksum();
    } else {
        (packet[0], packet[1]) = (0x60 | dscp >> 2, dscp << 6);
        assert_eq!(Ipv6::parse(&packet[..]).unwrap().traffic_class(), dscp << 2);
    }
    packet
}

/// An additional SA for these DSCPs.
fn voice(spec: &LinkSpec, dscp: &[u8]) -> SaParams {
    let dscp: DscpSet = dscp.iter().map(|value| Dscp::new(*value).unwrap()).collect();
    let (spi, transform) = (Spi::new(VOICE).unwrap(), suites::esp(suites::gcm(), 2));
    SaParams { spi, transform, dscp, ..spec.params(0, true) }
}

fn add(host: &mut Host, sa: &SaParams, direction: Direction) -> SaId {
    host.dp.add_sa(sa, direction, &PROVIDERS, host.now).unwrap()
}

/// The SAs that carry the flow's packets with the DSCPs EF and 0.
#[track_caller]
fn sas_for_dscps(host: &mut Host, spec: &LinkSpec) -> [SaId; 2] {
    [EF, 0].map(|dscp| match host.send(&packet(spec, dscp)) {
        Sent::Wire(_, sealed) => sealed.sa,
        other => panic!("{other:?}"),
    })
}

#[test]
fn dscp_chooses_the_sa_within_one_flow() {
    for version in [4, 6] {
        let (spec, mut link) = link(version);
        let bulk = link.a_out[0];
        assert_eq!(sas_for_dscps(&mut link.a, &spec), [bulk; 2]);
        // The new SA invalidates the cached decision.
        let voice = add(&mut link.a, &voice(&spec, &[EF, 44]), Direction::Outbound);
        for _ in 0..3 {
            assert_eq!(sas_for_dscps(&mut link.a, &spec), [voice, bulk]);
        }
        assert!(link.a.dp.remove_sa(voice));
        assert_eq!(sas_for_dscps(&mut link.a, &spec), [bulk; 2]);
    }
}

#[test]
fn dscp_chooses_the_sa_within_a_batch() {
    let (spec, mut link) = link(4);
    let (bulk, voice) = (link.a_out[0], add(&mut link.a, &voice(&spec, &[EF]), Direction::Outbound));
    let batch = [0, EF, EF, 0, 10, EF].map(|dscp| packet(&spec, dscp));
    let batch: Vec<&[u8]> = batch.iter().map(Vec::as_slice).collect();
    let sent = link.a.send_batch(&batch).into_iter().map(|sent| match sent {
        Sent::Wire(_, sealed) => sealed.sa,
        other => panic!("{other:?}"),
    });
    assert!(sent.eq([bulk, voice, voice, bulk, bulk, voice]));
}

/// The replies to a received SYN use the SA of their DSCP.
#[test]
fn mss_fits_the_sa_of_the_replies() {
    let (spec, mut link) = link(4);
    let voice = add(&mut link.a, &voice(&spec, &[EF]), Direction::Outbound);
    assert!(link.a.dp.set_path_mtu(voice, 700, link.a.now));
    let (a, b) = spec.ends.inner;
    // SYN and ACK with an MSS of 9,000.
    let segment =
        [0, 80, 0x30, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0x60, 0x12, 0xFF, 0xFF, 0, 0, 0, 0, 2, 4, 0x23, 0x28];
    let [urgent, plain] = [EF, 0].map(|dscp| {
        let mut packet = packets::ip(b, a, 6, &segment, true);
        packet[1] = dscp << 2;
        let wire = link.b.send(&packet).wire();
        let Received::Packet(packet) = link.a.receive(&wire) else { panic!("it is admitted") };
        u16::from_be_bytes([packet[42], packet[43]])
    });
    assert!((500..660).contains(&urgent) && plain > 8_000, "{urgent} {plain}");
}

/// RFC 4301 section 4.4.2.1: the DSCP values are not checked for inbound traffic.
#[test]
fn inbound_dscp_is_not_checked() {
    let (spec, mut link) = link(4);
    let for_others = voice(&spec, &[1]);
    assert!(link.a.dp.remove_sa(link.a_out[0]));
    add(&mut link.a, &for_others, Direction::Outbound);
    add(&mut link.b, &for_others, Direction::Inbound);
    for dscp in [EF, 0, 1] {
        let packet = packet(&spec, dscp);
        let wire = link.a.send(&packet).wire();
        assert!(matches!(link.b.receive(&wire), Received::Packet(arrived) if arrived == packet));
    }
}

/// RFC 4301 section 4.1: faster packets with their own SA do not push others out of the replay window.
#[test]
fn overtaken_packets_of_another_sa_are_no_replays() {
    let (spec, mut link) = link(4);
    add(&mut link.a, &voice(&spec, &[EF]), Direction::Outbound);
    add(&mut link.b, &voice(&spec, &[]), Direction::Inbound);
    let slow = link.a.send(&packet(&spec, 0)).wire();
    for _ in 0..200 {
        let urgent = link.a.send(&packet(&spec, EF)).wire();
        assert!(matches!(link.b.receive(&urgent), Received::Packet(_)));
    }
    assert!(matches!(link.b.receive(&slow), Received::Packet(_)));
}
