//! Keys on tokens of SoftHSM: every signature algorithm, and every refusal.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

use casemate_aws_lc::AWS_LC;
use casemate_crypto::{Curve, HashAlg, KeyKind, Provider, Providers, SecretBytes, SignatureAlg};
use casemate_pkcs11::{TokenError, TokenKey, TokenModule, TokenObject};
use casemate_test_support::{Program, SoftHsm, TempDir};
use std::env;
use std::path::PathBuf;

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
