//! A token decrypts the wrapping key of a store at the start.

use super::keys::{ECDSA, Keys, PIN, RSA};
use super::testnet::{Side, TestNet, casemate, eventually};
use super::{connection, initiate, own_file, with_pin};
use casemate_test_support::{Program, SoftHsm, TempDir};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Encrypts the bytes for the key of a host. SoftHSM up to 2.6 has OAEP with SHA-1 only.
fn encrypt(keys: &Keys, host: &str, bytes: &[u8], to: &Path) {
    let plain = keys.file("plain");
    fs::write(&plain, bytes).unwrap();
    let output = Program::new("openssl")
        .args(["pkeyutl", "-encrypt", "-pkeyopt", "rsa_padding_mode:oaep", "-pkeyopt", "rsa_oaep_md:sha1"])
        .arg("-inkey")
        .arg(keys.file(&format!("{host}.key")))
        .arg("-in")
        .arg(&plain)
        .arg("-out")
        .arg(to)
        .output();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::remove_file(plain).unwrap();
    fs::set_permissions(to, Permissions::from_mode(0o600)).unwrap();
}

/// A gateway crashes and is started again. The wrapping key is then changed to one that another key of the
/// token protects.
#[test]
fn a_token_decrypts_the_wrapping_key_of_a_store() {
    let Some(net) = TestNet::build("tokens_store") else { return };
    let Some(keys) = Keys::new(net.left.file("keys"), RSA) else { return };
    let scratch = TempDir::new("tokens-store").unwrap();
    let [store, one, two] = ["sas", "one.key", "two.key"].map(|name| scratch.file(name));
    encrypt(&keys, "left", &[7; 32], &one);
    encrypt(&keys, "right", &[8; 32], &two);
    let secrets = format!(
        "secrets {{ token-one {{ handle = a1\n pin = {PIN} }}\n token-two {{ handle = a2\n pin = {PIN} }} }}\n"
    );
    let conf = connection(Side::Left, &own_file(Side::Left)) + &secrets + &keys.module();
    let conf = keys.install(&net.left.file("etc"), "left", &conf, false);
    let program = |more: &[&str]| {
        casemate()
            .arg("run")
            .arg("--config")
            .arg(&conf)
            .arg("--store")
            .arg(&store)
            .args(more.iter().copied())
            .env(SoftHsm::CONFIG, keys.hsm.config())
    };
    let [one, two] = [one, two].map(|path| path.display().to_string());
    let with_one = ["--store-key", &one, "--store-key-token", "token-one"];
    let with_two = ["--store-key", &two, "--store-key-token", "token-two"];
    let second = ["--second-store-key", &one, "--second-store-key-token", "token-one"];
    let mut left = net.left.start(program(&with_one));
    let right = connection(Side::Right, &own_file(Side::Right));
    let right = super::run(&keys, &net.right, "right", &right, true);
    assert!(initiate(&net.left), "--- left\n{}\n--- right\n{}", left.log(), right.log());
    for keys in [&with_one[..], &[&with_two[..], &second].concat(), &with_two] {
        left.crash();
        left = net.left.start(program(keys));
        let logs = || format!("--- left\n{}\n--- right\n{}", left.log(), right.log());
        assert!(left.log().contains("continued with"), "{}", logs());
        eventually("a packet", || net.left.pings(Side::Right.inner(true), 100));
        assert!(!left.log().contains(PIN), "{}", logs());
    }
    assert!(!scratch.file("sas.key").exists(), "no key is made");
    left.crash();
    let output = net.left.output_of(program(&with_one));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("its data keys are encrypted with another wrapping key"), "{said}");
}

const CELL: &str =
    "cell {\n name = berlin\n node = gw1\n wrapping_key = wrapped\n etcd { servers = 127.0.0.1:2379 }";

