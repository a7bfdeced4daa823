//! Any combined-mode cipher with a detached tag, as an [`AeadKey`]. GCM, CCM and ChaCha20-Poly1305 only choose the type.

use crate::provider::init;
use aes_gcm::aead::{AeadCore, AeadInOut, KeyInit, Nonce, Tag};
use alloc::boxed::Box;
use casemate_crypto::{AeadJob, AeadKey, KeyError, Outcome};

struct Combined<C>(C);

/// A key of the cipher `C`.
pub(crate) fn key<C>(key: &[u8]) -> Result<Box<dyn AeadKey>, KeyError>
where
    C: AeadInOut + KeyInit + Send + Sync + 'static,
{
    Ok(Box::new(Combined(init::<C>(key)?)))
}

impl<C: AeadInOut + Send + Sync> AeadKey for Combined<C> {
    fn seal(&self, jobs: &mut [AeadJob<'_>]) {
        for job in jobs {
            job.outcome = outcome(self.seal_one(job));
        }
    }

    fn open(&self, jobs: &mut [AeadJob<'_>]) {
        for job in jobs {
            job.outcome = outcome(self.open_one(job));
        }
    }
}

impl<C: AeadInOut> Combined<C> {
    fn seal_one(&self, job: &mut AeadJob<'_>) -> Option<()> {
        let nonce = nonce::<C>(&job.nonce)?;
        let tag = <&mut Tag<C>>::try_from(&mut *job.tag).ok()?;
        *tag = self.0.encrypt_inout_detached(nonce, job.aad, (&mut *job.text).into()).ok()?;
        Some(())
    }

    /// Constant-time comparison of the tag is the cipher crate's.
    fn open_one(&self, job: &mut AeadJob<'_>) -> Option<()> {
        let nonce = nonce::<C>(&job.nonce)?;
        let tag = <&Tag<C>>::try_from(&*job.tag).ok()?;
        self.0.decrypt_inout_detached(nonce, job.aad, (&mut *job.text).into(), tag).ok()
    }
}

/// The nonce lies left-aligned in its field.
fn nonce<C: AeadCore>(field: &[u8; 12]) -> Option<&Nonce<C>> {
    field.get(..size_of::<Nonce<C>>())?.try_into().ok()
}

fn outcome(done: Option<()>) -> Outcome {
    if done.is_some() { Outcome::Done } else { Outcome::Failed }
}
