//! AES-GCM (RFC 4106), AES-GMAC (RFC 4543) and AES-CCM (RFC 4309).

use crate::done;
use crate::ffi::{BURST, CcmKey, CcmWork, Direction, GcmKey, Library};
use casemate_crypto::{AeadJob, AeadKey, AesBits, JobStatus, MacJob, MacKey, Tag, tags_equal};

/// Sets up an AES-GCM key with an ICV of `icv` bytes. Returns `None` if the key has the wrong length.
pub(crate) fn gcm(library: &Library, bits: AesBits, key: &[u8], icv: usize) -> Option<Box<dyn AeadKey>> {
    Some(Box::new(Gcm { key: GcmKey::new(library, bits, key)?, icv }))
}

/// Sets up an AES-GMAC key. Returns `None` if the key has the wrong length.
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

    /// Decrypts the text before the tag can be verified, and zeroes it if the tag does not verify.
    #[inline]
    fn open_one(&self, job: &mut AeadJob<'_>) -> bool {
        if job.tag.len() != self.icv {
            return false;
        }
        let tag = self.key.open(&job.nonce, job.aad, job.text);
        let verified = tag.get(..self.icv).is_some_and(|cut| tags_equal(cut, job.tag));
        if !verified {
            job.text.fill(0);
        }
        verified
    }
}

impl AeadKey for Gcm {
    fn seal(&self, jobs: &mut [AeadJob<'_>]) {
        for job in jobs {
            job.status = done(self.seal_one(job));
        }
    }

    fn open(&self, jobs: &mut [AeadJob<'_>]) {
        for job in jobs {
            job.status = done(self.open_one(job));
        }
    }
}

/// RFC 4543 section 3: AES-GCM with all data as additional data, and an empty text.
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
            job.status = done(fits);
        }
    }
}

/// AES-CCM with an ICV of `icv` bytes. One library call processes all packets of a batch.
pub(crate) struct Ccm {
    pub(crate) key: CcmKey,
    /// Length of the tag in bytes.
    pub(crate) icv: usize,
}

/// Untruncated tags of a burst.
type Tags = [[u8; 16]; BURST];

impl Ccm {
    /// Fails the jobs that the library cannot process; the other ones stay pending.
    fn sort(&self, jobs: &mut [AeadJob<'_>]) {
        for job in jobs {
            let takes = job.tag.len() == self.icv && CcmKey::takes(job.aad, job.text);
            job.status = if takes { JobStatus::Pending } else { JobStatus::Failed };
        }
    }

    /// Encrypts or decrypts the text of each pending job. Returns the computed tags.
    fn crypt(&self, direction: Direction, jobs: &mut [AeadJob<'_>]) -> Option<Tags> {
        let mut tags = [[0; 16]; BURST];
        let work = jobs.iter_mut().filter(|job| is_pending(job)).map(|job| CcmWork {
            nonce: &job.nonce,
            aad: job.aad,
            text: job.text,
        });
        self.key.run(direction, work, &mut tags).then_some(tags)
    }

    fn seal_burst(&self, jobs: &mut [AeadJob<'_>]) {
        self.sort(jobs);
        let tags = self.crypt(Direction::Encrypt, jobs);
        for (job, tag) in jobs.iter_mut().filter(|job| is_pending(job)).zip(tags.unwrap_or_default()) {
            job.tag.iter_mut().zip(tag).for_each(|(to, from)| *to = from);
            job.status = done(tags.is_some());
        }
    }

    /// Decrypts texts before their tags can be verified, and zeroes texts whose tags do not verify.
    fn open_burst(&self, jobs: &mut [AeadJob<'_>]) {
        self.sort(jobs);
        let tags = self.crypt(Direction::Decrypt, jobs);
        for (job, tag) in jobs.iter_mut().filter(|job| is_pending(job)).zip(tags.unwrap_or_default()) {
            let cut = tag.get(..self.icv).map(Tag::from_slice).filter(|_| tags.is_some());
            let verified = cut.is_some_and(|cut| cut.matches(&Tag::from_slice(job.tag)));
            if !verified {
                job.text.fill(0);
            }
            job.status = done(verified);
        }
    }
}

impl AeadKey for Ccm {
    fn seal(&self, jobs: &mut [AeadJob<'_>]) {
        jobs.chunks_mut(BURST).for_each(|jobs| self.seal_burst(jobs));
    }

    fn open(&self, jobs: &mut [AeadJob<'_>]) {
        jobs.chunks_mut(BURST).for_each(|jobs| self.open_burst(jobs));
    }
}

fn is_pending(job: &AeadJob<'_>) -> bool {
    job.status == JobStatus::Pending
}
