//! AES-GMAC (RFC 4543): the tag of AES-GCM over data that is only authenticated. Never cut (section 2).

use crate::mac::{MacFunction, truncated};
use crate::provider::init;
use aes::cipher::{BlockCipherEncrypt, BlockSizeUser, KeyInit};
use aes::{Aes128Enc, Aes192Enc, Aes256Enc};
use aes_gcm::AesGcm;
use aes_gcm::aead::AeadInOut;
use aes_gcm::aead::consts::{U12, U16};
use alloc::boxed::Box;
use casemate_crypto::{AesBits, KeyError, MacKey};

struct Gmac<A>(AesGcm<A, U12>);

/// An AES-GMAC key.
pub(crate) fn key(bits: AesBits, key: &[u8], tag_len: usize) -> Result<Box<dyn MacKey>, KeyError> {
    match bits {
        AesBits::B128 => with::<Aes128Enc>(key, tag_len),
        AesBits::B192 => with::<Aes192Enc>(key, tag_len),
        AesBits::B256 => with::<Aes256Enc>(key, tag_len),
    }
}

fn with<A>(key: &[u8], tag_len: usize) -> Result<Box<dyn MacKey>, KeyError>
where
    A: BlockSizeUser<BlockSize = U16> + BlockCipherEncrypt + KeyInit + Send + Sync + 'static,
{
    Ok(truncated(Gmac(init::<AesGcm<A, U12>>(key)?), tag_len))
}

impl<A> MacFunction for Gmac<A>
where
    A: BlockSizeUser<BlockSize = U16> + BlockCipherEncrypt + Send + Sync,
{
    fn tag(&self, nonce: &[u8; 12], data: &[u8]) -> Option<impl AsRef<[u8]>> {
        let no_text: &mut [u8] = &mut [];
        self.0.encrypt_inout_detached(nonce.into(), data, no_text.into()).ok()
    }
}
