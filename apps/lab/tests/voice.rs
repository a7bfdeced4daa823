//! `casemate lab run voice --quick`: computed results agree with the paper, and measured results come
//! from the program.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod browser;
mod experiment;

use casemate_measure::report::Agreement;
use casemate_test_support::TempDir;
use std::time::Duration;

#[test]
fn voice_computes_and_measures() {
    let scratch = TempDir::new("lab-voice").unwrap();
    let record = experiment::run("voice", Duration::from_secs(120), scratch.path());
    let calls = record.findings().find(|finding| finding.what.starts_with("calls on 128 kbit/s")).unwrap();
    assert_eq!((calls.ours.as_str(), calls.agreement), ("7, 4, 2, 2", Agreement::Agrees));
    // True even on a busy machine: the delay of a packet is at least its transmission time, and there is
    // no queue at a line that is not full.
    for samples in record
        .parts
        .iter()
        .flat_map(|part| &part.samples)
        .filter(|samples| samples.name.contains("mean delay"))
    {
        let least = if samples.name.starts_with("clear") { 5.6 } else { 9.0 };
        assert!(samples.values.iter().all(|delay| *delay >= least), "{samples:?}");
    }
    experiment::demand_page(&record, 1, scratch.path());
}
