//! AES-XCBC-MAC (RFC 3566).

use crate::chain_mac::ChainMac;
use crate::provider::init;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use aes::{Aes128Enc, Block};
use alloc::boxed::Box;
use casemate_crypto::{KeyError, MacKey};
use zeroize::Zeroizing;

/// An AES-XCBC-MAC key.
pub(crate) fn key(key: &[u8], tag_len: usize) -> Result<Box<dyn MacKey>, KeyError> {
    let given: Aes128Enc = init(key)?;
    // RFC 3566 section 4: K1, K2 and K3 are the encryptions of 0x01.., 0x02.. and 0x03..
    let derive = |byte: u8| {
        let mut derived = Zeroizing::new(Block::from([byte; 16]));
        given.encrypt_block(&mut derived);
        derived
    };
    let cipher = Aes128Enc::new(&*derive(1));
    Ok(Box::new(ChainMac { cipher, whole: derive(2), padded: derive(3), tag_len }))
}
