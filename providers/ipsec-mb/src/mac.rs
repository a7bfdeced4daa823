//! The MACs that work on many packets at once: HMAC (RFC 2104) with SHA-1 (RFC 2404) and SHA-2 (RFC 4868), AES-XCBC (RFC 3566)
//! and AES-CMAC (RFC 4494).

use crate::ffi::{AesMacKey, BURST, Chain, HmacKey, Library, MOST_BYTES, Sha};
use crate::{done, wrong_length};
use casemate_crypto::{KeyError, MAX_TAG, MacAlg, MacJob, MacKey, MacKind, Outcome};

/// A key of one of them.
pub(crate) enum Signer {
    Hmac(HmacKey),
    Aes(AesMacKey),
}

impl Signer {
    /// For tags of the algorithm's length: the library has AES-XCBC cut to 12 bytes or less only.
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

    /// Signs at most [`BURST`] pieces of data; the tags stand at the front of `tags` in their order. `false` if a piece is too
    /// long ([`MOST_BYTES`]), there are too many, or the library failed.
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

/// A MAC cut to `len` bytes.
pub(crate) struct Mac {
    pub(crate) key: Signer,
    /// Length of the tag in bytes.
    pub(crate) len: usize,
}

impl Mac {
    fn sign_burst(&self, jobs: &mut [MacJob<'_>]) {
        for job in &mut *jobs {
            let fits = job.tag.as_slice().len() == self.len && job.data.len() <= MOST_BYTES;
            job.outcome = if fits { Outcome::Pending } else { Outcome::Failed };
        }
        let mut tags = [[0; MAX_TAG]; BURST];
        let signed = self.key.sign(jobs.iter().filter(|job| is_pending(job)).map(|job| job.data), &mut tags);
        for (job, tag) in jobs.iter_mut().filter(|job| is_pending(job)).zip(&tags) {
            job.tag.as_mut_slice().iter_mut().zip(tag).for_each(|(to, from)| *to = *from);
            job.outcome = done(signed);
        }
    }
}

impl MacKey for Mac {
    fn sign(&self, jobs: &mut [MacJob<'_>]) {
        jobs.chunks_mut(BURST).for_each(|jobs| self.sign_burst(jobs));
    }
}

fn is_pending(job: &MacJob<'_>) -> bool {
    job.outcome == Outcome::Pending
}
