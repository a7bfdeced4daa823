//! Test of the benchmark of tunnels, with measurements of one second and only the subjects that need no
//! other program.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests may panic")]

use serde_json::Value;
use std::path::Path;
use std::process::Command;

#[test]
fn the_link_and_the_forwarder_are_measured() {
    let missing = |program: &str| !Path::new("/usr/bin").join(program).exists();
    if !casemate_interop::is_root() || ["iperf3", "ping"].into_iter().any(missing) {
        casemate_test_support::skip("the benchmark of tunnels needs root, iperf3 and ping");
        return;
    }
    let output = Command::new(env!("CARGO_BIN_EXE_tunnels"))
        .args(["--json", "--rounds", "1", "--seconds", "1", "link", "forwarder", "boringtun"])
        .args(["--peers", "/nonexistent"])
        .output()
        .unwrap();
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
        // Only a tunnel has processes whose CPU time is measured.
        assert_eq!(median("stream", "cpu") > 0.0, name == "forwarder", "{report}");
    }
    assert!(report["left_out"][0].as_str().unwrap().starts_with("boringtun: "), "{report}");
    assert!(report["goals"].as_array().unwrap().iter().all(|goal| goal["held"].is_null()), "{report}");
}
