//! Tests of frames.

use super::*;
use casemate_crypto::{KeyError, Provider};
use casemate_rustcrypto::RustCrypto;
use casemate_test_support::TestRng;
use proptest::prelude::*;

const PROVIDERS: Providers<'static> = {
    const LIST: &[&dyn Provider] = &[&casemate_rustcrypto::RustCrypto];
    Providers(LIST)
};
const PACKET: &[u8] = b"an IP packet of a peer";

fn wrapping_key(key: u8) -> SecretBytes {
    SecretBytes::new(&[key; 32])
}

fn run(id: u8) -> RunId {
    RunId([id; RUN_LEN])
}

fn sealer(id: u8) -> FrameSealer {
    FrameSealer::new(&wrapping_key(1), run(id), &PROVIDERS).unwrap()
}

fn opener(id: u8) -> FrameOpener {
    FrameOpener::new(&wrapping_key(1), None, run(id), &PROVIDERS).unwrap()
}

fn frame(sealer: &mut FrameSealer, receiver: u8) -> Vec<u8> {
    let mut frame = Vec::new();
    sealer.seal(&run(receiver), Ingress::Ip, PACKET, &mut frame).unwrap();
    frame
}

fn open(opener: &mut FrameOpener, frame: &[u8]) -> Result<(Ingress, Vec<u8>), FrameError> {
    open_with(opener, frame, &PROVIDERS)
}

fn open_with(
    opener: &mut FrameOpener,
    frame: &[u8],
    providers: &Providers<'_>,
) -> Result<(Ingress, Vec<u8>), FrameError> {
    let mut frame = frame.to_vec();
    let (ingress, packet) = opener.open(&mut frame, providers)?;
    Ok((ingress, frame[packet].to_vec()))
}

#[test]
fn packets_arrive_as_they_were() {
    let (mut sender, mut receiver) = (sealer(1), opener(2));
    for ingress in [Ingress::IkePort, Ingress::NattPort, Ingress::Ip] {
        for packet in [&[][..], PACKET, &[7; 65_000]] {
            let mut frame = Vec::new();
            sender.seal(&run(2), ingress, packet, &mut frame).unwrap();
            assert_eq!(frame.len(), packet.len() + FRAME_OVERHEAD);
            assert_eq!(open(&mut receiver, &frame), Ok((ingress, packet.to_vec())));
        }
    }
    assert!(!frame(&mut sender, 2).windows(8).any(|part| PACKET.starts_with(part)), "encrypted");
    assert_eq!(FRAME_OVERHEAD, 42, "as docs/manual/cell.md says");
}

#[test]
fn counters_and_nonces_occur_once_in_a_run_and_keys_in_one_run() {
    let (mut first, mut again) = (sealer(1), sealer(3));
    let frames = [frame(&mut first, 2), frame(&mut first, 2), frame(&mut again, 2)];
    let text = |frame: &Vec<u8>| frame[HEADER_LEN..frame.len() - TAG_LEN].to_vec();
    assert_eq!(frames[0][17..25], frames[2][17..25], "the same counter");
    assert_ne!(frames[0][17..25], frames[1][17..25]);
    // One key and nonce would encrypt equal packets equally.
    assert!(text(&frames[0]) != text(&frames[1]) && text(&frames[0]) != text(&frames[2]));
    first.last = u64::MAX;
    let mut frame = Vec::new();
    assert!(first.seal(&run(2), Ingress::Ip, PACKET, &mut frame).is_err() && frame.is_empty());
}

#[test]
fn a_changed_frame_is_not_authentic_and_leaves_no_state() {
    let (mut sender, mut receiver) = (sealer(1), opener(2));
    let sent = frame(&mut sender, 2);
    for at in 0..sent.len() {
        let mut changed = sent.clone();
        changed[at] ^= 1;
        assert!(open(&mut receiver, &changed).is_err(), "byte {at}");
        assert!(open(&mut receiver, &sent[..at]).is_err(), "{at} bytes");
    }
    assert_eq!(receiver.senders.len(), 0);
    // With the state of the sender, too.
    open(&mut receiver, &sent).unwrap();
    let second = frame(&mut sender, 2);
    for at in 0..second.len() {
        let mut changed = second.clone();
        changed[at] ^= 0x80;
        assert!(open(&mut receiver, &changed).is_err(), "byte {at}");
    }
    assert_eq!(receiver.senders.len(), 1);
    assert!(open(&mut receiver, &second).is_ok(), "what was forged did not move the window");
}

#[test]
fn a_frame_is_accepted_once_by_one_run_of_one_receiver() {
    let (mut sender, mut receiver) = (sealer(1), opener(2));
    let sent: Vec<Vec<u8>> = (0..100).map(|_| frame(&mut sender, 2)).collect();
    // Not in their order.
    for frame in sent.iter().rev() {
        assert!(open(&mut receiver, frame).is_ok());
    }
    for frame in &sent {
        assert_eq!(open(&mut receiver, frame), Err(FrameError::Replayed));
        assert_eq!(open(&mut opener(3), frame), Err(FrameError::NotAuthentic), "another node, or run");
    }
    let mut of_another_cell = FrameOpener::new(&wrapping_key(2), None, run(2), &PROVIDERS).unwrap();
    assert_eq!(open(&mut of_another_cell, &sent[0]), Err(FrameError::NotAuthentic));
}

