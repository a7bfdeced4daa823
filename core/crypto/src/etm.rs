//! Encrypt-then-MAC from any cipher and any MAC (RFC 4303 section 3.3.2).

use crate::{CipherKey, EtmJob, EtmKey, MacJob, MacKey, Outcome, Tag};
use alloc::boxed::Box;

/// A cipher (none for NULL encryption) and a MAC, run one after the other.
pub struct EncryptThenMac {
    cipher: Option<Box<dyn CipherKey>>,
    mac: Box<dyn MacKey>,
}

impl EncryptThenMac {
    /// Joins the two; `None` is NULL encryption (RFC 2410).
    pub fn new(cipher: Option<Box<dyn CipherKey>>, mac: Box<dyn MacKey>) -> Self {
        Self { cipher, mac }
    }

    fn sign(&self, job: &EtmJob<'_>) -> Option<Tag> {
        let tag = Tag::zeroed(job.tag.as_slice().len());
        let mut jobs = [MacJob { nonce: job.mac_nonce, data: job.data, tag, outcome: Outcome::Pending }];
        self.mac.sign(&mut jobs);
        let [signed] = jobs;
        (signed.outcome == Outcome::Done).then_some(signed.tag)
    }
}

impl EtmKey for EncryptThenMac {
    fn seal(&self, jobs: &mut [EtmJob<'_>]) {
        for job in jobs {
            job.outcome = Outcome::Failed;
            let encrypted = match (&self.cipher, job.data.get_mut(job.text.clone())) {
                (Some(cipher), Some(text)) => cipher.encrypt(&job.iv, text),
                (None, Some(_)) => true,
                (_, None) => false,
            };
            if let (true, Some(tag)) = (encrypted, self.sign(job)) {
                job.tag = tag;
                job.outcome = Outcome::Done;
            }
        }
    }

    fn open(&self, jobs: &mut [EtmJob<'_>]) {
        for job in jobs {
            job.outcome = Outcome::Failed;
            if !self.sign(job).is_some_and(|tag| tag.verifies(&job.tag)) {
                continue;
            }
            let decrypted = match (&self.cipher, job.data.get_mut(job.text.clone())) {
                (Some(cipher), Some(text)) => cipher.decrypt(&job.iv, text),
                (None, Some(_)) => true,
                (_, None) => false,
            };
            if decrypted {
                job.outcome = Outcome::Done;
            }
        }
    }
}
