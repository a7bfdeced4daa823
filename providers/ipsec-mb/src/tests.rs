//! The edges of what a job may hold, and one key on several threads. Vectors are in `verify/vectors`.
#![allow(clippy::arithmetic_side_effects, reason = "tests")]

use super::*;
use casemate_crypto::{AeadJob, EtmJob, MacJob, Tag};
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

fn ccm() -> Box<dyn AeadKey> {
    IPSEC_MB.aead(AeadAlg::aes_ccm(AesBits::B128, 8).unwrap(), &[6; 16]).unwrap()
}

/// Seals or opens texts with their tags in one call.
fn run_ccm(work: &mut [(Vec<u8>, [u8; 8])], aad: &[u8], run: impl Fn(&mut [AeadJob<'_>])) -> Vec<Outcome> {
    let mut jobs: Vec<_> = work
        .iter_mut()
        .map(|(text, tag)| AeadJob { nonce: [8; 12], aad, text, tag, outcome: Outcome::Pending })
        .collect();
    run(&mut jobs);
    jobs.iter().map(|job| job.outcome).collect()
}

#[test]
fn a_forged_packet_of_a_run_fails_alone_and_is_wiped() {
    if !is_there() {
        return;
    }
    for run in 1..=33 {
        let key = ccm();
        let mut work: Vec<_> = (1..=run).map(|len| (vec![3; 7 * len], [0; 8])).collect();
        let plain: Vec<_> = work.iter().map(|(text, _)| text.clone()).collect();
        assert!(run_ccm(&mut work, &[1; 12], |jobs| key.seal(jobs)).iter().all(|is| *is == Outcome::Done));
        let forged = run / 2;
        work[forged].1[7] ^= 1;
        let outcomes = run_ccm(&mut work, &[1; 12], |jobs| key.open(jobs));
        for (at, (text, _)) in work.iter().enumerate() {
            let (outcome, left) = if at == forged {
                (Outcome::Failed, vec![0; plain[at].len()])
            } else {
                (Outcome::Done, plain[at].clone())
            };
            assert_eq!((outcomes[at], text), (outcome, &left), "packet {at} of {run}");
        }
    }
}

#[test]
fn ccm_refuses_what_the_library_cannot_count() {
    if !is_there() {
        return;
    }
    let key = ccm();
    let mut work = [MOST_BYTES, MOST_BYTES + 1, 20].map(|len| (vec![3; len], [0; 8]));
    let expected = [Outcome::Done, Outcome::Failed, Outcome::Done];
    assert_eq!(run_ccm(&mut work, &[], |jobs| key.seal(jobs)), expected);
    assert_eq!(run_ccm(&mut work, &[], |jobs| key.open(jobs)), expected);
    assert_eq!(run_ccm(&mut work[2..], &[1; 47], |jobs| key.seal(jobs)), [Outcome::Failed]);
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
