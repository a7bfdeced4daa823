//! `casemate lab run embedded --quick` with the real programs.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod browser;
mod experiment;

use casemate_lab::{Artifact, Requirement};
use casemate_measure::report::Record;
use casemate_test_support::TempDir;
use std::time::Duration;

/// The samples with this name, in ascending order.
fn sorted(record: &Record, name: &str) -> Vec<f64> {
    let samples = record.parts.iter().flat_map(|part| &part.samples).find(|samples| samples.name == name);
    let mut values = samples.unwrap_or_else(|| panic!("no samples of {name}")).values.clone();
    values.sort_by(f64::total_cmp);
    values
}

fn median(record: &Record, name: &str) -> f64 {
    let values = sorted(record, name);
    values[values.len() / 2]
}

fn least(record: &Record, name: &str) -> f64 {
    sorted(record, name)[0]
}

/// Number of figures in the parts whose title contains `word`.
fn figures(record: &Record, word: &str) -> usize {
    let parts = record.parts.iter().filter(|part| part.title.contains(word));
    parts.map(|part| part.figures.len()).sum()
}

#[test]
fn embedded_measures_the_real_programs() {
    // Requirements of every device; further missing requirements are noted as the steps are skipped.
    if let Some(missing) = [Requirement::Namespaces, Requirement::Tun].iter().find_map(|need| need.missing())
    {
        casemate_test_support::skip(missing);
        return;
    }
    let scratch = TempDir::new("lab-embedded").unwrap();
    let record = experiment::run("embedded", Duration::from_secs(120), scratch.path());
    let samples = record.parts.iter().flat_map(|part| &part.samples);
    assert!(samples.clone().count() > 250);
    for samples in samples.filter(|samples| samples.repeated) {
        assert!(samples.values.iter().all(|value| *value > 0.0), "{samples:?}");
    }
    // True under any load: 3DES in software costs the device many times the CPU time of AES-GCM, which
    // shows that the packets were really protected.
    let cpu = |row: &str| {
        median(&record, &format!("smoltcp, {row}, the host sends, 8192 bytes: CPU time of the device"))
    };
    let (plain, gcm, triple) = (cpu("no IPsec"), cpu("ESP, AES-GCM"), cpu("ESP, 3DES and MD5"));
    assert!(2.0 * plain.max(gcm) < triple, "{plain} {gcm} {triple}");
    // Each public value of MODP-2048 is 224 bytes longer than one of X25519. On a busy machine, a repeated
    // message adds bytes to some handshakes.
    let bytes = |method: &str| least(&record, &format!("handshake, {method}: frames"));
    assert!(bytes("modp2048") >= bytes("x25519") + 448.0);
    // lwIP has four figures of latency and throughput, and the Raspberry Pi has six. Both are built here.
    let (lwip, pi) = (figures(&record, "lwIP"), figures(&record, "Raspberry Pi"));
    let can_build = |artifact: Artifact| artifact.missing(&experiment::artifact_paths()).is_none();
    assert_eq!(pi, if can_build(Artifact::Pi) { 6 } else { 0 });
    // Without a network, the sources of lwIP may be missing.
    let is_skipped = record.skipped().any(|skipped| skipped.what.contains("lwIP"));
    assert_eq!(lwip > 0, can_build(Artifact::Lwip) && !is_skipped, "{lwip} figures with lwIP");
    experiment::demand_page(&record, 12 + pi, scratch.path());
}
