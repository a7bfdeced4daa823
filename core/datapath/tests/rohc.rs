//! Header compression of SAs (RFC 5856 to 5858): sizes on the wire, delivery after loss, feedback, and what
//! is refused.
// Helpers outside #[test] functions: a broken expectation is meant to stop the test.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic)]

use casemate_crypto::{AesBits, EspSuite, ImplicitIvAlg, MacAlg, MacKind, SecretBytes};
use casemate_datapath::{AddSaError, Consumed, Direction, DropReason, HEAD_ROOM, Inbound, Outbound};
use casemate_datapath::{RestoredHeader, RohcStatus, TAIL_ROOM};
use casemate_rohc::{ChannelParams, Fault, Profile, ProfileSet};
use casemate_sa::{Mode, RohcIntegrity, RohcParams};
use casemate_test_support::TestRng;
use casemate_test_support::flows::{Flow, Kind};
use casemate_test_support::hosts::{Ends, Host, Link, LinkSpec, PROVIDERS, Received, Sent, packets, suites};
use casemate_wire::ip::v4::Ipv4;
use casemate_wire::packet::Packet;
use core::net::IpAddr;

const CCM_8_IIV: EspSuite = EspSuite::ImplicitIv(ImplicitIvAlg::AesCcm8(AesBits::B128));
const GCM_16_IIV: EspSuite = EspSuite::ImplicitIv(ImplicitIvAlg::AesGcm16(AesBits::B128));

fn rohc(integrity: Option<RohcIntegrity>) -> RohcParams {
    RohcParams { channel: ChannelParams { max_cid: 15, profiles: ProfileSet::ALL }, max_cid: 15, integrity }
}

fn sha256(key: u8, icv_len: u8) -> RohcIntegrity {
    let algorithm = MacAlg::standard(MacKind::HmacSha256);
    RohcIntegrity { algorithm, key: SecretBytes::new(&[key; 32]), icv_len }
}

/// A tunnel between hosts whose inner addresses are those of the flows.
fn spec(suite: EspSuite, rohc: RohcParams) -> LinkSpec {
    let mut ends = Ends::tunnel(4, 4);
    ends.inner = ("10.1.0.1".parse().unwrap(), "10.2.0.1".parse().unwrap());
    let spec = LinkSpec::single(ends, Mode::Tunnel, suites::esp(suite, 1));
    LinkSpec { rohc: Some(rohc), ..spec }
}

/// A voice packet in one of the directions.
fn voice(number: u16, payload: usize, checksum: u16, forward: bool) -> Vec<u8> {
    let (a, b) = (IpAddr::from([10, 1, 0, 1]), IpAddr::from([10, 2, 0, 1]));
    let (src, dst) = if forward { (a, b) } else { (b, a) };
    packets::voice(src, dst, number, payload, checksum)
}

/// Sends a packet from `a` to `b`, and returns it as on the wire.
fn pass(link: &mut Link, packet: &[u8]) -> Vec<u8> {
    let wire = link.a.send(packet).wire();
    assert_eq!(link.b.receive(&wire), Received::Packet(packet.to_vec()));
    wire
}

/// Sends the packet with the feedback that an SA of a host waits to send.
fn feedback(host: &mut Host) -> Option<Vec<u8>> {
    let mut buffer = [0xEE; HEAD_ROOM + 64 + TAIL_ROOM];
    let mut packet = Packet::new(&mut buffer, HEAD_ROOM, 0).unwrap();
    let verdict = host.dp.next_rohc_feedback(host.now, &mut TestRng::new(3), &mut packet)?;
    assert!(matches!(verdict, Outbound::Send(_)), "{verdict:?}");
    assert!(!host.dp.has_rohc_feedback());
    Some(packet.data().to_vec())
}

fn status(host: &Host, direction: Direction) -> RohcStatus {
    host.dp.sas().find(|sa| sa.id.direction() == direction).and_then(|sa| sa.rohc).unwrap()
}

