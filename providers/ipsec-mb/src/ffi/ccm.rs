//! AES-CCM for many packets in one call.

use super::BURST;
use super::burst::{AesKeys, Direction, Mode};
use super::layout::{CcmFields, HashFields, Job, MOST_BYTES};
use super::library::Library;
use super::queue::{self, Jobs};
use casemate_crypto::AesBits;
use core::ffi::c_int;

/// `IMB_CIPHER_CCM`.
const CIPHER: c_int = 9;
/// `IMB_AUTH_AES_CCM`.
const HASH: c_int = 11;
/// `IMB_ORDER_CIPHER_HASH` and `IMB_ORDER_HASH_CIPHER`: CCM signs the plaintext.
const DECRYPT_FIRST: c_int = 1;
const SIGN_FIRST: c_int = 2;

/// Longest nonce that a job of this crate has, in bytes, and that of RFC 4309.
const NONCE: usize = 12;
const NONCE_USED: u64 = 11;

/// Most bytes of additional data that the library takes. ESP has 12 at most.
const MOST_AAD: usize = 46;

/// Longest tag in bytes.
const TAG: usize = 16;

/// What is to be encrypted or decrypted in place.
pub(crate) struct CcmWork<'w> {
    pub(crate) nonce: &'w [u8; NONCE],
    pub(crate) aad: &'w [u8],
    pub(crate) text: &'w mut [u8],
}

/// An AES-CCM key with tags of one length.
pub(crate) struct CcmKey {
    library: &'static Library,
    keys: AesKeys,
    bits: AesBits,
    tag_len: usize,
}

impl CcmKey {
    /// Whether the library has AES-CCM with keys of this size.
    pub(crate) fn has(bits: AesBits) -> bool {
        bits != AesBits::B192
    }

    /// For tags of `tag_len` bytes: 8, 12 or 16. `None` if the key is not `bits` long.
    pub(crate) fn new(library: &'static Library, bits: AesBits, key: &[u8], tag_len: usize) -> Option<Self> {
        let tag_len = tag_len.min(TAG);
        // CCM encrypts by counters and signs by a chain: both need the round keys of encryption alone.
        Some(Self { library, keys: AesKeys::new(library, Mode::Ctr, bits, key)?, bits, tag_len })
    }

    /// Whether the library takes the lengths.
    pub(crate) fn takes(aad: &[u8], text: &[u8]) -> bool {
        aad.len() <= MOST_AAD && text.len() <= MOST_BYTES
    }

    /// Runs over at most [`BURST`] texts; the tags that they should have stand at the front of `tags` in their order. `false`
    /// if one was not to be taken, there were too many, or the library failed: the texts are then not to be used.
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
        // SAFETY: each job's text is borrowed mutably for `'w`, and only once, as its nonce and additional data are; its tag
        // is its own and as long as the longest; its lengths are those that the library takes; the round keys are of `bits`.
        unsafe { queue::run(self.library, &mut jobs) }
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
