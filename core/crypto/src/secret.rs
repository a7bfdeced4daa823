//! Secret bytes, the salts of nonces, and random numbers.

use crate::KeyError;
use alloc::boxed::Box;
use core::fmt;
use subtle::ConstantTimeEq;
use zeroize::Zeroize;

/// Secret bytes: wiped on drop, never printed, compared in constant time.
#[derive(Clone)]
pub struct SecretBytes(Box<[u8]>);

impl SecretBytes {
    /// Copies `bytes`; the caller wipes the original.
    pub fn new(bytes: &[u8]) -> Self {
        Self(Box::from(bytes))
    }

    /// The secret bytes. Do not copy them into memory that is not wiped.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the secret has no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Drop for SecretBytes {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for SecretBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretBytes({} bytes)", self.0.len())
    }
}

impl PartialEq for SecretBytes {
    fn eq(&self, other: &Self) -> bool {
        bool::from(self.0.ct_eq(&other.0))
    }
}

impl Eq for SecretBytes {}

/// A salt or nonce of 3 or 4 bytes: for AES-GCM and AES-GMAC (RFC 4106 section 4, RFC 4543 section 3.2),
/// AES-CCM (RFC 4309 section 4), ChaCha20-Poly1305 (RFC 7634 section 2) and AES-CTR (RFC 3686 section 4). IKE
/// uses the same salts (RFC 5282 section 4).
#[derive(Clone, Copy)]
pub struct Salt {
    bytes: [u8; 4],
    len: u8,
}

impl Salt {
    /// Splits key material into the key and the salt that follows it. Fails if either length is wrong.
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

    /// Returns the salt and the IV, left-aligned in a 12-byte nonce.
    #[inline]
    pub fn nonce(&self, iv: [u8; 8]) -> [u8; 12] {
        // Assembled in a register: libraries load the nonce as two words, and loading a word that was stored
        // in parts stalls.
        let shift = if self.len == 3 { 24 } else { 32 };
        let nonce = u128::from(u64::from_le_bytes(iv)) << shift | u128::from(u32::from_le_bytes(self.bytes));
        nonce.to_le_bytes().first_chunk().copied().unwrap_or_default()
    }

    /// Returns the first counter block of AES-CTR.
    #[inline]
    pub fn counter_block(&self, iv: [u8; 8]) -> [u8; 16] {
        let [a, b, c, d, s, t, u, v, w, x, y, z] = self.nonce(iv);
        [a, b, c, d, s, t, u, v, w, x, y, z, 0, 0, 0, 1]
    }
}

/// A cryptographically secure random source.
///
/// The two methods must use independent streams: an attacker who sees public values (IVs, SPIs, nonces,
/// cookies) must learn nothing about keys.
pub trait Rng {
    /// Fills `out` with unpredictable bytes that become visible on the wire.
    fn public(&mut self, out: &mut [u8]);
    /// Fills `out` with unpredictable bytes that stay secret.
    fn secret(&mut self, out: &mut [u8]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn debug_prints_no_key_byte() {
        assert_eq!(format!("{:?}", SecretBytes::new(&[0xAB; 16])), "SecretBytes(16 bytes)");
    }

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
    fn a_wrong_length_is_reported() {
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
