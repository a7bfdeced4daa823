//! AES-CCM (RFC 4309): nonce of 11 bytes, so a length field of 4; tag of 16, 12 or 8.

use crate::combined;
use aes::cipher::{BlockCipherEncrypt, BlockSizeUser};
use aes::{Aes128Enc, Aes192Enc, Aes256Enc};
use alloc::boxed::Box;
use casemate_crypto::{AeadKey, AesBits, KeyError};
use ccm::Ccm;
use ccm::KeyInit;
use ccm::consts::{U8, U11, U12, U16};

/// An AES-CCM key with an ICV of `icv` bytes.
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
        8 => combined::key::<Ccm<A, U8, U11>>(key),
        12 => combined::key::<Ccm<A, U12, U11>>(key),
        16 => combined::key::<Ccm<A, U16, U11>>(key),
        _ => Err(KeyError::Unsupported),
    }
}
