//! AES-CCM (RFC 4309): all packets of a run in one call.

use crate::done;
use crate::ffi::{BURST, CcmKey, CcmWork, Direction};
use casemate_crypto::{AeadJob, AeadKey, Outcome, Tag};

/// AES-CCM with an ICV of `icv` bytes.
pub(crate) struct Ccm {
    pub(crate) key: CcmKey,
    /// Length of the tag in bytes.
    pub(crate) icv: usize,
}

/// Tags of a burst, not cut.
type Tags = [[u8; 16]; BURST];

impl Ccm {
    /// Those that can be done stay pending.
    fn sort(&self, jobs: &mut [AeadJob<'_>]) {
        for job in jobs {
            let takes = job.tag.len() == self.icv && CcmKey::takes(job.aad, job.text);
            job.outcome = if takes { Outcome::Pending } else { Outcome::Failed };
        }
    }

    /// The text of each pending job, and the tags that they should have.
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
            job.outcome = done(tags.is_some());
        }
    }

    /// What does not verify is wiped: it was decrypted before it could be checked.
    fn open_burst(&self, jobs: &mut [AeadJob<'_>]) {
        self.sort(jobs);
        let tags = self.crypt(Direction::Decrypt, jobs);
        for (job, tag) in jobs.iter_mut().filter(|job| is_pending(job)).zip(tags.unwrap_or_default()) {
            let cut = tag.get(..self.icv).map(Tag::from_slice).filter(|_| tags.is_some());
            let verified = cut.is_some_and(|cut| cut.verifies(&Tag::from_slice(job.tag)));
            if !verified {
                job.text.fill(0);
            }
            job.outcome = done(verified);
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
    job.outcome == Outcome::Pending
}
