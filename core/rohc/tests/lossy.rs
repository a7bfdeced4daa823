//! A channel that loses, reorders and duplicates packets: no wrong packet is ever restored, and a context
//! recovers.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    unreachable_pub,
    reason = "a test may fail"
)]

use casemate_rohc::{ChannelParams, Compressor, Decompressor, Fault, ProfileSet};
use casemate_test_support::TestRng;
use casemate_test_support::flows::{Flow, Kind};
use casemate_wire::ip::v4::Ipv4Header;
use core::time::Duration;
use std::collections::BTreeMap;

/// Packets of the run that the documentation names. A test runs a part of it, unless it is optimised.
const PACKETS: u64 = if cfg!(debug_assertions) { 200_000 } else { 1_000_000 };

/// How a channel treats packets.
#[derive(Debug, Clone, Copy)]
struct LossyLink {
    /// Of 100 packets.
    lost: u64,
    late: u64,
    duplicated: u64,
    /// Packets between a packet and the feedback about it; `None`: there is no feedback.
    feedback_delay: Option<u64>,
}

/// A packet on its way.
struct InTransit {
    arrives: u64,
    sequence: u64,
    bytes: Vec<u8>,
    is_compressed: bool,
    original: Vec<u8>,
}

#[derive(Debug, Default)]
struct RunCounts {
    restored: u64,
    faults: BTreeMap<String, u64>,
    /// Bytes of headers before and after.
    header_bytes: u64,
    compressed_bytes: u64,
    /// Most packets in a row that one flow could not restore.
    longest_outage: u64,
}

fn run(kinds: &[Kind], link: LossyLink, packets: u64, seed: u64) -> RunCounts {
    let params = ChannelParams { max_cid: 15, profiles: ProfileSet::ALL };
    let (mut compressor, mut decompressor) =
        (Compressor::new(params, u16::MAX, seed as u16), Decompressor::new(params));
    let mut flows: Vec<Flow> = kinds.iter().zip(0..).map(|(kind, number)| Flow::new(*kind, number)).collect();
    let mut rng = TestRng::new(seed);
    let (mut transit, mut feedback, mut outcome) =
        (Vec::<InTransit>::new(), Vec::new(), RunCounts::default());
    let mut outage = 0;
    for sequence in 1..=packets {
        feedback.retain(|(due, element): &(u64, Vec<u8>)| {
            let is_due = *due <= sequence;
            if is_due {
                compressor.on_feedback(&element[1..]).unwrap();
            }
            !is_due
        });
        let flow = (rng.next_u64() % flows.len() as u64) as usize;
        let original = flows[flow].next_packet();
        // Some packets would be too long for their path with an IR header.
        let max_len = if rng.next_u64().is_multiple_of(4) { original.len() } else { usize::MAX };
        let (bytes, is_compressed) = match compressor.compress(&original, max_len, Duration::ZERO) {
            Some(packet) => {
                outcome.header_bytes += (original.len() - packet.payload.len()) as u64;
                outcome.compressed_bytes += packet.header.len() as u64;
                ([packet.header, packet.payload].concat(), true)
            }
            None => (original.clone(), false),
        };
        let mut chance = |of_100| rng.next_u64() % 100 < of_100;
        let (is_lost, is_late, is_doubled) = (chance(link.lost), chance(link.late), chance(link.duplicated));
        let delay = if is_late { rng.next_u64() % 8 + 1 } else { 0 };
        for copy in 0..1 + u64::from(is_doubled) {
            if !is_lost {
                let (bytes, original) = (bytes.clone(), original.clone());
                transit.push(InTransit {
                    arrives: sequence + delay + 3 * copy,
                    sequence,
                    bytes,
                    is_compressed,
                    original,
                });
            }
        }
        transit.sort_by_key(|packet| packet.arrives);
        while transit.first().is_some_and(|packet| packet.arrives <= sequence) {
            let packet = transit.remove(0);
            if !packet.is_compressed {
                decompressor.note_uncompressed(packet.sequence);
                continue;
            }
            match decompressor.decompress(&packet.bytes, packet.sequence, &mut |_| {}) {
                Ok(restored) => {
                    let restored = restored.expect("every packet has a header");
                    let whole = [restored.headers, restored.payload].concat();
                    assert_eq!(whole, packet.original, "packet {} of {kinds:?}, {link:?}", packet.sequence);
                    outcome.restored += 1;
                    outage = 0;
                }
                Err(fault) => {
                    assert!(matches!(fault, Fault::NoContext | Fault::Late), "{fault}");
                    *outcome.faults.entry(format!("{fault:?}")).or_default() += 1;
                    outage += 1;
                    outcome.longest_outage = outcome.longest_outage.max(outage);
                }
            }
            if let (Some(delay), Some(element)) = (link.feedback_delay, decompressor.take_feedback()) {
                feedback.push((sequence + delay, element.to_vec()));
            }
        }
    }
    outcome
}

