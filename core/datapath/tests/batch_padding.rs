//! Packets that are sealed together get one length, and every receiver gets them back unchanged.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

use casemate_crypto::{MacAlg, MacKind};
use casemate_datapath::{BatchPadding, PaddingCounters, TAIL_ROOM};
use casemate_sa::{Mode, OuterHeader};
use casemate_test_support::hosts::{Ends, Link, LinkSpec, Received, Sent, packets, suites};
use casemate_wire::ip::v4::Ipv4;
use proptest::prelude::*;

const PADDING: BatchPadding = BatchPadding { max_percent: 50, ttl: 64 };
/// Room that 240 bytes of padding need.
const ROOM: usize = TAIL_ROOM + 240;

fn in_udp(ends: Ends, mode: Mode) -> LinkSpec {
    let mut spec = LinkSpec::single(ends, mode, suites::esp(suites::gcm(), 1));
    spec.encap = true;
    spec
}

fn padded(spec: &LinkSpec, padding: BatchPadding) -> Link {
    let mut link = spec.build();
    link.a.dp.set_batch_padding(Some(padding));
    link.a.tail_room = ROOM;
    link
}

/// A packet of `len` bytes between the hosts.
fn packet(spec: &LinkSpec, len: usize) -> Vec<u8> {
    let (src, dst) = spec.ends.inner;
    let header = if src.is_ipv4() { 28 } else { 48 };
    packets::udp(src, dst, (1_000, 2_000), &vec![len as u8; len - header], true)
}

