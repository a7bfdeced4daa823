//! Header compression (casemate-rohc): both sides of a channel with hostile bytes, and a channel that loses,
//! delays, repeats and forges packets. The target for feedback is in this file.

pub(crate) mod channel;
pub(crate) mod decompressor;

use crate::Target;
use crate::input::{Input, Script};
use casemate_rohc::{ChannelParams, Compressor, Decompressor, ProfileSet};
use casemate_test_support::flows::{Flow, Kind};
use casemate_wire::ip::Ipv4;
use core::time::Duration;

/// Flows of an input. There are more than contexts in some channels.
const FLOWS: usize = 8;

/// Growth of a packet that allows every IR header.
const MAX_GROWTH: usize = 200;

pub(crate) const FEEDBACK: Target = Target {
    name: "rohc-feedback",
    about: "ROHC feedback of any bytes: a peer that gets every packet still restores each one",
    max_len: 1_024,
    run: run_feedback,
    seeds: feedback_seeds,
    dictionary: &[],
};

fn run_feedback(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let params = params(&mut input);
    let (mut compressor, mut decompressor) =
        (Compressor::new(params, u16::MAX, 9), Decompressor::new(params));
    let mut flows = flows(&mut input);
    let mut sequence = 0;
    while !input.is_empty() {
        sequence += 1;
        let choice = input.u8();
        let flow = &mut flows[usize::from(choice % 8)];
        let packet = next_packet(flow, choice & 8 != 0, &mut input);
        match compressor.compress(&packet, usize::MAX, Duration::ZERO) {
            Some(compressed) => {
                let bytes = [compressed.header, compressed.payload].concat();
                assert_eq!(restore(&mut decompressor, &bytes, sequence), Some(packet), "packet {sequence}");
            }
            None => decompressor.note_uncompressed(sequence),
        }
        assert!(compressor.contexts() <= usize::from(params.max_cid) + 1);
        // Feedback of the decompressor, damaged or not, or any bytes.
        match (choice >> 4, decompressor.take_feedback()) {
            (0..4, _) => {}
            (4..8, Some(element)) => compressor.on_feedback(&element[1..]).unwrap(),
            (8..10, Some(mut element)) => {
                let at = 1 + input.index(element.len() - 1);
                element[at] = input.u8();
                let _ = compressor.on_feedback(&element[1..]);
            }
            _ => {
                let len = input.u8() % 16;
                let _ = compressor.on_feedback(input.take(len.into()));
            }
        }
    }
}

fn feedback_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for max_cid in 0..4 {
        let start = Script::default().u8(max_cid).bytes(&[0, 2, 4, 6, 7, 11, 13, 14]);
        let acknowledged: Vec<u8> = (0..80).map(|n| 0x40 + n % 8).collect();
        seeds.push(start.clone().bytes(&acknowledged).finish());
        // Acknowledgements of one byte, and changes of TOS.
        let forged: Vec<u8> = (0..80).flat_map(|n| [0xf8, 1, n, 1, 10 + n]).collect();
        seeds.push(start.bytes(&forged).finish());
    }
    seeds
}

fn params(input: &mut Input<'_>) -> ChannelParams {
    ChannelParams { max_cid: [15, 0, 3, 300][input.index(4)], profiles: ProfileSet::ALL }
}

fn flows(input: &mut Input<'_>) -> Vec<Flow> {
    (0..FLOWS as u16).map(|number| Flow::new(Kind::ALL[input.index(Kind::ALL.len())], number)).collect()
}

/// The next packet of a flow, with a byte of its headers changed if `is_changed`.
fn next_packet(flow: &mut Flow, is_changed: bool, input: &mut Input<'_>) -> Vec<u8> {
    let mut packet = flow.next_packet();
    if is_changed {
        let at = input.index(packet.len().min(64));
        packet[at] = input.u8();
        if let Ok(mut ip) = Ipv4::parse(&mut packet[..]) {
            ip.fill_checksum();
        }
    }
    packet
}

/// Decompresses a packet. Returns the restored packet; `None` if there is a fault, or nothing but feedback.
fn restore(decompressor: &mut Decompressor, bytes: &[u8], sequence: u64) -> Option<Vec<u8>> {
    let restored = decompressor.decompress(bytes, sequence, &mut |_| {}).ok()??;
    Some([restored.headers, restored.payload].concat())
}
