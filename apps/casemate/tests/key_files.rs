//! Key files of OpenSSL that `casemate run` accepts or refuses: raw public keys, encrypted private keys
//! and PKCS #12 containers.
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
        ("pubkeys = own.pem", "pubkeys = peer.pem\n auth = rsa", "cannot sign as remote.auth = rsa requires"),
        ("pubkeys = own.pem", "pubkeys = peer.pem\n auth = ecdsa-384", "by remote.auth = ecdsa-384"),
    ];
    for (local, remote, why) in refused {
        folder.refuses(&connection(local, remote), &[why, " (named in /", "/swanctl.conf:"]);
    }
    // Every file of the folder is read.
    folder.run("cp private/own.pem pubkey/private.pem");
    let conf = connection("pubkeys = own.pem", "pubkeys = peer.pem");
    folder.refuses(&conf, &["pubkey/private.pem: the PEM block is a PRIVATE KEY: a PUBLIC KEY was expected"]);
}

/// The same key in several kinds of encryption, each with the command that makes it from `key.pem`.
const ENCRYPTIONS: [(&str, &str); 10] = [
    ("private/default.pem", "openssl pkey -aes256 -passout pass:correct"),
    ("private/sha1.pem", "openssl pkcs8 -topk8 -v2 aes-128-cbc -v2prf hmacWithSHA1 -passout pass:correct"),
    (
        "private/sha512.pem",
        "openssl pkcs8 -topk8 -v2 aes-192-cbc -v2prf hmacWithSHA512 -passout pass:correct",
    ),
    ("private/des3.pem", "openssl pkcs8 -topk8 -v2 des3 -passout pass:correct"),
    ("pkcs8/binary.der", "openssl pkcs8 -topk8 -outform DER -iter 20000 -passout pass:correct"),
    ("rsa/aes128.pem", "openssl rsa -traditional -aes128 -passout pass:correct"),
    ("rsa/aes192.pem", "openssl rsa -traditional -aes192 -passout pass:correct"),
    ("rsa/aes256.pem", "openssl rsa -traditional -aes256 -passout pass:correct"),
    ("rsa/des.pem", "openssl rsa -traditional -des3 -passout pass:correct"),
    ("rsa/plain.pem", "openssl rsa -traditional"),
];

#[test]
fn private_keys_encrypted_by_openssl() {
    let Some(folder) = Folder::with(
        "openssl genpkey -algorithm rsa -pkeyopt rsa_keygen_bits:2048 -out key.pem 2> log
        openssl pkey -in key.pem -pubout -out pubkey/own.pem",
    ) else {
        return;
    };
    let raw = connection("pubkeys = own.pem", "pubkeys = own.pem");
    for (path, command) in ENCRYPTIONS {
        folder.run(&format!("{command} -in key.pem -out {path} 2> log; chmod 600 {path}"));
        let (section, file) = path.split_once('/').unwrap();
        let secret = |secret: &str| {
            format!("{raw}secrets {{\n {section}-own {{\n file = {file}\n secret = {secret}\n }}\n}}\n")
        };
        folder.accepts(&secret("correct"));
        if path != "rsa/plain.pem" {
            let words = [path, &format!("secrets.{section}-own.secret is not its passphrase")];
            folder.refuses(&secret("wrong"), &words);
            folder.refuses(&raw, &[path, "it is encrypted: a section of `secrets`"]);
        }
        folder.run(&format!("rm {path}"));
    }
}

#[test]
fn encryption_that_is_not_supported_is_named() {
    let Some(folder) = Folder::with("openssl genpkey -algorithm ed25519 -out key.pem 2> log") else { return };
    let conf = "secrets {\n private {\n file = key.pem\n secret = correct\n }\n}\n";
    for (options, why) in [
        ("-scrypt", "PBES2 with PBKDF2 was expected"),
        ("-v1 PBE-SHA1-3DES", "PBES2 with PBKDF2 and AES or 3DES was expected"),
        ("-v2 camellia-256-cbc", "PBES2 with PBKDF2 and AES or 3DES was expected"),
        ("-v2 aes-256-cbc -iter 4000001", "4000001 iterations of PBKDF2: at most 4000000"),
    ] {
        folder.run(&format!(
            "openssl pkcs8 -topk8 {options} -in key.pem -out private/key.pem -passout pass:correct 2> log
            chmod 600 private/key.pem"
        ));
        folder.refuses(conf, &["private/key.pem: ", why]);
    }
}

