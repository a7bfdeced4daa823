//! Experiments of `casemate lab` in their short form, with the real programs.

use crate::browser;
use casemate_lab::{Order, Progress, find};
use casemate_report::{Record, file};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Runs an experiment with so much time, which is to be enough for a round of everything on a slow machine. What cannot be measured here is noted; nothing
/// that was tried may fail.
pub(crate) fn run(name: &str, time: Duration, directory: &Path) -> Record {
    let order = Order {
        quick: true,
        time,
        program: env!("CARGO_BIN_EXE_casemate").into(),
        scratch: directory.into(),
        versions: BTreeMap::new(),
        progress: Progress::silent(),
    };
    let record = casemate_lab::run(find(name).unwrap(), &order);
    for out in record.left_out() {
        assert!(!out.failed, "{out:?}");
        casemate_left_out::note(format!("{}: {}", out.what, out.why));
    }
    record
}

/// Demands that the page of results has at least so many figures, and that a browser shows each that there is.
pub(crate) fn demand_page(record: &Record, least: usize, directory: &Path) {
    let figures = record.parts.iter().map(|part| part.figures.len()).sum();
    assert!(figures >= least, "{figures} figures");
    file::write(record, directory).unwrap();
    browser::demand_legible(&file::write_page(directory).unwrap(), figures);
}
