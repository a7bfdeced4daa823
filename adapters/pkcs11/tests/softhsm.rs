//! Keys on tokens of SoftHSM: every signature algorithm, decryption, and every refusal.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

use casemate_aws_lc::AWS_LC;
use casemate_crypto::{Curve, HashAlg, KeyKind, Provider, Providers, SecretBytes, SignatureAlg};
use casemate_pkcs11::{TokenError, TokenKey, TokenModule, TokenObject};
use casemate_test_support::{Program, SoftHsm, TempDir, skip};
use std::path::{Path, PathBuf};
use std::{env, fs};

const PIN: &str = "123456";
const PROVIDERS: &[&dyn Provider] = &[&AWS_LC];
/// Variables with what the other process needs.
const MODULE: &str = "TEST_PKCS11_MODULE";
const SLOTS: &str = "TEST_PKCS11_SLOTS";

/// SoftHSM reads its configuration from the environment of the process, so the test proper runs in another
/// one.
fn in_other_process(test: &str, hsm: &SoftHsm, slots: &[u64]) {
    let slots: Vec<String> = slots.iter().map(ToString::to_string).collect();
    let output = Program::new(env::current_exe().unwrap())
        .args(["--ignored", "--exact", test, "--nocapture"])
        .env(SoftHsm::CONFIG, hsm.config())
        .env(MODULE, hsm.module())
        .env(SLOTS, slots.join(","))
        .output();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

fn module() -> TokenModule {
    TokenModule::new(PathBuf::from(env::var_os(MODULE).unwrap()), || Ok(()))
}

fn slots() -> Vec<u64> {
    env::var(SLOTS).unwrap().split(',').map(|slot| slot.parse().unwrap()).collect()
}

fn object(slot: Option<u64>, id: u8) -> TokenObject {
    TokenObject { slot, id: vec![id] }
}

fn open(slot: Option<u64>, id: u8, pin: Option<&str>) -> Result<TokenKey, TokenError> {
    let pin = pin.map(|pin| SecretBytes::new(pin.as_bytes()));
    module().open_key(&object(slot, id), pin.as_ref(), PROVIDERS)
}

#[test]
fn keys_sign() {
    let scratch = TempDir::new("pkcs11-sign").unwrap();
    let Some(hsm) = SoftHsm::new(&scratch.file("hsm")) else { return };
    let slot = hsm.add_token("one", PIN);
    for (kind, id) in
        [("rsa:2048", "01"), ("EC:prime256v1", "02"), ("EC:secp384r1", "03"), ("EC:secp521r1", "04")]
    {
        hsm.generate(slot, PIN, kind, id);
    }
    hsm.generate(slot, PIN, "EC:edwards25519", "05");
    in_other_process("all_algorithms_sign", &hsm, &[slot]);
}

#[test]
#[ignore = "keys_sign starts it as a process of its own"]
fn all_algorithms_sign() {
    let mut signed = 0;
    for (id, kind) in [
        (1, KeyKind::Rsa),
        (2, KeyKind::Ec(Curve::P256)),
        (3, KeyKind::Ec(Curve::P384)),
        (4, KeyKind::Ec(Curve::P521)),
        (5, KeyKind::Ed25519),
    ] {
        let key = open(None, id, Some(PIN)).unwrap();
        assert_eq!(key.public_key().kind(), kind);
        for alg in SignatureAlg::ALL.into_iter().filter(|alg| alg.accepts_key(kind)) {
            let message = vec![id; 300];
            let signature = key.sign(alg, message.clone()).unwrap_or_else(|why| panic!("{alg}: {why}"));
            let providers = Providers(PROVIDERS);
            let verified = providers.verify_allowing_sha1(alg, key.public_key(), &message, &signature);
            assert_eq!(verified, Ok(()), "{alg}");
            signed += 1;
        }
        let wrong = SignatureAlg::ALL.into_iter().find(|alg| !alg.accepts_key(kind)).unwrap();
        assert!(matches!(key.sign(wrong, vec![1]), Err(TokenError::Algorithm(_))), "{wrong}");
    }
    assert_eq!(signed, 8 + 3 * 4 + 1);
    let key = open(None, 2, Some(PIN)).unwrap();
    let (sender, result) = std::sync::mpsc::channel();
    let alg = SignatureAlg::Ecdsa(HashAlg::Sha256);
    key.sign_later(alg, vec![7], move |result| sender.send(result).unwrap()).unwrap();
    assert!(result.recv().unwrap().is_ok());
}

/// Makes a key pair, and encrypts a text with its public key, and with that of another pair. `$1` is the
/// directory.
const SCRIPT: &str = r#"set -e
cd "$1"
for key in own other; do
  openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out $key.key
  openssl pkey -in $key.key -pubout -out $key.pub
  for hash in sha1 sha256; do
    printf "the wrapping key" | openssl pkeyutl -encrypt -pubin -inkey $key.pub \
      -pkeyopt rsa_padding_mode:oaep -pkeyopt rsa_oaep_md:$hash -out $key.$hash
  done
done
"#;

#[test]
fn keys_decrypt() {
    let scratch = TempDir::new("pkcs11-decrypt").unwrap();
    let Some(hsm) = SoftHsm::new(&scratch.file("hsm")) else { return };
    if !Path::new("/usr/bin/openssl").exists() {
        skip("openssl (Debian package openssl)");
        return;
    }
    let output = Program::new("sh").args(["-c", SCRIPT, "sh"]).arg(scratch.path()).output();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let slot = hsm.add_token("one", PIN);
    hsm.import(slot, PIN, &scratch.file("own.key"), "01");
    hsm.generate(slot, PIN, "EC:prime256v1", "02");
    in_other_process("texts_are_decrypted", &hsm, &[slot]);
}

#[test]
#[ignore = "keys_decrypt starts it as a process of its own"]
fn texts_are_decrypted() {
    let directory = PathBuf::from(env::var_os(SoftHsm::CONFIG).unwrap());
    let text = |name: &str| fs::read(directory.ancestors().nth(2).unwrap().join(name)).unwrap();
    let key = open(None, 1, Some(PIN)).unwrap();
    assert_eq!(key.decrypt(text("own.sha1")).unwrap().expose(), b"the wrapping key");
    // SoftHSM up to 2.6 does not support SHA-256 here.
    match key.decrypt(text("own.sha256")) {
        Ok(decrypted) => assert_eq!(decrypted.expose(), b"the wrapping key"),
        Err(why) => assert!(matches!(why, TokenError::Decryption(_)), "{why}"),
    }
    let mut changed = text("own.sha1");
    changed[100] ^= 1;
    for wrong in [text("other.sha1"), changed, text("own.sha1")[1..].to_vec(), Vec::new()] {
        let why = key.decrypt(wrong).unwrap_err();
        assert!(matches!(why, TokenError::Decryption(_)), "{why}");
    }
    // The session can still be used.
    assert_eq!(key.decrypt(text("own.sha1")).unwrap().expose(), b"the wrapping key");
    assert!(key.sign(SignatureAlg::RsaPss(HashAlg::Sha256), vec![1]).is_ok());
    let why = open(None, 2, Some(PIN)).unwrap().decrypt(text("own.sha1")).unwrap_err().to_string();
    assert!(why.contains("an RSA key was expected"), "{why}");
}

#[test]
fn tokens_refuse() {
    let scratch = TempDir::new("pkcs11-refuse").unwrap();
    let Some(hsm) = SoftHsm::new(&scratch.file("hsm")) else { return };
    let slots = [hsm.add_token("one", PIN), hsm.add_token("two", "654321")];
    hsm.generate(slots[0], PIN, "EC:prime256v1", "01");
    hsm.generate(slots[1], "654321", "EC:prime256v1", "02");
    hsm.generate(slots[1], "654321", "EC:prime256v1", "03");
    // The public half of one key with the handle of another.
    for (kind, id) in [("pubkey", "02"), ("privkey", "03")] {
        hsm.delete(slots[1], "654321", kind, id);
    }
    in_other_process("refusals_are_told_apart", &hsm, &slots);
}

#[test]
#[ignore = "tokens_refuse starts it as a process of its own"]
fn refusals_are_told_apart() {
    let [one, two] = slots()[..] else { panic!("two slots were expected") };
    let refused = |slot, id, pin| open(slot, id, pin).map(|_| ()).unwrap_err();
    assert_eq!(refused(Some(one), 1, None), TokenError::PinMissing);
    assert_eq!(refused(Some(7), 1, Some(PIN)), TokenError::NoToken(7));
    assert_eq!(refused(Some(one), 1, Some("000000")), TokenError::PinWrong);
    assert_eq!(refused(Some(one), 1, Some("000000")), TokenError::PinWrongBefore);
    assert_eq!(module().certificate(&object(Some(one), 1)), Err(TokenError::NoCertificate));
    // The public key shows which token has the key.
    assert!(open(None, 1, Some(PIN)).is_ok());
    assert_eq!(refused(Some(one), 1, Some("000000")), TokenError::PinDiffers);
    assert_eq!(refused(Some(one), 9, Some(PIN)), TokenError::NoKey);
    let mut both = [one, two];
    both.sort_unstable();
    let TokenError::WhichSlot(mut slots) = refused(None, 9, Some(PIN)) else { panic!("several slots") };
    slots.sort_unstable();
    assert_eq!(slots, both);
    // Without a public key and a certificate, the private key of an elliptic curve tells nothing.
    assert!(matches!(refused(Some(two), 2, Some("654321")), TokenError::Key(_)));
    assert_eq!(refused(Some(two), 3, Some("654321")), TokenError::NoKey);
    let absent = TokenModule::new("/nonexistent/module.so".into(), || Ok(()));
    let why = absent.certificate(&object(None, 1)).unwrap_err().to_string();
    assert!(why.contains("/nonexistent/module.so"), "{why}");
    let closed = TokenModule::new("/nonexistent/other.so".into(), || Err("no entry".into()));
    assert_eq!(closed.certificate(&object(None, 1)), Err(TokenError::Module("no entry".into())));
}
