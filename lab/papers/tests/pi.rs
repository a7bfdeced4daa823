//! Step of `embedded` that counts instructions, with the real image: every run gives the same counts.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

use casemate_lab::{Artifact, ArtifactPaths, Artifacts, Context, Progress, Requirement, Step, find};
use casemate_measure::report::Part;
use casemate_testbed::TempDir;
use std::time::Duration;

fn step() -> &'static Step {
    let steps = find("embedded").unwrap().steps;
    steps.iter().find(|step| step.requirements.contains(&Requirement::Artifact(Artifact::Pi))).unwrap()
}

fn run(time: Duration, artifacts: &Artifacts) -> Part {
    let scratch = TempDir::new("pi-test").unwrap();
    let context = Context {
        quick: true,
        time,
        program: "casemate".into(),
        scratch: scratch.path().into(),
        artifacts: artifacts.clone(),
        progress: Progress::silent(),
    };
    let [part] = &(step().run)(&context).unwrap()[..] else { panic!("one part was expected") };
    part.clone()
}

/// Value of the samples whose name ends in `name`.
fn value(part: &Part, name: &str) -> f64 {
    let samples = part.samples.iter().find(|samples| samples.name.ends_with(name));
    samples.unwrap_or_else(|| panic!("no count for {name}")).values[0]
}

#[test]
fn two_runs_give_the_same_counts() {
    if let Some(missing) = step().requirements.iter().find_map(|need| need.missing()) {
        casemate_test_support::skip(missing);
        return;
    }
    // The image in CASEMATE_PI, or one that is built.
    let paths = ArtifactPaths::for_program(ArtifactPaths::CACHE);
    let artifacts = Artifacts::obtain(&[Artifact::Pi], &paths, &Progress::silent());
    artifacts.path(Artifact::Pi).unwrap();
    let first = run(Duration::from_secs(60), &artifacts);
    assert_eq!(first.skipped, []);
    // Six rows, four flows, four message sizes.
    assert_eq!(first.samples.len(), 6 * 4 * 4);
    assert_eq!((first.figures.len(), first.tables.len(), first.findings.len()), (6, 4, 9));
    assert_eq!(run(Duration::from_secs(60), &artifacts), first);
    // Packets are really protected, and longer messages cost more per transaction.
    let bytes = |row: &str| value(&first, &format!(", {row}, the host sends, 8192 bytes: instructions"));
    let (plain, ah, triple) = (bytes("no IPsec"), bytes("AH, MD5"), bytes("ESP, 3DES and MD5"));
    assert!(2.0 * plain < ah && 4.0 * ah < triple, "{plain} {ah} {triple}");
    let asks = |size: &str| value(&first, &format!(", ESP, AES-GCM, the device asks, {size}: instructions"));
    assert!(2.0 * asks("1 byte") < asks("8192 bytes"));
}
