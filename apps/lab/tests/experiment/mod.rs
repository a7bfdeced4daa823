//! Runs experiments of `casemate lab` in their short form with the real programs.

use crate::browser;
use casemate_lab::{ArtifactPaths, Progress, RunOptions, find};
use casemate_measure::report::{Record, file};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Paths of this checkout, with the cache of the interop matrices.
pub(crate) fn artifact_paths() -> ArtifactPaths {
    ArtifactPaths::for_program(Path::new(env!("CARGO_TARGET_TMPDIR")).join("../interop"))
}

/// Runs an experiment with this time limit, which must suffice for one round on a slow machine. Skipped
/// steps are noted; no step that was tried may fail.
pub(crate) fn run(name: &str, time: Duration, directory: &Path) -> Record {
    let order = RunOptions {
        quick: true,
        time,
        program: env!("CARGO_BIN_EXE_casemate-lab").into(),
        scratch: directory.into(),
        artifact_paths: artifact_paths(),
        versions: BTreeMap::new(),
        progress: Progress::silent(),
    };
    let record = casemate_lab::run(find(name).unwrap(), &order);
    for out in record.skipped() {
        assert!(!out.failed, "{out:?}");
        casemate_test_support::skip(format!("{}: {}", out.what, out.why));
    }
    record
}

/// Checks that the result page has at least this number of figures and that a browser shows all of them.
pub(crate) fn demand_page(record: &Record, least: usize, directory: &Path) {
    let figures = record.parts.iter().map(|part| part.figures.len()).sum();
    assert!(figures >= least, "{figures} figures");
    file::write(record, directory).unwrap();
    browser::demand_legible(&file::write_page(directory).unwrap(), figures);
}
