//! Tests the strongSwan matrix itself: with strongSwan on both sides, a case of each group passes.
#![allow(clippy::unwrap_used, reason = "tests may panic")]

use casemate_test_support::Program;
use std::path::Path;
use std::time::Duration;

/// For both roles of a case, of which some boot emulated guests.
const LIMIT: Duration = Duration::from_secs(1_200);

const CASES: &[&str] = &[
    "proposals/pfs/aes128gcm16-x25519/*",
    "auth/chain/*",
    "auth/refused/revoked-theirs/*",
    "rekey/ike/by-both/*",
    "delete/ike/by-us/*",
    "nat/mapping-changes/*",
    "fragments/path-loses-ip-fragments/*",
    "addresses/virtual-4-and-6/*",
    "negotiation/cookie/*",
    "keys/wireshark/*",
];

/// Cases in which both sides use ESP and AH of a kernel.
const IN_GUESTS: &[&str] =
    &["kernel/transport/v4/*", "kernel/esn/aes128-sha256/tunnel/*", "kernel/ah/sha256-esn/transport/*"];

#[test]
fn case_of_each_group_passes_between_two_strongswans() {
    let programs = ["/usr/sbin/charon-systemd", "/usr/bin/pki", "/usr/bin/tshark", "/usr/sbin/nft"];
    if can_run(&programs) {
        CASES.iter().for_each(|case| pass(case));
    }
}

#[test]
fn cases_pass_between_two_strongswans_in_guests() {
    let programs =
        ["/usr/sbin/charon-systemd", "/usr/sbin/nft", "/usr/bin/qemu-system-x86_64", "/bin/busybox"];
    if can_run(&programs) {
        IN_GUESTS.iter().for_each(|case| pass(case));
    }
}

/// Whether these programs exist and the matrix can run; otherwise the test is reported as skipped.
fn can_run(programs: &[&str]) -> bool {
    let absent = programs.iter().find(|program| !Path::new(program).exists());
    if let Some(program) = absent {
        casemate_test_support::skip(format!("needs {program} (cargo xtask test installs it)"));
        return false;
    }
    if !casemate_interop::is_root() || casemate_interop::Netns::new().is_err() {
        casemate_test_support::skip("needs root and network namespaces");
        return false;
    }
    true
}

/// Runs a case in both roles, which both have to pass.
fn pass(case: &str) {
    let matrix = Program::new(env!("CARGO_BIN_EXE_strongswan-matrix"));
    let output = matrix.args(["--left", "strongswan", "--only", case]).limit(LIMIT).output();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{stdout}{}", String::from_utf8_lossy(&output.stderr));
    assert!(stdout.contains("2 passed, 0 failed"), "{stdout}");
}
