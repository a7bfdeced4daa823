//! HMAC with SHA-1 and SHA-2 (RFC 2404, RFC 4868).
//!
//! The two padded key blocks are hashed once, at set-up (RFC 2104 section 4); a packet starts from a copy of that state.

use crate::mac::{MacFunction, truncated};
use crate::provider::init;
use alloc::boxed::Box;
use casemate_crypto::{KeyError, MacKey};
use hmac::{EagerHash, Hmac, Mac};

/// An HMAC key over the hash `D`; any length (RFC 2104 section 2).
pub(crate) fn key<D>(key: &[u8], tag_len: usize) -> Result<Box<dyn MacKey>, KeyError>
where
    D: EagerHash + 'static,
    Hmac<D>: Send + Sync,
{
    Ok(truncated(init::<Hmac<D>>(key)?, tag_len))
}

impl<D: EagerHash> MacFunction for Hmac<D>
where
    Self: Send + Sync,
{
    fn tag(&self, _nonce: &[u8; 12], data: &[u8]) -> Option<impl AsRef<[u8]>> {
        let mut mac = self.clone();
        mac.update(data);
        Some(mac.finalize().into_bytes())
    }
}
