//! The protocol has its properties in every state, and reaches the situations that they are about.

use casemate_model::fence::{self, Condition, Fence};
use casemate_model::message_ids::{self, LivenessRule, MessageIds};
use casemate_model::{Bounds, RUNS, Run};
use stateright::{Checker, Model};

#[test]
fn all_properties_hold_in_every_run() {
    for run in RUNS {
        let report = run.explore(None);
        println!("{}: {report}", run.name);
        assert!(report.holds(), "{}: {report}", run.name);
    }
}

#[test]
fn situations_occur() {
    for (situation, name) in [
        ("takeover", "reserves"),
        ("second takeover", "reserves"),
        ("former owner sends", "reserves"),
        ("extended after takeover", "reserves"),
        ("late write", "reserves"),
        ("entered again", "reserves"),
        ("claim found", "reserves"),
        ("former owner accepts", "inbound"),
        ("accepted after takeover", "inbound"),
        ("response repeated", "responses"),
        ("deleted", "deletion"),
        ("restored record refused", "restoration"),
    ] {
        let run = Run::named(name).unwrap();
        let bounds = Bounds { situations: true, ..run.bounds };
        let report = Run { bounds, ..run }.search(None, situation);
        assert_eq!(report.found.len(), 1, "{situation} in the run \"{name}\": {report}");
    }
}

#[test]
fn fence_holds_while_clock_and_process_run() {
    let checker = Fence { condition: Condition::Normal }.checker().spawn_bfs().join();
    checker.assert_properties();
    println!("fence: {} states", checker.unique_state_count());
}

#[test]
fn fence_has_counterexamples() {
    for condition in [
        Condition::CountedFromAnswer,
        Condition::CountedWithoutAnswer,
        Condition::StoppedProcess,
        Condition::StoppedClock,
    ] {
        let checker = Fence { condition }.checker().spawn_bfs().join();
        assert!(checker.discovery(fence::HOLDS).is_some(), "{condition:?}");
    }
}

#[test]
fn liveness_checks_whose_id_is_written_leave_message_ids_consistent() {
    for rule in [LivenessRule::BeforeItLeaves, LivenessRule::OneAtMost] {
        let checker = MessageIds { rule }.checker().spawn_bfs().join();
        checker.assert_properties();
        println!("message IDs, {rule:?}: {} states", checker.unique_state_count());
    }
}

#[test]
fn liveness_checks_whose_id_is_not_written_have_counterexamples() {
    for (rule, property) in [
        (LivenessRule::WithNextChange, message_ids::OWN_RESPONSE),
        (LivenessRule::WithNextChange, message_ids::IN_WINDOW),
        (LivenessRule::OneAtMostThenAny, message_ids::OWN_RESPONSE),
    ] {
        let checker = MessageIds { rule }.checker().spawn_bfs().join();
        assert!(checker.discovery(property).is_some(), "{rule:?}: {property}");
    }
}
