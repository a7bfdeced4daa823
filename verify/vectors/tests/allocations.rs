//! Key setup may allocate memory, packet processing may not. Only Rust allocations are counted; the C side of
//! AWS-LC has its own allocator.
#![allow(clippy::indexing_slicing)]

use casemate_aws_lc::AWS_LC;
use casemate_crypto::{AeadJob, CipherAlg, EtmJob, JobStatus, MacAlg, MacJob, Provider, Providers, Tag};
use casemate_legacy::LEGACY;
use casemate_ring::RING;
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_test_support::allocator::{TestAllocator, count_allocations};
use casemate_vectors::{aeads, ciphers, macs};

#[global_allocator]
static ALLOCATOR: TestAllocator = TestAllocator::new();

#[test]
fn allocations_are_counted() {
    assert_eq!(count_allocations(|| drop(std::hint::black_box(vec![1u8; 9]))).allocations, 1);
}

#[test]
fn packets_allocate_nothing() {
    let providers: [(&dyn Provider, usize); 4] =
        [(&RUSTCRYPTO, 187), (&AWS_LC, 187), (&RING, 2), (&LEGACY, 9)];
    for (provider, algorithms) in providers {
        let checked = check_aeads(provider) + check_macs(provider) + check_etms(provider);
        assert_eq!(checked, algorithms, "number of checked algorithms of {}", provider.name());
    }
}

fn check_aeads(provider: &dyn Provider) -> usize {
    let mut checked = 0;
    for alg in aeads() {
        let Ok(key) = provider.aead(alg, &vec![3; alg.key_len()]) else { continue };
        let (mut texts, mut tags) = ([[0; 1400]; 8], vec![vec![0; alg.icv_len()]; 8]);
        let job =
            |(text, tag)| AeadJob { nonce: [1; 12], aad: &[0; 8], text, tag, status: JobStatus::Pending };
        let texts = texts.iter_mut().map(|text| &mut text[..]);
        let mut jobs: Vec<_> = texts.zip(tags.iter_mut().map(|tag| &mut tag[..])).map(job).collect();
        assert_eq!(count_allocations(|| key.seal(&mut jobs)).allocations, 0, "{alg}, seal");
        assert_eq!(count_allocations(|| key.open(&mut jobs)).allocations, 0, "{alg}, open");
        assert!(jobs.iter().all(|job| job.status == JobStatus::Done));
        checked += 1;
    }
    checked
}

fn check_macs(provider: &dyn Provider) -> usize {
    let mut checked = 0;
    for alg in macs() {
        let Ok(key) = provider.mac(alg, &vec![3; alg.key_len()]) else { continue };
        let tag = Tag::zeroed(alg.tag_len());
        let job = |()| MacJob { nonce: [1; 12], data: &[7; 1400], tag, status: JobStatus::Pending };
        let mut jobs = [(); 8].map(job);
        assert_eq!(count_allocations(|| key.sign(&mut jobs)).allocations, 0, "{alg}");
        assert!(jobs.iter().all(|job| job.status == JobStatus::Done));
        checked += 1;
    }
    checked
}

fn check_etms(provider: &dyn Provider) -> usize {
    let mut checked = 0;
    for (cipher, mac) in
        ciphers().into_iter().flat_map(|cipher| macs().into_iter().map(move |mac| (cipher, mac)))
    {
        checked += usize::from(check_etm(provider, cipher, mac));
    }
    checked
}

fn check_etm(provider: &dyn Provider, cipher: CipherAlg, mac: MacAlg) -> bool {
    let (cipher_key, mac_key) = (b"no weak key of DES in these 32 by", vec![3; mac.key_len()]);
    let providers = Providers(&[provider]);
    let Ok(key) = providers.etm(cipher, &cipher_key[..cipher.key_len()], mac, &mac_key) else { return false };
    let mut packets = [[0; 1408]; 8];
    let mut jobs: Vec<_> = packets
        .iter_mut()
        .map(|data| EtmJob {
            iv: [1; 16],
            mac_nonce: [1; 12],
            data,
            text: 16..1408,
            tag: Tag::zeroed(mac.tag_len()),
            status: JobStatus::Pending,
        })
        .collect();
    assert_eq!(count_allocations(|| key.seal(&mut jobs)).allocations, 0, "{cipher}/{mac}, seal");
    assert_eq!(count_allocations(|| key.open(&mut jobs)).allocations, 0, "{cipher}/{mac}, open");
    assert!(jobs.iter().all(|job| job.status == JobStatus::Done));
    true
}
