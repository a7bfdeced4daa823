//! Any MAC function, cut to a tag length, as a [`MacKey`]. HMAC and GMAC only supply the function.

use alloc::boxed::Box;
use casemate_crypto::{MacJob, MacKey, Outcome, Tag};

/// A keyed function from a message to a full-length tag.
pub(crate) trait MacFunction: Send + Sync {
    /// The full-length tag of `data`; `None` if the function cannot take so much. Only GMAC looks at the nonce.
    fn tag(&self, nonce: &[u8; 12], data: &[u8]) -> Option<impl AsRef<[u8]>>;
}

struct Truncated<F> {
    function: F,
    tag_len: usize,
}

/// A MAC key that cuts the function's tags to their first `tag_len` bytes.
pub(crate) fn truncated<F: MacFunction + 'static>(function: F, tag_len: usize) -> Box<dyn MacKey> {
    Box::new(Truncated { function, tag_len })
}

impl<F: MacFunction> MacKey for Truncated<F> {
    fn sign(&self, jobs: &mut [MacJob<'_>]) {
        for job in jobs {
            job.outcome = match self.function.tag(&job.nonce, job.data) {
                Some(full) => put_tag(&mut job.tag, full.as_ref(), self.tag_len),
                None => Outcome::Failed,
            };
        }
    }
}

/// Writes the first `tag_len` bytes of `full`; fails if the job wants a tag of another length.
pub(crate) fn put_tag(tag: &mut Tag, full: &[u8], tag_len: usize) -> Outcome {
    let out = tag.as_mut_slice();
    match full.get(..tag_len) {
        Some(cut) if cut.len() == out.len() => {
            out.copy_from_slice(cut);
            Outcome::Done
        }
        _ => Outcome::Failed,
    }
}
