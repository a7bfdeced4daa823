//! A channel that loses, delays, repeats and forges packets as the input says.

use super::{MAX_GROWTH, flows, next_packet, params, restore};
use crate::Target;
use crate::input::{Input, Script};
use casemate_rohc::{Compressor, Decompressor, Fault};
use casemate_test_support::TestRng;
use casemate_test_support::flows::Kind;
use core::iter;
use core::time::Duration;
use std::collections::VecDeque;

pub(crate) const TARGET: Target = Target {
    name: "rohc-channel",
    about: "ROHC with losses, reordering, duplicates and forged packets: no wrong packet is restored",
    max_len: 1_024,
    run,
    seeds,
    dictionary: &[],
};

/// A packet on its way.
struct InTransit {
    /// Number of the packet behind which this one arrives.
    arrives: u64,
    sequence: u64,
    bytes: Vec<u8>,
    original: Vec<u8>,
    is_compressed: bool,
}

/// Both ends of the channel, and what is between them.
struct Channel {
    compressor: Compressor,
    decompressor: Decompressor,
    /// Sequence number of the last packet.
    sequence: u64,
    in_transit: Vec<InTransit>,
    /// Feedback elements that have not arrived.
    feedback: VecDeque<Vec<u8>>,
}

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let params = params(&mut input);
    let mut flows = flows(&mut input);
    let mut channel = Channel {
        compressor: Compressor::new(params, u16::MAX, 65_530),
        decompressor: Decompressor::new(params),
        sequence: 0,
        in_transit: Vec::new(),
        feedback: VecDeque::new(),
    };
    while !input.is_empty() {
        let (choice, fate) = (input.u8(), input.u8());
        let flow = &mut flows[usize::from(choice % 8)];
        let burst = if choice >> 5 == 7 { 64 } else { 0 };
        for _ in 0..burst + (fate >> 6) {
            // A burst of losses.
            let lost = next_packet(flow, false, &mut input);
            let _ = channel.send(lost, MAX_GROWTH);
        }
        let original = next_packet(flow, choice & 8 != 0, &mut input);
        let max_growth = if choice & 16 == 0 { MAX_GROWTH } else { 0 };
        let packet = channel.send(original, max_growth);
        match fate & 7 {
            0..=2 => channel.receive(&packet),
            3 => {}
            4 => channel.delay(packet, input.u8()),
            5 => {
                channel.receive(&packet);
                channel.delay(packet, input.u8());
            }
            _ => {
                let accepts_forged = channel.receive_forged(&packet, &mut input);
                if accepts_forged {
                    return;
                }
                channel.receive(&packet);
            }
        }
        channel.receive_delayed();
        channel.exchange_feedback(fate >> 3 & 7);
    }
}

impl Channel {
    /// Compresses a packet, if possible.
    fn send(&mut self, original: Vec<u8>, max_growth: usize) -> InTransit {
        self.sequence += 1;
        // 50 packets a second.
        let now = Duration::from_millis(20 * self.sequence);
        let compressed = self.compressor.compress(&original, original.len() + max_growth, now);
        let bytes = compressed.map(|compressed| [compressed.header, compressed.payload].concat());
        let is_compressed = bytes.is_some();
        let bytes = bytes.unwrap_or_else(|| original.clone());
        assert!(bytes.len() <= original.len() + max_growth);
        InTransit { arrives: self.sequence, sequence: self.sequence, bytes, original, is_compressed }
    }

    fn delay(&mut self, mut packet: InTransit, by: u8) {
        packet.arrives += u64::from(by % 32);
        self.in_transit.push(packet);
    }

    fn receive_delayed(&mut self) {
        let now = self.sequence;
        for packet in self.in_transit.extract_if(.., |packet| packet.arrives <= now).collect::<Vec<_>>() {
            self.receive(&packet);
        }
    }

    /// Receives a packet. If it is restored, it is right; otherwise, it is late or too many are missing.
    fn receive(&mut self, packet: &InTransit) {
        let InTransit { sequence, bytes, original, is_compressed, .. } = packet;
        if !is_compressed {
            self.decompressor.note_uncompressed(*sequence);
            return;
        }
        match self.decompressor.decompress(bytes, *sequence, &mut |_| {}) {
            Ok(restored) => {
                let restored = restored.unwrap();
                let restored = [restored.headers, restored.payload].concat();
                assert_eq!(restored, *original, "packet {sequence}");
            }
            Err(fault) => assert!(matches!(fault, Fault::NoContext | Fault::Late), "{fault}, {sequence}"),
        }
    }

    /// Receives a damaged copy of a packet, with a sequence number of its own. Returns whether it is
    /// accepted: then the context may be wrong.
    fn receive_forged(&mut self, packet: &InTransit, input: &mut Input<'_>) -> bool {
        self.sequence += 1;
        let mut bytes = packet.bytes.clone();
        for _ in 0..1 + input.u8() % 3 {
            let at = input.index(bytes.len().min(32));
            bytes[at] ^= input.u8();
        }
        bytes.truncate(if input.flag() { bytes.len() } else { input.index(bytes.len()) });
        restore(&mut self.decompressor, &bytes, self.sequence).is_some()
    }

    /// Passes on feedback: most elements arrive at once, some are lost, and others arrive later.
    fn exchange_feedback(&mut self, choice: u8) {
        let elements = iter::from_fn(|| self.decompressor.take_feedback()).map(|element| element.to_vec());
        match choice {
            6 => elements.for_each(drop),
            7 => self.feedback.extend(elements),
            _ => {
                self.feedback.extend(elements);
                for element in self.feedback.drain(..) {
                    self.compressor.on_feedback(&element[1..]).unwrap();
                }
            }
        }
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let mut rng = TestRng::new(3);
    let mut seeds = Vec::new();
    for max_cid in 0..4 {
        for kind in 0..Kind::ALL.len() as u8 {
            let script = Script::default().u8(max_cid).bytes(&[kind; 8]);
            // Two flows without changes, and any fates.
            let steps: Vec<u8> = (0..150).flat_map(|n| [n % 2, rng.next_u64() as u8]).collect();
            seeds.push(script.bytes(&steps).finish());
        }
        let kinds: Vec<u8> = (0..8).map(|n| n * 2 + max_cid % 2).collect();
        seeds.push(Script::default().u8(max_cid).bytes(&kinds).bytes(&rng.bytes(1_000)).finish());
    }
    seeds
}
