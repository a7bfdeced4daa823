//! The edges of what a job may hold, and one key on several threads. Vectors are in `verify/vectors`.
#![allow(clippy::arithmetic_side_effects, reason = "tests")]

use super::*;
use casemate_crypto::{EtmJob, MacJob, Tag};
use ffi::MOST_BYTES;
use std::thread;

/// Whether there is a library to test; notes the test as left out if not.
fn is_there() -> bool {
    IPSEC_MB.available().map_err(casemate_left_out::note).is_ok()
}

fn chained() -> Box<dyn EtmKey> {
    let mac = MacAlg::standard(MacKind::HmacSha1);
    IPSEC_MB.etm(CipherAlg::AesCbc(AesBits::B128), &[4; 16], mac, &[5; 20]).unwrap()
}

fn job(data: &mut [u8]) -> EtmJob<'_> {
    let text = 16..data.len();
    EtmJob { iv: [9; 16], mac_nonce: [0; 12], data, text, tag: Tag::zeroed(12), outcome: Outcome::Pending }
}

#[test]
fn an_unknown_version_is_named() {
    assert_eq!(
        Absent::UnknownVersion(0x2_00_01).to_string(),
        "libIPSec_MB is version 2.0.1, and 1.3.0 was expected"
    );
}

#[test]
fn the_longest_packet_is_worked_on_and_a_longer_one_is_refused() {
    if !is_there() {
        return;
    }
    let key = IPSEC_MB.mac(MacAlg::standard(MacKind::HmacSha256), &[1; 32]).unwrap();
    let longest = MOST_BYTES - MOST_BYTES % 16;
    for (len, outcome) in [(longest, Outcome::Done), (MOST_BYTES + 1, Outcome::Failed)] {
        let data = vec![3; len];
        let tag = Tag::zeroed(16);
        let mut jobs = [MacJob { nonce: [0; 12], data: &data, tag, outcome: Outcome::Pending }];
        key.sign(&mut jobs);
        assert_eq!(jobs[0].outcome, outcome, "{len} bytes to sign");
    }
    let (mut long, mut too_long, mut short) = (vec![3; longest], vec![3; longest + 16], vec![3; 32]);
    let mut jobs = [&mut long, &mut too_long, &mut short].map(|data| job(data));
    let pair = chained();
    pair.seal(&mut jobs);
    assert_eq!(jobs.each_ref().map(|job| job.outcome), [Outcome::Done, Outcome::Failed, Outcome::Done]);
    pair.open(&mut jobs);
    assert_eq!(jobs.each_ref().map(|job| job.outcome), [Outcome::Done, Outcome::Failed, Outcome::Done]);
    assert!(long.iter().chain(&too_long).chain(&short).all(|byte| *byte == 3));
}

/// What one thread computes with a key does not depend on what another does with it at the same time.
#[test]
fn one_key_serves_several_threads() {
    if !is_there() {
        return;
    }
    let pair = chained();
    let trace = |seed: u8| {
        let mut packets: Vec<Vec<u8>> = (1..=40).map(|n| vec![seed; 16 * n]).collect();
        for _ in 0..200 {
            let mut jobs: Vec<_> = packets.iter_mut().map(|data| job(data)).collect();
            pair.seal(&mut jobs);
            assert!(jobs.iter().all(|job| job.outcome == Outcome::Done));
            let tags: Vec<Tag> = jobs.iter().map(|job| job.tag).collect();
            packets.iter_mut().zip(tags).for_each(|(data, tag)| data[..12].copy_from_slice(tag.as_slice()));
        }
        packets
    };
    let alone = [trace(1), trace(2)];
    let together = thread::scope(|scope| {
        let threads = [1, 2].map(|seed| scope.spawn(move || trace(seed)));
        threads.map(|thread| thread.join().unwrap())
    });
    assert_ne!(alone[0], alone[1]);
    assert_eq!(alone, together);
}
