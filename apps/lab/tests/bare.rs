//! `casemate lab run bare --quick`: every key exchange group sets up its Child SA, and every machine that
//! can be booted here responds.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod browser;
mod experiment;

use casemate_lab::Artifact;
use casemate_measure::report::{Agreement, Part};
use casemate_test_support::TempDir;
use std::env;
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

/// Emulated servers: name, artifact, and a word that only a page with this server contains.
const EMULATED: [(&str, Artifact, &str); 2] = [
    ("firmware, emulated", Artifact::Firmware, "firmware"),
    ("Linux, emulated", Artifact::GuestKernel, "a Linux kernel"),
];

/// Whether a server was skipped, or its artifact is excluded by an empty variable.
fn is_out(lan: &Part, server: &str) -> bool {
    let is_empty = |artifact: Artifact| env::var_os(artifact.variable()).is_some_and(|path| path.is_empty());
    EMULATED.iter().any(|(name, artifact, _)| *name == server && is_empty(*artifact))
        || lan.skipped.iter().any(|out| out.what == server || out.what == lan.title)
}

/// Without variables, the firmware is built in this checkout, and the kernel is downloaded if there is a
/// network. Both have figure 8, beside each other; the page mentions no server that was left out.
fn judge_artifacts(lan: &Part) {
    if Artifact::Firmware.missing(&experiment::artifact_paths()).is_none() {
        assert!(!is_out(lan, "firmware, emulated"), "{:?}", lan.skipped);
    }
    for (server, _, word) in EMULATED {
        let has_figure = lan
            .figures
            .iter()
            .filter(|figure| figure.title.starts_with("As figure 8: "))
            .flat_map(|figure| &figure.series)
            .any(|series| series.name.starts_with(server));
        assert_eq!(has_figure, !is_out(lan, server), "{server}");
        assert_eq!(lan.text.contains(word), !is_out(lan, server), "{server}: {}", lan.text);
    }
}

/// Every available server has times for each protection, and ESP has a cost.
fn judge(lan: &Part) {
    for server in ["firmware, emulated", "Linux, emulated", "Linux, this machine"] {
        if is_out(lan, server) {
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
