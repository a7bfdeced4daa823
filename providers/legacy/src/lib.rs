//! DES, 3DES, HMAC-MD5, the 1024-bit MODP group, and MD4 and MD5 for passwords of EAP: broken or obsolete
//! algorithms, in a separate crate for that reason.
//!
//! RFC 8221 forbids DES-CBC and HMAC-MD5 (MUST NOT, sections 5 and 6) and discourages 3DES (SHOULD NOT), RFC
//! 8247 discourages the MODP group (SHOULD NOT, section 2.4). They
//! only exist to repeat published measurements and to communicate with old peers, and cannot be used by
//! accident: no core crate depends on this crate, `adapters/lwip` depends on it with a feature that is off by
//! default, and a program must add [`LEGACY`] to its `Providers` explicitly. The algorithms for passwords are
//! no part of `Providers`: [`Legacy`] has them as
//! [`PasswordAlgorithms`].
//!
//! `no_std`, no unsafe code in this crate; keys are wiped on drop.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod modp1024;

use alloc::boxed::Box;
use casemate_crypto::{
    AeadAlg, AeadKey, CipherAlg, CipherKey, JobStatus, KexMethod, KexSecret, KeyError, MacAlg, MacJob,
    MacKey, MacKind, PasswordAlgorithms, Provider, Rng,
};
use cbc::{Decryptor, Encryptor};
use des::cipher::consts::U8;
use des::cipher::{
    Array, Block, BlockCipherDecrypt, BlockCipherEncrypt, BlockModeDecrypt, BlockModeEncrypt, BlockSizeUser,
    InnerIvInit,
};
use des::{Des, TdesEde3, weak_key_test};
use hmac::{Hmac, KeyInit, Mac};
use md4::Md4;
use md5::{Digest as _, Md5};
use zeroize::Zeroizing;

/// The legacy algorithms as a [`Provider`].
#[derive(Debug, Clone, Copy)]
pub struct Legacy;

/// The value of [`Legacy`], to be listed last in [`Providers`](casemate_crypto::Providers).
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
            CipherAlg::DesCbc => des_key(key),
            CipherAlg::TripleDesCbc => triple_des_key(key),
            _ => Err(KeyError::Unsupported),
        }
    }

    /// HMAC accepts keys of any length (RFC 2104); `Providers` enforces the key length of RFC 2403 for SAs.
    fn mac(&self, alg: MacAlg, key: &[u8]) -> Result<Box<dyn MacKey>, KeyError> {
        match alg.kind() {
            MacKind::HmacMd5 => hmac_md5_key(key, alg.tag_len()),
            _ => Err(KeyError::Unsupported),
        }
    }

    fn kex(&self, method: KexMethod, rng: &mut dyn Rng) -> Result<Box<dyn KexSecret>, KeyError> {
        match method {
            KexMethod::Modp1024 => modp1024::secret(rng),
            _ => Err(KeyError::Unsupported),
        }
    }
}

/// DES-CBC (RFC 2405) or 3DES-CBC (RFC 2451), without padding, because ESP has its own padding.
struct Cbc<C>(C);

/// Sets up a DES-CBC key. Parity bits are ignored, and weak keys are rejected.
fn des_key(key: &[u8]) -> Result<Box<dyn CipherKey>, KeyError> {
    let with_parity: Zeroizing<[u8; 8]> = Zeroizing::new(key.try_into().map_err(|_| key_length::<Des>(key))?);
    // RFC 2405 section 3: weak keys SHOULD be rejected. The known weak keys have adjusted parity bits.
    weak_key_test(&with_parity.map(odd_parity)).map_err(|_| KeyError::Refused)?;
    cbc_key::<Des>(key)
}

/// Sets up a 3DES-CBC key. RFC 2451 section 2.3 does not require weak keys to be rejected.
fn triple_des_key(key: &[u8]) -> Result<Box<dyn CipherKey>, KeyError> {
    cbc_key::<TdesEde3>(key)
}

fn cbc_key<C>(key: &[u8]) -> Result<Box<dyn CipherKey>, KeyError>
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

/// Sets the lowest bit so that the number of one bits is odd (FIPS 46-3).
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

/// The 8-byte IV is left-aligned in its field.
fn left_half(field: &[u8; 16]) -> Array<u8, U8> {
    field.first_chunk::<8>().copied().unwrap_or_default().into()
}

/// HMAC-MD5 (RFC 2403). The padded key blocks are hashed once, when the key is set up (RFC 2104 section 4).
struct HmacMd5 {
    keyed: Hmac<Md5>,
    tag_len: usize,
}

/// Sets up an HMAC-MD5 key of any length with tags of `tag_len` bytes.
fn hmac_md5_key(key: &[u8], tag_len: usize) -> Result<Box<dyn MacKey>, KeyError> {
    let keyed = Hmac::new_from_slice(key).map_err(|_| KeyError::Refused)?;
    Ok(Box::new(HmacMd5 { keyed, tag_len }))
}

impl MacKey for HmacMd5 {
    fn sign(&self, jobs: &mut [MacJob<'_>]) {
        for job in jobs {
            let mut mac = self.keyed.clone();
            mac.update(job.data);
            let full = mac.finalize().into_bytes();
            let out = job.tag.as_mut_slice();
            job.status = match full.get(..self.tag_len) {
                Some(tag) if tag.len() == out.len() => {
                    out.copy_from_slice(tag);
                    JobStatus::Done
                }
                _ => JobStatus::Failed,
            };
        }
    }
}

impl PasswordAlgorithms for Legacy {
    fn md4(&self, message: &[u8]) -> [u8; 16] {
        Md4::digest(message).into()
    }

