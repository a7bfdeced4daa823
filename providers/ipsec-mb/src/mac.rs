//! MACs that process several packets at once: HMAC (RFC 2104) with SHA-1 (RFC 2404) and SHA-2 (RFC 4868),
//! AES-XCBC (RFC 3566) and AES-CMAC (RFC 4494).

use crate::ffi::{AesMacKey, BURST, Chain, HmacKey, Library, MAX_JOB_LEN, Sha};
use crate::{done, wrong_length};
use casemate_crypto::{JobStatus, KeyError, MAX_TAG, MacAlg, MacJob, MacKey, MacKind};

/// A key of one of the MACs.
pub(crate) enum BatchMac {
    Hmac(HmacKey),
    Aes(AesMacKey),
}

impl BatchMac {
    /// Sets up a key for tags of the length of `alg`. The library truncates AES-XCBC tags to 12 bytes or
    /// less.
    pub(crate) fn new(library: &'static Library, alg: MacAlg, key: &[u8]) -> Result<Self, KeyError> {
        let sha = |sha| Ok(Self::Hmac(HmacKey::new(library, sha, key)));
        let aes = |chain: Chain| {
            if alg.tag_len() > chain.tag_len() {
                return Err(KeyError::Unsupported);
            }
            AesMacKey::new(library, chain, key).map(Self::Aes).ok_or(wrong_length(alg.key_len(), key))
        };
        match alg.kind() {
            MacKind::HmacSha1 => sha(Sha::Sha1),
            MacKind::HmacSha256 => sha(Sha::Sha256),
            MacKind::HmacSha384 => sha(Sha::Sha384),
            MacKind::HmacSha512 => sha(Sha::Sha512),
            MacKind::AesXcbc => aes(Chain::Xcbc),
            MacKind::AesCmac => aes(Chain::Cmac),
            MacKind::HmacMd5 | MacKind::AesGmac(_) => Err(KeyError::Unsupported),
        }
    }

    /// Signs at most [`BURST`] messages. Writes the tags to the start of `tags` in order. Returns `false` if
    /// a message is too long ([`MAX_JOB_LEN`]), if there are too many, or if the library fails.
    pub(crate) fn sign<'w>(
        &self,
        work: impl Iterator<Item = &'w [u8]>,
        tags: &mut [[u8; MAX_TAG]; BURST],
    ) -> bool {
        match self {
            Self::Hmac(key) => key.sign(work, tags),
            Self::Aes(key) => key.sign(work, tags),
        }
    }
}

/// A MAC key with tags of `len` bytes.
pub(crate) struct Mac {
    pub(crate) key: BatchMac,
    /// Length of the tag in bytes.
    pub(crate) len: usize,
}

impl Mac {
    fn sign_burst(&self, jobs: &mut [MacJob<'_>]) {
        for job in &mut *jobs {
            let fits = job.tag.as_slice().len() == self.len && job.data.len() <= MAX_JOB_LEN;
            job.status = if fits { JobStatus::Pending } else { JobStatus::Failed };
        }
        let mut tags = [[0; MAX_TAG]; BURST];
        let signed = self.key.sign(jobs.iter().filter(|job| is_pending(job)).map(|job| job.data), &mut tags);
        for (job, tag) in jobs.iter_mut().filter(|job| is_pending(job)).zip(&tags) {
            job.tag.as_mut_slice().iter_mut().zip(tag).for_each(|(to, from)| *to = *from);
            job.status = done(signed);
        }
    }
}

impl MacKey for Mac {
    fn sign(&self, jobs: &mut [MacJob<'_>]) {
        jobs.chunks_mut(BURST).for_each(|jobs| self.sign_burst(jobs));
    }
}

fn is_pending(job: &MacJob<'_>) -> bool {
    job.status == JobStatus::Pending
}
