//! AES-CBC and AES-CTR for many packets in one call.

use super::BURST;
use super::layout::{Job, MOST_BYTES, STATUS_COMPLETED};
use super::library::Library;
use super::manager;
use super::secret::Secret;
use arrayvec::ArrayVec;
use casemate_crypto::AesBits;
use core::ffi::c_int;

/// A mode of AES without a tag.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Cbc,
    Ctr,
}

impl Mode {
    /// Whether a text of `len` bytes can be encrypted.
    pub(crate) fn takes(self, len: usize) -> bool {
        len <= MOST_BYTES && (self == Self::Ctr || len.is_multiple_of(16))
    }

    /// `IMB_CIPHER_MODE`.
    fn number(self) -> c_int {
        match self {
            Self::Cbc => 1,
            Self::Ctr => 2,
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Direction {
    Encrypt,
    Decrypt,
}

impl Direction {
    /// `IMB_CIPHER_DIRECTION`.
    pub(super) fn number(self) -> c_int {
        match self {
            Self::Encrypt => 1,
            Self::Decrypt => 2,
        }
    }
}

/// 15 round keys of AES, filled up to whole cache lines.
pub(super) type RoundKeys = Secret<256>;

/// An AES key for a mode, expanded for both directions.
pub(crate) struct AesKeys {
    library: &'static Library,
    mode: Mode,
    bits: AesBits,
    encrypt: Box<RoundKeys>,
    decrypt: Box<RoundKeys>,
}

impl AesKeys {
    /// `None` if the key is not `bits` long.
    pub(crate) fn new(library: &'static Library, mode: Mode, bits: AesBits, key: &[u8]) -> Option<Self> {
        if key.len() != bits.bytes() {
            return None;
        }
        let [k128, k192, k256] = library.functions.expand_key;
        let expand = match bits {
            AesBits::B128 => k128,
            AesBits::B192 => k192,
            AesBits::B256 => k256,
        };
        let (mut encrypt, mut decrypt) = (Box::new(Secret([0; 256])), Box::new(Secret([0; 256])));
        // SAFETY: the function reads a key of `bits`, which `key` is long enough for, and writes at most 15 round keys to each.
        unsafe {
            expand(key.as_ptr().cast(), (&raw mut *encrypt).cast(), (&raw mut *decrypt).cast());
        }
        Some(Self { library, mode, bits, encrypt, decrypt })
    }

    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    /// Runs over at most [`BURST`] texts in place, each with its IV, or its first counter block. `false` if the mode does not
    /// take one of them, with nothing changed, or if the library failed.
    pub(crate) fn run<'w>(
        &self,
        direction: Direction,
        work: impl Iterator<Item = (&'w [u8; 16], &'w mut [u8])>,
    ) -> bool {
        let mut jobs = ArrayVec::<Job, BURST>::new();
        for (iv, text) in work.filter(|(_, text)| !text.is_empty()) {
            if !self.mode.takes(text.len()) || jobs.try_push(self.job(iv, text)).is_err() {
                return false;
            }
        }
        if jobs.is_empty() {
            return true;
        }
        let burst = self.library.functions.cipher_burst;
        let (count, key_len) = (jobs.len() as u32, self.bits.bytes() as c_int);
        let done = manager::with(self.library, |head| {
            // SAFETY: the manager is this thread's and in no other call; there are `count` jobs. Each job's text is borrowed
            // mutably for `'w`, and only once, as its IV is; its length is one that the mode takes; the round keys are those
            // of `bits`. The call ends when all are done, so the library keeps no pointer that it would use again.
            Some(unsafe {
                burst(head, jobs.as_mut_ptr(), count, self.mode.number(), direction.number(), key_len)
            })
        });
        done == Some(count) && jobs.iter().all(|job| job.status == STATUS_COMPLETED)
    }

    /// Of the encryption.
    pub(super) fn round_keys(&self) -> &RoundKeys {
        &self.encrypt
    }

    fn job(&self, iv: &[u8; 16], text: &mut [u8]) -> Job {
        let bytes = text.as_mut_ptr();
        Job {
            encrypt_keys: (&raw const *self.encrypt).cast(),
            decrypt_keys: (&raw const *self.decrypt).cast(),
            key_len: self.bits.bytes() as u64,
            source: bytes.cast_const(),
            target: bytes,
            cipher_len: text.len() as u64,
            initial_vector: iv.as_ptr(),
            initial_vector_len: iv.len() as u64,
            ..Job::EMPTY
        }
    }
}
