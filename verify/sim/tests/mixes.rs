//! Mixes of overlapping operations of both sides, with losses of single datagrams.
#![allow(clippy::panic, reason = "a test may fail")]

use casemate_sim::{Mix, run_mixes};

/// Seeds of each mix: about 40 s for all mixes on two processors. More, and others: `casemate-sim --mix all
/// --seeds N --from S`.
const SEEDS: u64 = 1_000;

/// Seeds of ten minutes each: two of them in a second on a processor.
const SOAKS: u64 = 30;

fn holds(mix: Mix, seeds: u64) {
    let failures = run_mixes(mix, 0..seeds);
    let shown: Vec<String> = failures.iter().take(10).map(ToString::to_string).collect();
    assert!(failures.is_empty(), "{mix}: {} of {seeds} seeds fail:\n{}", failures.len(), shown.join("\n"));
}

#[test]
fn one_side_rekeys_the_child_sa_twice_and_the_other_once() {
    holds(Mix::RekeyChild, SEEDS);
}

#[test]
fn both_sides_rekey_the_ike_sa() {
    holds(Mix::RekeyIke, SEEDS);
}

#[test]
fn both_sides_rekey_both() {
    holds(Mix::RekeyBoth, SEEDS);
}

#[test]
fn both_sides_create_and_delete() {
    holds(Mix::CreateDelete, SEEDS);
}

#[test]
fn everything_at_once() {
    holds(Mix::Everything, SEEDS);
}

#[test]
fn two_parallel_ike_sas() {
    holds(Mix::Parallel, SEEDS);
}

#[test]
fn timers_rekey_on_a_bad_network() {
    holds(Mix::Soak, SOAKS);
}

#[test]
fn timers_rekey_two_parallel_ike_sas_on_a_bad_network() {
    holds(Mix::SoakParallel, SOAKS);
}

#[test]
fn both_sides_rekey_while_one_or_both_reauthenticate() {
    holds(Mix::Reauth, SEEDS);
}

#[test]
fn the_initiator_restarts_and_says_so() {
    holds(Mix::Unique, SEEDS);
}

#[test]
fn both_sides_rekey_with_full_tables() {
    holds(Mix::Limits, SEEDS);
}

#[test]
fn what_the_peer_deletes_is_set_up_again() {
    holds(Mix::CloseStart, SEEDS);
}

#[test]
fn a_peer_that_was_cut_off_is_connected_again() {
    holds(Mix::DeadStart, SEEDS);
}

#[test]
fn either_side_loses_its_memory() {
    holds(Mix::Crash, SEEDS);
}

#[test]
fn a_nat_assigns_other_ports() {
    holds(Mix::Rebind, SEEDS);
}

#[test]
fn timers_reauthenticate_two_parallel_ike_sas_on_a_bad_network() {
    holds(Mix::SoakReauth, SOAKS);
}
