//! Tests of the suite: it must detect faults in a provider.
#![allow(clippy::indexing_slicing)]

use casemate_crypto::{
    AeadAlg, AeadJob, AeadKey, CipherAlg, CipherKey, JobStatus, KeyError, MacAlg, MacJob, MacKey, Provider,
};
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_vectors::{Report, conformance, differential};

/// The fault of [`Faulty`].
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    /// Open accepts every tag.
    AnyTag,
    /// Open ignores the last byte of the tag.
    ShortTag,
    /// The AAD is not authenticated.
    NoAad,
    /// The last job of a batch is skipped.
    LastJob,
    /// A key with one extra byte is truncated.
    LongKey,
    /// The last byte of a MAC is zero.
    MacByte,
    /// A partial block at the end of a text is left unencrypted.
    OddText,
}

struct Faulty(Fault);

struct FaultyKey<K: ?Sized>(Fault, Box<K>);

impl Provider for Faulty {
    fn name(&self) -> &'static str {
        "faulty"
    }

    fn aead(&self, alg: AeadAlg, key: &[u8]) -> Result<Box<dyn AeadKey>, KeyError> {
        let len = if self.0 == Fault::LongKey { alg.key_len().min(key.len()) } else { key.len() };
        Ok(Box::new(FaultyKey(self.0, RUSTCRYPTO.aead(alg, &key[..len])?)))
    }

    fn cipher(&self, alg: CipherAlg, key: &[u8]) -> Result<Box<dyn CipherKey>, KeyError> {
        Ok(Box::new(FaultyKey(self.0, RUSTCRYPTO.cipher(alg, key)?)))
    }

    fn mac(&self, alg: MacAlg, key: &[u8]) -> Result<Box<dyn MacKey>, KeyError> {
        Ok(Box::new(FaultyKey(self.0, RUSTCRYPTO.mac(alg, key)?)))
    }
}

impl FaultyKey<dyn AeadKey> {
    fn run(&self, jobs: &mut [AeadJob<'_>], run: fn(&dyn AeadKey, &mut [AeadJob<'_>])) {
        let count = if self.0 == Fault::LastJob { jobs.len().saturating_sub(1).max(1) } else { jobs.len() };
        let count = count.min(jobs.len());
        for job in &mut jobs[..count] {
            let aad = if self.0 == Fault::NoAad { &[] } else { job.aad };
            let AeadJob { nonce, text, tag, status, .. } = job;
            let mut one = [AeadJob { nonce: *nonce, aad, text, tag, status: *status }];
            run(&*self.1, &mut one);
            *status = one[0].status;
        }
    }
}

impl AeadKey for FaultyKey<dyn AeadKey> {
    fn seal(&self, jobs: &mut [AeadJob<'_>]) {
        self.run(jobs, |key, jobs| key.seal(jobs));
    }

    fn open(&self, jobs: &mut [AeadJob<'_>]) {
        let kept: Vec<_> = jobs.iter().map(|job| (job.text.to_vec(), job.tag.to_vec())).collect();
        self.run(jobs, |key, jobs| key.open(jobs));
        for (job, (text, tag)) in jobs.iter_mut().zip(kept) {
            if job.status == JobStatus::Failed && self.forgives(job, text, &tag) {
                job.status = JobStatus::Done;
            }
        }
    }
}

impl FaultyKey<dyn AeadKey> {
    fn forgives(&self, job: &AeadJob<'_>, text: Vec<u8>, tag: &[u8]) -> bool {
        match self.0 {
            Fault::AnyTag => true,
            Fault::ShortTag => {
                let right = self.right_tag(job, text, tag.len());
                tag.len().checked_sub(1).is_some_and(|but_last| tag[..but_last] == right[..but_last])
            }
            _ => false,
        }
    }

    /// All these ciphers are key streams, so two seal operations decrypt and encrypt again.
    fn right_tag(&self, job: &AeadJob<'_>, mut text: Vec<u8>, len: usize) -> Vec<u8> {
        let mut tag = vec![0; len];
        for _ in 0..2 {
            let (text, tag) = (&mut text[..], &mut tag[..]);
            self.1.seal(&mut [AeadJob { nonce: job.nonce, aad: job.aad, text, tag, status: job.status }]);
        }
        tag
    }
}

impl CipherKey for FaultyKey<dyn CipherKey> {
    fn encrypt(&self, iv: &[u8; 16], text: &mut [u8]) -> bool {
        let whole = text.len() - text.len() % 16;
        self.1.encrypt(iv, text) || self.0 == Fault::OddText && self.1.encrypt(iv, &mut text[..whole])
    }

    fn decrypt(&self, iv: &[u8; 16], text: &mut [u8]) -> bool {
        self.1.decrypt(iv, text)
    }
}

impl MacKey for FaultyKey<dyn MacKey> {
    fn sign(&self, jobs: &mut [MacJob<'_>]) {
        self.1.sign(jobs);
        for job in jobs.iter_mut().filter(|_| self.0 == Fault::MacByte) {
            job.tag.as_mut_slice().iter_mut().rev().take(1).for_each(|last| *last = 0);
        }
    }
}

/// Names of the families that detected the fault.
fn noticed(report: &Report) -> Vec<&str> {
    report.families.iter().filter(|family| !family.failures.is_empty()).map(|f| f.name.as_str()).collect()
}

#[test]
fn every_fault_is_detected() {
    let aeads = ["wycheproof/aes_gcm", "wycheproof/chacha20_poly1305", "cavp/VNT128.rsp", "rfc/7634"];
    let macs = ["wycheproof/aes_gmac", "cavp/rfc-2202-sha1.txt", "rfc/3566", "rfc/4494", "rfc/4868"];
    let faults: [(Fault, &[&str]); 6] = [
        (Fault::AnyTag, &aeads),
        (Fault::ShortTag, &aeads),
        (Fault::NoAad, &aeads),
        (Fault::LongKey, &["contract/aead"]),
        (Fault::MacByte, &macs),
        (Fault::OddText, &["contract/cipher"]),
    ];
    for (fault, by) in faults {
        let report = conformance(&Faulty(fault));
        let noticed = noticed(&report);
        assert!(by.iter().all(|family| noticed.contains(family)), "{fault:?} is noticed only by {noticed:?}");
    }
}

#[test]
fn a_skipped_job_of_a_batch_is_detected() {
    assert_eq!(noticed(&differential(&RUSTCRYPTO, &Faulty(Fault::LastJob), 1)), ["differential/aead"]);
}

#[test]
#[should_panic(expected = "the number of cases run has changed")]
fn a_missing_family_is_detected() {
    conformance(&casemate_legacy::LEGACY).assert(casemate_vectors::MODERN);
}