    fn md5(&self, parts: &[&[u8]]) -> [u8; 16] {
        let mut hash = Md5::new();
        for part in parts {
            hash.update(part);
        }
        hash.finalize().into()
    }

    fn des(&self, key: &[u8; 7], block: [u8; 8]) -> [u8; 8] {
        let mut block = block.into();
        Des::new(&(*with_parity_bits(key)).into()).encrypt_block(&mut block);
        block.into()
    }

    fn sha1_compress(&self, block: &[u8; 64]) -> [u8; 20] {
        /// Initial hash value (FIPS 180-4 section 5.3.1).
        const INITIAL: [u32; 5] = [0x6745_2301, 0xEFCD_AB89, 0x98BA_DCFE, 0x1032_5476, 0xC3D2_E1F0];
        let mut state = Zeroizing::new(INITIAL);
        sha1::block_api::compress(&mut state, &[*block]);
        let mut out = [0; 20];
        for (to, word) in out.as_chunks_mut::<4>().0.iter_mut().zip(*state) {
            *to = word.to_be_bytes();
        }
        out
    }
}

/// Distributes 56 bits over eight bytes, each with seven bits of the key above a parity bit (RFC 2759 section
/// 9.3). The parity bits are zero, because DES ignores them.
fn with_parity_bits(key: &[u8; 7]) -> Zeroizing<[u8; 8]> {
    let [a, b, c, d, e, f, g] = *key;
    let bits = Zeroizing::new(u64::from_be_bytes([0, a, b, c, d, e, f, g]));
    // The shift moves the seven bits of byte `index` to the top of the lowest byte.
    Zeroizing::new([48_u32, 41, 34, 27, 20, 13, 6, 0].map(|shift| {
        let seven = if shift == 0 { *bits << 1 } else { *bits >> shift };
        seven as u8 & 0xFE
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weak_des_keys_are_rejected_with_any_parity() {
        assert_eq!(des_key(&[1; 8]).err(), Some(KeyError::Refused));
        assert_eq!(des_key(&[0; 8]).err(), Some(KeyError::Refused));
        assert_eq!(des_key(b"\x01\x23\x45\x67\x89\xab\xcd\xef").err(), None);
    }

    #[test]
    fn a_key_of_wrong_length_is_rejected_with_the_expected_length() {
        assert_eq!(des_key(&[7; 7]).err(), Some(KeyError::KeyLength { expected: 8, given: 7 }));
        assert_eq!(triple_des_key(&[7; 16]).err(), Some(KeyError::KeyLength { expected: 24, given: 16 }));
    }

    /// Reads hexadecimal digits.
    fn hex<const N: usize>(digits: &str) -> [u8; N] {
        core::array::from_fn(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap())
    }

    #[test]
    fn md4_of_rfc_1320_appendix_a_5() {
        for (message, digest) in [
            ("", "31d6cfe0d16ae931b73c59d7e0c089c0"),
            ("a", "bde52cb31de33e46245e05fbdbd6fb24"),
            ("abc", "a448017aaf21d8525fc10ae87aa6729d"),
            ("message digest", "d9130a8164549fe818874806e1c7014b"),
            ("abcdefghijklmnopqrstuvwxyz", "d79e1c308aa5bbcdeea8ed63df412da9"),
        ] {
            assert_eq!(Legacy.md4(message.as_bytes()), hex(digest), "{message}");
        }
    }

    #[test]
    fn md5_of_rfc_1321_appendix_a_5() {
        for (parts, digest) in [
            (&[""][..], "d41d8cd98f00b204e9800998ecf8427e"),
            (&["a"], "0cc175b9c0f1b6a831c399e269772661"),
            (&["a", "bc"], "900150983cd24fb0d6963f7d28e17f72"),
            (&["message", "", " digest"], "f96b697d7cb7938d525a2f31aaf161d0"),
        ] {
            let parts: alloc::vec::Vec<&[u8]> = parts.iter().map(|part| part.as_bytes()).collect();
            assert_eq!(Legacy.md5(&parts), hex(digest), "{parts:?}");
        }
    }

    #[test]
    fn des_keys_of_rfc_2759_section_9_3() {
        for (raw, expanded) in
            [("fc156af7edcd6c", "fd0b5b5e7f6e34d9"), ("0edde3337d427f", "0e6e796737ea08fe")]
        {
            let parity_cleared = hex::<8>(expanded).map(|byte| byte & 0xFE);
            assert_eq!(*with_parity_bits(&hex(raw)), parity_cleared);
        }
    }

    /// The three blocks of the NT response are the challenge, encrypted with parts of the password's hash.
    #[test]
    fn des_blocks_of_rfc_2759_section_9_2() {
        let challenge = hex("d02e4386bce91226");
        for (key, block) in [
            ("44ebba8d5312b8", "82309ecd8d708b5e"),
            ("d611474411f569", "a08faa3981cd8354"),
            ("89ae0000000000", "4233114a3d85d6df"),
        ] {
            assert_eq!(Legacy.des(&hex(key), challenge), hex(block));
        }
    }
}
