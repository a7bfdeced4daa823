//! Packets that another implementation has compressed: every one decompresses to the right packet.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    unreachable_pub,
    reason = "a test may fail"
)]

use casemate_rohc::{ChannelParams, Decompressor, ProfileSet};
use std::collections::BTreeMap;

/// See tests/data/ORIGIN.md.
const PACKETS: &str = include_str!("data/rohc-library.txt");

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn packets_of_the_rohc_library_decompress() {
    let mut formats = BTreeMap::<&str, usize>::new();
    let (mut stream, mut sequence) = ("", 0);
    let mut decompressor = None;
    for line in PACKETS.lines() {
        if let Some(name) = line.strip_prefix("= ") {
            let max_cid = name.rsplit(' ').next().unwrap().parse().unwrap();
            decompressor = Some(Decompressor::new(ChannelParams { max_cid, profiles: ProfileSet::ALL }));
            (stream, sequence) = (name, 0);
            continue;
        }
        let [format, profile, headers, compressed, len]: [&str; 5] =
            line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let payload = vec![0x55; len.parse().unwrap()];
        let packet = [bytes(compressed), payload.clone()].concat();
        sequence += 1;
        let restored = decompressor.as_mut().unwrap().decompress(&packet, sequence, &mut |_| {});
        let restored = restored.map(|restored| restored.expect("the packet has a header"));
        let context = format!("{stream}, packet {sequence}: {line}");
        let restored = restored.unwrap_or_else(|fault| panic!("{fault}: {context}"));
        assert_eq!(
            [restored.headers, restored.payload].concat(),
            [bytes(headers), payload].concat(),
            "{context}"
        );
        assert_eq!(format!("{:04x}", restored.profile.number()), profile, "{context}");
        *formats.entry(format).or_default() += 1;
    }
    let expected = [
        ("IR", 8_798),
        ("Normal", 1_679),
        ("co_common", 2_067),
        ("co_repair", 88),
        ("pt_0_crc3", 9_652),
        ("pt_0_crc7", 677),
        ("pt_1_seq_id", 325),
        ("pt_2_seq_id", 354),
    ];
    assert_eq!(formats.into_iter().collect::<Vec<_>>(), expected, "all lines were read");
}
