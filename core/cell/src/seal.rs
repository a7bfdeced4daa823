//! Encryption of entries of the store.
//!
//! ```text
//!  | header | nonce (12) | encrypted text | tag (16) |
//! ```
//! The algorithm is AES-256-GCM with random nonces: one key must encrypt fewer than 2^32 texts (NIST SP
//! 800-38D section 8.3). The header and the name of the entry are associated data, so that a value cannot be
//! moved to another entry.

use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate_crypto::{AeadAlg, AeadJob, AeadKey, AesBits, JobStatus, Providers, Rng, SecretBytes};
use core::fmt;
use zeroize::Zeroizing;

/// Length of a key in bytes.
pub(crate) const KEY_LEN: usize = 32;
const TAG_LEN: usize = 16;
const NONCE_LEN: usize = 12;
const ALGORITHM: AeadAlg = AeadAlg::AesGcm { bits: AesBits::B256, icv: TAG_LEN as u8 };

/// Encrypts and decrypts entries with one key.
pub(crate) struct EntryCipher(Box<dyn AeadKey>);

/// Why an entry cannot be decrypted or encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealError {
    /// It was encrypted by another version, with another key, for another entry, or has been changed.
    NotAuthentic,
    /// No provider supports the algorithms: AES-256-GCM and HMAC-SHA2-256.
    Provider,
}

impl fmt::Display for SealError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAuthentic => "encrypted with another key, or damaged",
            Self::Provider => "no provider supports AES-256-GCM and HMAC-SHA2-256",
        })
    }
}

impl core::error::Error for SealError {}

impl EntryCipher {
    /// Sets up a key of [`KEY_LEN`] bytes.
    pub(crate) fn new(key: &SecretBytes, providers: &Providers<'_>) -> Result<Self, SealError> {
        providers.aead(ALGORITHM, key.expose()).map(Self).map_err(|_| SealError::Provider)
    }

    /// Encrypts a text for an entry of the store.
    pub(crate) fn seal(
        &self,
        entry: &[u8],
        header: &[u8],
        text: &SecretBytes,
        rng: &mut dyn Rng,
    ) -> Result<Vec<u8>, SealError> {
        let mut nonce = [0; NONCE_LEN];
        rng.public(&mut nonce);
        let (mut text, mut tag) = (text.expose().to_vec(), [0; TAG_LEN]);
        let aad = [header, entry].concat();
        let is_done = run(nonce, &aad, &mut text, &mut tag, |jobs| self.0.seal(jobs));
        if !is_done {
            text.fill(0);
            return Err(SealError::Provider);
        }
        Ok([header, &nonce, &text, &tag].concat())
    }

    /// Decrypts the value of an entry whose header has `N` bytes. The caller checks the header before.
    pub(crate) fn open<const N: usize>(
        &self,
        entry: &[u8],
        sealed: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, SealError> {
        let parts = || {
            let (header, rest) = sealed.split_first_chunk::<N>()?;
            let (nonce, rest) = rest.split_first_chunk::<NONCE_LEN>()?;
            let (text, tag) = rest.split_last_chunk::<TAG_LEN>()?;
            Some((header, *nonce, text, *tag))
        };
        let (header, nonce, text, mut tag) = parts().ok_or(SealError::NotAuthentic)?;
        let mut text = Zeroizing::new(text.to_vec());
        let aad = [&header[..], entry].concat();
        match run(nonce, &aad, &mut text, &mut tag, |jobs| self.0.open(jobs)) {
            true => Ok(text),
            false => Err(SealError::NotAuthentic),
        }
    }
}

/// Runs one job. Returns whether it has succeeded.
fn run(
    nonce: [u8; NONCE_LEN],
    aad: &[u8],
    text: &mut [u8],
    tag: &mut [u8; TAG_LEN],
    act: impl FnOnce(&mut [AeadJob<'_>]),
) -> bool {
    let mut jobs = [AeadJob { nonce, aad, text, tag, status: JobStatus::Pending }];
    act(&mut jobs);
    jobs.iter().all(|job| job.status == JobStatus::Done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_rustcrypto::RustCrypto;
    use casemate_test_support::TestRng;

    fn cipher(key: u8) -> EntryCipher {
        EntryCipher::new(&SecretBytes::new(&[key; KEY_LEN]), &Providers(&[&RustCrypto])).unwrap()
    }

    #[test]
    fn a_text_is_bound_to_key_entry_and_header() {
        let (text, header) = (SecretBytes::new(b"a secret"), [7, 8, 9]);
        let mut rng = TestRng::new(1);
        let sealed = cipher(1).seal(b"entry", &header, &text, &mut rng).unwrap();
        assert_eq!(sealed[..3], header);
        assert!(!sealed.windows(8).any(|part| part == text.expose()));
        let open = |key, entry: &[u8], sealed: &[u8]| cipher(key).open::<3>(entry, sealed);
        assert_eq!(&**open(1, b"entry", &sealed).unwrap(), text.expose());
        assert!(open(2, b"entry", &sealed).is_err() && open(1, b"other", &sealed).is_err());
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(open(1, b"entry", &changed).is_err(), "byte {at}");
            assert!(open(1, b"entry", &sealed[..at]).is_err(), "{at} bytes");
        }
        let again = cipher(1).seal(b"entry", &header, &text, &mut rng).unwrap();
        assert_ne!(again[3..15], sealed[3..15], "the nonce");
    }
}
