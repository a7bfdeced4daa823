//! No call allocates for a packet, neither in Rust nor in C, and no memory is given back with a key in it.
//!
//! This binary defines `malloc` itself, which glibc allows: the C library under test and Rust's allocator both come here.
#![cfg(all(target_os = "linux", target_env = "gnu"))]
// The whole file is test code; clippy exempts only the `#[test]` functions by itself.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use casemate_aws_lc::AWS_LC;
use casemate_crypto::{
    AeadAlg, AeadJob, AeadKey, AesBits, CipherAlg, CipherKey, MacAlg, MacJob, MacKey, MacKind, Outcome,
    Provider, Tag,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ffi::c_void;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    static UNWIPED: Cell<usize> = const { Cell::new(0) };
}

unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut c_void;
    fn __libc_calloc(count: usize, size: usize) -> *mut c_void;
    fn __libc_realloc(old: *mut c_void, size: usize) -> *mut c_void;
}

fn count() {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
}

// SAFETY: glibc's own allocator under its other name; glibc lets a program replace `malloc`.
#[unsafe(no_mangle)]
extern "C" fn malloc(size: usize) -> *mut c_void {
    count();
    // SAFETY: as the caller's call.
    unsafe { __libc_malloc(size) }
}

// SAFETY: as for `malloc`.
#[unsafe(no_mangle)]
extern "C" fn calloc(n: usize, size: usize) -> *mut c_void {
    count();
    // SAFETY: as the caller's call.
    unsafe { __libc_calloc(n, size) }
}

// SAFETY: as for `malloc`.
#[unsafe(no_mangle)]
extern "C" fn realloc(old: *mut c_void, size: usize) -> *mut c_void {
    count();
    // SAFETY: as the caller's call.
    unsafe { __libc_realloc(old, size) }
}

/// The system's allocator, with a look at what comes back.
struct Watch;

/// Every C struct with key material is larger.
const SMALLEST_STRUCT: usize = 150;

// SAFETY: forwards to `System`; `dealloc` only reads the block before.
unsafe impl GlobalAlloc for Watch {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if layout.size() >= SMALLEST_STRUCT {
            // SAFETY: the block is still allocated; volatile, because freed contents may count as unread.
            let wiped = (0..layout.size()).all(|at| unsafe { block.add(at).read_volatile() } == 0);
            UNWIPED.set(UNWIPED.get() + usize::from(!wiped));
        }
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static WATCH: Watch = Watch;

enum Key {
    Aead(AeadAlg, Box<dyn AeadKey>),
    Cipher(Box<dyn CipherKey>),
    Mac(MacAlg, Box<dyn MacKey>),
}

fn every_key() -> Vec<(String, Key)> {
    let key = [0xA5; 64];
    let mut keys = Vec::new();
    let mut aead = |alg: AeadAlg| {
        let made = AWS_LC.aead(alg, &key[..alg.key_len()]).unwrap();
        keys.push((alg.to_string(), Key::Aead(alg, made)));
    };
    aead(AeadAlg::ChaCha20Poly1305);
    for bits in AesBits::ALL {
        for icv in [8, 12, 16] {
            aead(AeadAlg::aes_gcm(bits, icv).unwrap());
            aead(AeadAlg::aes_ccm(bits, icv).unwrap());
        }
    }
    for bits in AesBits::ALL {
        for alg in [CipherAlg::AesCbc(bits), CipherAlg::AesCtr(bits)] {
            keys.push((alg.to_string(), Key::Cipher(AWS_LC.cipher(alg, &key[..alg.key_len()]).unwrap())));
        }
    }
    for kind in [
        MacKind::HmacSha1,
        MacKind::HmacSha256,
        MacKind::HmacSha384,
        MacKind::HmacSha512,
        MacKind::AesXcbc,
        MacKind::AesCmac,
        MacKind::AesGmac(AesBits::B128),
    ] {
        let alg = MacAlg::standard(kind);
        keys.push((alg.to_string(), Key::Mac(alg, AWS_LC.mac(alg, &key[..alg.key_len()]).unwrap())));
    }
    keys
}

/// Seals or signs, and opens, once; says how many allocations that took.
fn allocations_of(key: &Key, text: &mut [u8], spoil: bool) -> usize {
    let before = ALLOCATIONS.get();
    match key {
        Key::Aead(alg, key) => {
            let mut storage = [0; 16];
            let tag = &mut storage[..alg.icv_len()];
            let mut jobs = [AeadJob { nonce: [1; 12], aad: &[2; 8], text, tag, outcome: Outcome::Pending }];
            key.seal(&mut jobs);
            assert_eq!(jobs[0].outcome, Outcome::Done);
            jobs[0].tag[0] ^= u8::from(spoil);
            key.open(&mut jobs);
            assert_eq!(jobs[0].outcome == Outcome::Done, !spoil);
        }
        Key::Cipher(key) => assert!(key.encrypt(&[3; 16], text) && key.decrypt(&[3; 16], text)),
        Key::Mac(alg, key) => {
            let tag = Tag::zeroed(alg.tag_len());
            let mut jobs = [MacJob { nonce: [1; 12], data: text, tag, outcome: Outcome::Pending }];
            key.sign(&mut jobs);
            assert_eq!(jobs[0].outcome, Outcome::Done);
        }
    }
    ALLOCATIONS.get() - before
}

#[test]
fn no_packet_allocates() {
    let before = ALLOCATIONS.get();
    let keys = every_key();
    assert!(ALLOCATIONS.get() - before >= keys.len(), "the count works for Rust");
    let mut text = vec![0; 1424];
    for (name, key) in &keys {
        for len in [0, 16, 64, 1424] {
            assert_eq!(allocations_of(key, &mut text[..len], false), 0, "{name}, {len} bytes");
        }
    }
    // A thread's first failure makes the C library set up its error queue; that is all.
    let failing: Vec<usize> = keys.iter().map(|(_, key)| allocations_of(key, &mut text, true)).collect();
    assert!(failing[0] > 0, "the count works for C");
    assert_eq!(failing[1..].iter().sum::<usize>(), 0);
}

#[test]
fn keys_are_wiped_on_drop() {
    UNWIPED.set(0);
    drop(vec![1u8; SMALLEST_STRUCT]);
    assert_eq!(UNWIPED.get(), 1, "the watch works");
    for (name, key) in every_key() {
        UNWIPED.set(0);
        drop(key);
        assert_eq!(UNWIPED.get(), 0, "{name}");
    }
}
