//! A decoder that reads the formal notation of RFC 5225 as data (tests/formal) and shares no code with the
//! product. It decodes what the compressor sends, and what the rohc library sends.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    unreachable_pub,
    reason = "a test may fail"
)]

mod formal;

use casemate_rohc::{ChannelParams, Compressor, Decompressor, ProfileSet};
use casemate_test_support::flows::{Flow, Kind};
use core::time::Duration;
use formal::Decoder;
use std::collections::BTreeMap;

const PACKETS_OF_A_FLOW: u64 = if cfg!(debug_assertions) { 2_000 } else { 10_000 };

#[test]
fn a_decoder_made_from_the_notation_reads_every_header() {
    let mut formats = BTreeMap::<(Kind, &str), usize>::new();
    for max_cid in [15, 300] {
        for (number, kind) in (0..).zip(Kind::ALL) {
            let params = ChannelParams { max_cid, profiles: ProfileSet::ALL };
            let (mut compressor, mut decoder) =
                (Compressor::new(params, u16::MAX, number), Decoder::new(max_cid));
            let mut decompressor = Decompressor::new(params);
            let mut flow = Flow::new(kind, number);
            for sequence in 0..PACKETS_OF_A_FLOW {
                let packet = flow.next_packet();
                let Some(compressed) = compressor.compress(&packet, usize::MAX, Duration::ZERO) else {
                    continue;
                };
                let bytes = [compressed.header, compressed.payload].concat();
                let (decoded, format) = decoder
                    .decode(&bytes)
                    .unwrap_or_else(|why| panic!("{kind:?}, packet {sequence}: {why}: {bytes:02x?}"));
                assert_eq!(decoded, packet, "{kind:?}, packet {sequence}, {format}");
                *formats.entry((kind, format)).or_default() += 1;
                let restored = decompressor.decompress(&bytes, sequence, &mut |_| {}).unwrap().unwrap();
                assert_eq!([restored.headers, restored.payload].concat(), packet);
                // Only some is delivered, so that changes are also repeated.
                if let Some(element) = decompressor.take_feedback().filter(|_| sequence % 3 == 0) {
                    compressor.on_feedback(&element[1..]).unwrap();
                }
            }
        }
    }
    let seen = |format: &str| formats.keys().any(|(_, seen)| *seen == format);
    for format in [
        "IR",
        "co_common",
        "co_repair",
        "pt_0_crc3",
        "pt_0_crc7",
        "pt_1_seq_id",
        "pt_1_seq_ts",
        "pt_1_rnd",
        "pt_2_seq_id",
        "pt_2_seq_ts",
        "pt_2_seq_both",
        "pt_2_rnd",
    ] {
        assert!(seen(format), "{format}: {formats:?}");
    }
}

/// See tests/data/ORIGIN.md.
const PACKETS: &str = include_str!("data/rohc-library.txt");

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// After the Identification was random, the library sends low bits of its difference to the last random one;
/// in the notation, only headers with a sequential Identification set that reference. So the two disagree
/// behind such a change, until the next whole Identification.
#[test]
fn the_notation_and_the_rohc_library_agree_while_the_identification_keeps_its_behaviour() {
    let (mut stream, mut decoder) = ("", Decoder::new(0));
    let (mut good, mut bad) = (0, BTreeMap::<&str, usize>::new());
    for line in PACKETS.lines() {
        if let Some(name) = line.strip_prefix("= ") {
            stream = name;
            decoder = Decoder::new(name.rsplit(' ').next().unwrap().parse().unwrap());
            continue;
        }
        let [format, _, headers, compressed, len]: [&str; 5] =
            line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let payload = vec![0x55; len.parse().unwrap()];
        match decoder.decode(&[bytes(compressed), payload.clone()].concat()) {
            Ok((packet, name)) if packet == [bytes(headers), payload].concat() && name == format => good += 1,
            _ => *bad.entry(stream.split(' ').next().unwrap()).or_default() += 1,
        }
    }
    let expected = [
        ("esp4-jump", 146),
        ("ip4-idjump", 73),
        ("multi-udp4-20over", 9),
        ("rtp4-idjump", 80),
        ("rtp4-marks-idjump", 77),
        ("udp4in6", 3),
    ];
    assert_eq!((good, bad.into_iter().collect::<Vec<_>>()), (23_252, expected.to_vec()));
}
