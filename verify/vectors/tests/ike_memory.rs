//! Freed memory contains no private values of key exchanges, no shared secrets and no signing keys.
//!
//! The test watches memory that Rust frees; the C side of AWS-LC has its own allocator, which wipes freed
//! memory. After a MODP exchange, crypto-bigint leaves another form of the result
//! (`docs/decisions/0013-key-exchange.md`).
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

use casemate_aws_lc::AWS_LC;
use casemate_crypto::{KexMethod, KeyLimits, PrivateKey, Provider, Rng, SignatureAlg};
use casemate_legacy::LEGACY;
use casemate_pki::pem;
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_test_support::CountingRng;
use casemate_test_support::allocator::{FreedBlock, TestAllocator};
use std::cell::Cell;

/// A part of a secret to search for, long enough not to be found by chance.
type Needle = [u8; 8];

thread_local! {
    static NEEDLES: Cell<[Needle; 2]> = const { Cell::new([[0; 8]; 2]) };
    static FOUND: Cell<usize> = const { Cell::new(0) };
}

/// Counts the blocks that contain a needle.
fn check(block: &FreedBlock) {
    let needles = NEEDLES.get();
    if needles[0] == [0; 8] {
        return;
    }
    let mut window: Needle = [0; 8];
    let found = block.bytes().enumerate().any(|(at, byte)| {
        window.rotate_left(1);
        window[7] = byte;
        at >= 7 && needles.contains(&window)
    });
    FOUND.set(FOUND.get() + usize::from(found));
}

#[global_allocator]
static ALLOCATOR: TestAllocator = TestAllocator::with_check(check);

/// Number of blocks freed during `run` that contain the first bytes of `secret`, forwards or backwards.
fn freed_with(secret: &[u8], run: impl FnOnce()) -> usize {
    let forward: Needle = *secret.first_chunk().unwrap();
    let mut backward = forward;
    backward.reverse();
    FOUND.set(0);
    NEEDLES.set([forward, backward]);
    run();
    NEEDLES.set([[0; 8]; 2]);
    FOUND.get()
}

#[test]
fn freed_secrets_are_detected() {
    let secret: Vec<u8> = (1..=32).collect();
    assert_eq!(freed_with(&secret[8..], || drop(std::hint::black_box(secret.clone()))), 1);
    let reversed: Vec<u8> = secret.iter().rev().copied().collect();
    assert_eq!(freed_with(&secret[8..], || drop(std::hint::black_box(reversed))), 1);
}

#[test]
fn secrets_are_wiped() {
    let providers: [&dyn Provider; 3] = [&RUSTCRYPTO, &AWS_LC, &LEGACY];
    for (provider, method) in providers.into_iter().flat_map(|p| KexMethod::ALL.map(|m| (p, m))) {
        if provider.kex(method, &mut CountingRng(100)).is_err() {
            continue;
        }
        let make = || provider.kex(method, &mut CountingRng(3)).unwrap();
        let own = make().public().to_vec();
        let respond = || provider.kex_response(method, &own, &mut CountingRng(100)).unwrap();
        let (mut private, public) = (vec![0; method.private_len()], respond().public);
        CountingRng(3).secret(&mut private);
        let shared = make().agree(&public).unwrap().expose().to_vec();
        // The method may change the ends of a private value.
        for (what, secret) in [("private value", &private[8..]), ("shared secret", &shared[8..])] {
            let agreed = freed_with(secret, || drop(make().agree(&public).unwrap()));
            let refused = freed_with(secret, || assert!(make().agree(&public[1..]).is_err()));
            let unused = freed_with(secret, || drop(make()));
            let responded = freed_with(secret, || drop(respond()));
            assert_eq!([agreed, refused, unused, responded], [0; 4], "{}, {method}, {what}", provider.name());
        }
    }
}

/// Private keys from the tests of core/pki.
const KEYS: [&[u8]; 3] = [
    include_bytes!("../../../core/pki/tests/data/moon.key"),
    include_bytes!("../../../core/pki/tests/data/sun.key"),
    include_bytes!("../../../core/pki/tests/data/sub.key"),
];

#[test]
fn signing_keys_are_wiped() {
    let providers: [&dyn Provider; 2] = [&RUSTCRYPTO, &AWS_LC];
    for (provider, text) in providers.into_iter().flat_map(|p| KEYS.map(|text| (p, text))) {
        let der = pem::private_key(text).unwrap();
        let read = || PrivateKey::from_der(der.expose(), KeyLimits::default()).unwrap();
        let known = read();
        let secrets: Vec<&[u8]> = match &known {
            PrivateKey::Rsa(key) => {
                let numbers = key.numbers().unwrap();
                vec![numbers.primes[0], numbers.primes[1], numbers.private_exponent]
            }
            PrivateKey::Ec { scalar, .. } => vec![scalar.expose()],
            PrivateKey::Ed25519(seed) => vec![seed.expose()],
            _ => panic!("no other kind is in the files"),
        };
        for (at, secret) in secrets.into_iter().enumerate() {
            // Skip the start of the secret and use 24 bytes from its end: numbers are stored in words of
            // eight bytes, the lowest word first.
            let secret = &secret[secret.len() - 24..];
            let from_file = freed_with(secret, || drop(pem::private_key(text).unwrap()));
            let signed = freed_with(secret, || {
                let key = provider.signing_key(&read()).unwrap();
                let fitting =
                    SignatureAlg::ALL.into_iter().filter(|alg| alg.accepts_key(key.public_key().kind()));
                fitting.for_each(|alg| drop(key.sign(alg, b"octets", &mut CountingRng(3)).unwrap()));
            });
            let what = format!("{}, {}, secret {at}", provider.name(), known_kind(&known));
            assert_eq!(from_file, 0, "{what}");
            // The crate `rsa` frees unwiped copies of the primes (`docs/decisions/0015-signatures.md`).
            let is_known = provider.name() == "rustcrypto" && matches!(known, PrivateKey::Rsa(_)) && at < 2;
            assert_eq!(signed == 0, !is_known, "{what}: {signed}");
        }
    }
}

fn known_kind(key: &PrivateKey) -> &'static str {
    match key {
        PrivateKey::Rsa(_) => "RSA",
        PrivateKey::Ec { .. } => "ECDSA",
        _ => "Ed25519",
    }
}
