//! `casemate lab run embedded`, the short form, with the real programs.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod browser;
mod common;
mod experiment;

use casemate_lab::Need;
use casemate_report::Record;
use common::Scratch;
use std::time::Duration;

/// The median of what was measured under this name.
fn median(record: &Record, name: &str) -> f64 {
    let samples = record.parts.iter().flat_map(|part| &part.samples).find(|samples| samples.name == name);
    let mut values = samples.unwrap_or_else(|| panic!("nothing was measured of {name}")).values.clone();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[test]
fn embedded_measures_the_real_programs() {
    // What any of its devices needs; what the others need besides is noted as it is left out.
    if let Some(missing) = [Need::Namespaces, Need::Tun].iter().find_map(|need| need.missing()) {
        casemate_left_out::note(missing);
        return;
    }
    let scratch = Scratch::new("lab-embedded");
    let record = experiment::run("embedded", Duration::from_secs(120), scratch.path());
    let samples = record.parts.iter().flat_map(|part| &part.samples);
    assert!(samples.clone().count() > 250);
    for samples in samples.filter(|samples| samples.repeated) {
        assert!(samples.values.iter().all(|value| *value > 0.0), "{samples:?}");
    }
    // What no load undoes: packets of this row were really protected, because 3DES in software costs the device many times what AES-GCM does.
    let cpu = |row: &str| {
        median(&record, &format!("smoltcp, {row}, the host sends, 8192 bytes: CPU time of the device"))
    };
    let (plain, gcm, triple) = (cpu("no IPsec"), cpu("ESP, AES-GCM"), cpu("ESP, 3DES and MD5"));
    assert!(2.0 * plain.max(gcm) < triple, "{plain} {gcm} {triple}");
    // The public values of MODP-2048 have 224 bytes more than those of X25519 have, each way.
    let bytes = |method: &str| median(&record, &format!("handshake, {method}: frames"));
    assert!(bytes("modp2048") >= bytes("x25519") + 448.0);
    let has_pi = [Need::QEMU_ARM, Need::Pi].iter().all(|need| need.missing().is_none());
    experiment::demand_page(&record, if has_pi { 18 } else { 12 }, scratch.path());
}
