//! A broken build is noticed, each by the invariant that it breaks.
#![allow(clippy::panic, reason = "a test may fail")]

use casemate_sim::{Options, Sabotage, run};

/// Seeds among which one must show the breakage. Most do.
const SEEDS: std::ops::Range<u64> = 0..20;

/// Runs broken builds; each sentence is one that some seed must fail with.
fn is_caught(sabotage: Sabotage, sentence: &str) {
    let options = Options { sabotage: Some(sabotage), trace: false };
    let found: Vec<String> =
        SEEDS.filter_map(|seed| run(seed, options).err()).map(|failure| failure.what).collect();
    assert!(found.iter().any(|what| what.contains(sentence)), "{sabotage:?} is not noticed: {found:#?}");
}

#[test]
fn ciphers_that_accept_any_tag() {
    is_caught(Sabotage::AnyTag, "changed");
}

#[test]
fn no_replay_check() {
    is_caught(Sabotage::NoReplayCheck, "twice");
}

#[test]
fn randomness_that_comes_again_after_a_restart() {
    is_caught(Sabotage::FrozenDice, "twice under one key");
}

#[test]
fn packets_past_the_policies() {
    is_caught(Sabotage::NoFirewall, "in clear");
}

#[test]
fn nobody_asks_whether_a_peer_lives() {
    is_caught(Sabotage::NoLiveness, "only");
}

#[test]
fn two_messages_with_one_number() {
    is_caught(Sabotage::OtherContents, "two messages with the number");
}

#[test]
fn a_packet_lost_while_sas_are_replaced() {
    is_caught(Sabotage::BreakBeforeMake, "did not arrive");
}

#[test]
fn sequence_numbers_that_come_again() {
    is_caught(Sabotage::NumbersAgain, "twice under one key");
}

#[test]
fn a_panic() {
    is_caught(Sabotage::Panic, "panic: a provider that panics");
}

#[test]
fn anybody_is_trusted() {
    is_caught(Sabotage::TrustAll, "believes the stranger");
}

#[test]
fn nobody_is_authenticated_anew() {
    is_caught(Sabotage::NoReauth, "proved itself");
}

#[test]
fn two_ike_sas_with_one_peer() {
    is_caught(Sabotage::NotUnique, "whose peer has another one");
}

#[test]
fn messages_that_are_never_cut() {
    is_caught(Sabotage::WholeMessages, "bytes whole");
}

#[test]
fn one_address_for_two() {
    is_caught(Sabotage::SharedAddress, "which is for");
}

#[test]
fn no_address_for_anybody() {
    is_caught(Sabotage::NoAddress, "nobody has a virtual address");
}

#[test]
fn nothing_passes_in_clear() {
    is_caught(Sabotage::NoShunts, "protects packet");
}

#[test]
fn nothing_is_barred() {
    is_caught(Sabotage::NoShunts, "which policy forbids");
}
