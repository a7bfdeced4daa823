//! A cipher and a MAC over whole batches (RFC 4303 section 3.3.2: encrypt, then MAC). Batches let CBC and the
//! chained MACs process several packets at once.

use crate::cipher;
use crate::lanes::LANES;
use alloc::boxed::Box;
use arrayvec::ArrayVec;
use casemate_crypto::{
    CipherAlg, CipherKey, EtmJob, EtmKey, JobStatus, KeyError, MacAlg, MacJob, MacKey, Tag,
};

/// A cipher that may encrypt a batch faster than single packets.
pub(crate) trait BatchCipher: CipherKey {
    /// Encrypts the text of each job. Sets [`JobStatus::Done`] if the cipher accepts the text.
    fn encrypt_all(&self, jobs: &mut [EtmJob<'_>]) {
        for job in jobs {
            let iv = job.iv;
            job.status = status(text(job).is_some_and(|text| self.encrypt(&iv, text)));
        }
    }
}

struct Etm {
    /// Cipher; `None` is NULL encryption (RFC 2410).
    cipher: Option<Box<dyn BatchCipher>>,
    mac: Box<dyn MacKey>,
}

/// Sets up a cipher and a MAC.
pub(crate) fn key(
    cipher: CipherAlg,
    cipher_key: &[u8],
    mac: MacAlg,
    mac_key: &[u8],
) -> Result<Box<dyn EtmKey>, KeyError> {
    let cipher = match cipher {
        CipherAlg::Null => None,
        CipherAlg::AesCbc(bits) => Some(cipher::cbc(bits, cipher_key)?),
        CipherAlg::AesCtr(bits) => Some(cipher::ctr(bits, cipher_key)?),
        CipherAlg::DesCbc | CipherAlg::TripleDesCbc => return Err(KeyError::Unsupported),
    };
    Ok(Box::new(Etm { cipher, mac: crate::mac_key(mac, mac_key)? }))
}

impl EtmKey for Etm {
    fn seal(&self, jobs: &mut [EtmJob<'_>]) {
        for jobs in jobs.chunks_mut(LANES) {
            self.encrypt(jobs);
            let tags = self.sign(jobs);
            for (job, tag) in jobs.iter_mut().zip(tags) {
                match (job.status, tag) {
                    (JobStatus::Done, Some(tag)) => job.tag = tag,
                    _ => job.status = JobStatus::Failed,
                }
            }
        }
    }

    fn open(&self, jobs: &mut [EtmJob<'_>]) {
        for jobs in jobs.chunks_mut(LANES) {
            let tags = self.sign(jobs);
            for (job, tag) in jobs.iter_mut().zip(tags) {
                let verified = tag.is_some_and(|tag| tag.matches(&job.tag));
                job.status = status(verified && self.decrypt(job));
            }
        }
    }
}

impl Etm {
    fn encrypt(&self, jobs: &mut [EtmJob<'_>]) {
        match &self.cipher {
            Some(cipher) => cipher.encrypt_all(jobs),
            None => jobs.iter_mut().for_each(|job| job.status = status(text(job).is_some())),
        }
    }

    fn decrypt(&self, job: &mut EtmJob<'_>) -> bool {
        let iv = job.iv;
        match (&self.cipher, text(job)) {
            (Some(cipher), Some(text)) => cipher.decrypt(&iv, text),
            (None, Some(_)) => true,
            (_, None) => false,
        }
    }

    /// Returns the tags over the data of at most [`LANES`] jobs.
    fn sign(&self, jobs: &[EtmJob<'_>]) -> ArrayVec<Option<Tag>, LANES> {
        let mut signing: ArrayVec<_, LANES> = jobs.iter().map(unsigned).collect();
        self.mac.sign(&mut signing);
        signing.iter().map(|job| (job.status == JobStatus::Done).then_some(job.tag)).collect()
    }
}

fn unsigned<'j>(job: &'j EtmJob<'_>) -> MacJob<'j> {
    let tag = Tag::zeroed(job.tag.as_slice().len());
    MacJob { nonce: job.mac_nonce, data: job.data, tag, status: JobStatus::Pending }
}

/// Returns the encrypted part of a job's data, or `None` if it exceeds the data.
fn text<'j>(job: &'j mut EtmJob<'_>) -> Option<&'j mut [u8]> {
    job.data.get_mut(job.text.clone())
}

fn status(done: bool) -> JobStatus {
    if done { JobStatus::Done } else { JobStatus::Failed }
}
