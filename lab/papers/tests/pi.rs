//! The step of `embedded` that counts instructions, with the real image: every run counts the same.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

use casemate_lab::{Context, Need, Progress, Step, find};
use casemate_report::Part;
use casemate_stage::scratch::Scratch;
use std::time::Duration;

fn step() -> &'static Step {
    let steps = find("embedded").unwrap().steps;
    steps.iter().find(|step| step.needs.contains(&Need::Pi)).unwrap()
}

fn run(time: Duration) -> Part {
    let scratch = Scratch::new("pi-test").unwrap();
    let context = Context {
        quick: true,
        time,
        program: "casemate".into(),
        scratch: scratch.path().into(),
        progress: Progress::silent(),
    };
    let [part] = &(step().run)(&context).unwrap()[..] else { panic!("one part was expected") };
    part.clone()
}

/// The value of this name.
fn value(part: &Part, name: &str) -> f64 {
    let samples = part.samples.iter().find(|samples| samples.name.ends_with(name));
    samples.unwrap_or_else(|| panic!("nothing was counted of {name}")).values[0]
}

#[test]
fn two_runs_count_the_same() {
    if let Some(missing) = step().needs.iter().find_map(|need| need.missing()) {
        casemate_left_out::note(missing);
        return;
    }
    let first = run(Duration::from_secs(60));
    assert_eq!(first.left_out, []);
    // Six rows, four flows, four sizes.
    assert_eq!(first.samples.len(), 6 * 4 * 4);
    assert_eq!((first.figures.len(), first.tables.len(), first.findings.len()), (6, 4, 9));
    assert_eq!(run(Duration::from_secs(60)), first);
    // Packets were really protected, and the longer the message, the more work is a transaction.
    let bytes = |row: &str| value(&first, &format!(", {row}, the host sends, 8192 bytes: instructions"));
    let (plain, ah, triple) = (bytes("no IPsec"), bytes("AH, MD5"), bytes("ESP, 3DES and MD5"));
    assert!(2.0 * plain < ah && 4.0 * ah < triple, "{plain} {ah} {triple}");
    let asks = |size: &str| value(&first, &format!(", ESP, AES-GCM, the device asks, {size}: instructions"));
    assert!(2.0 * asks("1 byte") < asks("8192 bytes"));
}