#[test]
fn the_run_that_was_silent_for_longest_is_forgotten() {
    let mut receiver = opener(0);
    let mut senders: Vec<FrameSealer> = (1..=MAX_RUNS as u8 + 1).map(sealer).collect();
    let (last, others) = senders.split_last_mut().unwrap();
    let first: Vec<Vec<u8>> = others.iter_mut().map(|sender| frame(sender, 0)).collect();
    first.iter().for_each(|frame| assert!(open(&mut receiver, frame).is_ok()));
    // The first run is used again, so that the second one is the oldest.
    assert!(open(&mut receiver, &frame(&mut others[0], 0)).is_ok());
    assert!(open(&mut receiver, &frame(last, 0)).is_ok());
    assert_eq!(receiver.senders.len(), MAX_RUNS);
    assert!(receiver.senders.get(&run(2)).is_none());
    assert_eq!(open(&mut receiver, &first[0]), Err(FrameError::Replayed));
}

#[test]
fn runs_are_random() {
    let mut rng = TestRng::new(1);
    assert_ne!(RunId::random(&mut rng), RunId::random(&mut rng));
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_not_authentic(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        has_version in any::<bool>(),
        of_known_run in any::<bool>(),
    ) {
        let mut receiver = opener(2);
        open(&mut receiver, &frame(&mut sealer(1), 2)).unwrap();
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut().filter(|_| has_version) {
            *first = VERSION;
        }
        if let Some(part) = bytes.get_mut(1..1 + RUN_LEN).filter(|_| of_known_run) {
            part.fill(1);
        }
        prop_assert!(open(&mut receiver, &bytes).is_err());
        prop_assert_eq!(receiver.senders.len(), 1);
    }

    #[test]
    fn every_frame_is_accepted_at_most_once(order in proptest::collection::vec(0..40_usize, 1..200)) {
        let (mut sender, mut receiver) = (sealer(1), opener(2));
        let sent: Vec<Vec<u8>> = (0..40).map(|_| frame(&mut sender, 2)).collect();
        let mut accepted = [false; 40];
        for index in order {
            let is_accepted = open(&mut receiver, &sent[index]).is_ok();
            prop_assert_eq!(is_accepted, !accepted[index]);
            accepted[index] = true;
        }
    }
}

/// A provider that overwrites a text that is not authentic, as some do.
struct Overwriting;

struct OverwritingKey(Box<dyn AeadKey>);

impl Provider for Overwriting {
    fn name(&self) -> &'static str {
        "overwriting"
    }

    fn aead(&self, alg: AeadAlg, key: &[u8]) -> Result<Box<dyn AeadKey>, KeyError> {
        RustCrypto.aead(alg, key).map(|key| Box::new(OverwritingKey(key)) as _)
    }
}

impl AeadKey for OverwritingKey {
    fn seal(&self, jobs: &mut [AeadJob<'_>]) {
        self.0.seal(jobs);
    }

    fn open(&self, jobs: &mut [AeadJob<'_>]) {
        self.0.open(jobs);
        for job in jobs.iter_mut().filter(|job| job.status != JobStatus::Done) {
            job.text.fill(0);
            job.tag.fill(0);
        }
    }
}

/// While the wrapping key is changed, some nodes send with the former key and some with the new one.
#[test]
fn a_receiver_with_two_keys_opens_the_frames_of_both() {
    let list: [&dyn Provider; 2] = [&Overwriting, &RustCrypto];
    let providers = &Providers(&list);
    let mut senders =
        [1, 2, 3].map(|key| FrameSealer::new(&wrapping_key(key), run(key), &PROVIDERS).unwrap());
    for (first, second) in [(1, 2), (2, 1)] {
        let (first, second) = (wrapping_key(first), wrapping_key(second));
        let mut receiver = FrameOpener::new(&first, Some(&second), run(9), providers).unwrap();
        for sender in [0, 1, 0, 1] {
            let sent = frame(&mut senders[sender], 9);
            let mut changed = sent.clone();
            changed[HEADER_LEN] ^= 1;
            assert_eq!(open_with(&mut receiver, &changed, providers), Err(FrameError::NotAuthentic));
            assert_eq!(open_with(&mut receiver, &sent, providers), Ok((Ingress::Ip, PACKET.to_vec())));
            assert_eq!(open_with(&mut receiver, &sent, providers), Err(FrameError::Replayed));
        }
        assert_eq!(
            open_with(&mut receiver, &frame(&mut senders[2], 9), providers),
            Err(FrameError::NotAuthentic)
        );
        assert_eq!(receiver.senders.len(), 2);
    }
}
