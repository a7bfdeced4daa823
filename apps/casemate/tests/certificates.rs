//! The commands of docs/manual/certificates.md make an authority, certificates and a list of revoked ones
//! that `casemate run` accepts.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

use casemate_test_support::{Program, TempDir, skip, warnings_of_example};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// The blocks of the page in this language.
fn blocks(language: &str) -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/manual/certificates.md");
    let page = fs::read_to_string(page).unwrap();
    let start = format!("```{language}\n");
    let blocks = page.split(start.as_str()).skip(1);
    blocks.map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

fn dry_run(directory: &Path) -> Output {
    let file = directory.join("swanctl.conf");
    let program = Program::new(env!("CARGO_BIN_EXE_casemate"));
    program.args(["run", "--dry-run", "--config", file.to_str().unwrap()]).output()
}

#[test]
fn commands_of_the_manual_make_certificates_that_work() {
    let scratch = TempDir::new("certificates").unwrap();
    let directory = scratch.file("etc");
    let commands = blocks("sh").join("\n").replace("/etc/casemate", directory.to_str().unwrap());
    let script = format!("set -e\ncd {}\n{commands}", scratch.path().display());
    if Command::new("openssl").arg("version").output().is_err() {
        return skip("openssl (Debian package openssl)");
    }
    let output = Program::new("bash").args(["-c", &script]).output();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let [conf] = &blocks("text")[..] else { panic!("one configuration expected") };
    fs::write(directory.join("swanctl.conf"), conf).unwrap();
    let checked = dry_run(&directory);
    let stdout = String::from_utf8(checked.stdout).unwrap();
    assert_eq!((checked.status.code(), warnings_of_example(&checked.stderr).as_str()), (Some(0), ""));
    assert!(stdout.contains("x509/left.example.org.pem"), "{stdout}");
    // The list of revoked certificates is accepted, too, and the wrong certificate is noticed.
    fs::copy(scratch.file("ca.crl"), directory.join("x509crl/ca.crl")).unwrap();
    fs::copy(scratch.file("right.example.org.pem"), directory.join("x509/left.example.org.pem")).unwrap();
    let wrong = dry_run(&directory);
    let stderr = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(stderr.contains("left.example.org"), "{stderr}");
}
