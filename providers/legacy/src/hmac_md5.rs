//! HMAC-MD5 (RFC 2403). The padded key blocks are hashed once, at set-up (RFC 2104 section 4).

use alloc::boxed::Box;
use casemate_crypto::{KeyError, MacJob, MacKey, Outcome};
use hmac::{Hmac, KeyInit, Mac};
use md5::Md5;

struct HmacMd5 {
    keyed: Hmac<Md5>,
    tag_len: usize,
}

/// An HMAC-MD5 key of any length, whose tags are cut to `tag_len` bytes.
pub(crate) fn key(key: &[u8], tag_len: usize) -> Result<Box<dyn MacKey>, KeyError> {
    let keyed = Hmac::new_from_slice(key).map_err(|_| KeyError::Refused)?;
    Ok(Box::new(HmacMd5 { keyed, tag_len }))
}

impl MacKey for HmacMd5 {
    fn sign(&self, jobs: &mut [MacJob<'_>]) {
        for job in jobs {
            let mut mac = self.keyed.clone();
            mac.update(job.data);
            let full = mac.finalize().into_bytes();
            let out = job.tag.as_mut_slice();
            job.outcome = match full.get(..self.tag_len) {
                Some(tag) if tag.len() == out.len() => {
                    out.copy_from_slice(tag);
                    Outcome::Done
                }
                _ => Outcome::Failed,
            };
        }
    }
}