/// An authority, one between it and the host, and the certificate of `own.test`; `export` makes a container.
const CONTAINER: &str = "
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out x509ca/ca.pem \\
        -days 30 -subj /CN=CA 2> log
    issue() {
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout $1.key -out $1.csr -subj /CN=$1 \\
            -addext $4 2> log
        openssl x509 -req -in $1.csr -CA $2 -CAkey $3 -copy_extensions copy -days 30 -out $1.pem 2> log
    }
    issue between x509ca/ca.pem ca.key basicConstraints=critical,CA:TRUE
    issue own between.pem between.key subjectAltName=DNS:own.test
    cat between.pem x509ca/ca.pem > chain.pem";

#[test]
fn pkcs12_containers_of_openssl() {
    let Some(folder) = Folder::with(CONTAINER) else { return };
    let signing = connection("auth = pubkey", "auth = pubkey");
    let secret = |secret: &str| {
        format!("{signing}secrets {{\n pkcs12-own {{\n file = own.p12\n secret = {secret}\n }}\n}}\n")
    };
    for options in ["", "-macalg sha1 -keypbe AES-128-CBC -certpbe AES-256-CBC", "-legacy", "-nomac"] {
        folder.run(&format!(
            "openssl pkcs12 -export {options} -inkey own.key -in own.pem -certfile chain.pem -passout pass:correct \\
                -out pkcs12/own.p12
            chmod 600 pkcs12/own.p12"
        ));
        folder.accepts(&secret("correct"));
        folder
            .refuses(&secret("wrong"), &["pkcs12/own.p12: secrets.pkcs12-own.secret is not its passphrase"]);
        folder.refuses(&signing, &["pkcs12/own.p12: it is encrypted: a section of `secrets`"]);
    }
    folder.run("openssl pkcs12 -export -nokeys -in own.pem -passout pass:correct -out pkcs12/own.p12");
    folder.refuses(&secret("correct"), &["pkcs12/own.p12: it contains no private key"]);
    folder.run("cp own.pem pkcs12/own.p12");
    folder.refuses(&secret("correct"), &["pkcs12/own.p12: a PKCS #12 container in DER was expected"]);
    // Without the container there is no certificate for the identity.
    folder.run("rm pkcs12/own.p12");
    let (status, stderr) = folder.check(&secret("correct"));
    assert!(
        status == Some(0) && stderr.contains("a certificate that contains the identity own.test"),
        "{stderr}"
    );
}

#[test]
fn certificates_of_this_host_that_are_not_valid_for_long_cause_a_warning() {
    let Some(folder) = Folder::with(
        "touch index
        printf '%s\\n' '[ca]' 'default_ca=d' '[d]' 'database=index' 'new_certs_dir=.' 'rand_serial=yes' \\
            'default_md=sha256' 'policy=p' 'copy_extensions=copy' 'unique_subject=no' '[p]' \\
            'commonName=supplied' > ca.cnf
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=own -keyout private/own.pem \\
            -out request.pem -addext subjectAltName=DNS:own.test 2>/dev/null
        chmod 600 private/own.pem",
    ) else {
        return;
    };
    let conf = connection("auth = pubkey", "auth = pubkey");
    for (options, words) in [
        ("-days 15", ""),
        ("-days 13", "x509/own.pem: the certificate of this host (CN=own) expires on 2"),
        ("-startdate 20200101000000Z -enddate 20210203040506Z", "has expired on 2021-02-03T04:05:06Z"),
        ("-startdate 21000101000000Z -enddate 21010101000000Z", "is not valid before 2100-01-01T00:00:00Z"),
    ] {
        folder.run(&format!(
            "openssl ca -batch -config ca.cnf -selfsign -keyfile private/own.pem -in request.pem -notext \\
                {options} -out x509/own.pem 2>/dev/null"
        ));
        let (status, stderr) = folder.check(&conf);
        assert_eq!((status, stderr.is_empty()), (Some(0), words.is_empty()), "{options}: {stderr}");
        assert!(stderr.contains(words), "{options}: {stderr}");
    }
}