#[test]
fn voice_takes_as_many_bytes_as_in_clear() {
    for (suite, payload, checksum, expected) in [
        (CCM_8_IIV, 40, 0, 80),
        (CCM_8_IIV, 20, 0, 60),
        (GCM_16_IIV, 40, 0, 88),
        (CCM_8_IIV, 40, 0xbeef, 84),
        (GCM_16_IIV, 40, 0xbeef, 92),
    ] {
        let mut link = spec(suite, rohc(None)).build();
        let mut lens = Vec::new();
        for number in 0..200 {
            lens.push(pass(&mut link, &voice(number, payload, checksum, true)).len());
            if let Some(wire) = feedback(&mut link.b) {
                let consumed = Received::Other(Inbound::Consumed(Consumed::RohcFeedback));
                assert_eq!(link.a.receive(&wire), consumed);
            }
            link.a.now = link.a.now.after(std::time::Duration::from_millis(20));
            link.b.now = link.a.now;
        }
        assert!(lens[20..].iter().all(|len| *len == expected), "{suite}, {payload} bytes: {lens:?}");
        let (sent, received) = (status(&link.a, Direction::Outbound), status(&link.b, Direction::Inbound));
        assert_eq!((sent.packets, sent.contexts, sent.header_bytes), (200, 1, 197 * 40 + 3 * 28));
        assert_eq!(RohcStatus { contexts: 1, ..received }, sent);
    }
}

#[test]
fn the_integrity_check_covers_the_packet_before_compression() {
    for icv_len in [4, 16] {
        let mut link = spec(GCM_16_IIV, rohc(Some(sha256(1, icv_len)))).build();
        let mut wire = Vec::new();
        for number in 0..60 {
            wire = pass(&mut link, &voice(number, 40, 0, true));
        }
        assert_eq!(wire.len(), 88 + usize::from(icv_len));
    }
    // The two sides have different keys. The compressor starts again with each packet.
    let mut link = spec(GCM_16_IIV, rohc(Some(sha256(1, 16)))).build();
    let mut other = spec(GCM_16_IIV, rohc(Some(sha256(2, 16)))).build();
    for number in 0..40 {
        let wire = link.a.send(&voice(number, 40, 0, true)).wire();
        assert!(wire.len() > 88 + 16 + 20, "packet {number} has no IR header: {} bytes", wire.len());
        other.b.must_drop(&wire, DropReason::RohcIcvMismatch);
        other.b.now = other.b.now.after(std::time::Duration::from_millis(20));
        link.a.receive(&feedback(&mut other.b).unwrap());
    }
    assert_eq!(status(&other.b, Direction::Inbound).failures, 40);
}

#[test]
fn whatever_is_lost_no_wrong_packet_is_delivered() {
    let mut ends = 0;
    for (seed, integrity) in [(1, None), (2, Some(sha256(9, 4))), (3, None)] {
        let mut spec = spec(GCM_16_IIV, rohc(integrity));
        spec.window = 1_024;
        let mut link = spec.build();
        let mut rng = TestRng::new(seed);
        let mut flows: Vec<Flow> = [
            Kind::Voice { ipv6: false, step: 160 },
            Kind::VoiceAlone,
            Kind::Video,
            Kind::Udp { ipv6: false },
            Kind::RandomIdent,
            Kind::Esp { ipv6: false },
            Kind::Tcp { ipv6: false },
        ]
        .into_iter()
        .zip(0..)
        .map(|(kind, number)| Flow::new(kind, number))
        .collect();
        let (mut transit, mut delivered, mut failed) = (Vec::<(u64, Vec<u8>, Vec<u8>)>::new(), 0u64, 0u64);
        for number in 0..8_000u64 {
            let flow = (rng.next_u64() % flows.len() as u64) as usize;
            let packet = flows[flow].next_packet();
            let wire = link.a.send(&packet).wire();
            if !rng.next_u64().is_multiple_of(10) {
                let delay = if rng.next_u64().is_multiple_of(10) { rng.next_u64() % 8 + 1 } else { 0 };
                transit.push((number + delay, wire, packet));
            }
            transit.sort_by_key(|(at, ..)| *at);
            while transit.first().is_some_and(|(at, ..)| *at <= number) {
                let (_, wire, packet) = transit.remove(0);
                match link.b.receive(&wire) {
                    Received::Packet(received) => {
                        assert_eq!(received, packet, "seed {seed}, packet {number}");
                        delivered += 1;
                    }
                    Received::Other(Inbound::Drop(DropReason::RohcFailed)) => failed += 1,
                    other => panic!("{other:?}"),
                }
            }
            if let Some(wire) = feedback(&mut link.b) {
                link.a.receive(&wire);
            }
            link.a.now = link.a.now.after(std::time::Duration::from_millis(5));
            link.b.now = link.a.now;
        }
        assert!(failed * 100 < delivered, "{failed} of {delivered}");
        assert_eq!(status(&link.b, Direction::Inbound).failures, failed);
        let sent = status(&link.a, Direction::Outbound);
        assert!(sent.compressed_bytes * 2 < sent.header_bytes, "{sent:?}");
        ends += 1;
    }
    assert_eq!(ends, 3);
}

