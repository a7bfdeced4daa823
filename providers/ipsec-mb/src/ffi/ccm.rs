//! AES-CCM for several packets per call.

use super::BURST;
use super::burst::{AesKeys, Direction, Mode};
use super::layout::{CcmFields, HashFields, Job, MAX_JOB_LEN};
use super::library::Library;
use super::manager::{self, Jobs};
use casemate_crypto::AesBits;
use core::ffi::c_int;

/// `IMB_CIPHER_CCM`.
const CIPHER: c_int = 9;
/// `IMB_AUTH_AES_CCM`.
const HASH: c_int = 11;
/// `IMB_ORDER_CIPHER_HASH` and `IMB_ORDER_HASH_CIPHER`: CCM signs the plaintext.
const DECRYPT_FIRST: c_int = 1;
const SIGN_FIRST: c_int = 2;

/// Length of the nonce field of a job, in bytes, and of the nonce of RFC 4309.
const NONCE: usize = 12;
const NONCE_USED: u64 = 11;

/// Maximum length of additional data in the library, in bytes. ESP needs at most 12.
const MAX_AAD: usize = 46;

/// Maximum tag length, in bytes.
const TAG: usize = 16;

/// A text to encrypt or decrypt in place.
pub(crate) struct CcmWork<'w> {
    pub(crate) nonce: &'w [u8; NONCE],
    pub(crate) aad: &'w [u8],
    pub(crate) text: &'w mut [u8],
}

/// An AES-CCM key with a fixed tag length.
pub(crate) struct CcmKey {
    library: &'static Library,
    keys: AesKeys,
    bits: AesBits,
    tag_len: usize,
}

impl CcmKey {
    /// Whether the library supports AES-CCM with this key size.
    pub(crate) fn has(bits: AesBits) -> bool {
        bits != AesBits::B192
    }

    /// Sets up a key for tags of `tag_len` bytes: 8, 12 or 16. Returns `None` if the key does not have
    /// `bits`.
    pub(crate) fn new(library: &'static Library, bits: AesBits, key: &[u8], tag_len: usize) -> Option<Self> {
        let tag_len = tag_len.min(TAG);
        // CCM encrypts in CTR mode and signs with CBC-MAC; both only need the encryption round keys.
        Some(Self { library, keys: AesKeys::new(library, Mode::Ctr, bits, key)?, bits, tag_len })
    }

    /// Whether the library accepts these lengths.
    pub(crate) fn takes(aad: &[u8], text: &[u8]) -> bool {
        aad.len() <= MAX_AAD && text.len() <= MAX_JOB_LEN
    }

    /// Encrypts or decrypts at most [`BURST`] texts. Writes the computed tags to the start of `tags` in
    /// order. Returns `false` if a text is not acceptable, if there are too many, or if the library fails;
    /// the texts are then undefined.
    pub(crate) fn run<'w>(
        &self,
        direction: Direction,
        work: impl Iterator<Item = CcmWork<'w>>,
        tags: &mut [[u8; TAG]; BURST],
    ) -> bool {
        let mut jobs = Jobs::new();
        let mut free = tags.iter_mut();
        for work in work {
            let Some(tag) = free.next() else { return false };
            if !Self::takes(work.aad, work.text) || jobs.try_push(self.job(direction, work, tag)).is_err() {
                return false;
            }
        }
        // SAFETY: the text of each job is borrowed mutably for `'w`, only once, as are its nonce and
        // additional data; each job has its own tag buffer of maximum length; the library accepts its
        // lengths; the round keys belong to `bits`.
        unsafe { manager::run_jobs(self.library, &mut jobs) }
    }

    fn job(&self, direction: Direction, work: CcmWork<'_>, tag: &mut [u8; TAG]) -> Job {
        let round_keys = (&raw const *self.keys.round_keys()).cast();
        let (text_len, text) = (work.text.len() as u64, work.text.as_mut_ptr());
        Job {
            encrypt_keys: round_keys,
            decrypt_keys: round_keys,
            key_len: self.bits.bytes() as u64,
            source: text.cast_const(),
            target: text,
            cipher_len: text_len,
            hash_len: text_len,
            initial_vector: work.nonce.as_ptr(),
            initial_vector_len: NONCE_USED,
            tag: tag.as_mut_ptr(),
            tag_len: self.tag_len as u64,
            hash_fields: HashFields {
                ccm: CcmFields { aad: work.aad.as_ptr(), aad_len: work.aad.len() as u64 },
            },
            cipher_mode: CIPHER,
            direction: direction.number(),
            hash: HASH,
            chain_order: match direction {
                Direction::Encrypt => SIGN_FIRST,
                Direction::Decrypt => DECRYPT_FIRST,
            },
            ..Job::EMPTY
        }
    }
}