#[test]
fn no_wrong_packet_is_restored() {
    let link = LossyLink { lost: 10, late: 10, duplicated: 10, feedback_delay: Some(10) };
    let outcome = run(&Kind::ALL, link, PACKETS, 7);
    println!("{outcome:?}");
    let faults: u64 = outcome.faults.values().sum();
    assert!(faults * 50 < outcome.restored, "{outcome:?}");
    assert!(outcome.compressed_bytes * 3 < outcome.header_bytes, "{outcome:?}");
}

#[test]
fn flows_alone_recover_with_and_without_feedback() {
    for (number, kind) in Kind::ALL.into_iter().enumerate() {
        for feedback_delay in [Some(4), Some(40), None] {
            let link = LossyLink { lost: 10, late: 10, duplicated: 5, feedback_delay };
            let outcome = run(&[kind], link, PACKETS / 50, number as u64 + 1);
            // Without feedback, a context recovers with the next refresh.
            let most = feedback_delay.map_or(300, |delay| 3 * delay + 30);
            assert!(outcome.longest_outage <= most, "{kind:?} {feedback_delay:?} {outcome:?}");
        }
    }
}

/// Here the bits of headers and the repetitions of changes are used up to their limits.
#[test]
fn most_packets_may_be_lost() {
    for (number, kind) in Kind::ALL.into_iter().enumerate() {
        for lost in [40, 60, 75] {
            let link = LossyLink { lost, late: 10, duplicated: 0, feedback_delay: Some(6) };
            let outcome = run(&[kind], link, PACKETS / 40, number as u64 + lost);
            assert!(outcome.restored > 0 || kind == Kind::Fragments, "{kind:?} {outcome:?}");
        }
    }
}

#[test]
fn without_losses_every_packet_is_restored() {
    let link = LossyLink { lost: 0, late: 0, duplicated: 0, feedback_delay: None };
    let outcome = run(&Kind::ALL, link, PACKETS / 20, 3);
    assert!(outcome.faults.is_empty(), "{outcome:?}");
}

fn esp_packet(ident: u16, sequence: u32) -> Vec<u8> {
    let mut packet = vec![0; 20];
    let (src, dst) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let header = Ipv4Header { tos: 0, ident, df: false, ttl: 64, protocol: 50, src, dst, payload_len: 40 };
    header.emit(packet.first_chunk_mut().unwrap()).unwrap();
    packet.extend(0x1234_5678u32.to_be_bytes());
    packet.extend(sequence.to_be_bytes());
    packet.extend([7; 32]);
    packet
}

/// The sender of a flow may start again, and use sequence numbers a second time.
#[test]
fn an_acknowledgement_counts_for_the_oldest_packet_with_its_number() {
    let params = ChannelParams { max_cid: 15, profiles: ProfileSet::ALL };
    let (mut compressor, mut decompressor) = (Compressor::new(params, 15, 1), Decompressor::new(params));
    let send = |compressor: &mut Compressor, ident, sequence| {
        let packet = esp_packet(ident, sequence);
        let compressed = compressor.compress(&packet, usize::MAX, Duration::ZERO).unwrap();
        let bytes = [compressed.header, compressed.payload].concat();
        (packet, bytes)
    };
    let mut receive = |(packet, bytes): (Vec<u8>, Vec<u8>), sequence| {
        let restored = decompressor.decompress(&bytes, sequence, &mut |_| {}).unwrap().unwrap();
        assert_eq!([restored.headers, restored.payload].concat(), packet);
        decompressor.take_feedback()
    };
    let acknowledgement = receive(send(&mut compressor, 1, 100), 1).expect("an IR header is acknowledged");
    // Lost.
    send(&mut compressor, 2, 99);
    send(&mut compressor, 3, 100);
    compressor.on_feedback(&acknowledgement[1..]).unwrap();
    for number in 1..20 {
        receive(send(&mut compressor, 3 + number, 100 + u32::from(number)), 3 + u64::from(number));
    }
}
