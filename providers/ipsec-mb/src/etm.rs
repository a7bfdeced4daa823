//! AES-CBC or AES-CTR with a MAC, encrypt-then-MAC (RFC 4303 section 3.3.2): all packets of a run through the one, then
//! through the other.

use crate::done;
use crate::ffi::{AesKeys, BURST, Direction, MOST_BYTES};
use crate::mac::Signer;
use casemate_crypto::{EtmJob, EtmKey, MAX_TAG, Outcome, Tag};

/// A cipher (none for NULL encryption) and a MAC.
pub(crate) struct Chained {
    pub(crate) cipher: Option<AesKeys>,
    pub(crate) mac: Signer,
    /// Length of the tag in bytes.
    pub(crate) tag_len: usize,
}

impl Chained {
    /// Whether the job is one that can be done.
    fn takes(&self, job: &EtmJob<'_>) -> bool {
        let text = job.data.get(job.text.clone());
        let cipher_takes = |len| self.cipher.as_ref().is_none_or(|cipher| cipher.mode().takes(len));
        job.tag.as_slice().len() == self.tag_len
            && job.data.len() <= MOST_BYTES
            && text.is_some_and(|text| cipher_takes(text.len()))
    }

    /// Those that can be done stay pending.
    fn sort(&self, jobs: &mut [EtmJob<'_>]) {
        for job in jobs {
            job.outcome = if self.takes(job) { Outcome::Pending } else { Outcome::Failed };
        }
    }

    /// The text of each pending job.
    fn crypt(&self, direction: Direction, jobs: &mut [EtmJob<'_>]) -> bool {
        let Some(cipher) = &self.cipher else { return true };
        let texts = jobs.iter_mut().filter(|job| is_pending(job)).filter_map(|job| {
            let EtmJob { iv, data, text, .. } = job;
            Some((&*iv, data.get_mut(text.clone())?))
        });
        cipher.run(direction, texts)
    }

    /// Hands the tag that each pending job should have to `each`, if the library could compute them all.
    fn sign(&self, jobs: &mut [EtmJob<'_>], each: impl Fn(&mut EtmJob<'_>, Option<Tag>)) {
        let mut tags = [[0; MAX_TAG]; BURST];
        let signed =
            self.mac.sign(jobs.iter().filter(|job| is_pending(job)).map(|job| &*job.data), &mut tags);
        for (job, tag) in jobs.iter_mut().filter(|job| is_pending(job)).zip(&tags) {
            each(job, tag.get(..self.tag_len).map(Tag::from_slice).filter(|_| signed));
        }
    }

    fn seal_burst(&self, jobs: &mut [EtmJob<'_>]) {
        self.sort(jobs);
        let encrypted = self.crypt(Direction::Encrypt, jobs);
        self.sign(jobs, |job, tag| {
            job.outcome = done(encrypted && tag.is_some());
            job.tag = tag.unwrap_or(job.tag);
        });
    }

    fn open_burst(&self, jobs: &mut [EtmJob<'_>]) {
        self.sort(jobs);
        self.sign(jobs, |job, tag| {
            if !tag.is_some_and(|tag| tag.verifies(&job.tag)) {
                job.outcome = Outcome::Failed;
            }
        });
        let decrypted = self.crypt(Direction::Decrypt, jobs);
        for job in jobs.iter_mut().filter(|job| is_pending(job)) {
            job.outcome = done(decrypted);
        }
    }
}

impl EtmKey for Chained {
    fn seal(&self, jobs: &mut [EtmJob<'_>]) {
        jobs.chunks_mut(BURST).for_each(|jobs| self.seal_burst(jobs));
    }

    fn open(&self, jobs: &mut [EtmJob<'_>]) {
        jobs.chunks_mut(BURST).for_each(|jobs| self.open_burst(jobs));
    }
}

fn is_pending(job: &EtmJob<'_>) -> bool {
    job.outcome == Outcome::Pending
}
