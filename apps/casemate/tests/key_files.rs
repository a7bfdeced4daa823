//! Key files of OpenSSL that `casemate run` accepts or refuses: raw public keys.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

use casemate_test_support::{Program, TempDir, skip};
use std::fs;
use std::process::Command;

/// A folder with a `swanctl.conf` and the folders beside it.
struct Folder(TempDir);

impl Folder {
    /// Runs a shell script in the folder. Notes the skipped test and returns `None` if openssl(1) is missing.
    fn with(script: &str) -> Option<Self> {
        if Command::new("openssl").arg("version").output().is_err() {
            skip("openssl (Debian package openssl)");
            return None;
        }
        let folder = Self(TempDir::new("key-files").unwrap());
        folder.run(&format!("mkdir x509 x509ca pubkey private rsa pkcs8 pkcs12\n{script}"));
        Some(folder)
    }

    fn run(&self, script: &str) {
        let script = format!("set -e\ncd {}\n{script}", self.0.path().display());
        let output = Program::new("bash").args(["-c", &script]).output();
        assert!(output.status.success(), "{script}\n{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Checks a configuration without starting it. Returns the exit status and the messages.
    fn check(&self, conf: &str) -> (Option<i32>, String) {
        let file = self.0.file("swanctl.conf");
        fs::write(&file, conf).unwrap();
        self.run("chmod 600 swanctl.conf");
        let program = Program::new(env!("CARGO_BIN_EXE_casemate"));
        let output = program.args(["run", "--dry-run", "--config", file.to_str().unwrap()]).output();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    fn accepts(&self, conf: &str) {
        assert_eq!(self.check(conf), (Some(0), String::new()), "{conf}");
    }

    /// Expects an error with these words.
    fn refuses(&self, conf: &str, words: &[&str]) {
        let (status, stderr) = self.check(conf);
        assert_eq!(status, Some(2), "{conf}\n{stderr}");
        for word in words {
            assert!(stderr.contains(word), "{conf}\n{word}\n{stderr}");
        }
    }
}

/// A connection with these keys in `local` and `remote`.
fn connection(local: &str, remote: &str) -> String {
    format!(
        "connections {{\n c {{\n remote_addrs = 192.0.2.1\n local {{\n id = own.test\n {local}\n }}\n \
         remote {{\n id = peer.test\n {remote}\n }}\n children {{\n n {{\n }}\n }}\n }}\n}}\n"
    )
}

#[test]
fn raw_public_keys_in_pem_and_der() {
    let Some(folder) = Folder::with(
        "openssl genpkey -algorithm ed25519 -out private/own.pem 2> log
        openssl pkey -in private/own.pem -pubout -out pubkey/own.pem
        openssl pkey -in private/own.pem -pubout -outform DER -out pubkey/own.der
        openssl genpkey -algorithm ec -pkeyopt ec_paramgen_curve:P-256 2> log |
            openssl pkey -pubout -out pubkey/peer.pem
        cp private/own.pem pubkey/private.pem
        chmod 600 private/*",
    ) else {
        return;
    };
    folder.accepts(&connection("pubkeys = own.pem", "pubkeys = peer.pem"));
    folder.accepts(&connection("pubkeys = own.der", "pubkeys = peer.pem"));
    folder.accepts(&connection("pubkeys = own.pem", "pubkeys = peer.pem\n auth = ecdsa-256"));
    let refused = [
        ("pubkeys = peer.pem", "pubkeys = peer.pem", "pubkey/peer.pem: no private key belongs to it"),
        ("pubkeys = own.pem", "pubkeys = none.pem", "pubkey/none.pem: "),
        ("pubkeys = own.pem", "pubkeys = private.pem", "pubkey/private.pem: no PEM block of the kind"),
        ("pubkeys = own.pem", "pubkeys = peer.pem\n auth = rsa", "cannot sign as remote.auth = rsa requires"),
        ("pubkeys = own.pem", "pubkeys = peer.pem\n auth = ecdsa-384", "by remote.auth = ecdsa-384"),
    ];
    for (local, remote, why) in refused {
        folder.refuses(&connection(local, remote), &[why]);
    }
}
