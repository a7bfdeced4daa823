//! `casemate lab run bare --quick`: every key exchange group sets up its Child SA, and every machine that
//! can be booted here responds.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod browser;
mod experiment;

use casemate_lab::Artifact;
use casemate_measure::report::{Agreement, Part};
use casemate_test_support::TempDir;
use std::time::Duration;

#[test]
fn bare_measures_the_real_programs() {
    let scratch = TempDir::new("lab-bare").unwrap();
    let record = experiment::run("bare", Duration::from_secs(120), scratch.path());
    let [_, ike, lan] = &record.parts[..] else { panic!("{} parts", record.parts.len()) };
    // Ten groups, two providers, five calls each.
    assert_eq!(ike.samples.len(), 10 * 2 * 5);
    // True even on a busy machine: arithmetic with 1,536 bits takes longer than a PRF.
    assert_eq!(ike.findings[0].agreement, Agreement::Agrees, "{:?}", ike.findings[0]);
    judge(lan);
    judge_artifacts(lan);
    experiment::demand_page(&record, 4, scratch.path());
}

/// Without variables, the firmware is built in this checkout, and the kernel is downloaded if there is a
/// network. Both have figure 8, beside each other; the page mentions no server that was left out.
fn judge_artifacts(lan: &Part) {
    let is_out = |server: &str| lan.skipped.iter().any(|out| out.what == server || out.what == lan.title);
    if Artifact::Firmware.missing(&experiment::artifact_paths()).is_none() {
        assert!(!is_out("firmware, emulated"), "{:?}", lan.skipped);
        assert!(lan.text.contains("the firmware under QEMU"), "{}", lan.text);
    }
    for (server, word) in [("firmware, emulated", "firmware"), ("Linux, emulated", "a Linux kernel")] {
        let has_figure = lan
            .figures
            .iter()
            .filter(|figure| figure.title.starts_with("As figure 8: "))
            .flat_map(|figure| &figure.series)
            .any(|series| series.name.starts_with(server));
        assert_eq!(has_figure, !is_out(server), "{server}");
        assert_eq!(lan.text.contains(word), !is_out(server), "{server}: {}", lan.text);
    }
}

/// Every available server has times for each protection, and ESP has a cost.
fn judge(lan: &Part) {
    for server in ["firmware, emulated", "Linux, emulated", "Linux, this machine"] {
        if lan.skipped.iter().any(|out| out.what == server || out.what == lan.title) {
            continue;
        }
        let own = lan.samples.iter().filter(|samples| samples.name.starts_with(server));
        // Four protections, each with four echo sizes, connections and responses.
        assert_eq!(own.clone().count(), 4 * 6, "{server}");
        assert!(own.clone().flat_map(|samples| &samples.values).all(|micros| *micros > 1.0));
        let best = |protection: &str| {
            let name = format!("{server}, {protection}, echo of 1024 bytes");
            let samples = own.clone().find(|samples| samples.name == name).unwrap();
            samples.values.iter().copied().fold(f64::INFINITY, f64::min)
        };
        assert!(best("tunnel, CBC") > best("no IPsec"), "{server}");
    }
}