#[test]
fn feedback_travels_with_packets_of_the_other_direction() {
    let mut link = spec(GCM_16_IIV, rohc(None)).build();
    for number in 0..40 {
        pass(&mut link, &voice(number, 40, 0, true));
        let back = voice(number, 40, 0, false);
        let wire = link.b.send(&back).wire();
        assert_eq!(link.a.receive(&wire), Received::Packet(back));
        assert_eq!(feedback(&mut link.b), None, "the packet has carried it");
    }
    // Without feedback the compressor would repeat its updates in 14 headers.
    let sent = status(&link.a, Direction::Outbound);
    assert!(sent.compressed_bytes < 40 + 6 * 40, "{sent:?}");
}

/// A UDP packet over IPv6 with a flow label: its IR header is longer than the header that it stands for.
fn labelled(number: u8, len: usize) -> Vec<u8> {
    let (src, dst) = Ends::tunnel(4, 6).inner;
    let mut packet = packets::udp(src, dst, (7, 9), &vec![number; len - 48], true);
    packet[1..4].copy_from_slice(&[0x0a, 0xbc, number]);
    packet
}

#[test]
fn a_packet_never_becomes_too_long_for_its_path() {
    for (mtu, integrity) in [(1_280, None), (1_400, Some(sha256(1, 16))), (1_500, None)] {
        let mut spec = spec(CCM_8_IIV, rohc(integrity));
        (spec.link_mtu, spec.ends.inner) = (mtu, Ends::tunnel(4, 6).inner);
        let mut link = spec.build();
        let longest = link.a.dp.inner_mtu(link.a_out[0], mtu).unwrap();
        let mut most = 0;
        // Each flow label is a flow of its own, and begins with IR headers.
        for number in 0..240 {
            let wire = pass(&mut link, &labelled(number / 20, longest - usize::from(number % 7)));
            most = most.max(wire.len());
        }
        assert!(most <= mtu && most + 4 > mtu, "{most} of {mtu} bytes");
        let sent = status(&link.a, Direction::Outbound);
        assert!(sent.packets > 20, "{sent:?}");
        if longest >= 1_280 {
            let too_long = link.a.send(&labelled(0, longest + 1));
            assert!(matches!(too_long, Sent::Reply(DropReason::TooBig, _)), "{too_long:?}");
        }
    }
}

#[test]
fn packets_between_compressed_ones_do_not_count_as_lost() {
    let mut link = spec(GCM_16_IIV, rohc(None)).build();
    for number in 0..40 {
        pass(&mut link, &voice(number, 40, 0, true));
    }
    // Headers with options are not compressed.
    let other = packets::with_v4_options(&voice(0, 40, 0, true), &[1, 1, 1, 0]);
    for _ in 0..20 {
        pass(&mut link, &other);
    }
    pass(&mut link, &voice(40, 40, 0, true));
    assert_eq!(status(&link.a, Direction::Outbound).packets, 41);
}

#[test]
fn an_sa_without_compression_takes_no_compressed_packet() {
    let mut link = spec(GCM_16_IIV, rohc(None)).build();
    let mut plain = LinkSpec { rohc: None, ..spec(GCM_16_IIV, rohc(None)) }.build();
    let wire = link.a.send(&voice(0, 40, 0, true)).wire();
    plain.b.must_drop(&wire, DropReason::BadNextHeader);
    // The other way round, packets pass: any packet may be sent without compression.
    let wire = plain.a.send(&voice(0, 40, 0, true)).wire();
    assert_eq!(link.b.receive(&wire), Received::Packet(voice(0, 40, 0, true)));
}

#[test]
fn a_compressed_packet_without_a_context_is_dropped_and_causes_feedback() {
    let mut link = spec(GCM_16_IIV, rohc(None)).build();
    for number in 0..40 {
        link.a.send(&voice(number, 40, 0, true)).wire();
    }
    let wire = link.a.send(&voice(40, 40, 0, true)).wire();
    link.b.must_drop(&wire, DropReason::RohcFailed);
    let wire = feedback(&mut link.b).unwrap();
    assert_eq!(link.a.receive(&wire), Received::Other(Inbound::Consumed(Consumed::RohcFeedback)));
    // The next packet has an IR header.
    let packet = voice(41, 40, 0, true);
    let wire = link.a.send(&packet).wire();
    assert_eq!(link.b.receive(&wire), Received::Packet(packet));
}

