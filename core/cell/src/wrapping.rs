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
//! An entry with a known text proves to the nodes of a cell that they have the same wrapping key. While the
//! key is changed, nodes have two, and the entry may have a proof of each
//! ([`key_change`](crate::key_change)).

use crate::seal::{EntryCipher, KEY_LEN, SealError};
use alloc::vec::Vec;
use casemate_crypto::{PrfAlg, Providers, Rng, SecretBytes, prf_plus};

/// Length of a wrapping key in bytes.
pub const WRAPPING_KEY_LEN: usize = 32;
const VERSION: u8 = 1;
const LABEL: &[u8] = b"casemate store: wrapping key";
/// The known text.
const PROOF: &[u8] = b"wrapping key of a cell";
/// Version, nonce and tag of an encrypted text.
const OVERHEAD: usize = 1 + 12 + 16;
/// Length of a proof.
const PROOF_LEN: usize = OVERHEAD + PROOF.len();

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

    /// Whether the proof was made with this key.
    fn is_proved_by(&self, entry: &[u8], proof: &[u8]) -> bool {
        self.unwrap_key(entry, proof).is_ok_and(|text| text.expose() == PROOF)
    }
}

/// Which of its wrapping keys a node needs for the data keys in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NeededKeys {
    /// The first one.
    First,
    /// The second one, or both.
    Second,
}

/// The wrapping keys of a node. There is a second one only while the wrapping key is changed.
pub struct WrappingKeys {
    first: WrappingKey,
    second: Option<WrappingKey>,
}

impl WrappingKeys {
    /// `first` encrypts data keys. `second` only decrypts those that the store has already; an owner encrypts
    /// them again with `first`.
    pub const fn new(first: WrappingKey, second: Option<WrappingKey>) -> Self {
        Self { first, second }
    }

    pub(crate) const fn first(&self) -> &WrappingKey {
        &self.first
    }

    pub(crate) const fn second(&self) -> Option<&WrappingKey> {
        self.second.as_ref()
    }

    /// Decrypts the data key of an entry. Returns it and the key that has encrypted it.
    pub(crate) fn unwrap_key(
        &self,
        entry: &[u8],
        wrapped: &[u8],
    ) -> Result<(SecretBytes, NeededKeys), SealError> {
        let with_first = self.first.unwrap_key(entry, wrapped).map(|key| (key, NeededKeys::First));
        with_first.or_else(|error| match &self.second {
            Some(second) => second.unwrap_key(entry, wrapped).map(|key| (key, NeededKeys::Second)),
            None => Err(error),
        })
    }

    /// The keys that the proofs of an entry name; `None` if one of them is not a key of this node.
    pub(crate) fn needed(&self, entry: &[u8], proofs: &[u8]) -> Option<NeededKeys> {
        let key_of = |proof: &[u8]| {
            let is_second = || self.second.as_ref().is_some_and(|key| key.is_proved_by(entry, proof));
            match self.first.is_proved_by(entry, proof) {
                true => Some(NeededKeys::First),
                false => is_second().then_some(NeededKeys::Second),
            }
        };
        let keys: Option<Vec<NeededKeys>> = proofs.chunks(PROOF_LEN).map(key_of).collect();
        let keys = keys.filter(|keys| !keys.is_empty())?;
        let is_first = keys.iter().all(|key| *key == NeededKeys::First);
        Some(if is_first { NeededKeys::First } else { NeededKeys::Second })
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
        assert_eq!(proof.len(), PROOF_LEN);
        assert!(wrapping(1).is_proved_by(b"entry", &proof));
        assert!(!wrapping(2).is_proved_by(b"entry", &proof) && !wrapping(1).is_proved_by(b"entry", b""));
        let other = wrapping(1).wrap_key(b"entry", &SecretBytes::new(b"another text"), &mut rng).unwrap();
        assert!(!wrapping(1).is_proved_by(b"entry", &other));
    }

    #[test]
    fn a_node_has_all_keys_of_the_proofs_or_is_refused() {
        let mut rng = TestRng::new(1);
        let [one, two] = [1, 2].map(|key| wrapping(key).proof(b"entry", &mut rng).unwrap());
        let (both, reverse) = ([&*one, &two].concat(), [&*two, &one].concat());
        let node = |first, second: Option<u8>| WrappingKeys::new(wrapping(first), second.map(wrapping));
        use NeededKeys::{First, Second};
        for (keys, proofs, expected) in [
            (node(1, None), &one, Some(First)),
            (node(1, None), &two, None),
            (node(1, None), &both, None),
            (node(1, None), &reverse, None),
            (node(1, Some(2)), &one, Some(First)),
            (node(1, Some(2)), &two, Some(Second)),
            (node(1, Some(2)), &both, Some(Second)),
            (node(2, Some(1)), &both, Some(Second)),
            (node(1, Some(3)), &both, None),
            (node(1, Some(2)), &Vec::new(), None),
            (node(1, Some(2)), &both[1..].to_vec(), None),
            (node(1, Some(2)), &[&*both, b"x"].concat(), None),
        ] {
            assert_eq!(keys.needed(b"entry", proofs), expected);
            assert_eq!(keys.needed(b"other", proofs), None);
        }
    }

    #[test]
    fn a_data_key_of_either_key_is_decrypted() {
        let (key, mut rng) = (SecretBytes::new(&[9; KEY_LEN]), TestRng::new(1));
        let [one, two, three] = [1, 2, 3].map(|with| wrapping(with).wrap_key(b"e", &key, &mut rng).unwrap());
        let keys = WrappingKeys::new(wrapping(1), Some(wrapping(2)));
        assert_eq!(keys.unwrap_key(b"e", &one), Ok((key.clone(), NeededKeys::First)));
        assert_eq!(keys.unwrap_key(b"e", &two), Ok((key, NeededKeys::Second)));
        assert!(keys.unwrap_key(b"e", &three).is_err());
        assert!(WrappingKeys::new(wrapping(1), None).unwrap_key(b"e", &two).is_err());
    }
}
