//! AES-CBC (RFC 3602) and AES-CTR (RFC 3686), alone or with a MAC (encrypt-then-MAC, RFC 4303 section 3.3.2).

use crate::done;
use crate::ffi::{AesKeys, BURST, Direction, MAX_JOB_LEN};
use crate::mac::BatchMac;
use casemate_crypto::{CipherKey, EtmJob, EtmKey, JobStatus, MAX_TAG, Tag};

/// A cipher with its key: one packet per call.
pub(crate) struct Cipher(pub(crate) AesKeys);

impl Cipher {
    fn run(&self, direction: Direction, iv: &[u8; 16], text: &mut [u8]) -> bool {
        self.0.run(direction, [(iv, text)].into_iter())
    }
}

impl CipherKey for Cipher {
    fn encrypt(&self, iv: &[u8; 16], text: &mut [u8]) -> bool {
        self.run(Direction::Encrypt, iv, text)
    }

    fn decrypt(&self, iv: &[u8; 16], text: &mut [u8]) -> bool {
        self.run(Direction::Decrypt, iv, text)
    }
}

/// A cipher and a MAC: all packets of a batch pass the first algorithm, then the second one. No cipher means
/// NULL encryption.
pub(crate) struct CipherThenMac {
    pub(crate) cipher: Option<AesKeys>,
    pub(crate) mac: BatchMac,
    /// Length of the tag in bytes.
    pub(crate) tag_len: usize,
}

impl CipherThenMac {
    /// Whether the library can process the job.
    fn takes(&self, job: &EtmJob<'_>) -> bool {
        let text = job.data.get(job.text.clone());
        let cipher_takes = |len| self.cipher.as_ref().is_none_or(|cipher| cipher.mode().takes(len));
        job.tag.as_slice().len() == self.tag_len
            && job.data.len() <= MAX_JOB_LEN
            && text.is_some_and(|text| cipher_takes(text.len()))
    }

    /// Fails the jobs that the library cannot process; the other ones stay pending.
    fn sort(&self, jobs: &mut [EtmJob<'_>]) {
        for job in jobs {
            job.status = if self.takes(job) { JobStatus::Pending } else { JobStatus::Failed };
        }
    }

    /// Encrypts or decrypts the text of each pending job.
    fn crypt(&self, direction: Direction, jobs: &mut [EtmJob<'_>]) -> bool {
        let Some(cipher) = &self.cipher else { return true };
        let texts = jobs.iter_mut().filter(|job| is_pending(job)).filter_map(|job| {
            let EtmJob { iv, data, text, .. } = job;
            Some((&*iv, data.get_mut(text.clone())?))
        });
        cipher.run(direction, texts)
    }

    /// Computes the tag of each pending job and passes it to `each`; passes `None` if the library failed.
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
            job.status = done(encrypted && tag.is_some());
            job.tag = tag.unwrap_or(job.tag);
        });
    }

    fn open_burst(&self, jobs: &mut [EtmJob<'_>]) {
        self.sort(jobs);
        self.sign(jobs, |job, tag| {
            if !tag.is_some_and(|tag| tag.matches(&job.tag)) {
                job.status = JobStatus::Failed;
            }
        });
        let decrypted = self.crypt(Direction::Decrypt, jobs);
        for job in jobs.iter_mut().filter(|job| is_pending(job)) {
            job.status = done(decrypted);
        }
    }
}

impl EtmKey for CipherThenMac {
    fn seal(&self, jobs: &mut [EtmJob<'_>]) {
        jobs.chunks_mut(BURST).for_each(|jobs| self.seal_burst(jobs));
    }

    fn open(&self, jobs: &mut [EtmJob<'_>]) {
        jobs.chunks_mut(BURST).for_each(|jobs| self.open_burst(jobs));
    }
}

fn is_pending(job: &EtmJob<'_>) -> bool {
    job.status == JobStatus::Pending
}
