//! The wrapping key of a store: the key of the configuration, which encrypts the data keys
//! ([`data_keys`](crate::data_keys)).
//!
//! ```text
//!  | version (1) | nonce (12) | encrypted data key (32) | tag (16) |
//! ```
//! The key of the configuration has two uses, which do not share a key: AES-256-GCM here has
//! `prf+(key, label)` with HMAC-SHA2-256 (RFC 7296 section 2.13), and forwarded packets have keys with
//! another label ([`forward`](crate::forward)).
//!
//! An entry with a known text proves to the nodes of a cell that they have the same wrapping key.

use crate::seal::{EntryCipher, KEY_LEN, SealError};
use alloc::vec::Vec;
use casemate_crypto::{PrfAlg, Providers, Rng, SecretBytes, prf_plus};

/// Length of a wrapping key in bytes.
pub const WRAPPING_KEY_LEN: usize = 32;
const VERSION: u8 = 1;
const LABEL: &[u8] = b"casemate store: wrapping key";
/// The known text.
const PROOF: &[u8] = b"wrapping key of a cell";

/// Encrypts and decrypts the data keys of a store.
pub struct WrappingKey(EntryCipher);

impl WrappingKey {
    /// Sets up a key of [`WRAPPING_KEY_LEN`] bytes.
    ///
    /// # Errors
    ///
    /// No provider supports the algorithms.
    pub fn new(key: &SecretBytes, providers: &Providers<'_>) -> Result<Self, SealError> {
        let prf = providers.prf(PrfAlg::HmacSha256, key.expose()).map_err(|_| SealError::Provider)?;
        let key = prf_plus(&*prf, &[LABEL], KEY_LEN).map_err(|_| SealError::Provider)?;
        EntryCipher::new(&key, providers).map(Self)
    }

    /// Encrypts a data key for an entry of the store.
    pub(crate) fn wrap_key(
        &self,
        entry: &[u8],
        data_key: &SecretBytes,
        rng: &mut dyn Rng,
    ) -> Result<Vec<u8>, SealError> {
        self.0.seal(entry, &[VERSION], data_key, rng)
    }

    /// Decrypts the data key of an entry.
    pub(crate) fn unwrap_key(&self, entry: &[u8], wrapped: &[u8]) -> Result<SecretBytes, SealError> {
        if wrapped.first() != Some(&VERSION) {
            return Err(SealError::NotAuthentic);
        }
        self.0.open::<1>(entry, wrapped).map(|text| SecretBytes::new(&text))
    }

    /// The value of the entry that proves the key.
    pub(crate) fn proof(&self, entry: &[u8], rng: &mut dyn Rng) -> Result<Vec<u8>, SealError> {
        self.wrap_key(entry, &SecretBytes::new(PROOF), rng)
    }

    /// Whether the entry was made with this key.
    pub(crate) fn is_proved_by(&self, entry: &[u8], value: &[u8]) -> bool {
        self.unwrap_key(entry, value).is_ok_and(|text| text.expose() == PROOF)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_rustcrypto::RustCrypto;
    use casemate_test_support::TestRng;

    const PROVIDERS: Providers<'static> = Providers(&[&RustCrypto]);

    fn wrapping(key: u8) -> WrappingKey {
        WrappingKey::new(&SecretBytes::new(&[key; WRAPPING_KEY_LEN]), &PROVIDERS).unwrap()
    }

    #[test]
    fn a_data_key_is_bound_to_wrapping_key_and_entry() {
        let (key, mut rng) = (SecretBytes::new(&[9; KEY_LEN]), TestRng::new(1));
        let wrapped = wrapping(1).wrap_key(b"entry", &key, &mut rng).unwrap();
        assert_eq!(wrapped.len(), 1 + 12 + KEY_LEN + 16);
        assert_eq!(wrapping(1).unwrap_key(b"entry", &wrapped), Ok(key));
        assert!(wrapping(2).unwrap_key(b"entry", &wrapped).is_err());
        assert!(wrapping(1).unwrap_key(b"other", &wrapped).is_err());
        assert!(wrapping(1).unwrap_key(b"entry", &[]).is_err());
        let later_version = [&[VERSION + 1], &wrapped[1..]].concat();
        assert!(wrapping(1).unwrap_key(b"entry", &later_version).is_err());
    }

    #[test]
    fn the_key_of_the_configuration_does_not_encrypt_itself() {
        let key = SecretBytes::new(&[1; WRAPPING_KEY_LEN]);
        let wrapped = wrapping(1).wrap_key(b"entry", &key, &mut TestRng::new(1)).unwrap();
        assert!(EntryCipher::new(&key, &PROVIDERS).unwrap().open::<1>(b"entry", &wrapped).is_err());
    }

    #[test]
    fn the_proof_is_that_of_one_key() {
        let mut rng = TestRng::new(1);
        let proof = wrapping(1).proof(b"entry", &mut rng).unwrap();
        assert!(wrapping(1).is_proved_by(b"entry", &proof));
        assert!(!wrapping(2).is_proved_by(b"entry", &proof) && !wrapping(1).is_proved_by(b"entry", b""));
        let other = wrapping(1).wrap_key(b"entry", &SecretBytes::new(b"another text"), &mut rng).unwrap();
        assert!(!wrapping(1).is_proved_by(b"entry", &other));
    }
}
