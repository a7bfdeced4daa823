//! AES-GCM (RFC 4106), ChaCha20-Poly1305 (RFC 7634), and AES-GMAC (RFC 4543).

use crate::done;
use crate::ffi::{Aead, AeadKind};
use casemate_crypto::{AeadJob, AeadKey, MacJob, MacKey};

/// An AEAD with an ICV of `icv` bytes; `None` if the library refuses.
pub(crate) fn combined(kind: AeadKind, key: &[u8], icv: usize) -> Option<Box<dyn AeadKey>> {
    Some(Box::new(Combined(Aead::new(kind, key, icv)?)))
}

/// AES-GMAC; `None` if the library refuses.
pub(crate) fn gmac(kind: AeadKind, key: &[u8], icv: usize) -> Option<Box<dyn MacKey>> {
    Some(Box::new(Gmac(Aead::new(kind, key, icv)?)))
}

struct Combined(Aead);

impl AeadKey for Combined {
    fn seal(&self, jobs: &mut [AeadJob<'_>]) {
        for job in jobs {
            job.outcome = done(self.0.seal(&job.nonce, job.aad, job.text, job.tag));
        }
    }

    fn open(&self, jobs: &mut [AeadJob<'_>]) {
        for job in jobs {
            job.outcome = done(self.0.open(&job.nonce, job.aad, job.text, job.tag));
        }
    }
}

/// RFC 4543 section 3: AES-GCM with everything as additional data and an empty text.
struct Gmac(Aead);

impl MacKey for Gmac {
    fn sign(&self, jobs: &mut [MacJob<'_>]) {
        for job in jobs {
            job.outcome = done(self.0.seal(&job.nonce, job.data, &mut [], job.tag.as_mut_slice()));
        }
    }
}
