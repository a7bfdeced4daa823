//! `casemate lab run bare`, the short form: every group makes its Child SA, and whatever machine can be booted here answers.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod browser;
mod common;

use casemate_lab::{Order, Progress, find, run};
use casemate_report::{Agreement, Part, file};
use common::Scratch;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// A directory with a short path, for the sockets of QEMU.
struct Short(PathBuf);

impl Drop for Short {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn bare_measures_the_real_programs() {
    let scratch = Scratch::new("lab-bare");
    let short = Short(std::env::temp_dir().join(format!("casemate-bare.{}", std::process::id())));
    fs::create_dir_all(&short.0).unwrap();
    let order = Order {
        quick: true,
        // Time for a slow machine to end it.
        time: Duration::from_secs(120),
        program: env!("CARGO_BIN_EXE_casemate").into(),
        scratch: short.0.clone(),
        versions: BTreeMap::new(),
        progress: Progress::silent(),
    };
    let record = run(find("bare").unwrap(), &order);
    for out in record.left_out() {
        assert!(!out.failed, "{out:?}");
        casemate_left_out::note(format!("{}: {}", out.what, out.why));
    }
    let [_, ike, lan] = &record.parts[..] else { panic!("{} parts", record.parts.len()) };
    // Ten groups of two providers, five calls each.
    assert_eq!(ike.samples.len(), 10 * 2 * 5);
    // However busy the machine is: arithmetic of 1,536 bits takes longer than a PRF.
    assert_eq!(ike.findings[0].agreement, Agreement::Agrees, "{:?}", ike.findings[0]);
    judge(lan);
    file::write(&record, &scratch.file(".")).unwrap();
    let figures = record.parts.iter().map(|part| part.figures.len()).sum();
    assert!(figures >= 4, "{figures}");
    browser::demand_legible(&file::write_page(&scratch.file(".")).unwrap(), figures);
}

/// Every server that was there has times for each protection, and ESP costs something.
fn judge(lan: &Part) {
    for server in ["firmware, emulated", "Linux, emulated", "Linux, this machine"] {
        if lan.left_out.iter().any(|out| out.what == server || out.what == lan.title) {
            continue;
        }
        let own = lan.samples.iter().filter(|samples| samples.name.starts_with(server));
        // Four protections: four sizes of echoes, connections and responses.
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
