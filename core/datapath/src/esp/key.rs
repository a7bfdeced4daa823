//! The keyed suite of one ESP SA: the provider's key, the salt and the sizes that every packet needs.

use super::EspSizes;
use alloc::boxed::Box;
use casemate_crypto::{AeadKey, CipherAlg, EspSuite, EtmKey, KeyError, Providers, SecretBytes};

/// Key and sizes of an ESP SA. Immutable; shared by all cores.
pub(crate) struct EspKey {
    pub(crate) suite: EspSuite,
    pub(crate) sizes: EspSizes,
    pub(crate) engine: Engine,
}

/// The provider's half.
pub(crate) enum Engine {
    /// A combined-mode cipher.
    Combined { key: Box<dyn AeadKey>, salt: Salt },
    /// A cipher and a MAC.
    Separate { key: Box<dyn EtmKey>, iv: IvUse },
}

/// The implicit part of a nonce, at most 4 bytes.
#[derive(Clone, Copy)]
pub(crate) struct Salt {
    bytes: [u8; 4],
    len: u8,
}

/// Who uses the IV in the packet, and how it is made.
#[derive(Clone, Copy)]
pub(crate) enum IvUse {
    /// NULL encryption with a MAC that has no nonce: there is no IV.
    None,
    /// CBC: unpredictable (RFC 3602 section 3), as long as the block.
    Random,
    /// AES-CTR: the counter block is nonce, IV and a 32-bit counter that starts at one (RFC 3686 section 4).
    Ctr(Salt),
    /// AES-GMAC: the nonce is salt and IV (RFC 4543 section 3.1).
    Gmac(Salt),
}

impl Salt {
    fn new(bytes: &[u8]) -> Self {
        let mut salt = Self { bytes: [0; 4], len: bytes.len().min(4) as u8 };
        for (to, from) in salt.bytes.iter_mut().zip(bytes) {
            *to = *from;
        }
        salt
    }

    /// Salt and IV, left-aligned in a 12-byte nonce.
    #[inline]
    pub(crate) fn nonce(&self, iv: [u8; 8]) -> [u8; 12] {
        // Put together in a register: libraries read the nonce as two words, and a word that was written in parts is slow.
        let shift = if self.len == 3 { 24 } else { 32 };
        let nonce = u128::from(u64::from_le_bytes(iv)) << shift | u128::from(u32::from_le_bytes(self.bytes));
        nonce.to_le_bytes().first_chunk().copied().unwrap_or_default()
    }

    /// AES-CTR's first counter block.
    #[inline]
    pub(crate) fn counter_block(&self, iv: [u8; 8]) -> [u8; 16] {
        let [a, b, c, d, s, t, u, v, w, x, y, z] = self.nonce(iv);
        [a, b, c, d, s, t, u, v, w, x, y, z, 0, 0, 0, 1]
    }
}

impl EspKey {
    /// Sets the suite up with keys laid out as key, then salt.
    pub(crate) fn new(
        suite: EspSuite,
        encr: &SecretBytes,
        integ: &SecretBytes,
        providers: &Providers<'_>,
    ) -> Result<Self, KeyError> {
        let engine = match suite {
            EspSuite::Combined(alg) => {
                let (key, salt) = split(encr, alg.key_len(), alg.salt_len())?;
                Engine::Combined { key: providers.aead(alg, key)?, salt }
            }
            EspSuite::Separate(cipher, mac) => {
                let (cipher_key, nonce) = split(encr, cipher.key_len(), cipher.salt_len())?;
                let (mac_key, salt) = split(integ, mac.key_len(), mac.salt_len())?;
                let iv = match (cipher, mac.takes_nonce()) {
                    (CipherAlg::Null, true) => IvUse::Gmac(salt),
                    // RFC 4543 defines GMAC in ESP with NULL encryption only.
                    (_, true) => return Err(KeyError::Unsupported),
                    (CipherAlg::Null, false) => IvUse::None,
                    (CipherAlg::AesCtr(_), false) => IvUse::Ctr(nonce),
                    (_, false) => IvUse::Random,
                };
                Engine::Separate { key: providers.etm(cipher, cipher_key, mac, mac_key)?, iv }
            }
        };
        Ok(Self { suite, sizes: EspSizes::of(suite), engine })
    }
}

/// Key and salt out of one run of key material.
pub(crate) fn split(
    material: &SecretBytes,
    key_len: usize,
    salt_len: usize,
) -> Result<(&[u8], Salt), KeyError> {
    let given = material.len();
    let wrong = KeyError::KeyLength { expected: key_len.saturating_add(salt_len), given };
    let (key, salt) = material.expose().split_at_checked(key_len).ok_or(wrong)?;
    if salt.len() == salt_len { Ok((key, Salt::new(salt))) } else { Err(wrong) }
}
