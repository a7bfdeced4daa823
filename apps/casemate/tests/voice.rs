//! `casemate lab run voice`, the short form: what is computed agrees everywhere, and what is measured is measured on the program.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod browser;
mod common;

use casemate_lab::{Order, Progress, find, run};
use casemate_report::{Agreement, file};
use common::Scratch;
use std::collections::BTreeMap;
use std::time::Duration;

#[test]
fn voice_computes_and_measures() {
    let scratch = Scratch::new("lab-voice");
    let order = Order {
        quick: true,
        // Time for a slow machine to end it.
        time: Duration::from_secs(120),
        program: env!("CARGO_BIN_EXE_casemate").into(),
        scratch: scratch.file("."),
        versions: BTreeMap::new(),
        progress: Progress::silent(),
    };
    let record = run(find("voice").unwrap(), &order);
    for out in record.left_out() {
        assert!(!out.failed, "{out:?}");
        casemate_left_out::note(format!("{}: {}", out.what, out.why));
    }
    let calls = record.findings().find(|finding| finding.what.starts_with("calls on 128 kbit/s")).unwrap();
    assert_eq!((calls.ours.as_str(), calls.agreement), ("7, 4, 2, 2", Agreement::Agrees));
    // However busy the machine is: a packet cannot wait less than it takes to be sent, and nobody waits before a line that is not full.
    for samples in record
        .parts
        .iter()
        .flat_map(|part| &part.samples)
        .filter(|samples| samples.name.contains("mean delay"))
    {
        let least = if samples.name.starts_with("clear") { 5.6 } else { 9.0 };
        assert!(samples.values.iter().all(|delay| *delay >= least), "{samples:?}");
    }
    let figures = record.parts.iter().map(|part| part.figures.len()).sum();
    file::write(&record, &scratch.file(".")).unwrap();
    browser::demand_legible(&file::write_page(&scratch.file(".")).unwrap(), figures);
}
