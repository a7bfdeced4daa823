//! Decompressor with arbitrary bytes as packets.

use super::{flows, params, restore};
use crate::Target;
use crate::input::{Input, Script};
use casemate_rohc::{ChannelParams, Compressor, Decompressor, MAX_FEEDBACK, ProfileSet, is_only_feedback};
use casemate_test_support::flows::{Flow, Kind};
use core::time::Duration;

pub(crate) const TARGET: Target = Target {
    name: "rohc-decompressor",
    about: "ROHC packets of any bytes: contexts are bounded, and then the IR header of a new flow is read",
    max_len: 1_024,
    run,
    seeds,
    dictionary: &[],
};

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let params = params(&mut input);
    let mut decompressor = Decompressor::new(params);
    let mut sequence = 1;
    while !input.is_empty() {
        let (step, len) = (input.u8(), input.u8());
        // Most packets follow each other; some are late or repeated.
        sequence = match step {
            0..=199 => sequence + 1,
            200..=229 => sequence + u64::from(step),
            _ => sequence.saturating_sub(u64::from(step) - 230),
        };
        let packet = input.take(len.into());
        let mut feedback_len = 0;
        let restored = decompressor.decompress(packet, sequence, &mut |data| feedback_len += data.len());
        match restored {
            Ok(Some(restored)) => assert!(packet.ends_with(restored.payload)),
            Ok(None) => assert!(is_only_feedback(packet)),
            Err(_) => assert!(!is_only_feedback(packet)),
        }
        assert!(feedback_len < packet.len().max(1));
        assert!(decompressor.contexts() <= usize::from(params.max_cid) + 1);
        if input.flag() {
            assert!(decompressor.take_feedback().is_none_or(|element| element.len() <= MAX_FEEDBACK));
        }
    }
    starts_anew(&mut decompressor, params, sequence + 1_000);
}

/// A compressor that knows nothing of the packets so far can start contexts.
fn starts_anew(decompressor: &mut Decompressor, params: ChannelParams, first: u64) {
    let mut compressor = Compressor::new(params, u16::MAX, 7);
    let mut flows = flows(&mut Input::new(&[0, 2, 4, 6, 7, 11, 13, 14]));
    for (sequence, flow) in (first..).zip(&mut flows).take(usize::from(params.max_cid) + 1) {
        let packet = flow.next_packet();
        let compressed = compressor.compress(&packet, usize::MAX, Duration::ZERO).unwrap();
        let bytes = [compressed.header, compressed.payload].concat();
        assert_eq!(restore(decompressor, &bytes, sequence), Some(packet));
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (choice, max_cid) in [(0, 15), (1, 0), (3, 300)] {
        for kind in Kind::ALL {
            let params = ChannelParams { max_cid, profiles: ProfileSet::ALL };
            let mut compressor = Compressor::new(params, u16::MAX, 1);
            let mut flow = Flow::new(kind, 3);
            let mut script = Script::default().u8(choice);
            for _ in 0..6 {
                let packet = flow.next_packet();
                let Some(compressed) = compressor.compress(&packet, usize::MAX, Duration::ZERO) else {
                    continue;
                };
                let bytes = [compressed.header, &compressed.payload[..3]].concat();
                script = script.u8(0).u8(bytes.len() as u8).bytes(&bytes).u8(1);
            }
            seeds.push(script.finish());
        }
    }
    // Profile 0x0000, padding, and feedback.
    let crc = 0x4a;
    seeds
        .push(Script::default().bytes(&[0, 0, 4, 0xfc, 0, crc, 0x45, 0, 0, 4, 0xe0, 0xf2, 1, 2, 0]).finish());
    seeds
}