/// Sends the packets in one batch, checks that they arrive unchanged and in order, and returns the lengths on
/// the wire.
fn exchange(link: &mut Link, batch: &[Vec<u8>]) -> Vec<usize> {
    let sent = link.a.send_batch(&batch.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let wires: Vec<Vec<u8>> = sent.into_iter().map(Sent::wire).collect();
    let received = link.b.receive_batch(&wires.iter().map(Vec::as_slice).collect::<Vec<_>>());
    for (packet, received) in batch.iter().zip(received) {
        assert_eq!(received, Received::Packet(packet.clone()));
    }
    wires.iter().map(Vec::len).collect()
}

fn lens(spec: &LinkSpec, link: &mut Link, lens: &[usize]) -> Vec<usize> {
    exchange(link, &lens.iter().map(|len| packet(spec, *len)).collect::<Vec<_>>())
}

/// The lengths on the wire without padding.
fn unpadded(spec: &LinkSpec, wanted: &[usize]) -> Vec<usize> {
    lens(spec, &mut spec.build(), wanted)
}

/// 32 lengths from 64 to 250.
fn mixed() -> Vec<usize> {
    (0..32).map(|n| 64 + n * 6).collect()
}

#[test]
fn packets_of_many_lengths_leave_with_one() {
    for (ends, mode) in [
        (Ends::tunnel(4, 4), Mode::Tunnel),
        (Ends::tunnel(6, 4), Mode::Tunnel),
        (Ends::tunnel(4, 6), Mode::Tunnel),
        (Ends::transport(4), Mode::Transport),
        (Ends::transport(6), Mode::Transport),
    ] {
        for suite in suites::all_esp() {
            let mut spec = in_udp(ends, mode);
            spec.layers[0].1 = suites::esp(suite, 1);
            let mut link = padded(&spec, PADDING);
            let plain = unpadded(&spec, &mixed());
            let on_wire = lens(&spec, &mut link, &mixed());
            let longest = *plain.last().unwrap();
            assert_eq!(on_wire, [longest; 32], "{ends:?} {mode:?} {suite:?}");
            let bytes: usize = plain.iter().map(|len| longest - len).sum();
            let packets = plain.iter().filter(|len| **len < longest).count() as u64;
            assert_eq!(link.a.dp.padding_counters(), PaddingCounters { packets, bytes: bytes as u64 });
        }
    }
}

#[test]
fn few_packets_and_packets_that_form_no_batch_stay_as_they_are() {
    let unchanged = |spec: &LinkSpec, padding, wanted: &[usize]| {
        let mut link = padded(spec, padding);
        assert_eq!(lens(spec, &mut link, wanted), unpadded(spec, wanted), "{spec:?}");
        assert_eq!(link.a.dp.padding_counters(), PaddingCounters::default());
    };
    let spec = in_udp(Ends::tunnel(4, 4), Mode::Tunnel);
    unchanged(&spec, PADDING, &[64]);
    unchanged(&spec, PADDING, &[64, 100, 64, 100, 64, 100, 64]);
    unchanged(&spec, PADDING, &[100; 32]);
    unchanged(&spec, BatchPadding { max_percent: 0, ..PADDING }, &mixed());
    unchanged(&spec, BatchPadding { ttl: 65, ..PADDING }, &mixed());
    // Too far apart for 255 bytes of padding.
    unchanged(&spec, PADDING, &[100, 1_400].repeat(16));
    unchanged(&LinkSpec { encap: false, ..spec.clone() }, PADDING, &mixed());
    unchanged(&LinkSpec { tfc_pad_to: 96, ..spec.clone() }, PADDING, &mixed());
    let other_ttl = OuterHeader { ttl: 99, ..OuterHeader::default() };
    unchanged(&LinkSpec { outer: other_ttl, ..spec.clone() }, PADDING, &mixed());
    let mut ah = spec.clone();
    (ah.encap, ah.layers[0].1) = (false, suites::ah(MacAlg::standard(MacKind::HmacSha256), 1));
    unchanged(&ah, PADDING, &mixed());
}

#[test]
fn dummy_traffic_excludes_padding() {
    let spec = in_udp(Ends::tunnel(4, 4), Mode::Tunnel);
    let mut link = padded(&spec, PADDING);
    assert!(link.a.dp.enable_dummies(link.a_out[0]));
    assert_eq!(lens(&spec, &mut link, &mixed()), unpadded(&spec, &mixed()));
}

#[test]
fn a_packet_without_room_stays_as_it_is() {
    let spec = in_udp(Ends::tunnel(4, 4), Mode::Tunnel);
    let mut link = padded(&spec, PADDING);
    link.a.tail_room = TAIL_ROOM;
    let (plain, on_wire) = (unpadded(&spec, &mixed()), lens(&spec, &mut link, &mixed()));
    assert_eq!(on_wire[0], plain[0], "no room for 186 bytes");
    assert_eq!(on_wire[31], plain[31]);
}

#[test]
fn only_packets_with_one_outer_header_are_padded_together() {
    let spec = in_udp(Ends::tunnel(4, 4), Mode::Tunnel);
    let with_tos = |tos: u8, len: usize| {
        let mut packet = packet(&spec, len);
        let mut ip = Ipv4::parse_quoted(&mut packet[..]).unwrap();
        ip.set_tos(tos);
        ip.fill_checksum();
        packet
    };
    let mut link = padded(&spec, PADDING);
    // Two classes in turn.
    let turns: Vec<_> = (0..32).map(|n| with_tos(if n % 2 == 0 { 0xb8 } else { 0 }, 100 + n)).collect();
    let on_wire = exchange(&mut link, &turns);
    assert_eq!(link.a.dp.padding_counters(), PaddingCounters::default());
    assert!(on_wire[0] < on_wire[31]);
    // One class after the other.
    let halves: Vec<_> = (0..32).map(|n| with_tos(if n < 16 { 0xb8 } else { 0 }, 100 + n)).collect();
    let on_wire = exchange(&mut link, &halves);
    assert_eq!(on_wire[..16], [on_wire[15]; 16]);
    assert!(on_wire[16..].iter().all(|len| *len >= on_wire[31]));
}

#[test]
fn padding_stays_below_the_path_mtu() {
    let spec = in_udp(Ends::tunnel(4, 4), Mode::Tunnel);
    let mut link = padded(&spec, BatchPadding { max_percent: 200, ..PADDING });
    let long: Vec<usize> = (0..32).map(|n| 1_200 + n * 6).collect();
    let short: Vec<usize> = (0..32).map(|n| 1_150 + n * 6).collect();
    let longest = *lens(&spec, &mut link, &long).last().unwrap();
    assert_eq!(lens(&spec, &mut link, &short), [longest; 32], "the length of the last batch is kept");
    assert!(link.a.dp.set_path_mtu(link.a_out[0], longest - 20, link.a.now));
    let expected = *unpadded(&spec, &short).last().unwrap();
    assert!(expected <= longest - 20);
    assert_eq!(lens(&spec, &mut link, &short), [expected; 32]);
}

/// Two long packets among short ones: without a bound, padding would double the bytes.
#[test]
fn padding_is_bounded_in_the_long_run() {
    let spec = in_udp(Ends::tunnel(4, 4), Mode::Tunnel);
    for max_percent in [10, 50] {
        let mut link = padded(&spec, BatchPadding { max_percent, ..PADDING });
        let mut wanted = [64; 32];
        (wanted[3], wanted[20]) = (280, 280);
        let plain: usize = unpadded(&spec, &wanted).iter().sum();
        for rounds in 1..=200usize {
            lens(&spec, &mut link, &wanted);
            let bytes = link.a.dp.padding_counters().bytes as usize;
            assert!(bytes <= plain * rounds * usize::from(max_percent) / 100, "{bytes} after {rounds}");
        }
        assert!(link.a.dp.padding_counters().bytes > 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever the lengths: nothing is lost, changed, reordered or too long, and the bound holds.
    #[test]
    fn any_lengths(
        batches in proptest::collection::vec(proptest::collection::vec(48usize..1_400, 1..70), 1..6),
        max_percent in 0u8..=255,
        version in prop_oneof![Just(4u8), Just(6)],
    ) {
        let spec = in_udp(Ends::tunnel(version, 4), Mode::Tunnel);
        let mut link = padded(&spec, BatchPadding { max_percent, ..PADDING });
        let mut total = 0;
        for batch in &batches {
            let (plain, on_wire) = (unpadded(&spec, batch), lens(&spec, &mut link, batch));
            total += plain.iter().sum::<usize>();
            for (plain, on_wire) in plain.iter().zip(&on_wire) {
                prop_assert!(on_wire >= plain && on_wire - plain <= 240 && *on_wire <= 1_500);
            }
        }
        let padding = link.a.dp.padding_counters().bytes as usize;
        prop_assert!(padding <= total * usize::from(max_percent) / 100);
    }
}
