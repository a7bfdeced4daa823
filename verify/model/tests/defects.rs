//! Every defect has a counterexample in a run in which the protocol has none: the model notices each part of
//! the protocol that is missing.

use casemate_model::wire::ALWAYS;
use casemate_model::{Defect, Run};

/// For each defect a run, and the property that does not hold in it.
const DEFECTS: [(Defect, &str, &str); 29] = {
    let [number, iv, accepted, recorded, epoch, deleted] = ALWAYS;
    [
        (Defect::NoEpochComparison, "reserves", number),
        (Defect::CreateRevisionAsEpoch, "lost answers", number),
        (Defect::CreateRevisionAsEpoch, "responses", recorded),
        (Defect::CreateRevisionAsEpoch, "deletion", deleted),
        (Defect::RecordRevisionCompared, "deletion", deleted),
        (Defect::CountIncreasedLater, "reserves", number),
        (Defect::CountNotCompared, "reserves", number),
        (Defect::CountOfAnotherClaim, "reserves", number),
        (Defect::RangeBeginsEarly, "reserves", number),
        (Defect::RangeBeginsEarly, "inbound", accepted),
        (Defect::RangeEndsLate, "blocks of two", number),
        (Defect::RangeIgnoresCount, "reserves", number),
        (Defect::ExtensionBeforeConfirmation, "reserves", number),
        (Defect::ExtensionIgnoresCount, "blocks of two", number),
        (Defect::CountWithoutReserved, "everything", number),
        (Defect::FenceInsteadOfReserves, "reserves", number),
        (Defect::RecordsReadBeforeClaim, "reserves", number),
        (Defect::RecordsOfOldWatch, "reserves", number),
        (Defect::OwnershipByName, "negotiation", number),
        (Defect::OwnershipByName, "reserves", number),
        (Defect::RecordKeptInMemory, "reserves", number),
        (Defect::InboundWithoutReserve, "inbound", accepted),
        (Defect::SecondWriteBeforeAnswer, "lost answers", number),
        (Defect::ResponseBeforeWrite, "responses", recorded),
        (Defect::IvCounterUndone, "responses", iv),
        (Defect::IvWithoutCount, "responses", iv),
        (Defect::RestoreSeenByRevisionOnly, "restoration", number),
        (Defect::RestoreNotSeen, "restoration", number),
        (Defect::RestoreNotSeen, "restoration", epoch),
    ]
};

#[test]
fn every_defect_has_a_counterexample() {
    for (defect, name, property) in DEFECTS {
        let run = Run::named(name).unwrap();
        let report = run.search(Some(defect), property);
        println!("{defect:?} in \"{name}\": {report}");
        assert_eq!(report.found.len(), 1, "{defect:?} in \"{name}\", {property}: {report}");
    }
}

#[test]
fn no_defect_is_missing() {
    for defect in Defect::ALL {
        assert!(DEFECTS.iter().any(|(listed, ..)| *listed == defect), "{defect:?}");
    }
}
