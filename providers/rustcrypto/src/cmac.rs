//! AES-CMAC (RFC 4494, RFC 4493).

use crate::chain_mac::ChainMac;
use crate::provider::init;
use aes::cipher::BlockCipherEncrypt;
use aes::{Aes128Enc, Block};
use alloc::boxed::Box;
use casemate_crypto::{KeyError, MacKey};
use zeroize::Zeroizing;

/// An AES-CMAC key.
pub(crate) fn key(key: &[u8], tag_len: usize) -> Result<Box<dyn MacKey>, KeyError> {
    let cipher: Aes128Enc = init(key)?;
    let mut l = Zeroizing::new(Block::default());
    cipher.encrypt_block(&mut l);
    // RFC 4493 section 2.3: K1 and K2.
    let whole = Zeroizing::new(doubled(&l));
    let padded = Zeroizing::new(doubled(&whole));
    Ok(Box::new(ChainMac { cipher, whole, padded, tag_len }))
}

/// Multiplies by x in GF(2^128) with the polynomial of RFC 4493 section 2.3, without a branch on secret bits.
fn doubled(block: &Block) -> Block {
    let value = u128::from_be_bytes(block.0);
    let carry = value >> 127;
    ((value << 1) ^ (carry * 0x87)).to_be_bytes().into()
}
