//! ChaCha20-Poly1305 (RFC 7634, RFC 8439).

use crate::combined;
use alloc::boxed::Box;
use casemate_crypto::{AeadKey, KeyError};
use chacha20poly1305::ChaCha20Poly1305;

/// A ChaCha20-Poly1305 key.
pub(crate) fn key(key: &[u8]) -> Result<Box<dyn AeadKey>, KeyError> {
    combined::key::<ChaCha20Poly1305>(key)
}
