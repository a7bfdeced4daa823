//! Orderly ends of owners: no number has two owners, and every part of the protocol is needed.

use casemate_model::handover::{Defect, Explored, FINAL, Handover, ONE_OWNER, RUNS};
use stateright::{Checker, HasDiscoveries, Model};

#[test]
fn no_number_has_two_owners() {
    for run in RUNS {
        let Explored { states, failed } = run.explore();
        println!("{run}: {states} states");
        assert!(failed.is_empty(), "{run}: {failed:?}");
    }
}

/// Runs with a defect, and the property that does not hold in it.
const DEFECTS: [(Defect, &str); 7] = [
    (Defect::HandoverIgnored, ONE_OWNER),
    (Defect::HandoverReadLast, ONE_OWNER),
    (Defect::HandoverNotCompared, ONE_OWNER),
    (Defect::NotVoided, ONE_OWNER),
    (Defect::NumbersOfEarlierOwner, ONE_OWNER),
    (Defect::UsedAfterNumbers, FINAL),
    (Defect::OwnershipNotConfirmed, ONE_OWNER),
];

#[test]
fn every_defect_has_a_counterexample() {
    for (defect, property) in DEFECTS {
        let end = HasDiscoveries::AllOf([property].into());
        let checker = Handover { defect: Some(defect), ..RUNS[1] }.checker();
        let checker = checker.threads(2).finish_when(end).spawn_bfs().join();
        let found = checker.discovery(property).map(|path| path.into_actions());
        println!("{defect:?}: {found:?}");
        assert!(found.is_some(), "{defect:?}: {property}");
    }
}

#[test]
fn no_defect_is_missing() {
    for defect in Defect::ALL {
        assert!(DEFECTS.iter().any(|(listed, _)| *listed == defect), "{defect:?}");
    }
}
