//! DES, 3DES and HMAC-MD5: broken or obsolete, and apart for that reason.
//!
//! RFC 8221 says MUST NOT to DES-CBC and HMAC-MD5 (sections 5 and 6) and SHOULD NOT to 3DES. They exist here only to repeat
//! published measurements and to talk to old peers, so nothing gets them by accident: no crate of the core
//! depends on this one, `adapters/lwip` does with a feature that is off by default, and a program has them only if it puts [`LEGACY`] into
//! its `Providers` by name.
//!
//! `no_std`, no unsafe code of its own; keys are wiped on drop.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod des_cbc;
mod hmac_md5;

use alloc::boxed::Box;
use casemate_crypto::{AeadAlg, AeadKey, CipherAlg, CipherKey, KeyError, MacAlg, MacKey, MacKind, Provider};

/// The legacy algorithms as a [`Provider`].
#[derive(Debug, Clone, Copy)]
pub struct Legacy;

/// The one value of [`Legacy`], to be put into [`Providers`](casemate_crypto::Providers) after the others.
pub static LEGACY: Legacy = Legacy;

impl Provider for Legacy {
    fn name(&self) -> &'static str {
        "legacy"
    }

    fn aead(&self, _alg: AeadAlg, _key: &[u8]) -> Result<Box<dyn AeadKey>, KeyError> {
        Err(KeyError::Unsupported)
    }

    fn cipher(&self, alg: CipherAlg, key: &[u8]) -> Result<Box<dyn CipherKey>, KeyError> {
        match alg {
            CipherAlg::DesCbc => des_cbc::des_key(key),
            CipherAlg::TripleDesCbc => des_cbc::triple_des_key(key),
            CipherAlg::Null | CipherAlg::AesCbc(_) | CipherAlg::AesCtr(_) => Err(KeyError::Unsupported),
        }
    }

    /// HMAC takes a key of any length here (RFC 2104); `Providers` holds SAs to the length of RFC 2403.
    fn mac(&self, alg: MacAlg, key: &[u8]) -> Result<Box<dyn MacKey>, KeyError> {
        match alg.kind() {
            MacKind::HmacMd5 => hmac_md5::key(key, alg.tag_len()),
            _ => Err(KeyError::Unsupported),
        }
    }
}
