//! Mixes: overlapping operations of both sides, with faults of single datagrams.
#![allow(clippy::panic, reason = "tests may panic")]

use casemate_sim::{Coverage, Mix, Situation, run_mixes};

/// Seeds of each mix: about 40 s for all mixes on two processors. `casemate-sim --mix all --seeds N --from
/// S` runs other seeds.
const SEEDS: u64 = 1_000;

/// Seeds of mixes that simulate ten minutes: a processor runs two of them in a second.
const SOAKS: u64 = 30;

/// Seeds of mixes with stores and cells.
const STORES: u64 = 100;

fn assert_all_pass(mix: Mix, seeds: u64) -> Coverage {
    let (coverage, failures) = run_mixes(mix, 0..seeds);
    let shown: Vec<String> = failures.iter().take(10).map(ToString::to_string).collect();
    assert!(failures.is_empty(), "{mix}: {} of {seeds} seeds fail:\n{}", failures.len(), shown.join("\n"));
    coverage
}

/// Asserts that situations occur in a mix.
fn assert_covered(coverage: &Coverage, situations: &[Situation]) {
    let absent: Vec<_> = situations.iter().filter(|what| coverage.count_of(**what) == 0).collect();
    assert!(absent.is_empty(), "never in this mix: {absent:?}");
}

#[test]
fn one_side_rekeys_the_child_sa_twice_and_the_other_once() {
    assert_all_pass(Mix::RekeyChild, SEEDS);
}

#[test]
fn both_sides_rekey_the_ike_sa() {
    assert_all_pass(Mix::RekeyIke, SEEDS);
}

#[test]
fn both_sides_rekey_both() {
    assert_all_pass(Mix::RekeyBoth, SEEDS);
}

#[test]
fn both_sides_create_and_delete() {
    assert_all_pass(Mix::CreateDelete, SEEDS);
}

#[test]
fn everything_at_once() {
    assert_all_pass(Mix::Everything, SEEDS);
}

#[test]
fn two_parallel_ike_sas() {
    assert_all_pass(Mix::Parallel, SEEDS);
}

#[test]
fn timers_rekey_on_a_bad_network() {
    assert_all_pass(Mix::Soak, SOAKS);
}

#[test]
fn timers_rekey_two_parallel_ike_sas_on_a_bad_network() {
    assert_all_pass(Mix::SoakParallel, SOAKS);
}

#[test]
fn both_sides_rekey_while_one_or_both_reauthenticate() {
    assert_all_pass(Mix::Reauth, SEEDS);
}

#[test]
fn the_initiator_restarts_and_says_so() {
    assert_all_pass(Mix::Unique, SEEDS);
}

#[test]
fn both_sides_rekey_with_full_tables() {
    assert_all_pass(Mix::Limits, SEEDS);
}

#[test]
fn what_the_peer_deletes_is_set_up_again() {
    assert_all_pass(Mix::CloseStart, SEEDS);
}

#[test]
fn a_peer_that_was_cut_off_is_connected_again() {
    assert_all_pass(Mix::DeadStart, SEEDS);
}

#[test]
fn either_side_loses_its_memory() {
    assert_all_pass(Mix::Crash, SEEDS);
}

#[test]
fn a_nat_assigns_other_ports() {
    assert_all_pass(Mix::Rebind, SEEDS);
}

#[test]
fn timers_reauthenticate_two_parallel_ike_sas_on_a_bad_network() {
    assert_all_pass(Mix::SoakReauth, SOAKS);
}

#[test]
fn both_sides_rekey_create_and_delete_with_additional_key_exchanges() {
    let coverage = assert_all_pass(Mix::FollowupKe, SEEDS);
    use Situation::{
        ChildKexes, ChildRekeyed, Followup, IkeKexes, IkeRekeyed, Intermediate, SeriesForgotten,
    };
    let all = [Intermediate, IkeKexes, IkeRekeyed, Followup, ChildKexes, ChildRekeyed, SeriesForgotten];
    assert_covered(&coverage, &all);
}

#[test]
fn sessions_are_resumed_after_an_outage() {
    let coverage = assert_all_pass(Mix::Resume, SEEDS);
    use Situation::{NotResumed, Resumed, ResumedKexes, ResumedPpk};
    assert_covered(&coverage, &[Resumed, ResumedKexes, ResumedPpk, NotResumed]);
}

#[test]
fn no_ike_sa_lacks_what_one_side_requires() {
    let coverage = assert_all_pass(Mix::Refused, SEEDS);
    assert_covered(&coverage, &[Situation::Intermediate]);
    assert_eq!(coverage.count_of(Situation::Ike), 0);
}

#[test]
fn processes_end_and_their_successors_continue() {
    let coverage = assert_all_pass(Mix::StoreCrash, STORES);
    use Situation::{OrderlyEnd, ProcessEnd, Restored};
    assert_covered(&coverage, &[ProcessEnd, OrderlyEnd, Restored]);
}

#[test]
fn processes_go_on_after_a_takeover() {
    let coverage = assert_all_pass(Mix::StoreTakeover, STORES);
    assert_covered(&coverage, &[Situation::TakeOver, Situation::Restored]);
}

#[test]
fn stores_are_late_away_or_full() {
    let coverage = assert_all_pass(Mix::StoreOutage, STORES);
    use Situation::{ProcessEnd, Restored, StoreOutage, TakeOver};
    assert_covered(&coverage, &[ProcessEnd, TakeOver, Restored, StoreOutage]);
}

#[test]
fn both_sides_reauthenticate_while_processes_end() {
    let coverage = assert_all_pass(Mix::StoreReauth, STORES);
    assert_covered(&coverage, &[Situation::Reauth, Situation::Restored]);
}

#[test]
fn machines_of_a_cell_are_killed_and_others_take_over() {
    let coverage = assert_all_pass(Mix::CellKill, STORES);
    use Situation::{CellTakeOver, ClockStep, ProcessEnd, Restored};
    assert_covered(&coverage, &[ProcessEnd, CellTakeOver, Restored, ClockStep]);
}

#[test]
fn stopped_machines_of_a_cell_go_on_after_others_took_over() {
    let coverage = assert_all_pass(Mix::CellStop, STORES);
    use Situation::{CellTakeOver, Fenced, SentByFormer, Stopped};
    assert_covered(&coverage, &[Stopped, CellTakeOver, Fenced, SentByFormer]);
}

#[test]
fn machines_of_a_cell_lose_their_store() {
    let coverage = assert_all_pass(Mix::CellPartition, STORES);
    use Situation::{BlindOwner, CellOutage, CellTakeOver, Fenced, LinkFault, SetBack, StoreRefused};
    let all = [LinkFault, CellOutage, Fenced, CellTakeOver, SetBack, StoreRefused, BlindOwner];
    assert_covered(&coverage, &all);
}

#[test]
fn machines_of_a_cell_hand_over_the_state() {
    let coverage = assert_all_pass(Mix::CellDrain, STORES);
    use Situation::{CellTakeOver, HandedOver, HandoverDisturbed, OrderlyEnd, Restored, SentInHandover};
    let all = [OrderlyEnd, HandedOver, HandoverDisturbed, SentInHandover, CellTakeOver, Restored];
    assert_covered(&coverage, &all);
}
