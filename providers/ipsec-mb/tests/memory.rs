//! Once a key stands and the thread has its manager, no call allocates; and no memory that the library was lent is given back
//! with anything in it.
// The whole file is test code; clippy exempts only the `#[test]` functions by itself.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use casemate_crypto::{
    AeadAlg, AeadJob, AeadKey, AesBits, CipherAlg, EtmJob, EtmKey, MacAlg, MacKind, Outcome, Provider, Tag,
};
use casemate_ipsec_mb::IPSEC_MB;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// Blocks that came back wiped, and those that did not. Not by thread: a manager goes when its thread has ended.
static WIPED: AtomicUsize = AtomicUsize::new(0);
static UNWIPED: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, with a look at what comes back.
struct Watch;

/// Alignment of what the library is lent, and of nothing else here.
const LENT: usize = 64;

// SAFETY: forwards to `System`; `dealloc` only reads the block before.
unsafe impl GlobalAlloc for Watch {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if layout.align() == LENT {
            // SAFETY: the block is still allocated; volatile, because freed contents may count as unread.
            let wiped = (0..layout.size()).all(|at| unsafe { block.add(at).read_volatile() } == 0);
            if wiped { &WIPED } else { &UNWIPED }.fetch_add(1, Ordering::SeqCst);
        }
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static WATCH: Watch = Watch;

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

fn run_combined(key: &dyn AeadKey, spoil: u8) {
    let (mut text, mut tag) = ([7; 1424], [0; 16]);
    let outcome = Outcome::Pending;
    let mut jobs = [AeadJob { nonce: [1; 12], aad: &[2; 8], text: &mut text, tag: &mut tag, outcome }];
    key.seal(&mut jobs);
    assert_eq!(jobs[0].outcome, Outcome::Done);
    jobs[0].tag[0] ^= spoil;
    key.open(&mut jobs);
    assert_eq!(jobs[0].outcome == Outcome::Done, spoil == 0);
}

fn run_chained(key: &dyn EtmKey, spoil: u8) {
    let mut packets = [[7; 1424]; 40];
    let mut jobs = packets.each_mut().map(|data| EtmJob {
        iv: [1; 16],
        mac_nonce: [0; 12],
        data,
        text: 16..1424,
        tag: Tag::zeroed(16),
        outcome: Outcome::Pending,
    });
    key.seal(&mut jobs);
    assert!(jobs.iter().all(|job| job.outcome == Outcome::Done));
    let sealed = jobs[3].data[16..].to_vec();
    jobs[3].tag.as_mut_slice()[0] ^= spoil;
    key.open(&mut jobs);
    let failed = jobs.iter().filter(|job| job.outcome != Outcome::Done).count();
    assert_eq!(failed, usize::from(spoil != 0));
    // What does not verify is not decrypted.
    assert_eq!(jobs[3].data[16..] == sealed[..], spoil != 0);
}

/// `run_chained` keeps one copy of a packet.
const OWN: usize = 1;

#[test]
fn packets_allocate_nothing_and_what_was_lent_comes_back_wiped() {
    if let Err(absent) = IPSEC_MB.available() {
        return casemate_left_out::note(absent);
    }
    let (combined, ccm, pair) = (gcm(), ccm(), chained());
    run_chained(&*pair, 0);
    for spoil in [0, 1] {
        let before = ALLOCATIONS.get();
        run_combined(&*combined, spoil);
        run_combined(&*ccm, spoil);
        assert_eq!(ALLOCATIONS.get() - before, 0, "AES-GCM and AES-CCM");
        run_chained(&*pair, spoil);
        assert_eq!(ALLOCATIONS.get() - before, OWN, "AES-CBC with HMAC");
    }

    let wiped = || (WIPED.load(Ordering::SeqCst), UNWIPED.load(Ordering::SeqCst));
    let (before, unwiped) = wiped();
    assert_eq!(unwiped, 0);
    drop(combined);
    assert_eq!(wiped(), (before + 1, 0), "the AES-GCM key");
    // Round keys for two directions.
    drop(ccm);
    assert_eq!(wiped(), (before + 3, 0), "the AES-CCM key");
    // Round keys for two directions, inner and outer state, and the tag of nothing.
    drop(pair);
    assert_eq!(wiped(), (before + 8, 0), "the keys of the pair");

    // The manager of a thread that ends.
    thread::spawn(|| run_chained(&*chained(), 0)).join().unwrap();
    assert_eq!(wiped(), (before + 14, 0), "the keys of the pair, and the manager");
}
