//! Each injected defect violates the invariant that is meant to detect it.
#![allow(clippy::panic, reason = "tests may panic")]

use casemate_sim::{Defect, Options, run};

/// Seeds of which at least one must show the defect. Of most defects, nearly all do; of some, one in 30.
const SEEDS: std::ops::Range<u64> = 0..200;

/// Runs seeds with a defect until one of them fails with a message that contains `sentence`.
fn assert_detected(defect: Defect, sentence: &str) {
    let options = Options { defect: Some(defect), trace: false };
    let mut others = Vec::new();
    for failure in SEEDS.filter_map(|seed| run(seed, options).err()) {
        if failure.what.contains(sentence) {
            return;
        }
        others.push(failure.what);
    }
    panic!("{defect:?} is not detected: {others:#?}");
}

#[test]
fn aead_accepts_any_tag() {
    assert_detected(Defect::AcceptAnyTag, "changed");
}

#[test]
fn no_replay_protection() {
    assert_detected(Defect::NoReplayProtection, "twice");
}

#[test]
fn random_source_repeats_after_a_restart() {
    assert_detected(Defect::RepeatedRandomness, "twice under one key");
}

#[test]
fn unmatched_packets_pass() {
    assert_detected(Defect::PassUnmatched, "in clear");
}

#[test]
fn no_liveness_checks() {
    assert_detected(Defect::NoLiveness, "only");
}

#[test]
fn retransmission_with_other_contents() {
    assert_detected(Defect::ChangedRetransmission, "two messages with the ID");
}

#[test]
fn endpoint_drops_packets() {
    assert_detected(Defect::PacketLoss, "did not arrive");
}

#[test]
fn sequence_numbers_repeat_after_a_restart() {
    assert_detected(Defect::RepeatedSequenceNumbers, "twice under one key");
}

#[test]
fn provider_panics() {
    assert_detected(Defect::Panic, "panic: injected panic of the provider");
}

#[test]
fn untrusted_peer_is_accepted() {
    assert_detected(Defect::TrustAll, "authenticates the untrusted peer");
}

#[test]
fn no_reauthentication() {
    assert_detected(Defect::NoReauth, "the peer of");
}

#[test]
fn ike_sas_are_not_unique() {
    assert_detected(Defect::NotUnique, "although a newer IKE SA has the same peer");
}

#[test]
fn messages_are_not_fragmented() {
    assert_detected(Defect::NoFragmentation, "bytes unfragmented");
}

#[test]
fn clients_get_no_address() {
    assert_detected(Defect::NoAddress, "no client has a virtual address");
}

#[test]
fn bypass_shunt_is_missing() {
    assert_detected(Defect::NoShunts, "protects packet");
}

#[test]
fn additional_key_exchanges_are_left_out() {
    assert_detected(Defect::NoAdditionalKexes, "has Some(0) additional key exchanges instead of");
}

#[test]
fn the_secrets_of_an_additional_key_exchange_differ() {
    assert_detected(Defect::OtherSecret, "have different keys for a Child SA");
}

#[test]
fn ppk_is_left_out() {
    assert_detected(Defect::NoPpk, "uses a PPK: false, but should: true");
}

#[test]
fn less_than_what_is_required_is_accepted() {
    assert_detected(Defect::NothingRequired, "is up although one side refuses it");
}

#[test]
fn a_session_is_resumed_twice() {
    assert_detected(Defect::ResumedTwice, "a second time");
}

#[test]
fn drop_shunt_is_missing() {
    assert_detected(Defect::NoShunts, "which policy forbids");
}
