//! Known answers: the vectors of `casemate-vectors` that a small processor has the time for, on every algorithm.

use crate::Board;
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_vectors::{BRIEF, brief};

/// The number of cases. None may fail, and none may be left out.
pub(super) fn run(board: &Board) -> Option<usize> {
    let report = brief(&RUSTCRYPTO);
    for failure in report.failures() {
        (board.print)(failure);
        (board.print)("\n");
    }
    for family in report.families.iter().filter(|family| family.run > 0) {
        board.report(&family.name, family.run);
    }
    report.assert(BRIEF);
    Some(report.run())
}
