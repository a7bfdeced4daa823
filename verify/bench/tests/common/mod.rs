//! Runs a benchmark that needs `casemate`.

use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Runs the program with these arguments and `--json`. `None` if it cannot run, which is reported as
/// skipped.
pub(crate) fn run(program: &str, words: &str) -> Option<Value> {
    let gateway = Path::new(program).with_file_name("casemate");
    if !casemate_interop::is_root() || !gateway.is_file() {
        casemate_test_support::skip(format!("{program} needs root, and `casemate` beside it"));
        return None;
    }
    let output = Command::new(program).arg("--json").args(words.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).unwrap())
}