#[test]
fn what_a_token_does_not_decrypt_is_refused_by_a_dry_run() {
    let scratch = TempDir::new("tokens-wrapped").unwrap();
    let Some(keys) = Keys::new(scratch.file("keys"), RSA) else { return };
    let directory = scratch.file("etc");
    let base = connection(Side::Left, &own_file(Side::Left)) + &with_pin("a1") + &keys.module();
    let run = |conf: &str, more: &[&str]| {
        let path = keys.install(&directory, "left", conf, false);
        let program = Program::new(env!("CARGO_BIN_EXE_casemate")).args(["run", "--dry-run", "--config"]);
        let output =
            program.arg(path).args(more.iter().copied()).env(SoftHsm::CONFIG, keys.hsm.config()).output();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), said, String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let wrapped = directory.join("wrapped");
    let file = wrapped.display().to_string();
    let cell = |more: &str| run(&format!("{base}{CELL}\n {more} }}\n"), &[]);
    let store = || {
        let arguments = ["--store", "/nowhere/sas", "--store-key", &file, "--store-key-token", "token-own"];
        run(&base, &arguments)
    };
    let by_token = "wrapping_key_token = token-own";
    let in_both = |expected: &str| {
        let (status, said, _) = cell(by_token);
        assert_eq!(status, Some(2), "{said}");
        assert!(said.contains("cell.wrapping_key: ") && said.contains(expected), "{said}");
        let (status, said, _) = store();
        assert_eq!(status, Some(1), "{said}");
        assert!(said.contains("--store: ") && said.contains(expected), "{said}");
    };
    in_both("a file with the wrapping key, encrypted for the key of `token-own`, was expected");
    encrypt(&keys, "left", &[7; 31], &wrapped);
    in_both("it decrypts to 31 bytes: a key of exactly 32 bytes was expected");
    encrypt(&keys, "right", &[7; 32], &wrapped);
    in_both("pkcs11:id=%a1: the token cannot decrypt it");
    fs::write(&wrapped, [7; 32]).unwrap();
    in_both("pkcs11:id=%a1: the token cannot decrypt it");
    let (_, said, _) = cell("wrapping_key_token = token-other");
    assert!(
        said.contains("cell.wrapping_key_token: `token-other`: the name of a section of `secrets`"),
        "{said}"
    );
    encrypt(&keys, "left", &[7; 32], &wrapped);
    let (_, said, _) = cell("");
    assert!(said.contains("a key of exactly 32 bytes was expected"), "{said}");

    let (status, said, shown) = cell(by_token);
    assert_eq!(status, Some(0), "{said}");
    let expected = format!("#   wrapping key: {file}, decrypted by the token of token-own\n");
    assert!(shown.contains(&expected), "{shown}");
    assert_eq!(store().0, Some(0), "{}", store().1);
    // The second key of the section is the first one in another encryption.
    let second: PathBuf = directory.join("second");
    encrypt(&keys, "left", &[7; 32], &second);
    let both = format!("{by_token}\n second_wrapping_key = second\n second_wrapping_key_token = token-own");
    let (_, said, _) = cell(&both);
    assert!(said.contains("cell.second_wrapping_key: both wrapping keys are the same"), "{said}");
    encrypt(&keys, "left", &[8; 32], &second);
    assert_eq!(cell(&both).0, Some(0), "{}", cell(&both).1);
    // Without a credential and a file.
    let (status, said, _) = cell(&format!("{by_token}\n second_wrapping_key_token = token-own"));
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("there is no file and no credential casemate-second-store-key"), "{said}");
}

#[test]
fn only_rsa_keys_decrypt() {
    let scratch = TempDir::new("tokens-ecdsa-wrapped").unwrap();
    let Some(keys) = Keys::new(scratch.file("keys"), ECDSA) else { return };
    let conf = connection(Side::Left, &own_file(Side::Left)) + &with_pin("a1") + &keys.module();
    let cell = format!("{conf}{CELL}\n wrapping_key_token = token-own }}\n");
    let path = keys.install(&scratch.file("etc"), "left", &cell, false);
    let wrapped = scratch.file("etc").join("wrapped");
    fs::write(&wrapped, [1; 256]).unwrap();
    fs::set_permissions(&wrapped, Permissions::from_mode(0o600)).unwrap();
    let program = Program::new(env!("CARGO_BIN_EXE_casemate")).args(["run", "--dry-run", "--config"]);
    let output = program.arg(path).env(SoftHsm::CONFIG, keys.hsm.config()).output();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("pkcs11:id=%a1: the key cannot be used: an RSA key was expected, not ECDSA"),
        "{said}"
    );
}
