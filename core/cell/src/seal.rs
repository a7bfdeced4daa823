//! Encryption of records.
//!
//! ```text
//!  | version (1) | takeover count (8) | nonce (12) | encrypted record | tag (16) |
//! ```
//! The algorithm is AES-256-GCM with random nonces: a data key must seal fewer than 2^32 records (NIST SP
//! 800-38D section 8.3). The name of the entry, the version and the takeover count are associated data, so
//! that a record cannot be moved to another entry, or to another owner.

use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate_crypto::{AeadAlg, AeadJob, AeadKey, AesBits, JobStatus, Providers, Rng, SecretBytes};
use core::fmt;
use zeroize::Zeroizing;

/// Length of a data key in bytes.
pub const DATA_KEY_LEN: usize = 32;
const TAG_LEN: usize = 16;
const NONCE_LEN: usize = 12;
const ALGORITHM: AeadAlg = AeadAlg::AesGcm { bits: AesBits::B256, icv: TAG_LEN as u8 };
const VERSION: u8 = 1;
/// Version and takeover count.
const HEADER_LEN: usize = 9;

/// Encrypts and decrypts records with one data key.
pub struct Sealer(Box<dyn AeadKey>);

/// Why a record cannot be decrypted or encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealError {
    /// It was encrypted by another version, with another key, for another entry, or has been changed.
    NotAuthentic,
    /// No provider supports AES-256-GCM.
    Provider,
}

impl fmt::Display for SealError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAuthentic => "encrypted with another key, or damaged",
            Self::Provider => "no provider supports AES-256-GCM",
        })
    }
}

impl core::error::Error for SealError {}

/// A decrypted record.
pub(crate) struct Opened {
    /// Takeover count of the owner that has written it.
    pub(crate) owner: u64,
    pub(crate) text: Zeroizing<Vec<u8>>,
}

impl Sealer {
    /// Sets up a data key of [`DATA_KEY_LEN`] bytes.
    pub fn new(key: &SecretBytes, providers: &Providers<'_>) -> Result<Self, SealError> {
        providers.aead(ALGORITHM, key.expose()).map(Self).map_err(|_| SealError::Provider)
    }

    /// Encrypts a record for an entry of the store.
    pub(crate) fn seal(
        &self,
        entry: &[u8],
        owner: u64,
        record: &SecretBytes,
        rng: &mut dyn Rng,
    ) -> Result<Vec<u8>, SealError> {
        let header = header(owner);
        let mut nonce = [0; NONCE_LEN];
        rng.public(&mut nonce);
        let (mut text, mut tag) = (record.expose().to_vec(), [0; TAG_LEN]);
        let aad = [&header[..], entry].concat();
        let is_done = run(nonce, &aad, &mut text, &mut tag, |jobs| self.0.seal(jobs));
        if !is_done {
            text.fill(0);
            return Err(SealError::Provider);
        }
        Ok([&header[..], &nonce, &text, &tag].concat())
    }

    /// Decrypts the record of an entry.
    pub(crate) fn open(&self, entry: &[u8], sealed: &[u8]) -> Result<Opened, SealError> {
        let parts = || {
            let (header, rest) = sealed.split_first_chunk::<HEADER_LEN>()?;
            let (nonce, rest) = rest.split_first_chunk::<NONCE_LEN>()?;
            let (text, tag) = rest.split_last_chunk::<TAG_LEN>()?;
            let (version, owner) = header.split_first()?;
            let owner = owner.as_array::<8>().filter(|_| *version == VERSION)?;
            Some((header, u64::from_be_bytes(*owner), *nonce, text, *tag))
        };
        let (header, owner, nonce, text, mut tag) = parts().ok_or(SealError::NotAuthentic)?;
        let mut text = Zeroizing::new(text.to_vec());
        let aad = [&header[..], entry].concat();
        match run(nonce, &aad, &mut text, &mut tag, |jobs| self.0.open(jobs)) {
            true => Ok(Opened { owner, text }),
            false => Err(SealError::NotAuthentic),
        }
    }
}

fn header(owner: u64) -> [u8; HEADER_LEN] {
    let mut header = [VERSION; HEADER_LEN];
    header.iter_mut().skip(1).zip(owner.to_be_bytes()).for_each(|(to, from)| *to = from);
    header
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
    use casemate_test_support::TestRng;

    fn sealer(key: u8) -> Sealer {
        let list: [&dyn casemate_crypto::Provider; 1] = [&casemate_rustcrypto::RustCrypto];
        Sealer::new(&SecretBytes::new(&[key; DATA_KEY_LEN]), &Providers(&list)).unwrap()
    }

    #[test]
    fn a_record_is_bound_to_key_entry_and_owner() {
        let record = SecretBytes::new(b"a record");
        let mut rng = TestRng::new(1);
        let sealed = sealer(1).seal(b"entry", 7, &record, &mut rng).unwrap();
        let opened = sealer(1).open(b"entry", &sealed).unwrap();
        assert_eq!((opened.owner, &**opened.text), (7, record.expose()));
        assert!(!sealed.windows(8).any(|part| part == record.expose()));
        assert!(sealer(2).open(b"entry", &sealed).is_err() && sealer(1).open(b"other", &sealed).is_err());
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(sealer(1).open(b"entry", &changed).is_err(), "byte {at}");
            assert!(sealer(1).open(b"entry", &sealed[..at]).is_err(), "{at} bytes");
        }
        let again = sealer(1).seal(b"entry", 7, &record, &mut rng).unwrap();
        assert_ne!(again[9..21], sealed[9..21], "the nonce");
    }
}
