//! AES-CBC (RFC 3602) and AES-CTR (RFC 3686).

use crate::ffi::{AesDecrypt, AesEncrypt, BLOCK, Block};
use casemate_crypto::{AesBits, CipherKey};

/// AES-CBC; `None` if the library refuses.
pub(crate) fn cbc(bits: AesBits, key: &[u8]) -> Option<Box<dyn CipherKey>> {
    Some(Box::new(Cbc { encrypt: AesEncrypt::new(bits, key)?, decrypt: AesDecrypt::new(bits, key)? }))
}

/// AES-CTR; `None` if the library refuses.
pub(crate) fn ctr(bits: AesBits, key: &[u8]) -> Option<Box<dyn CipherKey>> {
    Some(Box::new(Ctr(AesEncrypt::new(bits, key)?)))
}

struct Cbc {
    encrypt: AesEncrypt,
    decrypt: AesDecrypt,
}

impl CipherKey for Cbc {
    fn encrypt(&self, iv: &Block, text: &mut [u8]) -> bool {
        whole_blocks(text).map(|blocks| self.encrypt.cbc(iv, blocks)).is_some()
    }

    fn decrypt(&self, iv: &Block, text: &mut [u8]) -> bool {
        whole_blocks(text).map(|blocks| self.decrypt.cbc(iv, blocks)).is_some()
    }
}

fn whole_blocks(text: &mut [u8]) -> Option<&mut [Block]> {
    let (blocks, rest) = text.as_chunks_mut::<BLOCK>();
    rest.is_empty().then_some(blocks)
}

struct Ctr(AesEncrypt);

impl CipherKey for Ctr {
    fn encrypt(&self, counter: &Block, text: &mut [u8]) -> bool {
        self.0.ctr(counter, text);
        true
    }

    fn decrypt(&self, counter: &Block, text: &mut [u8]) -> bool {
        self.encrypt(counter, text)
    }
}
