//! AES-GCM (RFC 4106): nonce of 12 bytes, tag of 16, 12 or 8.
//!
//! The shorter tags need the `hazmat` feature of `aes-gcm`: a forgery against 8 bytes succeeds once in 2^64 tries at best,
//! and easier with long packets, so RFC 8221 section 5 names only the 16-byte ICV. They are here to reach old peers.

use crate::combined;
use aes::cipher::{BlockCipherEncrypt, BlockSizeUser, KeyInit};
use aes::{Aes128Enc, Aes192Enc, Aes256Enc};
use aes_gcm::AesGcm;
use aes_gcm::aead::consts::{U8, U12, U16};
use alloc::boxed::Box;
use casemate_crypto::{AeadKey, AesBits, KeyError};

/// An AES-GCM key with an ICV of `icv` bytes.
pub(crate) fn key(bits: AesBits, icv: u8, key: &[u8]) -> Result<Box<dyn AeadKey>, KeyError> {
    match bits {
        AesBits::B128 => with::<Aes128Enc>(icv, key),
        AesBits::B192 => with::<Aes192Enc>(icv, key),
        AesBits::B256 => with::<Aes256Enc>(icv, key),
    }
}

fn with<A>(icv: u8, key: &[u8]) -> Result<Box<dyn AeadKey>, KeyError>
where
    A: BlockSizeUser<BlockSize = U16> + BlockCipherEncrypt + KeyInit + Send + Sync + 'static,
{
    match icv {
        8 => combined::key::<AesGcm<A, U12, U8>>(key),
        12 => combined::key::<AesGcm<A, U12, U12>>(key),
        16 => whole_icv::<A>(key),
        _ => Err(KeyError::Unsupported),
    }
}

/// An AES-GCM key with the ICV of 16 bytes, for the cipher `A`.
pub(crate) fn whole_icv<A>(key: &[u8]) -> Result<Box<dyn AeadKey>, KeyError>
where
    A: BlockSizeUser<BlockSize = U16> + BlockCipherEncrypt + KeyInit + Send + Sync + 'static,
{
    combined::key::<AesGcm<A, U12, U16>>(key)
}
