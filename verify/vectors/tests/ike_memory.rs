//! No memory is given back with a private value of a key exchange, with a shared secret or with a key that signs in it.
//!
//! Sees what Rust frees; the C side of AWS-LC has its own allocator, which wipes what it frees. What crypto-bigint leaves of a MODP
//! exchange is another form of the result (`docs/decisions/0013-key-exchange.md`).
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

use casemate_aws_lc::AWS_LC;
use casemate_crypto::{KexMethod, KeyLimits, PrivateKey, Provider, Rng, SignatureAlg};
use casemate_pki::pem;
use casemate_rustcrypto::RUSTCRYPTO;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Bytes of a secret to look for, and enough of them not to be found by chance.
type Needle = [u8; 8];

thread_local! {
    static NEEDLES: Cell<[Needle; 2]> = const { Cell::new([[0; 8]; 2]) };
    static FOUND: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, with a look at what comes back.
struct Watch;

// SAFETY: hands everything on to the system's allocator; `dealloc` only reads the block before.
unsafe impl GlobalAlloc for Watch {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise on `layout` is handed on. Zeroed, so that nothing unwritten is read below.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        let needles = NEEDLES.get();
        if needles[0] != [0; 8] {
            // SAFETY: the block is still allocated; volatile, because freed contents may count as unread.
            let byte = |offset| unsafe { at.add(offset).read_volatile() };
            let starts = 0..(layout.size() + 1).saturating_sub(8);
            let mut windows = starts.map(|start| -> Needle { std::array::from_fn(|i| byte(start + i)) });
            FOUND.set(FOUND.get() + usize::from(windows.any(|window| needles.contains(&window))));
        }
        // SAFETY: `at` came from `alloc` above with this layout.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static WATCH: Watch = Watch;

/// How many blocks with the bytes, in this order or the reverse, are freed meanwhile.
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
fn the_watch_works() {
    let secret: Vec<u8> = (1..=32).collect();
    assert_eq!(freed_with(&secret[8..], || drop(std::hint::black_box(secret.clone()))), 1);
    let reversed: Vec<u8> = secret.iter().rev().copied().collect();
    assert_eq!(freed_with(&secret[8..], || drop(std::hint::black_box(reversed))), 1);
}

/// Counts on from a byte.
struct Counting(u8);

impl Rng for Counting {
    fn public(&mut self, _: &mut [u8]) {}

    fn secret(&mut self, out: &mut [u8]) {
        for byte in out.iter_mut().rev() {
            *byte = self.0;
            self.0 = self.0.wrapping_add(7);
        }
    }
}

#[test]
fn secrets_are_wiped() {
    let providers: [&dyn Provider; 2] = [&RUSTCRYPTO, &AWS_LC];
    for (provider, method) in providers.into_iter().flat_map(|p| KexMethod::ALL.map(|m| (p, m))) {
        let Ok(peer) = provider.kex(method, &mut Counting(100)) else { continue };
        let make = || provider.kex(method, &mut Counting(3)).unwrap();
        let (mut private, public) = (vec![0; method.private_len()], peer.public().to_vec());
        Counting(3).secret(&mut private);
        let shared = make().agree(&public).unwrap().expose().to_vec();
        // The ends of a private value may be changed by its method.
        for (what, secret) in [("private value", &private[8..]), ("shared secret", &shared[8..])] {
            let agreed = freed_with(secret, || drop(make().agree(&public).unwrap()));
            let refused = freed_with(secret, || assert!(make().agree(&public[1..]).is_err()));
            let unused = freed_with(secret, || drop(make()));
            assert_eq!([agreed, refused, unused], [0; 3], "{}, {method}, {what}", provider.name());
        }
    }
}

/// The private keys of core/pki's tests.
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
            // Whole words from the end: numbers are held in words of eight bytes, the lowest first.
            let secret = &secret[secret.len() - 24..];
            let from_file = freed_with(secret, || drop(pem::private_key(text).unwrap()));
            let signed = freed_with(secret, || {
                let key = provider.signing_key(&read()).unwrap();
                let fitting = SignatureAlg::ALL.into_iter().filter(|alg| alg.fits(key.public_key().kind()));
                fitting.for_each(|alg| drop(key.sign(alg, b"octets", &mut Counting(3)).unwrap()));
            });
            let what = format!("{}, {}, secret {at}", provider.name(), known_kind(&known));
            assert_eq!(from_file, 0, "{what}");
            // The crate `rsa` frees copies of the primes as they are (`docs/decisions/0015-signatures.md`).
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
