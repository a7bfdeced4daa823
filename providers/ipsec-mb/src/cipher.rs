//! AES-CBC (RFC 3602) and AES-CTR (RFC 3686), a packet at a time.

use crate::ffi::{AesKeys, Direction};
use casemate_crypto::CipherKey;

/// The cipher.
pub(crate) struct Cipher(pub(crate) AesKeys);

impl Cipher {
    fn run(&self, direction: Direction, iv: &[u8; 16], text: &mut [u8]) -> bool {
        self.0.run(direction, [(iv, text)].into_iter())
    }
}

impl CipherKey for Cipher {
    fn encrypt(&self, iv: &[u8; 16], text: &mut [u8]) -> bool {
        self.run(Direction::Encrypt, iv, text)
    }

    fn decrypt(&self, iv: &[u8; 16], text: &mut [u8]) -> bool {
        self.run(Direction::Decrypt, iv, text)
    }
}
