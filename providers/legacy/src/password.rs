//! MD4, MD5 and a DES block for the password methods of EAP.

use crate::Legacy;
use casemate_crypto::PasswordAlgorithms;
use des::Des;
use des::cipher::BlockCipherEncrypt as _;
use hmac::KeyInit as _;
use md4::Md4;
use md5::{Digest as _, Md5};
use zeroize::Zeroizing;

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
