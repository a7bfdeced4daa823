//! AES-CTR (RFC 3686). The caller gives the whole counter block; its last 32 bits count up (section 4).

use crate::etm::BatchCipher;
use crate::provider::init;
use aes::cipher::{
    Array, BlockCipherEncrypt, BlockSizeUser, InnerIvInit, KeyInit, StreamCipher, consts::U16,
};
use aes::{Aes128Enc, Aes192Enc, Aes256Enc};
use alloc::boxed::Box;
use casemate_crypto::{AesBits, CipherKey, KeyError};
use ctr::{Ctr32BE, CtrCore};

struct Ctr<A>(A);

/// An AES-CTR key.
pub(crate) fn key(bits: AesBits, key: &[u8]) -> Result<Box<dyn BatchCipher>, KeyError> {
    match bits {
        AesBits::B128 => with::<Aes128Enc>(key),
        AesBits::B192 => with::<Aes192Enc>(key),
        AesBits::B256 => with::<Aes256Enc>(key),
    }
}

fn with<A>(key: &[u8]) -> Result<Box<dyn BatchCipher>, KeyError>
where
    A: BlockSizeUser<BlockSize = U16> + BlockCipherEncrypt + KeyInit + Send + Sync + 'static,
{
    Ok(Box::new(Ctr(init::<A>(key)?)))
}

impl<A> CipherKey for Ctr<A>
where
    A: BlockSizeUser<BlockSize = U16> + BlockCipherEncrypt + Send + Sync,
{
    /// `false` only for a text longer than the key stream, 2^36 bytes.
    fn encrypt(&self, iv: &[u8; 16], text: &mut [u8]) -> bool {
        let core = CtrCore::inner_iv_init(&self.0, &Array(*iv));
        Ctr32BE::from_core(core).try_apply_keystream(text).is_ok()
    }

    fn decrypt(&self, iv: &[u8; 16], text: &mut [u8]) -> bool {
        self.encrypt(iv, text)
    }
}

impl<A> BatchCipher for Ctr<A> where A: BlockSizeUser<BlockSize = U16> + BlockCipherEncrypt + Send + Sync {}
