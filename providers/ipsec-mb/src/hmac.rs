//! HMAC (RFC 2104) with SHA-1 (RFC 2404) and SHA-2 (RFC 4868).

use crate::done;
use crate::ffi::{BURST, HmacKey, Library, MOST_BYTES, Sha};
use casemate_crypto::{MAX_TAG, MacJob, MacKey, Outcome};

/// HMAC cut to `len` bytes.
pub(crate) fn hmac(library: &'static Library, sha: Sha, key: &[u8], len: usize) -> Box<dyn MacKey> {
    Box::new(Hmac { key: HmacKey::new(library, sha, key), len })
}

struct Hmac {
    key: HmacKey,
    /// Length of the tag in bytes.
    len: usize,
}

impl Hmac {
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

impl MacKey for Hmac {
    fn sign(&self, jobs: &mut [MacJob<'_>]) {
        jobs.chunks_mut(BURST).for_each(|jobs| self.sign_burst(jobs));
    }
}

fn is_pending(job: &MacJob<'_>) -> bool {
    job.outcome == Outcome::Pending
}
