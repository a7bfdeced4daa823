//! AES-GCM (RFC 4106) and AES-GMAC (RFC 4543).

use crate::done;
use crate::ffi::{GcmKey, Library};
use casemate_crypto::{AeadJob, AeadKey, AesBits, MacJob, MacKey, verifies};

/// AES-GCM with an ICV of `icv` bytes; `None` if the key has a wrong length.
pub(crate) fn gcm(library: &Library, bits: AesBits, key: &[u8], icv: usize) -> Option<Box<dyn AeadKey>> {
    Some(Box::new(Gcm { key: GcmKey::new(library, bits, key)?, icv }))
}

/// AES-GMAC; `None` if the key has a wrong length.
pub(crate) fn gmac(library: &Library, bits: AesBits, key: &[u8]) -> Option<Box<dyn MacKey>> {
    Some(Box::new(Gmac(GcmKey::new(library, bits, key)?)))
}

struct Gcm {
    key: GcmKey,
    /// Length of the tag in bytes.
    icv: usize,
}

impl Gcm {
    #[inline]
    fn seal_one(&self, job: &mut AeadJob<'_>) -> bool {
        if job.tag.len() != self.icv {
            return false;
        }
        let tag = self.key.seal(&job.nonce, job.aad, job.text);
        job.tag.iter_mut().zip(tag).for_each(|(to, from)| *to = from);
        true
    }

    /// What does not verify is wiped: it was decrypted before it could be checked.
    #[inline]
    fn open_one(&self, job: &mut AeadJob<'_>) -> bool {
        if job.tag.len() != self.icv {
            return false;
        }
        let tag = self.key.open(&job.nonce, job.aad, job.text);
        let verified = tag.get(..self.icv).is_some_and(|cut| verifies(cut, job.tag));
        if !verified {
            job.text.fill(0);
        }
        verified
    }
}

impl AeadKey for Gcm {
    fn seal(&self, jobs: &mut [AeadJob<'_>]) {
        for job in jobs {
            job.outcome = done(self.seal_one(job));
        }
    }

    fn open(&self, jobs: &mut [AeadJob<'_>]) {
        for job in jobs {
            job.outcome = done(self.open_one(job));
        }
    }
}

/// RFC 4543 section 3: AES-GCM with everything as additional data and an empty text.
struct Gmac(GcmKey);

impl MacKey for Gmac {
    fn sign(&self, jobs: &mut [MacJob<'_>]) {
        for job in jobs {
            let tag = self.0.seal(&job.nonce, job.data, &mut []);
            let out = job.tag.as_mut_slice();
            let fits = out.len() == tag.len();
            if fits {
                out.copy_from_slice(&tag);
            }
            job.outcome = done(fits);
        }
    }
}
