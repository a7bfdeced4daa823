//! Commands whose standard output is full, or closed by its reader.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use casemate_test_support::TempDir;
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use testnet::{Host, TestNet};

const XFRM: &str = "ip xfrm policy add dst 10.99.0.0/16 dir out action block\n";

/// The exit status and the standard error of `casemate`, on this host or in the namespace of the test.
fn casemate(host: Option<&Host>, args: &[&str], stdout: impl Into<Stdio>) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_casemate"));
    command.args(args).stdin(Stdio::null()).stdout(stdout).stderr(Stdio::piped());
    let child = match host {
        Some(host) => host.netns.spawn(&mut command).unwrap(),
        None => command.spawn().unwrap(),
    };
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// A full output is an error with a message. A closed one, as with `| head`, ends the output only.
fn check(host: Option<&Host>, args: &[&str]) {
    let (code, error) = casemate(host, args, File::create("/dev/full").unwrap());
    let expected = "casemate: standard output: No space left on device (os error 28)\n";
    assert_eq!((code, error.as_str()), (Some(1), expected), "{args:?}");
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    assert_eq!(casemate(host, args, writer), (Some(0), String::new()), "{args:?}");
}

#[test]
fn commands_report_a_full_output_and_accept_a_closed_one() {
    let scratch = TempDir::new("full-output").unwrap();
    let file = scratch.file("block.xfrm");
    std::fs::write(&file, XFRM).unwrap();
    std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    for args in [
        &["--help"][..],
        &["--version"],
        &["inspect", "--help"],
        &["completions", "bash"],
        &["calls", "--line", "2M"],
        &["calls", "--line", "2M", "--json"],
        &["calls", "--paper"],
        &["run", "--dry-run", "--xfrm", file.to_str().unwrap()],
    ] {
        check(None, args);
    }
}

#[test]
fn wrong_arguments_exit_with_status_2_if_standard_error_is_full() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_casemate"));
    command.arg("frobnicate").stdin(Stdio::null()).stderr(File::create("/dev/full").unwrap());
    assert_eq!(command.status().unwrap().code(), Some(2));
}

#[test]
fn status_and_log_report_a_full_output_and_accept_a_closed_one() {
    let Some(net) = TestNet::build("status_and_log_report_a_full_output") else { return };
    let running = net.left.run_xfrm(XFRM);
    check(Some(&net.left), &["status"]);
    check(Some(&net.left), &["status", "--json"]);
    // The refusal is a line in the log.
    assert!(!net.left.casemate(&["reload"]).status.success(), "manual keys cannot be reloaded");
    check(Some(&net.left), &["log"]);
    assert!(running.stop().success());
}
