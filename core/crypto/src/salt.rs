//! The implicit part of a nonce, which is agreed on together with the key and never sent.

use crate::{KeyError, SecretBytes};

/// A salt or nonce of at most 4 bytes: of AES-GCM and AES-GMAC (RFC 4106 section 4, RFC 4543 section 3.2), AES-CCM (RFC 4309
/// section 4), ChaCha20-Poly1305 (RFC 7634 section 2) and AES-CTR (RFC 3686 section 4). IKE uses the same (RFC 5282 section 4).
#[derive(Clone, Copy)]
pub struct Salt {
    bytes: [u8; 4],
    len: u8,
}

impl Salt {
    /// Takes key material apart, which is the key and then the salt; both lengths must be right.
    pub fn split(material: &SecretBytes, key_len: usize, salt_len: usize) -> Result<(&[u8], Self), KeyError> {
        let given = material.len();
        let wrong = KeyError::KeyLength { expected: key_len.saturating_add(salt_len), given };
        let (key, salt) = material.expose().split_at_checked(key_len).ok_or(wrong)?;
        if salt.len() == salt_len { Ok((key, Self::new(salt))) } else { Err(wrong) }
    }

    fn new(bytes: &[u8]) -> Self {
        let mut salt = Self { bytes: [0; 4], len: bytes.len().min(4) as u8 };
        for (to, from) in salt.bytes.iter_mut().zip(bytes) {
            *to = *from;
        }
        salt
    }

    /// Salt and IV, left-aligned in a 12-byte nonce.
    #[inline]
    pub fn nonce(&self, iv: [u8; 8]) -> [u8; 12] {
        // Put together in a register: libraries read the nonce as two words, and a word that was written in parts is slow.
        let shift = if self.len == 3 { 24 } else { 32 };
        let nonce = u128::from(u64::from_le_bytes(iv)) << shift | u128::from(u32::from_le_bytes(self.bytes));
        nonce.to_le_bytes().first_chunk().copied().unwrap_or_default()
    }

    /// AES-CTR's first counter block.
    #[inline]
    pub fn counter_block(&self, iv: [u8; 8]) -> [u8; 16] {
        let [a, b, c, d, s, t, u, v, w, x, y, z] = self.nonce(iv);
        [a, b, c, d, s, t, u, v, w, x, y, z, 0, 0, 0, 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IV: [u8; 8] = [11, 12, 13, 14, 15, 16, 17, 18];

    #[test]
    fn salts_of_three_and_four_bytes() {
        let material = SecretBytes::new(&[1, 2, 3, 4, 5, 6, 7]);
        let (key, four) = Salt::split(&material, 3, 4).unwrap();
        assert_eq!(key, [1, 2, 3]);
        assert_eq!(four.nonce(IV), [4, 5, 6, 7, 11, 12, 13, 14, 15, 16, 17, 18]);
        assert_eq!(four.counter_block(IV), [4, 5, 6, 7, 11, 12, 13, 14, 15, 16, 17, 18, 0, 0, 0, 1]);
        let (_, three) = Salt::split(&material, 4, 3).unwrap();
        assert_eq!(three.nonce(IV), [5, 6, 7, 11, 12, 13, 14, 15, 16, 17, 18, 0]);
    }

    #[test]
    fn a_wrong_length_is_told() {
        let material = SecretBytes::new(&[0; 19]);
        for key_len in [14, 16, 20] {
            let expected = key_len + 4;
            assert_eq!(
                Salt::split(&material, key_len, 4).err(),
                Some(KeyError::KeyLength { expected, given: 19 })
            );
        }
    }
}
