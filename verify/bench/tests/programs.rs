//! Tests of the benchmarks that run programs, with measurements of a few seconds.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests may panic")]

use casemate_test_support::Program;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// Time limit of a program. The longest measurement takes a minute on an idle machine.
const LIMIT: Duration = Duration::from_secs(900);

/// Runs the program with these arguments and `--json`. `None` if it cannot run, which is reported as
/// skipped.
fn run(program: &str, words: &str) -> Option<Value> {
    let gateway = Path::new(program).with_file_name("casemate");
    if !casemate_interop::is_root() || !gateway.is_file() {
        casemate_test_support::skip(format!("{program} needs root, and `casemate` beside it"));
        return None;
    }
    let output = Program::new(program).arg("--json").args(words.split_whitespace()).limit(LIMIT).output();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
#[ignore = "keeps two CPUs busy for a minute; `cargo xtask bench calls --check` runs it"]
fn calls_arrive_and_bulk_traffic_exceeds_the_capacity() {
    let Some(report) = run(env!("CARGO_BIN_EXE_calls"), "--rounds 1 --seconds 1") else { return };
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 16, "{report}");
    for row in rows {
        let median = |what: &str| row[what]["median"].as_f64().unwrap();
        let load = row["load"].as_u64().unwrap();
        assert!((0.0..100.0).contains(&median("lost_percent")), "{row}");
        assert!(median("median_ms") > 0.0, "{row}");
        assert_eq!(median("bulk_mbit") > 0.5, load > 0, "{row}");
        // The bulk load of 3 offers three times the capacity.
        assert!(load < 3 || median("bulk_mbit") < 0.8 * median("offered_mbit"), "{row}");
    }
}

#[test]
fn few_tunnels_carry_traffic() {
    let Some(report) = run(env!("CARGO_BIN_EXE_many"), "--rounds 1 --seconds 1 --tunnels 50") else {
        return;
    };
    assert_eq!(report["tunnels"], 50);
    let provider = &report["providers"][0];
    let median = |what: &str| provider[what]["median"].as_f64().unwrap();
    assert_eq!(provider["name"], "aws-lc");
    assert!(median("one") > 100.0 && median("all") > 100.0, "{report}");
    assert!(median("lost") < 0.5, "{report}");
    assert!(report["goals"].as_array().unwrap().iter().all(|goal| goal["held"].is_boolean()), "{report}");
}

#[test]
fn rekeying_under_load_loses_no_packet() {
    let Some(report) = run(env!("CARGO_BIN_EXE_soak"), "--seconds 6 --rekey 2") else { return };
    assert!(report["rekeys"].as_u64().unwrap() >= 2, "{report}");
    for count in report["packets"].as_array().unwrap() {
        assert!(count["sent"].as_u64().unwrap() > 1_000, "{report}");
        assert_eq!(count["lost"], 0, "{report}");
    }
}

/// Only the subjects that need no other program.
#[test]
fn the_link_and_the_forwarder_are_measured() {
    let missing = |program: &str| !Path::new("/usr/bin").join(program).exists();
    if !casemate_interop::is_root() || ["iperf3", "ping"].into_iter().any(missing) {
        casemate_test_support::skip("the benchmark of tunnels needs root, iperf3 and ping");
        return;
    }
    let output = Program::new(env!("CARGO_BIN_EXE_tunnels"))
        .args(["--json", "--rounds", "1", "--seconds", "1", "link", "forwarder", "boringtun"])
        .args(["--peers", "/nonexistent"])
        .limit(LIMIT)
        .output();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let subjects = report["subjects"].as_array().unwrap();
    let names: Vec<_> = subjects.iter().map(|subject| subject["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["forwarder", "link"]);
    for subject in subjects {
        let median = |measure: &str, what: &str| subject[measure][what]["median"].as_f64().unwrap();
        let name = subject["name"].as_str().unwrap();
        assert!(median("stream", "value") > 0.01, "{report}");
        assert!(median("small", "value") > 1_000.0, "{report}");
        assert!(median("small", "lost") < 0.5, "{report}");
        assert!((1.0..100_000.0).contains(&median("echo", "value")), "{report}");
        assert!(median("echo", "p99") >= median("echo", "value"), "{report}");
        // Only a tunnel has processes whose CPU time is measured.
        assert_eq!(median("stream", "cpu") > 0.0, name == "forwarder", "{report}");
    }
    assert!(report["left_out"][0].as_str().unwrap().starts_with("boringtun: "), "{report}");
    assert!(report["goals"].as_array().unwrap().iter().all(|goal| goal["held"].is_null()), "{report}");
}
