//! Packet processing allocates nothing, neither in Rust nor in C, and no freed memory contains keys.
//!
//! This program defines `malloc` itself, which glibc allows: both the C library under test and Rust's
//! allocator call it.
#![cfg(all(target_os = "linux", target_env = "gnu"))]
// The whole file is test code; clippy only exempts the `#[test]` functions.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use casemate_aws_lc::AWS_LC;
use casemate_crypto::{
    AeadAlg, AeadJob, AeadKey, AesBits, CipherAlg, CipherKey, JobStatus, MacAlg, MacJob, MacKey, MacKind,
    Provider, Tag,
};
use casemate_test_support::allocator::{FreedBlock, TestAllocator};
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

// SAFETY: calls glibc's allocator under its other name; glibc lets a program replace `malloc`.
#[unsafe(no_mangle)]
extern "C" fn malloc(size: usize) -> *mut c_void {
    count();
    // SAFETY: the contract of the caller.
    unsafe { __libc_malloc(size) }
}

// SAFETY: for the reasons given for `malloc`.
#[unsafe(no_mangle)]
extern "C" fn calloc(n: usize, size: usize) -> *mut c_void {
    count();
    // SAFETY: the contract of the caller.
    unsafe { __libc_calloc(n, size) }
}

// SAFETY: for the reasons given for `malloc`.
#[unsafe(no_mangle)]
extern "C" fn realloc(old: *mut c_void, size: usize) -> *mut c_void {
    count();
    // SAFETY: the contract of the caller.
    unsafe { __libc_realloc(old, size) }
}

/// Lower bound of the size of C structs with key material.
const SMALLEST_STRUCT: usize = 150;

/// Counts the large blocks that are freed without being wiped.
fn check(block: &FreedBlock) {
    if block.size() >= SMALLEST_STRUCT && !block.is_wiped() {
        UNWIPED.set(UNWIPED.get() + 1);
    }
}

#[global_allocator]
static ALLOCATOR: TestAllocator = TestAllocator::with_check(check);

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

/// Seals or signs once, and opens once. Returns the number of allocations.
fn allocations_of(key: &Key, text: &mut [u8], corrupt: bool) -> usize {
    let before = ALLOCATIONS.get();
    match key {
        Key::Aead(alg, key) => {
            let mut storage = [0; 16];
            let tag = &mut storage[..alg.icv_len()];
            let mut jobs = [AeadJob { nonce: [1; 12], aad: &[2; 8], text, tag, status: JobStatus::Pending }];
            key.seal(&mut jobs);
            assert_eq!(jobs[0].status, JobStatus::Done);
            jobs[0].tag[0] ^= u8::from(corrupt);
            key.open(&mut jobs);
            assert_eq!(jobs[0].status == JobStatus::Done, !corrupt);
        }
        Key::Cipher(key) => assert!(key.encrypt(&[3; 16], text) && key.decrypt(&[3; 16], text)),
        Key::Mac(alg, key) => {
            let tag = Tag::zeroed(alg.tag_len());
            let mut jobs = [MacJob { nonce: [1; 12], data: text, tag, status: JobStatus::Pending }];
            key.sign(&mut jobs);
            assert_eq!(jobs[0].status, JobStatus::Done);
        }
    }
    ALLOCATIONS.get() - before
}

#[test]
fn packets_allocate_nothing() {
    let before = ALLOCATIONS.get();
    let keys = every_key();
    assert!(ALLOCATIONS.get() - before >= keys.len(), "Rust allocations are not counted");
    let mut text = vec![0; 1424];
    for (name, key) in &keys {
        for len in [0, 16, 64, 1424] {
            assert_eq!(allocations_of(key, &mut text[..len], false), 0, "{name}, {len} bytes");
        }
    }
    // The first failure of a thread makes the C library allocate its error queue, and nothing else.
    let failing: Vec<usize> = keys.iter().map(|(_, key)| allocations_of(key, &mut text, true)).collect();
    assert!(failing[0] > 0, "C allocations are not counted");
    assert_eq!(failing[1..].iter().sum::<usize>(), 0);
}

#[test]
fn keys_are_wiped_on_drop() {
    UNWIPED.set(0);
    drop(vec![1u8; SMALLEST_STRUCT]);
    assert_eq!(UNWIPED.get(), 1, "unwiped blocks are not counted");
    for (name, key) in every_key() {
        UNWIPED.set(0);
        drop(key);
        assert_eq!(UNWIPED.get(), 0, "{name}");
    }
}
