//! The strongSwan matrix holds: with strongSwan on both sides, a case of each group passes, and nothing is left behind.

use std::path::Path;
use std::process::Command;

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

#[test]
fn a_case_of_each_group_passes_between_two_strongswans() {
    for program in ["/usr/sbin/charon-systemd", "/usr/bin/pki", "/usr/bin/tshark", "/usr/sbin/nft"] {
        if !Path::new(program).exists() {
            casemate_left_out::note(format!("needs {program} (cargo xtask test installs it)"));
            return;
        }
    }
    if !casemate_interop::is_root() || casemate_interop::Netns::new().is_err() {
        casemate_left_out::note("needs root, and network namespaces");
        return;
    }
    for case in CASES {
        let mut command = Command::new(env!("CARGO_BIN_EXE_strongswan-matrix"));
        let output = command.args(["--left", "strongswan", "--only", case]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains("2 passed, 0 failed"), "{said}");
    }
}