#[test]
fn contexts_of_restored_packets_are_visible() {
    let mut link = spec(CCM_8_IIV, rohc(None)).build();
    let inbound = link.b.dp.sas().find(|sa| sa.id.direction() == Direction::Inbound).unwrap().id;
    assert_eq!(link.b.dp.take_restored_header(inbound), None);
    let mut shown = Vec::new();
    for number in 0..60 {
        pass(&mut link, &voice(number, 40, 0, true));
        shown.push(link.b.dp.take_restored_header(inbound).unwrap().unwrap());
    }
    assert_eq!((shown[0].cid, shown[0].profile), (0, Profile::Udp), "three packets may be RTP");
    assert_eq!(shown[59], RestoredHeader { cid: 0, profile: Profile::Rtp, len: 1 });
    assert_eq!(link.b.dp.take_restored_header(inbound), None, "it was taken");
    for number in 60..80 {
        link.a.send(&voice(number, 40, 0, true)).wire();
    }
    let wire = link.a.send(&voice(80, 40, 0, true)).wire();
    link.b.must_drop(&wire, DropReason::RohcFailed);
    assert_eq!(link.b.dp.take_restored_header(inbound), Some(Err(Fault::NoContext)));
    // Feedback has no header, and an SA in the other direction no decompressor.
    let wire = feedback(&mut link.b).unwrap();
    link.a.receive(&wire);
    let inbound = link.a.dp.sas().find(|sa| sa.id.direction() == Direction::Inbound).unwrap().id;
    assert_eq!(link.a.dp.take_restored_header(inbound), None);
    assert_eq!(link.a.dp.take_restored_header(link.a_out[0]), None);
}

#[test]
fn a_congestion_mark_reaches_the_restored_packet() {
    let mut link = spec(GCM_16_IIV, rohc(None)).build();
    for number in 0..60 {
        let mut packet = voice(number, 40, 0, true);
        packet[1] = 0xba; // ECT(0)
        Ipv4::parse_quoted(&mut packet[..]).unwrap().fill_checksum();
        let mut wire = link.a.send(&packet).wire();
        let mut outer = Ipv4::parse_quoted(&mut wire[..]).unwrap();
        outer.set_tos(0xbb);
        outer.fill_checksum();
        packet[1] = 0xbb;
        Ipv4::parse_quoted(&mut packet[..]).unwrap().fill_checksum();
        assert_eq!(link.b.receive(&wire), Received::Packet(packet), "packet {number}");
    }
}

#[test]
fn impossible_combinations_are_refused() {
    let spec = spec(GCM_16_IIV, rohc(None));
    let mut host = Host::new(Default::default(), 1_500);
    let add = |host: &mut Host, change: &dyn Fn(&mut casemate_sa::SaParams)| {
        let mut params = spec.params(0, true);
        change(&mut params);
        host.dp.add_sa(&params, Direction::Outbound, &PROVIDERS, host.now).map(|_| ())
    };
    assert_eq!(add(&mut host, &|_| ()), Err(AddSaError::NoRohc));
    host.dp.enable_rohc();
    assert_eq!(add(&mut host, &|sa| sa.mode = Mode::Transport), Err(AddSaError::CompressedTransport));
    let ah = suites::ah(MacAlg::standard(MacKind::HmacSha256), 1);
    assert_eq!(add(&mut host, &|sa| sa.transform = ah.clone()), Err(AddSaError::CompressedTransport));
    assert_eq!(add(&mut host, &|sa| sa.tfc_pad_to = 128), Err(AddSaError::CompressedPadding));
    let too_long = Some(sha256(1, 17));
    let refused = add(&mut host, &|sa| sa.rohc = Some(rohc(too_long.clone())));
    assert!(matches!(refused, Err(AddSaError::Key(_))), "{refused:?}");
    assert_eq!(add(&mut host, &|_| ()), Ok(()));
    let sa = host.dp.sas().next().unwrap().id;
    assert!(!host.dp.enable_dummies(sa), "lengths would show which packets are real");
}

#[test]
fn packets_of_an_outer_sa_do_not_grow() {
    let mut spec = spec(GCM_16_IIV, rohc(None));
    spec.layers.push((Mode::Transport, suites::ah(MacAlg::standard(MacKind::HmacSha256), 3)));
    let mut link = spec.build();
    for number in 0..80 {
        pass(&mut link, &voice(number, 40, 0, true));
    }
    assert!(status(&link.a, Direction::Outbound).packets >= 70);
}
