//! DES-CBC (RFC 2405) and 3DES-CBC (RFC 2451), without padding: ESP pads by itself.

use alloc::boxed::Box;
use casemate_crypto::{CipherKey, KeyError};
use cbc::{Decryptor, Encryptor};
use des::cipher::{
    Array, Block, BlockCipherDecrypt, BlockCipherEncrypt, BlockModeDecrypt, BlockModeEncrypt, BlockSizeUser,
    InnerIvInit, KeyInit, consts::U8,
};
use des::{Des, TdesEde3, weak_key_test};
use zeroize::Zeroizing;

struct Cbc<C>(C);

/// A DES-CBC key; the parity bits are ignored and the weak keys refused.
pub(crate) fn des_key(key: &[u8]) -> Result<Box<dyn CipherKey>, KeyError> {
    let with_parity: Zeroizing<[u8; 8]> = Zeroizing::new(key.try_into().map_err(|_| key_length::<Des>(key))?);
    // RFC 2405 section 3: weak key checks SHOULD be performed, and the known weak keys have their parity adjusted.
    weak_key_test(&with_parity.map(odd_parity)).map_err(|_| KeyError::Refused)?;
    with::<Des>(key)
}

/// A 3DES-CBC key; RFC 2451 section 2.3 sees no need to refuse any.
pub(crate) fn triple_des_key(key: &[u8]) -> Result<Box<dyn CipherKey>, KeyError> {
    with::<TdesEde3>(key)
}

fn with<C>(key: &[u8]) -> Result<Box<dyn CipherKey>, KeyError>
where
    C: BlockSizeUser<BlockSize = U8>
        + BlockCipherEncrypt
        + BlockCipherDecrypt
        + KeyInit
        + Send
        + Sync
        + 'static,
{
    Ok(Box::new(Cbc(C::new_from_slice(key).map_err(|_| key_length::<C>(key))?)))
}

fn key_length<C: KeyInit>(given: &[u8]) -> KeyError {
    KeyError::KeyLength { expected: C::key_size(), given: given.len() }
}

/// The lowest bit makes the number of ones odd (FIPS 46-3).
fn odd_parity(byte: u8) -> u8 {
    let seven = byte & 0xFE;
    seven | u8::from(seven.count_ones().is_multiple_of(2))
}

impl<C> CipherKey for Cbc<C>
where
    C: BlockSizeUser<BlockSize = U8> + BlockCipherEncrypt + BlockCipherDecrypt + Send + Sync,
{
    fn encrypt(&self, iv: &[u8; 16], text: &mut [u8]) -> bool {
        let (blocks, []) = Block::<C>::slice_as_chunks_mut(text) else { return false };
        Encryptor::inner_iv_init(&self.0, &left_half(iv)).encrypt_blocks(blocks);
        true
    }

    fn decrypt(&self, iv: &[u8; 16], text: &mut [u8]) -> bool {
        let (blocks, []) = Block::<C>::slice_as_chunks_mut(text) else { return false };
        Decryptor::inner_iv_init(&self.0, &left_half(iv)).decrypt_blocks(blocks);
        true
    }
}

/// The IV of 8 bytes lies left-aligned in its field.
fn left_half(field: &[u8; 16]) -> Array<u8, U8> {
    field.first_chunk::<8>().copied().unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weak_des_keys_are_refused_whatever_their_parity() {
        assert_eq!(des_key(&[1; 8]).err(), Some(KeyError::Refused));
        assert_eq!(des_key(&[0; 8]).err(), Some(KeyError::Refused));
        assert_eq!(des_key(b"\x01\x23\x45\x67\x89\xab\xcd\xef").err(), None);
    }

    #[test]
    fn a_key_of_wrong_length_says_what_it_should_be() {
        assert_eq!(des_key(&[7; 7]).err(), Some(KeyError::KeyLength { expected: 8, given: 7 }));
        assert_eq!(triple_des_key(&[7; 16]).err(), Some(KeyError::KeyLength { expected: 24, given: 16 }));
    }
}
