//! Whether ratios bear a claim out, in every round.

use casemate_measure::spread::Spread;
use casemate_report::Agreement;

/// Agrees if the claim holds of every ratio in all rounds, differs if it holds of one ratio in none, and is not measured where rounds
/// contradict each other.
pub(crate) fn verdict(ratios: &[Spread], holds: impl Fn(f64) -> bool) -> Agreement {
    let ends = |ratio: &Spread| [ratio.least, ratio.median, ratio.most].map(&holds);
    if ratios.iter().all(|ratio| ends(ratio) == [true; 3]) {
        Agreement::Agrees
    } else if ratios.iter().any(|ratio| ends(ratio) == [false; 3]) {
        Agreement::Differs
    } else {
        Agreement::NotMeasured
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_that_contradict_each_other_decide_nothing() {
        let spread = |least, median, most| Spread { least, median, most };
        let slower = |ratio: f64| ratio > 1.05;
        assert_eq!(verdict(&[spread(1.1, 1.2, 1.3)], slower), Agreement::Agrees);
        assert_eq!(verdict(&[spread(0.9, 1.2, 1.3)], slower), Agreement::NotMeasured);
        assert_eq!(verdict(&[spread(0.9, 1.2, 1.3), spread(0.5, 0.6, 0.7)], slower), Agreement::Differs);
        assert_eq!(verdict(&[spread(0.9, 0.95, 1.3)], slower), Agreement::NotMeasured);
    }
}
