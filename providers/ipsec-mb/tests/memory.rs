//! After the key and the thread's manager are set up, calls allocate nothing. All memory that the library
//! used is wiped before it is freed.
// The whole file is test code; clippy only exempts the `#[test]` functions.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use casemate_crypto::{
    AeadAlg, AeadJob, AeadKey, AesBits, CipherAlg, EtmJob, EtmKey, JobStatus, MacAlg, MacKind, Provider, Tag,
};
use casemate_ipsec_mb::IPSEC_MB;
use casemate_test_support::allocator::{FreedBlock, TestAllocator, count_allocations};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Numbers of freed blocks that were wiped and that were not. Not per thread: a manager is freed after its
/// thread has ended.
static WIPED: AtomicUsize = AtomicUsize::new(0);
static UNWIPED: AtomicUsize = AtomicUsize::new(0);

/// Alignment of memory passed to the library; nothing else in this program has it.
const LENT: usize = 64;

/// Counts the freed blocks that were passed to the library.
fn check(block: &FreedBlock) {
    if block.align() == LENT {
        if block.is_wiped() { &WIPED } else { &UNWIPED }.fetch_add(1, Ordering::SeqCst);
    }
}

#[global_allocator]
static ALLOCATOR: TestAllocator = TestAllocator::with_check(check);

fn gcm() -> Box<dyn AeadKey> {
    IPSEC_MB.aead(AeadAlg::aes_gcm(AesBits::B256, 16).unwrap(), &[0xA5; 32]).unwrap()
}

fn ccm() -> Box<dyn AeadKey> {
    IPSEC_MB.aead(AeadAlg::aes_ccm(AesBits::B256, 16).unwrap(), &[0xA5; 32]).unwrap()
}

fn chained() -> Box<dyn EtmKey> {
    let mac = MacAlg::standard(MacKind::HmacSha256);
    IPSEC_MB.etm(CipherAlg::AesCbc(AesBits::B256), &[0xA5; 32], mac, &[0x5A; 32]).unwrap()
}

fn run_combined(key: &dyn AeadKey, corrupt: u8) {
    let (mut text, mut tag) = ([7; 1424], [0; 16]);
    let status = JobStatus::Pending;
    let mut jobs = [AeadJob { nonce: [1; 12], aad: &[2; 8], text: &mut text, tag: &mut tag, status }];
    key.seal(&mut jobs);
    assert_eq!(jobs[0].status, JobStatus::Done);
    jobs[0].tag[0] ^= corrupt;
    key.open(&mut jobs);
    assert_eq!(jobs[0].status == JobStatus::Done, corrupt == 0);
}

fn run_chained(key: &dyn EtmKey, corrupt: u8) {
    let mut packets = [[7; 1424]; 40];
    let mut jobs = packets.each_mut().map(|data| EtmJob {
        iv: [1; 16],
        mac_nonce: [0; 12],
        data,
        text: 16..1424,
        tag: Tag::zeroed(16),
        status: JobStatus::Pending,
    });
    key.seal(&mut jobs);
    assert!(jobs.iter().all(|job| job.status == JobStatus::Done));
    let sealed = jobs[3].data[16..].to_vec();
    jobs[3].tag.as_mut_slice()[0] ^= corrupt;
    key.open(&mut jobs);
    let failed = jobs.iter().filter(|job| job.status != JobStatus::Done).count();
    assert_eq!(failed, usize::from(corrupt != 0));
    // A text whose tag does not verify is not decrypted.
    assert_eq!(jobs[3].data[16..] == sealed[..], corrupt != 0);
}

/// `run_chained` copies one packet.
const OWN: usize = 1;

#[test]
fn packets_allocate_nothing_and_memory_is_wiped() {
    if let Err(unavailable) = IPSEC_MB.available() {
        return casemate_test_support::skip(unavailable);
    }
    let (combined, ccm, pair) = (gcm(), ccm(), chained());
    run_chained(&*pair, 0);
    for corrupt in [0, 1] {
        let allocations = count_allocations(|| {
            run_combined(&*combined, corrupt);
            run_combined(&*ccm, corrupt);
        })
        .allocations;
        assert_eq!(allocations, 0, "AES-GCM and AES-CCM");
        let allocations = count_allocations(|| run_chained(&*pair, corrupt)).allocations;
        assert_eq!(allocations, OWN, "AES-CBC with HMAC");
    }

    let wiped = || (WIPED.load(Ordering::SeqCst), UNWIPED.load(Ordering::SeqCst));
    let (before, unwiped) = wiped();
    assert_eq!(unwiped, 0);
    drop(combined);
    assert_eq!(wiped(), (before + 1, 0), "the AES-GCM key");
    // Round keys for two directions.
    drop(ccm);
    assert_eq!(wiped(), (before + 3, 0), "the AES-CCM key");
    // Round keys for two directions, inner and outer state, and the tag of an empty message.
    drop(pair);
    assert_eq!(wiped(), (before + 8, 0), "the keys of the pair");

    // The manager of a thread that ends.
    thread::spawn(|| run_chained(&*chained(), 0)).join().unwrap();
    assert_eq!(wiped(), (before + 14, 0), "the keys of the pair, and the manager");
}
