//! Voice: the size of headers on the wire, memory, and hostile packets.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    unreachable_pub,
    reason = "a test may fail"
)]

use casemate_rohc::{ChannelParams, Compressor, Decompressor, Profile, ProfileSet};
use casemate_test_support::TestRng;
use casemate_test_support::allocator::{TestAllocator, count_allocations};
use casemate_test_support::flows::{Flow, Kind};
use core::time::Duration;

#[global_allocator]
static ALLOCATOR: TestAllocator = TestAllocator::new();

const PARAMS: ChannelParams = ChannelParams { max_cid: 15, profiles: ProfileSet::ALL };

/// A packet of G.711 or G.729: IPv4 with counted Identifications, UDP without a checksum unless `checksum` is
/// set.
fn voice_packet(number: u16, checksum: u16, payload: usize) -> Vec<u8> {
    let mut packet = vec![0x45, 0xb8];
    packet.extend((40 + payload as u16).to_be_bytes());
    packet.extend((500 + number).to_be_bytes());
    packet.extend([0, 0, 64, 17, 0, 0, 10, 1, 0, 1, 10, 2, 0, 1]);
    let sum: u32 = packet.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    packet[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    packet.extend(
        [20_000u16, 30_000, 20 + payload as u16, checksum].iter().flat_map(|field| field.to_be_bytes()),
    );
    packet.extend([0x80, 18]);
    packet.extend((7_000 + number).to_be_bytes());
    packet.extend((u32::from(number) * 160 + 90_000).to_be_bytes());
    packet.extend(0x1234_5678u32.to_be_bytes());
    packet.extend(vec![0x5a; payload]);
    packet
}

#[test]
fn headers_of_voice_need_one_byte() {
    for (checksum, expected) in [(0, 1), (0xbeef, 3)] {
        let (mut compressor, mut decompressor) =
            (Compressor::new(PARAMS, u16::MAX, 1), Decompressor::new(PARAMS));
        let mut lens = Vec::new();
        for number in 0..500 {
            let packet = voice_packet(number, checksum, 40);
            let compressed = compressor.compress(&packet, usize::MAX, Duration::ZERO).unwrap();
            lens.push(compressed.header.len());
            assert_eq!(compressed.profile, if number < 3 { Profile::Udp } else { Profile::Rtp });
            let bytes = [compressed.header, compressed.payload].concat();
            let restored =
                decompressor.decompress(&bytes, u64::from(number) + 1, &mut |_| {}).unwrap().unwrap();
            assert_eq!([restored.headers, restored.payload].concat(), packet);
            if let Some(element) = decompressor.take_feedback() {
                compressor.on_feedback(&element[1..]).unwrap();
            }
        }
        assert!(lens[20..].iter().all(|len| *len == expected), "{lens:?}");
    }
}

#[test]
fn packets_of_known_flows_allocate_nothing() {
    let (mut compressor, mut decompressor) =
        (Compressor::new(PARAMS, u16::MAX, 1), Decompressor::new(PARAMS));
    let mut flows: Vec<Flow> =
        Kind::ALL.iter().zip(0..).map(|(kind, number)| Flow::new(*kind, number)).collect();
    let mut buffer = Vec::with_capacity(2_000);
    for sequence in 0..20_000u64 {
        let packet = flows[(sequence % 16) as usize].next_packet();
        let count = count_allocations(|| {
            if let Some(compressed) = compressor.compress(&packet, usize::MAX, Duration::ZERO) {
                buffer.clear();
                buffer.extend_from_slice(compressed.header);
                buffer.extend_from_slice(compressed.payload);
                decompressor.decompress(&buffer, sequence, &mut |_| {}).unwrap();
            }
        })
        .allocations;
        assert!(count == 0 || sequence < 100, "packet {sequence}: {count} allocations");
    }
}

#[test]
fn hostile_packets_do_not_panic_and_do_not_change_other_contexts() {
    let (mut compressor, mut decompressor) =
        (Compressor::new(PARAMS, u16::MAX, 1), Decompressor::new(PARAMS));
    let mut rng = TestRng::new(5);
    let mut flows: Vec<Flow> =
        Kind::ALL.iter().zip(0..).map(|(kind, number)| Flow::new(*kind, number)).collect();
    let (mut sequence, mut accepted) = (0, 0);
    for round in 0..50_000 {
        sequence += 1;
        let original = flows[round % 16].next_packet();
        let Some(compressed) = compressor.compress(&original, usize::MAX, Duration::ZERO) else { continue };
        let mut bytes = [compressed.header, compressed.payload].concat();
        if rng.next_u64().is_multiple_of(2) {
            let mut damaged = bytes.clone();
            let flips = rng.next_u64() % 4 + 1;
            (0..flips).for_each(|_| rng.flip_bit(&mut damaged));
            damaged.truncate(rng.next_u64() as usize % (damaged.len() + 1));
            accepted += u64::from(decompressor.decompress(&damaged, sequence, &mut |_| {}).is_ok());
            let noise_len = rng.next_u64() as usize % 60;
            bytes = rng.bytes(noise_len);
        }
        let _ = decompressor.decompress(&bytes, sequence, &mut |_| {});
        let len = rng.next_u64() as usize % 8;
        let _ = compressor.on_feedback(&rng.bytes(len));
    }
    assert!(accepted > 0, "damage to payloads is not noticed here");
}

/// 0xffff is another form of 0 in one's complement (RFC 1071). The decompressor computes the checksum, and
/// would restore 0.
#[test]
fn a_header_checksum_of_all_ones_is_not_compressed() {
    let mut packet = voice_packet(0, 0, 40);
    // Add the checksum to the Identification: then the computed one is 0.
    let [ident, checksum] = [4, 10].map(|at| u16::from_be_bytes([packet[at], packet[at + 1]]));
    let sum = u32::from(ident) + u32::from(checksum);
    packet[4..6].copy_from_slice(&((sum + (sum >> 16)) as u16).to_be_bytes());
    for (checksum, is_compressed) in [(0, true), (0xffff, false)] {
        packet[10..12].copy_from_slice(&u16::to_be_bytes(checksum));
        let (mut compressor, mut decompressor) = (Compressor::new(PARAMS, 15, 1), Decompressor::new(PARAMS));
        let compressed = compressor.compress(&packet, usize::MAX, Duration::ZERO);
        assert_eq!(compressed.is_some(), is_compressed, "{checksum:#x}");
        let Some(compressed) = compressed else { continue };
        let bytes = [compressed.header, compressed.payload].concat();
        let restored = decompressor.decompress(&bytes, 1, &mut |_| {}).unwrap().unwrap();
        assert_eq!([restored.headers, restored.payload].concat(), packet);
    }
}
